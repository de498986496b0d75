"""Translates kafka-python's errors into Transient, DataLoss and Fenced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from streamclust_connectors.interfaces import DataLoss, Fenced, MissingCodec, Transient

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.FencedInstanceIdError)
FATAL = (
    errors.KafkaConfigurationError,
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedVersionError,
    errors.InvalidTopicError,
)
"""Errors that a retry cannot cure."""


CODEC_PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""Packages by which kafka-python reads and writes compressed records."""


def missing_codec_message(error: str) -> str:
    """Advice which package to install, for kafka-python's message about a codec.

    >>> missing_codec_message("Libraries for zstd compression codec not found")[:74]
    'records are compressed by zstd, which needs zstandard; run: pip install zs'
    """
    for codec, package in CODEC_PACKAGES.items():
        if codec in error:
            return (
                f"records are compressed by {codec}, which needs {package}; run: pip install {package}, or "
                "pip install 'streamclust[kafka]', which brings all codecs"
            )
    return f"records are compressed by an unknown codec: {error}"


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate kafka-python's errors into Transient, DataLoss and Fenced."""
    try:
        yield
    except (Transient, DataLoss, Fenced, MissingCodec):
        raise
    except errors.UnsupportedCodecError as error:
        raise MissingCodec(missing_codec_message(str(error))) from error
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
