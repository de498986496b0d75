"""Translates kafka-python's errors into Transient, DataLoss and Fenced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from streamclust_connectors.interfaces import DataLoss, Fenced, Transient

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.FencedInstanceIdError)
FATAL = (
    errors.KafkaConfigurationError,
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedVersionError,
    errors.InvalidTopicError,
)
"""Errors that a retry cannot cure."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate kafka-python's errors into Transient, DataLoss and Fenced."""
    try:
        yield
    except (Transient, DataLoss, Fenced):
        raise
    except FENCED as error:
        raise Fenced(
            f"another process uses the same transactional id or group instance id: {error}"
        ) from error
    except (
        errors.OffsetOutOfRangeError,
        errors.NoOffsetForPartitionError,
        errors.LogTruncationError,
    ) as error:
        raise DataLoss(
            f"records were deleted before they were learnt: {error}. To continue with the remaining records, restart "
            "with on_data_loss set to continue (--on-data-loss=continue)"
        ) from error
    except FATAL:
        raise
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise Transient(f"{type(error).__name__}: {error}") from error
