"""Translation of librdkafka's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from streamclust_connectors.kafka.sending import MessageTooLarge
from streamclust_connectors.ports import DataLoss, Fenced, Transient

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
"""What librdkafka's binding raises. A SystemError is a fatal error of the client whose exception the binding has lost:
a producer that was fenced while it was frozen, say."""


class Spent(Transient):
    """The client has failed for good; another one may succeed."""


def failure_of(error: KafkaException | SystemError) -> Exception:
    """The exception to raise for what the binding has raised."""
    if isinstance(error, KafkaException):
        return failure(error.args[0])
    return Transient("the client has failed, and not said why")


def failure(error: KafkaError) -> Exception:
    """The exception to raise for an error of librdkafka."""
    code, said = error.code(), f"{error.name()}: {error.str()}"
    if code in FENCED:
        return Fenced(f"another process has this one's transactional id or group instance id: {said}")
    if code in LOST:
        return DataLoss(
            f"records were deleted before they were learnt: {said}. Restart with on_data_loss set to continue "
            "(--on-data-loss=continue) to go on with what there is"
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(said)
    if code in FATAL:
        return KafkaException(error)
    spent = error.fatal() or code == KafkaError._FATAL  # of a consumer it is told by the code alone
    return Spent(said) if spent else Transient(said)


@contextmanager
def transient() -> Iterator[None]:
    """Translate librdkafka's errors into Transient, DataLoss, Fenced and MessageTooLarge."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise failure_of(error) from error
    except (OSError, TimeoutError) as error:
        raise Transient(f"{type(error).__name__}: {error}") from error
