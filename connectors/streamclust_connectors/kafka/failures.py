"""The client's errors as the loop knows them, and calls that would wait for ever, bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import errors

from streamclust_connectors.ports import DataLoss, Fenced, Transient

T = TypeVar("T")

PATIENCE = 15.0
"""Seconds to wait for a broker before the loop hears of it; it will try again."""

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.FencedInstanceIdError)
FATAL = (
    errors.KafkaConfigurationError,
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedVersionError,
    errors.InvalidTopicError,
)
"""To try again would not help."""


@contextmanager
def transient(clean_up: Callable[[], None] | None = None) -> Any:  # noqa: ANN401
    """Kafka's errors as the loop knows them: those that may pass, those that lose records, those that end us."""
    try:
        yield
    except (Transient, DataLoss, Fenced):
        raise
    except FENCED as error:
        if clean_up is not None:
            clean_up()
        raise Fenced(
            f"another process has this one's transactional id or group instance id: {error}"
        ) from error
    except (
        errors.OffsetOutOfRangeError,
        errors.NoOffsetForPartitionError,
        errors.LogTruncationError,
    ) as error:
        raise DataLoss(
            f"records were deleted before they were learnt: {error}. Restart with on_data_loss set to continue "
            "(--on-data-loss=continue) to go on with what there is"
        ) from error
    except FATAL:
        raise
    except (errors.KafkaError, OSError, TimeoutError) as error:
        if clean_up is not None:
            clean_up()
        raise Transient(f"{type(error).__name__}: {error}") from error


def within(seconds: float, call: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
    """What a call returns; some of the client's wait for ever, so a thread of its own makes it."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call(*arguments))
        except BaseException as error:  # raised where it was called for
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise errors.KafkaTimeoutError(f"{call.__name__} took more than {seconds:.0f} s")
    return done[0]
