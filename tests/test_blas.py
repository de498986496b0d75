"""BLAS has one thread while this package computes, and as many as before afterwards."""

from threading import Barrier, Thread

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # which has a BLAS of its own
from threadpoolctl import threadpool_info

from streamclust.blas import one_thread
from streamclust.engine import refits
from streamclust.engine.flow import Engine


def threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


BEFORE = threads()
"""As many as there are cores, unless the environment says otherwise."""


def test_there_are_as_many_threads_afterwards_whoever_leaves_first():
    """Refits beside each other: the first to enter is the first to leave."""
    entered, left, within = Barrier(2), Barrier(2), []

    def first():
        with one_thread():
            entered.wait()
        left.wait()

    other = Thread(target=first)
    other.start()
    with one_thread():
        entered.wait()
        left.wait()
        within += threads()
    other.join()
    assert set(within) == {1}
    assert threads() == BEFORE


def test_a_refit_has_one_thread(monkeypatch):
    seen = []
    find = refits.find
    monkeypatch.setattr(refits, "find", lambda work: seen.extend(threads()) or find(work))
    engine = Engine(2)
    engine.learn(np.random.default_rng(0).normal(size=(200, 2)))
    engine.settle()
    assert set(seen) == {1}
    assert threads() == BEFORE


def test_there_are_as_many_threads_after_an_error():
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert threads() == BEFORE
