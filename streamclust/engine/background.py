"""Background refits: started on a copy of the tree at one event count, published at a later one."""

from __future__ import annotations

import os
from threading import Thread
from typing import Any
from weakref import WeakSet

from streamclust.engine import refit as search
from streamclust.engine.refit_input import Found, RefitInput
from streamclust.utils.state import State

FORK_SECONDS = 30.0
"""Seconds that a fork waits for each running refit: a child would inherit the locks that its thread holds."""


class RefitError(RuntimeError):
    """A refit failed before it was saved; the message is `reason_of` what it raised then."""


def reason_of(error: Exception) -> str:
    """Why a refit failed, the same before and after it was saved."""
    return str(error) if isinstance(error, RefitError) else f"{type(error).__name__}: {error}"


class Refit:
    """A refit on its way. What it does depends on event counts alone, not on how long it takes.

    It may be pickled, copied or saved on its way: that waits for it. So does a fork; a child process that was forked
    all the same, without the thread, does the work itself.
    """

    def __init__(self, due: int, found: Found | None = None, error: Exception | None = None) -> None:
        self.due = due
        self._found = found
        self._error = error
        self._work: RefitInput | None = None
        self._thread: Thread | None = None

    @classmethod
    def started(cls, work: RefitInput, due: int, background: bool) -> Refit:
        """Begin, in a thread of its own if `background`."""
        refit = cls(due)
        refit._work = work
        if background:
            refit._thread = Thread(target=refit._run, name="streamclust-refit", daemon=True)
            RUNNING.add(refit)
            refit._thread.start()
        else:
            refit._run()
        return refit

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._found = search.find(self._work)
        except Exception as error:  # handed to whoever asks for the result
            self._error = error
        self._work = None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the thread, if there is one, has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive():
                RUNNING.discard(self)

    def result(self) -> Found:
        """Result of the refit; waits for it. Raises the exception that the search raised."""
        self.wait()
        if self._found is None and self._error is None:  # forked: the thread stayed behind in the parent
            self._run()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def outcome(self) -> Found | str:
        """Result of the refit or, if it failed, the reason; waits for it."""
        try:
            return self.result()
        except Exception as error:
            return reason_of(error)

    def to_state(self) -> State:
        """State of the refit with its result, or why it failed; waits for it."""
        found = self.outcome()
        if isinstance(found, str):
            return State({}, {"due": self.due, "failed": found})
        arrays, values = found.to_state()
        return State(arrays, {"due": self.due} | values)

    @classmethod
    def from_state(cls, state: State) -> Refit:
        """A refit that had ended, and is to be published at a later event."""
        due, failed = state.values["due"], state.values.get("failed")
        if failed is not None:
            return cls(due, error=RefitError(failed))
        return cls(due, Found.from_state(state))

    def __getstate__(self) -> dict[str, Any]:
        found = self.outcome()
        failed = isinstance(found, str)
        return {
            "due": self.due,
            "_found": None if failed else found,
            "_error": RefitError(found) if failed else None,
            "_work": None,
            "_thread": None,
        }


RUNNING: WeakSet[Refit] = WeakSet()
"""Refits in threads."""


def wait_before_fork() -> None:
    """Let running refits end."""
    for refit in list(RUNNING):
        refit.wait(FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_before_fork)
