"""The numbers that tune the engine: each says what it trades, and what decided it."""

import ast
import inspect
from dataclasses import fields

import pytest

from streamclust.engine import tuning
from streamclust.engine.tuning import TUNING, EngineTuning


def said():
    """The docstring of each field, by name."""
    (kind,) = (node for node in ast.parse(inspect.getsource(tuning)).body if isinstance(node, ast.ClassDef))
    pairs = zip(kind.body, kind.body[1:], strict=False)
    return {a.target.id: ast.literal_eval(b.value) for a, b in pairs if isinstance(a, ast.AnnAssign)}


@pytest.mark.parametrize("name", [field.name for field in fields(EngineTuning)])
def test_each_number_says_what_decided_it(name):
    words = " ".join(said()[name].split()).lower()
    assert "decided by" in words or "not distinguished" in words


def test_numbers_fit_the_code_that_relies_on_them():
    assert TUNING.block_events == 8  # the hash that chooses a watched event gives three bits
    assert TUNING.window_events % TUNING.block_events == 0
    assert TUNING.window_events & (TUNING.window_events - 1) == 0
    assert TUNING.window_events % TUNING.look_sample_events == 0
