"""Many long random streams with all troubles at once; see that every one is learnt whole.

Each stream is learnt by a process of its own, by one event and by many, while it is restarted from checkpoints,
interrupted by Ctrl-C, merged with other clusterers and asked for predictions. There must be no exception, no failed
refit and no hang; counts and weights must be exact, numbers finite, memory flat. Some streams are learnt once more
undisturbed: the states must be bit for bit the same. A stream that fails is named by its seed: --only SEED repeats it.
"""

import argparse
import ctypes
import faulthandler
import gc
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from streamclust import StreamClusterer
from tests.chaos.soak_streams import N_LEARNERS, SHARE_OF_STREAMS, Plan
from tests.interrupting import Moments

EXACT = 1e-9
"""Relative error allowed in sums of weights."""
WARM_SHARE = 0.4
"""Share of a stream after which memory must no longer grow."""
MAX_GROWTH_BYTES = 100 << 20
"""Growth of resident memory allowed afterwards: kernels that are loaded late, and larger summaries of more clusters."""
MAX_WAITING_EVENTS = 1023
"""Wide events that wait for a sketch, at most."""
MIN_PROGRESS_SECONDS, STILL_SECONDS = 0.1, 180.0
"""A stream that has had less of the processor in so many seconds waits for what never comes."""
MAX_SINGLE_EVENTS = 200
"""Events of a block that are learnt one by one, at most."""


class Ledger:
    """Number and decayed weight of the events of each shard.

    Weights are those in the shards' trees: the latest of wide events may wait for a sketch.
    """

    def __init__(self, half_life):
        self.half_life, self.n, self.weight = half_life, {}, {}
        self.n_weighed, self.not_weighed = {}, {}

    def add(self, block):
        n = len(block.rows)
        self.n[block.shard] = self.n.get(block.shard, 0) + n
        self.not_weighed.setdefault(block.shard, []).append(block)

    def weigh(self, shard, n):
        """The weight of the first n events of a shard."""
        blocks = self.not_weighed.setdefault(shard, [])
        while blocks and self.n_weighed.get(shard, 0) < n:
            block = blocks.pop(0)
            more = min(len(block.rows), n - self.n_weighed.get(shard, 0))
            self._weigh(block.part(0, more))
            if more < len(block.rows):
                blocks.insert(0, block.part(more, None))
        return self.weight.get(shard, 0.0)

    def _weigh(self, block):
        n = len(block.rows)
        weight = np.ones(n) if block.weight is None else block.weight
        fade = 1.0
        if self.half_life is not None:
            weight = weight * 2.0 ** (-np.arange(n)[::-1] / self.half_life)
            fade = 1.0 if block.merged else 2.0 ** (-n / self.half_life)
        self.n_weighed[block.shard] = self.n_weighed.get(block.shard, 0) + n
        self.weight[block.shard] = self.weight.get(block.shard, 0.0) * fade + float(np.sum(weight))

    def check(self, model, weights=True, may_wait=False):
        """Compare with a model. `may_wait`: some of the latest 1,024 events may not be in its trees yet."""
        assert model.shards.n_seen == self.n, f"events by shard {model.shards.n_seen}, not {self.n}"
        assert model.n_seen == sum(self.n.values())
        trees = {}
        for shard, n in self.n.items():
            try:
                trees[shard] = model.shards.tree(shard)
            except KeyError:  # all of its events wait
                assert may_wait, f"no tree for the {n} events of shard {shard}"
        n_learnt = sum(tree.n_events for tree in trees.values())
        assert model.n_seen - n_learnt <= (MAX_WAITING_EVENTS if may_wait else 0), f"{n_learnt} are in trees"
        for shard, tree in trees.items() if weights else ():
            expected, weight = self.weigh(shard, tree.n_events), float(tree.total.weight[0])
            assert abs(weight - expected) <= EXACT * expected, (
                f"shard {shard} weighs {weight}, not {expected}"
            )


def learn(model, block):
    model.learn_many(block.table, weight=block.weight, shard=block.shard)


def learn_singly(model, block):
    weights = [1.0] * len(block.rows) if block.weight is None else block.weight.tolist()
    for event, weight in zip(block.events, weights, strict=True):
        model.learn_one(event, w=weight, shard=block.shard)


def merge(model, plan, block):
    """Merge a clusterer that has learnt a block."""
    other = StreamClusterer(**plan.parameters)
    learn(other, block)
    model.merge(other)


def assign(model, block):
    """Assign events, and see that the answers are finite."""
    found = model.assign_many(block.table)
    for name, values in (("probabilities", found.probability), ("novelties", found.novelty)):
        wrong = np.count_nonzero(~np.isfinite(values))
        assert not wrong, f"{wrong} of {len(values)} {name} are not finite"
    assert (found.probability >= 0.0).all()
    assert (found.probability <= 1.0 + EXACT).all()


def check_clusters(model):
    clusters = model.clusters
    assert clusters, "no cluster"
    for cluster in clusters:
        numbers = [cluster.weight, cluster.share, *cluster.mean.values()]
        numbers += [] if cluster.covariance is None else np.ravel(cluster.covariance).tolist()
        assert np.isfinite(numbers).all(), f"cluster {cluster.id}: {numbers}"
    total = sum(cluster.share for cluster in clusters)
    assert total <= 1.0 + 1e-6, f"shares sum to {total}"


class Disturbed:
    """Learns a stream in pieces of any size, with restarts, Ctrl-C, predictions and threads, as its plan says."""

    def __init__(self, plan, directory):
        self.plan, self.path, self.rng = plan, Path(directory) / "soak.checkpoint", plan.rng(4)
        self.model = StreamClusterer(**plan.parameters)
        self.ledger = Ledger(plan.parameters["half_life"])
        self.interrupted = self.restarted = 0

    def learn(self, block):
        if block.merged:
            merge(self.model, self.plan, block)
        elif "threads" in self.plan.troubles and self.model.n_seen:
            self._learn_in_threads(block)
        else:
            n = len(block.rows)
            cuts = np.sort(self.rng.integers(0, n + 1, size=self.rng.integers(0, 4)))
            for start, stop in pairwise([0, *cuts, n]):
                self._learn_piece(block.part(start, stop))
        self.ledger.add(block)
        if "restarts" in self.plan.troubles and self.rng.random() < 0.1:
            self.model.save(self.path)
            self.model = StreamClusterer.load(self.path)
            self.restarted += 1
        if self.rng.random() < 0.2:
            self.check(block)

    def _learn_piece(self, piece):
        """Learn a piece; after Ctrl-C go on from the events counted."""
        teach = learn_singly if 0 < len(piece.rows) <= MAX_SINGLE_EVENTS else learn
        if "interrupts" not in self.plan.troubles or self.rng.random() < 0.9:
            teach(self.model, piece)
            return
        before = self.model.n_seen
        try:
            with Moments(int(10.0 ** self.rng.uniform(0, 4.5))):
                teach(self.model, piece)
        except KeyboardInterrupt:
            self.interrupted += 1
        learnt = self.model.n_seen - before
        assert 0 <= learnt <= len(piece.rows), f"Ctrl-C changed the count of events by {learnt}"
        teach(self.model, piece.part(learnt, None))

    def _learn_in_threads(self, block):
        """Several threads learn parts of a block while another asks."""
        failures, done = [], threading.Event()
        edges = np.linspace(0, len(block.rows), N_LEARNERS + 1).astype(int)
        parts = [block.part(start, stop) for start, stop in pairwise(edges)]

        def careful(work, *arguments):
            try:
                work(*arguments)
            except Exception:
                failures.append(traceback.format_exc())

        def ask():
            while not done.is_set():
                assign(self.model, block.part(0, 50))
                check_clusters(self.model)

        ways = [learn_singly if self.rng.random() < 0.3 else learn for _ in parts]
        learners = [
            threading.Thread(target=careful, args=(way, self.model, part))
            for way, part in zip(ways, parts, strict=True)
        ]
        asking = threading.Thread(target=careful, args=(ask,))
        for thread in (*learners, asking):
            thread.start()
        for thread in learners:
            thread.join()
        done.set()
        asking.join()
        assert not failures, failures[0]

    def check(self, block):
        model = self.model
        assert model.n_failed_refits == 0, f"a refit failed: {model.last_refit_error}"
        assert model.n_refused == 0, f"an event was refused: {model.last_refusal}"
        # Threads learn in any order, so that it is not known how far each event has faded, and which of them wait.
        wide, threads = ("wide" in self.plan.troubles, "threads" in self.plan.troubles)
        self.ledger.check(model, not (threads and (wide or self.ledger.half_life)), may_wait=wide)
        check_clusters(model)
        assign(model, block.part(0, 100))
        assert model.predict_one(block.part(0, 1).events[0]) is not None


def check_twin(plan, model):
    """The state is bit for bit that of a clusterer that nobody disturbed."""
    twin = StreamClusterer(**plan.parameters)
    for block in plan.blocks():
        if block.merged:
            merge(twin, plan, block)
        else:
            learn(twin, block)
    ours, theirs = model.to_state(), twin.to_state()
    assert ours.values == theirs.values, "values differ from those of an undisturbed twin"
    for name, value in ours.arrays.items():
        same = np.array_equal(value, theirs.arrays[name], equal_nan=value.dtype.kind == "f")
        assert same, f"{name} differs from that of an undisturbed twin"


def resident_bytes():
    """Memory of this process, without what was freed but is kept by the allocator, where it can be told to let go."""
    gc.collect()
    with suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def soak(plan):
    """Learn a stream. Raises AssertionError where anything is wrong. Returns what was seen."""
    warm = 0
    with tempfile.TemporaryDirectory() as directory:
        run = Disturbed(plan, directory)
        for block in plan.blocks():
            run.learn(block)
            if not warm and run.model.n_seen >= WARM_SHARE * plan.n_events:
                warm = resident_bytes()
    run.check(block)
    grown = resident_bytes() - warm
    assert grown <= MAX_GROWTH_BYTES, f"memory grew by {grown >> 20} MB"
    if plan.has_twin:
        check_twin(plan, run.model)
    return {
        "clusters": run.model.n_clusters,
        "refits": run.model.model.version,
        "interrupts": run.interrupted,
        "restarts": run.restarted,
        "MB grown": grown >> 20,
        "CPU s": round(sum(psutil.Process().cpu_times()[:2])),
    }


# -------------------------------------------------------------------- processes


def soak_here(plan):
    """Learn a stream in this process, and print what was seen as JSON; a signal makes it show its threads, and end."""
    faulthandler.enable()
    print(json.dumps(soak(plan)))


def wait_for(process, patience):
    """Wait for a process; False if it has had the processor for longer than `patience`, or stands still.

    How long a stream takes beside others on a busy machine says nothing.
    """
    spent, moved = 0.0, time.monotonic()
    while process.poll() is None:
        time.sleep(min(0.5, patience))
        if (now := cpu_seconds(process)) > spent + MIN_PROGRESS_SECONDS:
            spent, moved = now, time.monotonic()
        if spent > patience or time.monotonic() - moved > STILL_SECONDS:
            return False
    return True


def cpu_seconds(process):
    """Time of the processor that a process has had; 0 if it has ended."""
    try:
        return sum(psutil.Process(process.pid).cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def soak_apart(plan, patience, tell):
    """Learn a stream in a process of its own; its failure, or None."""
    command = [sys.executable, __file__, "--only", str(plan.seed), "--events", str(plan.n_events), "--here"]
    command += [f"--without={name}" for name in sorted(plan.without)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        hangs = not wait_for(process, patience)
        if hangs:
            process.send_signal(signal.SIGABRT)
            process.wait()
        for file in (out, errors):
            file.seek(0)
        seen, told = out.read(), errors.read().strip()
    if hangs or process.returncode:
        failure = told or f"ended with {process.returncode}"
        seen = "FAILED: " + ("hangs" if hangs else failure.splitlines()[-1])
    else:
        failure = None
        seen = ", ".join(f"{value} {name}" for name, value in json.loads(seen.splitlines()[-1]).items())
    tell(f"seed {plan.seed} ({plan}): {seen} in {time.monotonic() - began:.0f} s")
    return failure


def run(seeds, n_events, without=(), jobs=1, patience=600.0, tell=lambda _: None):
    """Learn a stream for each seed. Returns the failures by seed."""
    plans = [Plan(seed, n_events, frozenset(without)) for seed in seeds]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda plan: soak_apart(plan, patience, tell), plans))
    return {plan.seed: failure for plan, failure in zip(plans, found, strict=True) if failure is not None}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--events", type=int, default=100_000, help="of each stream")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first stream; the next have the next ones"
    )
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="only the streams of these seeds")
    parser.add_argument(
        "--without", action="append", default=[], choices=SHARE_OF_STREAMS, help="leave out a trouble"
    )
    parser.add_argument("--jobs", type=int, default=1, help="streams at once")
    parser.add_argument(
        "--patience", type=float, default=600.0, help="seconds of the processor after which a stream hangs"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    seeds = args.only or range(args.seed, args.seed + args.streams)
    if args.here:
        soak_here(Plan(seeds[0], args.events, frozenset(args.without)))
        return
    failures = run(
        seeds, args.events, args.without, args.jobs, args.patience, lambda line: print(line, flush=True)
    )
    for seed, failure in failures.items():
        print(f"\n== seed {seed} failed\n{failure}")
    print(f"\n{len(seeds) - len(failures)} of {len(seeds)} streams of {args.events:,} events are whole")
    if failures:
        sys.exit(f"failed: --only {' '.join(map(str, failures))}")


if __name__ == "__main__":
    main()
