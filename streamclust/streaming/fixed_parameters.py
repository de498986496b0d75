"""FixedParameters: a model keeps the parameters it was made with, and is saved and loaded with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from streamclust.checkpoint import CheckpointError, State, read, write
from streamclust.engine.settings import check_parameters
from streamclust.lineage import Change, Lineage
from streamclust.streaming.thread_safety import ThreadSafe
from streamclust.utils.values import shown

POSITIONAL = "_POSITIONAL_ARGS"
"""River's name for the arguments that a constructor takes by `*args`."""


class FixedParameters(ThreadSafe):
    """A model whose learning was set up by its constructor."""

    _parameters: ClassVar[tuple[str, ...]]
    """Names of the constructor's parameters; a subclass may take others."""
    _live_parameters: ClassVar[tuple[str, ...]] = ("detail", "n_clusters", "outliers")
    """Parameters that may be changed at any time: they say what is shown or answered, not what is learnt."""

    @property
    def lineage(self) -> Lineage:
        """The lives of what was found; it calls `on_event`."""
        raise NotImplementedError

    def to_state(self, positions: Mapping[str, Any] | None = None) -> State:
        """Everything as arrays and JSON."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State, on_event: Callable[[Change], object] | None = None) -> Self:
        """The model that `to_state` was called on."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], positions: Mapping[str, Any] | None = None) -> None:
        """Write the whole state to one file, atomically; `positions` (offsets of the source) are stored with it."""
        write(path, self.to_state(positions))

    @classmethod
    def load(cls, path: str | os.PathLike[str], on_event: Callable[[Change], object] | None = None) -> Self:
        """Continue from a file, bit for bit; CheckpointError says what is wrong with one that cannot be used."""
        return cls.from_state(read(path), on_event)

    def _get_params(self) -> dict[str, Any]:
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        if name in self._parameters and hasattr(self, "_lock"):
            if name == "on_event":
                check_parameters({name: value})
                self.lineage.on_event = value  # type: ignore[assignment]  # it was just checked
            elif name in self._live_parameters:
                check_parameters({name: value})
                self._show(name, value)
                return
            elif value != getattr(self, name):
                raise AttributeError(
                    f"{name} cannot be changed once a {type(self).__name__} is made: what it has learnt rests on "
                    f"{name}={shown(getattr(self, name))}. Make another, by clone({{{name!r}: {shown(value)}}}), say, "
                    "and let it learn"
                )
        super().__setattr__(name, value)

    def _show(self, name: str, value: object) -> None:
        """Take a parameter that says what to show."""
        raise NotImplementedError

    def _saved_parameters(self) -> dict[str, Any]:
        """All parameters but `on_event`, those of a subclass too; TypeError for one that JSON cannot hold."""
        found = {name: getattr(self, name) for name in self._parameters} | self._get_params()
        found.pop("on_event", None)
        for name, value in found.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                raise TypeError(
                    f"parameter {name} of {type(self).__name__} cannot be saved: {shown(value)} is neither a number "
                    "nor text nor a list or mapping of such; save what it is made of, or pickle the model"
                ) from None
        return found

    @classmethod
    def _with_parameters(cls, saved: Mapping[str, Any], on_event: Callable[[Change], object] | None) -> Self:
        """A new model of saved parameters, as far as the constructor takes them."""
        taken = signature(cls).parameters
        any_name = any(one.kind is Parameter.VAR_KEYWORD for one in taken.values())
        foreign = [
            name for name in saved if name not in cls._parameters and name not in taken and name != POSITIONAL
        ]
        if foreign and not any_name:
            raise CheckpointError(
                f"it was saved by a class that takes {', '.join(map(repr, foreign))}, which {cls.__name__} does not: "
                "load it by that class"
            )
        given = {name: value for name, value in saved.items() if name in taken or any_name}
        if isinstance(given.get("n_clusters"), list):  # JSON knows no pairs
            given["n_clusters"] = tuple(given["n_clusters"])
        model = cls(*given.pop(POSITIONAL, ()), **given)
        if on_event is not None:
            model.on_event = on_event
        return model
