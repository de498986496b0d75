"""A span for each batch of records, linked to the traces of its records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.util.types import AttributeValue

from streamclust_connectors.interfaces import Batch, Record

MAX_LINKS = 128
"""Links of a span; batches have thousands of records."""
TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
"""Version, trace, span and flags."""


def span_context(traceparent: bytes) -> SpanContext | None:
    """The span that a header of W3C Trace Context names; None if it is not valid.

    >>> span_context(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").trace_flags
    1
    >>> span_context(b"oops")
    """
    parts = TRACEPARENT.fullmatch(traceparent)
    if parts is None:
        return None
    trace, span, flags = (int(part, 16) for part in parts.groups())
    found = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    return found if found.is_valid else None


def links(records: Sequence[Record]) -> list[Link]:
    """Links to the spans that produced the records: each once, and only the first MAX_LINKS."""
    headers = dict.fromkeys(
        value for record in records for name, value in record.headers or () if name == "traceparent"
    )
    contexts = (span_context(value) for value in headers)
    return [Link(context) for context in contexts if context is not None][:MAX_LINKS]


def batch_tracer(provider: TracerProvider, system: str) -> Callable[[Batch], AbstractContextManager[None]]:
    """A function that returns the span of a batch, as a context manager. `system` is the kind of the source."""
    tracer = provider.get_tracer("streamclust")

    @contextmanager
    def traced(batch: Batch) -> Iterator[None]:
        (topic, number), records = batch
        attributes: dict[str, AttributeValue] = {
            "messaging.system": system,
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(number),
            "messaging.batch.message_count": len(records),
        }
        if records:
            attributes["messaging.kafka.offset"] = records[0].offset
        found = links(records)
        with tracer.start_as_current_span(f"process {topic}", None, SpanKind.CONSUMER, attributes, found):
            yield

    return traced
