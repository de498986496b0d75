"""The way of an event through the code: short, and as its drawing and its reference page show it."""

import re
import sys
from pathlib import Path

import pytest

from streamclust import StreamClusterer

ROOT = Path(__file__).parent.parent
MAX_FRAMES = 6
"""Python functions from `learn_one` to the tree, both included; the compiled kernel is the seventh frame."""


@pytest.fixture(scope="module")
def walks():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import draw_walk
        import walks

        yield walks, draw_walk
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_learn_one_reaches_the_tree_in_few_frames(walks):
    stack = walks[0].flush().until(*walks[0].TREE).stack()
    assert stack.calls[0].function == "StreamClusterer.learn_one"
    assert len(stack.calls) <= MAX_FRAMES, "\n".join(map(str, stack.calls))


def test_the_drawing_is_that_of_the_code(walks):
    assert walks[1].DRAWING.read_text() == walks[1].drawing(), "run benchmarks/draw_walk.py"


def test_the_reference_lists_every_member_of_the_clusterer_with_learning_first():
    page = (ROOT / "docs" / "reference" / "streaming.md").read_text()
    block = page[
        page.index("StreamClusterer\n    options") : page.index("::: streamclust.streaming.StreamFeatures")
    ]
    listed = re.findall(r"^        - (\w+)$", block, flags=re.MULTILINE)
    ours = {
        name
        for base in StreamClusterer.__mro__
        if base.__module__.startswith("streamclust")
        for name in vars(base)
        if not name.startswith("_")
    }
    assert listed[:3] == ["learn_one", "learn_many", "predict_one"]
    assert set(listed) == ours
    assert len(listed) == len(ours)
