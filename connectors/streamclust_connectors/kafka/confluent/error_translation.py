"""Translates librdkafka's errors into Transient, DataLoss, Fenced and MessageTooLarge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from streamclust_connectors.interfaces import DataLoss, Fenced, Transient
from streamclust_connectors.kafka.client_protocols import MessageTooLarge

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}
LOST = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._NO_OFFSET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
}
FATAL = {
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
"""Errors that a retry cannot cure."""
CLIENT_ERRORS = (KafkaException, SystemError)
"""Exceptions of librdkafka's Python binding. It raises a SystemError if it has lost the exception of a fatal error, for
example when a producer was fenced while its process was suspended."""


class ClientFailed(Transient):
    """The client has failed permanently; a new client may succeed."""


def failure_of(error: KafkaException | SystemError) -> Exception:
    """The exception to raise for an exception of the binding."""
    if isinstance(error, KafkaException):
        return failure(error.args[0])
    return Transient("the Kafka client failed without a reason")


def failure(error: KafkaError) -> Exception:
    """The exception to raise for an error of librdkafka."""
    code, said = error.code(), f"{error.name()}: {error.str()}"
    if code in FENCED:
        return Fenced(f"another process uses the same transactional id or group instance id: {said}")
    if code in LOST:
        return DataLoss(
            f"records were deleted before they were learnt: {said}. To continue with the remaining records, restart "
            "with on_data_loss set to continue (--on-data-loss=continue)"
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(said)
    if code in FATAL:
        return KafkaException(error)
    permanent = error.fatal() or code == KafkaError._FATAL  # a consumer reports it by the code only
    return ClientFailed(said) if permanent else Transient(said)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate librdkafka's errors into Transient, DataLoss, Fenced and MessageTooLarge."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise failure_of(error) from error
    except (OSError, TimeoutError) as error:
        raise Transient(f"{type(error).__name__}: {error}") from error
