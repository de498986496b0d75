"""Signals of a service's process: stop, and take a snapshot."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Protocol

log = logging.getLogger(__name__)


class Stoppable(Protocol):
    """A loop that can be asked to stop."""

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""

    @property
    def finished(self) -> bool:
        """Whether its last checkpoint is written."""

    def stop(self) -> None:
        """Ask it to stop."""

    def request_snapshot(self) -> None:
        """Ask it for a snapshot."""


def stop_on_signals(service: Stoppable, exit_after: float | None = None) -> None:
    """Stop on SIGTERM and SIGINT, take a snapshot on SIGUSR1.

    If stopping takes longer than `exit_after` seconds, since a client waits for its broker, the process ends without:
    the next start goes on from the last checkpoint, as after a kill.
    """

    def end(*_: object) -> None:
        if exit_after is not None and not service.stopping:
            timer = threading.Timer(exit_after, _exit, (service, exit_after))
            timer.daemon = True
            timer.start()
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGUSR1, lambda *_: service.request_snapshot())


def _exit(service: Stoppable, seconds: float) -> None:
    """End the process at once."""
    if not service.finished:
        log.error("stopping took longer than %g s; the next start goes on from the last checkpoint", seconds)
    logging.shutdown()
    os._exit(0 if service.finished else 1)
