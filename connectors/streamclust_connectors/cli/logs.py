"""Logs as one JSON object per line on standard error, without payloads of messages."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

STANDARD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""Attributes of every log record; all others were passed as `extra`."""
VERBOSE_LIBRARIES = ("numba", "matplotlib")
"""Libraries whose debug messages quote payloads."""
CLIENT_LIBRARIES = ("kafka", "librdkafka")
"""Kafka clients, which log dozens of lines for each lost connection; the service logs what matters of that."""
MAX_MESSAGE_CHARACTERS = 2000
"""Longer messages are cut."""


class JsonFormatter(logging.Formatter):
    """A log record as a JSON object on one line.

    >>> record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "hello", "created": 0.0, "events": 3})
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "logger": "x", "message": "hello", "events": 3}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_MESSAGE_CHARACTERS],
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in STANDARD_ATTRIBUTES}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_json_text)


def _json_text(value: object) -> str:
    """Text for a value that JSON cannot represent; bytes are not shown, as they may be a payload."""
    return (
        f"{len(value)} bytes"
        if isinstance(value, (bytes, bytearray))
        else str(value)[:MAX_MESSAGE_CHARACTERS]
    )


def set_up_logging(level: str, form: str) -> None:
    """Send logs to standard error, in the format json or text."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in CLIENT_LIBRARIES:
        debugging = root.level <= logging.DEBUG
        logging.getLogger(name).setLevel(logging.WARNING if debugging else logging.CRITICAL + 1)
    logging.captureWarnings(True)
