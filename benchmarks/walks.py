"""Python functions and files that one call passes through: learn_one, a refit, a record through the service loop.

A reader who follows the call has to open these files. Compiled kernels count as one function each, by their wrapper.

    python benchmarks/walks.py            # the counts
    python benchmarks/walks.py --list     # and every call, indented by its depth
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

import streamclust
import streamclust_connectors
from streamclust import StreamClusterer
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource

ROOTS = tuple(Path(str(package.__file__)).parent for package in (streamclust, streamclust_connectors))
WARM_EVENTS = 300
"""Events learnt before the call that is traced: the first refit is done, the next is far away."""
FIRST_REFIT_EVENTS = 20
"""Events before the first refit, in the walk of a refit."""
RECORDS = 50
"""Records of the poll that is traced."""


MAX_BUFFERED_EVENTS = 1000
"""More events than the buffer holds."""
TREE = ("streamclust/tree/summary.py", "SummaryTree.insert_checked")
"""The function that inserts rows into a tree."""


class Call(NamedTuple):
    """A call of a Python function of the two packages."""

    depth: int
    """Number of functions of the two packages on the stack below it."""
    file: str
    function: str


@dataclass
class Walk:
    """The calls of one action, in order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def functions(self) -> set[tuple[str, str]]:
        """Distinct functions."""
        return {(call.file, call.function) for call in self.calls}

    @property
    def files(self) -> set[str]:
        """Distinct files."""
        return {call.file for call in self.calls}

    def until(self, file: str, function: str) -> Walk:
        """The calls before the first call of a function."""
        for i, call in enumerate(self.calls):
            if call.function == function and call.file.startswith(file):
                return Walk(self.calls[: i + 1])
        raise ValueError(f"{file}: {function} was not called")

    def stack(self) -> Walk:
        """The calls that were open at the last call, outermost first."""
        found: list[Call] = []
        for call in reversed(self.calls):
            if not found or call.depth < found[-1].depth:
                found.append(call)
        return Walk(found[::-1])


def package_file(frame: FrameType) -> str | None:
    """The file of a frame, relative to its package's parent; None for other packages."""
    path = Path(frame.f_code.co_filename)
    for root in ROOTS:
        if path.is_relative_to(root):
            return path.relative_to(root.parent).as_posix()
    return None


def traced(action: Callable[[], object]) -> Walk:
    """Run an action and record its calls. Resuming a generator counts as a call, a comprehension does not."""
    walk = Walk()
    depth = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if event not in ("call", "return"):
            return
        file = package_file(frame)
        if file is None:
            return
        if event == "return":
            depth -= 1
            return
        name = frame.f_code.co_qualname
        if not name.endswith(("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")):
            walk.calls.append(Call(depth, file, name))
        depth += 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return walk


# -------------------------------------------------------------------- the walks


def events(n: int, seed: int = 0) -> list[dict[str, float]]:
    """Events of two clusters in two features."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2)) + 8.0 * rng.integers(2, size=(n, 1))
    return [{"x": x, "y": y} for x, y in rows.tolist()]


def learn_one() -> Walk:
    """One event of a stream whose first refit is done."""
    model = StreamClusterer(background=False)
    model.learn_many(events(WARM_EVENTS))
    (event,) = events(1, seed=1)
    return traced(lambda: model.learn_one(event))


def flush() -> Walk:
    """The event that fills the buffer: the buffered events are learnt by the tree."""
    model = StreamClusterer(background=False)
    model.learn_many(events(WARM_EVENTS))
    for event in events(MAX_BUFFERED_EVENTS, seed=1):
        walk = traced(partial(model.learn_one, event))
        if TREE in walk.functions:
            return walk
    raise ValueError("the buffer was never full")


def refit() -> Walk:
    """The event that is followed by the first refit."""
    model = StreamClusterer(background=False, warmup=FIRST_REFIT_EVENTS)
    model.learn_many(events(2 * WARM_EVENTS)[: FIRST_REFIT_EVENTS - 1])
    (event,) = events(1, seed=1)
    return traced(lambda: model.learn_one(event))


def service_turn() -> Walk:
    """One turn of the service loop that polls, decodes, assigns and learns records of a known schema."""
    values = [b'{"x": %.6f, "y": %.6f}' % (e["x"], e["y"]) for e in events(WARM_EVENTS + RECORDS)]
    source = MemorySource({("events", 0): values}, size=WARM_EVENTS, endless=True)
    service = Service(source, ListSink(), StreamClusterer(background=False), policy=Policy(poll=0.0))
    for _ in range(3):  # assign, the first event alone and the rest, decode by a table reader
        service.run_once()
        if service.stats.events >= WARM_EVENTS:
            break
    found = traced(service.run_once)
    assert service.stats.events == WARM_EVENTS + RECORDS
    return found


def show(name: str, walk: Walk, every: bool) -> None:
    """Print the counts, and the calls if asked to."""
    print(f"{name:<44} {len(walk.calls):>7} {len(walk.functions):>9} {len(walk.files):>5}")
    for call in walk.calls if every else ():
        print(f"    {'  ' * call.depth}{call.file}: {call.function}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of all walks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every call")
    given = parser.parse_args(arguments)
    print(f"{'walk':<44} {'calls':>7} {'functions':>9} {'files':>5}")
    show("learn_one", learn_one(), given.list)
    full = flush()
    show("learn_one that fills the buffer", full, given.list)
    show("  on the stack at the tree", full.until(*TREE).stack(), given.list)
    show("learn_one with a refit", refit(), given.list)
    turn = service_turn()
    show(f"service turn, {RECORDS} records", turn, given.list)
    before = turn.until("streamclust/streaming", "StreamClusterer.learn")
    show("  from poll to StreamClusterer.learn", before, given.list)
    show("  on the stack at StreamClusterer.learn", before.stack(), given.list)


if __name__ == "__main__":
    main()
