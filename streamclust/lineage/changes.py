"""Change: one lifecycle event, that a cluster was born, died, returned, split or merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal["born", "died", "returned", "split", "merged"]


@dataclass(frozen=True)
class Change:
    """Change of the set of ids: `parents` left it, `children` entered it, each id with its weight then.

    A split keeps the parent's id for the child that shares most with it, a merge that of the parent that shares
    most with the child: such an id is among both.

    >>> Change("split", at=20_000, version=7, parents={3: 900.0}, children={3: 500.0, 8: 400.0})
    split 3 -> 3, 8 at event 20000
    >>> Change("returned", at=90_000, version=9, parents={}, children={3: 500.0}, away=45_000)
    returned 3 after 45000 events at event 90000
    >>> Change("merged", 9_000, 8, {1: 50.0, 4: 9.0}, {1: 59.0}, parent_names={4: "night shift"},
    ...     child_names={1: "night shift"})
    merged 1, 4 "night shift" -> 1 "night shift" at event 9000
    """

    kind: Kind
    at: int
    """Number of events learnt before it."""
    version: int
    """Version of the first model that shows it."""
    parents: dict[int, float]
    children: dict[int, float]
    away: int | None = None
    """Number of events for which a cluster that returned was away; None for other kinds."""
    level: int | None = None
    """Number of clusters of the level on show then; None if that was the finest by request."""
    parent_names: dict[int, str] = field(default_factory=dict)
    """Names of parents before, where they had one."""
    child_names: dict[int, str] = field(default_factory=dict)
    """Names of children since, where they have one."""

    def named(self, before: Mapping[int, str], after: Mapping[int, str]) -> Change:
        """The change with the names that its clusters had before and have since."""
        return replace(
            self,
            parent_names={i: before[i] for i in self.parents if i in before},
            child_names={i: after[i] for i in self.children if i in after},
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON; ids are stored in pairs, since keys of JSON objects are text. None is left out."""
        optional: dict[str, Any] = {"away": self.away, "level": self.level}
        for side in ("parent_names", "child_names"):
            optional[side] = [[i, name] for i, name in getattr(self, side).items()] or None
        return {name: value for name, value in optional.items() if value is not None} | {
            "kind": self.kind,
            "at": self.at,
            "version": self.version,
            "parents": [[i, w] for i, w in self.parents.items()],
            "children": [[i, w] for i, w in self.children.items()],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Change:
        """Read what `to_dict` wrote."""
        if state["kind"] not in get_args(Kind):
            raise ValueError(f"no lifecycle event is of kind {state['kind']!r}")
        parents, children = ({int(i): float(w) for i, w in state[side]} for side in ("parents", "children"))
        away = None if state.get("away") is None else int(state["away"])
        level = None if state.get("level") is None else int(state["level"])
        names = [{int(i): str(n) for i, n in state.get(f"{side}_names", ())} for side in ("parent", "child")]
        return cls(
            state["kind"], int(state["at"]), int(state["version"]), parents, children, away, level, *names
        )

    def __repr__(self) -> str:
        before = ", ".join(labelled(i, self.parent_names) for i in self.parents)
        after = ", ".join(labelled(i, self.child_names) for i in self.children)
        arrow = f"{before} -> {after}" if before and after else before or after
        pause = "" if self.away is None else f" after {self.away} events"
        return f"{self.kind} {arrow}{pause} at event {self.at}"


def labelled(cluster: int, names: Mapping[int, str]) -> str:
    """The id of a cluster, with its name in quotes if it has one.

    >>> labelled(3, {3: "night shift"}), labelled(4, {})
    ('3 "night shift"', '4')
    """
    return f'{cluster} "{names[cluster]}"' if cluster in names else str(cluster)
