"""One thread for BLAS while this package computes.

Matrices are small here. The other threads of OpenBLAS share each product, and between two of them wait for the next
without letting go of their cores: on two cores a refit took twice the processor's time, and no less of the clock's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()
_users = 0
_limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """While any thread is within, BLAS has one thread in the whole process; afterwards as many as before.

    >>> import numpy as np
    >>> with one_thread():
    ...     float(np.ones(2) @ np.ones(2))
    2.0
    """
    global _users, _limit
    with _lock:
        _users += 1
        if _users == 1:
            from threadpoolctl import ThreadpoolController  # when first needed: a start does without

            _limit = ThreadpoolController().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
