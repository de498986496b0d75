"""Logs: one JSON object on each line of standard error. Payloads never, nor what libraries would print of them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; anything else was given as `extra`."""
TALKATIVE = ("kafka", "numba", "matplotlib")
"""Libraries whose debug messages quote what passes through them."""
LONGEST = 2000
"""Characters of a message."""


class JsonLines(logging.Formatter):
    """A log record as a JSON object on one line.

    >>> record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "hello", "created": 0.0, "events": 3})
    >>> JsonLines().format(record)
    '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "logger": "x", "message": "hello", "events": 3}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:LONGEST],
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_told)


def _told(value: object) -> str:
    """What is no JSON, in words; bytes may be a payload."""
    return f"{len(value)} bytes" if isinstance(value, (bytes, bytearray)) else str(value)[:LONGEST]


def set_up(level: str, form: str) -> None:
    """Send the logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if form == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
