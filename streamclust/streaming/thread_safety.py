"""ThreadSafe: a model that several threads may use at once.

Whoever changes a model, or reads more of it than it has published, holds its lock, which is re-entrant: `on_event` may
call any method of the model that calls it. Methods that are called seldom (`save`, `snapshot`, `merge`, ...) hold it by

    with self._turn, self._lock: ...

Learners first let those in that wait in `_turn`: a thread that learns without a pause would keep the lock for good.
Predictions and `clusters` read the published model, and wait for nobody. Refits in the background have copies of all
that they read, and need no lock.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from threading import RLock, local
from typing import Any, NoReturn, Self, TypeVar
from weakref import WeakValueDictionary

from streamclust.utils.interrupts import HeldInterrupts

Answer = TypeVar("Answer")
AT_ONCE: AbstractContextManager[None] = nullcontext()
FORK_SECONDS = 30.0
"""A fork waits so long, in all, for threads that are changing models: a child would inherit models half changed."""

log = logging.getLogger(__name__)


class ThreadSafe:
    """Locks of a model; copies and pickles of one moment, with locks of their own."""

    __slots__ = ("_lock", "_queue")  # not among the attributes that are copied
    _lock: Any
    """Held by the thread that changes the model."""
    _queue: Any
    """Held by the thread that has the lock next. Re-entrant, too: a tracer that raises where a `with` block ends leaves
    it held, and its thread must not wait for itself."""

    def _make_locks(self) -> None:
        self._lock, self._queue = RLock(), RLock()
        MODELS[id(self)] = self

    @property
    def _turn(self) -> AbstractContextManager[Any]:
        """Context in which this thread has the lock next; nothing to wait for if it holds the lock already."""
        waiting: AbstractContextManager[Any] = AT_ONCE if self._lock._is_owned() else self._queue
        return waiting

    def _let_others_in(self) -> None:
        """Wait for the threads in `_turn`."""
        with self._turn:
            pass

    def _if_free(self, now: Callable[[], Answer], otherwise: Callable[[], Answer]) -> Answer:
        """Call `now` with the lock held or, if another thread holds it, `otherwise` without the lock."""
        held = False
        try:
            with HeldInterrupts():
                held = self._lock.acquire(blocking=False)
            if held:
                return now()
        finally:
            if held:
                self._lock.release()
        return otherwise()

    # ---------------------------------------------------------------- copies

    def __getstate__(self) -> dict[str, Any]:
        return self._copied({id(self): self})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(self._copied(memo))
        return twin

    def _copied(self, memo: dict[int, Any]) -> dict[str, Any]:
        """A deep copy of all attributes."""
        with self._turn, self._lock:
            return deepcopy(vars(self), memo)


# -------------------------------------------------------------------- fork

MODELS: WeakValueDictionary[int, ThreadSafe] = WeakValueDictionary()
"""Models of this process, by their `id`."""


class Forking(local):
    """Models whose locks the thread that forks holds meanwhile."""

    def __init__(self) -> None:
        self.models: list[ThreadSafe] = []


HELD = Forking()


class TornLock:
    """Takes the place of a lock that another thread held when this process was forked."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        """Raise RuntimeError: the thread that would have finished the change is not in this process."""
        raise RuntimeError(
            f"this process was forked while another thread had been changing the model for {FORK_SECONDS:g} s; load it "
            "from a checkpoint, or fork when no thread is learning"
        )

    __enter__ = acquire

    def __exit__(self, *_: object) -> None: ...

    def release(self) -> None:
        """Nothing to release."""

    def _is_owned(self) -> bool:
        return False


def hold_before_fork() -> None:
    """Wait until no other thread is changing a model, and let none begin."""
    end = time.monotonic() + FORK_SECONDS
    for reference in MODELS.valuerefs():
        model = reference()
        if model is None:
            continue
        left = max(0.0, end - time.monotonic())
        owned = model._lock._is_owned()
        first = not owned and model._queue.acquire(timeout=left)
        if model._lock.acquire(timeout=left):
            HELD.models.append(model)
        else:
            log.warning(
                "a process was forked while another thread changed a model: the child cannot use its copy of the model"
            )
        if first:
            model._queue.release()


def let_go_after_fork() -> None:
    """Release the locks, in the parent."""
    while HELD.models:
        HELD.models.pop()._lock.release()


def mend_after_fork() -> None:
    """Release the locks, in the child; models that were being changed can no longer be."""
    free = set(map(id, HELD.models))
    let_go_after_fork()
    for reference in MODELS.valuerefs():
        model = reference()
        if model is not None:
            model._queue = RLock()
            if id(model) not in free:
                model._lock = TornLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=hold_before_fork, after_in_parent=let_go_after_fork, after_in_child=mend_after_fork
    )
