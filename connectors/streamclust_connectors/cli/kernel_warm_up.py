"""Loads or compiles the kernels of a service before it joins its consumer group.

Compiling takes a minute of CPU at the first start. In mid-stream it would hold up the loop, and the group would drop
the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from streamclust_connectors.cli.service_factory import learner

if TYPE_CHECKING:
    from streamclust_connectors.service import Service
    from streamclust_connectors.settings import Settings

PATIENCE_SECONDS = 3.0
"""Time after which the log says what the service waits for."""
BEAT_SECONDS = 0.2

log = logging.getLogger(__name__)


def warm_up(service: Service, settings: Settings) -> None:
    """Use a model with these settings once, in a thread, while the service answers that it is alive and not ready."""
    began, told = time.monotonic(), False
    service.stats.trouble = "the kernels are being loaded or compiled"
    thread = threading.Thread(target=use_once, args=(settings,), name="streamclust-warm", daemon=True)
    thread.start()
    while thread.is_alive():
        if service.stopping:
            logging.shutdown()
            os._exit(0)  # nothing was read; a compiler cannot be interrupted
        thread.join(BEAT_SECONDS)
        service.stats.beat()
        if not told and time.monotonic() - began > PATIENCE_SECONDS:
            told = True
            log.info("compiling kernels: about a minute at the first start; streamclust warm does it ahead")
    if told:
        log.info("the kernels are ready after %.0f s", time.monotonic() - began)


def use_once(settings: Settings, strict: bool = False) -> None:
    """Learn some events, refit, and assign, which compiles all that a stream needs; `strict`: raise what fails."""
    from streamclust.warm import events

    try:
        model = learner(settings)
        rows = abs(events(1500).round())  # valid for counts too
        if settings.engine.family == "bernoulli" or settings.model == "features":
            rows = rows.clip(max=1.0)
        for part in (rows[:1], rows[1:]):
            model.learn_many(part)
        model.assign_many(rows[:100])
    except Exception:
        if strict:
            raise
        # A failure that matters comes again, with the events it belongs to.
        log.debug("kernels could not be tried", exc_info=True)
