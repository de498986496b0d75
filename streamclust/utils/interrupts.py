"""Hold Ctrl-C back while state that belongs together is changed."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Self


class HeldInterrupts:
    """Context in which SIGINT waits: its handler, which mostly raises KeyboardInterrupt, runs when the block ends.

    Blocks may be nested; the outermost counts. In other threads than the main one, where Python runs no handlers,
    nothing is done.

    >>> with HeldInterrupts():
    ...     done = "whole"
    """

    def __init__(self) -> None:
        self._handler: object = None
        self._arrived: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler) and not isinstance(getattr(handler, "__self__", None), HeldInterrupts):
                self._handler = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived = number, frame

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handler, self._handler = self._handler, None
        if not callable(handler):
            return
        signal.signal(signal.SIGINT, handler)
        if self._arrived is not None:
            handler(*self._arrived)
