"""Ctrl-C at a chosen moment: SIGINT when a chosen line of the library is about to run."""

import signal
import sys
from pathlib import Path

import streamclust

LIBRARY = str(Path(streamclust.__file__).parent)


class Moments:
    """Counts the lines of the library that run in this thread, and sends SIGINT before the one numbered `at`."""

    def __init__(self, at=None):
        self.at = at
        self.count = 0

    def __enter__(self):
        self._handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(self._trace)
        return self

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.at:
                signal.raise_signal(signal.SIGINT)
        return self._trace

    def __exit__(self, *_):
        sys.settrace(None)
        signal.signal(signal.SIGINT, self._handler)
