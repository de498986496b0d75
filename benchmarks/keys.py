"""Memory and rate of a service with a model for each of 10,000 keys, without a broker.

Events of keys come as often as words of a text (the n-th key 1 / n as often as the first), or all alike. Each
configuration runs in a process of its own: all models in memory, and some of them.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "connectors"))

from streamclust import StreamClusterer
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.http.backend import memory
from streamclust_connectors.interfaces import Channel, Output
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.key_models import KeyModels, KeyStore
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource


class CountingSink(ListSink):
    """Keeps no outputs."""

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Drop them."""


def values(n_events: int, n_keys: int, kind: str, seed: int = 0) -> list[bytes]:
    """Messages: each key has up to three clusters in three features."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, n_keys + 1) if kind == "zipf" else np.ones(n_keys)
    who = rng.choice(n_keys, size=n_events, p=share / share.sum())
    rows = rng.normal(size=(n_events, 3)) + 12.0 * (rng.integers(6, size=n_events) % (1 + who % 3))[:, None]
    return [
        json.dumps({"customer": f"customer-{k}", "x": x, "y": y, "z": z}).encode()
        for k, (x, y, z) in zip(who.tolist(), rows.round(4).tolist(), strict=True)
    ]


def measure(n_events: int, n_keys: int, kind: str, max_models: int, checkpoint_seconds: float) -> None:
    """Run one configuration, and print its figures as JSON."""
    warm = StreamClusterer(background=False)
    warm.learn_many(np.random.default_rng(1).normal(size=(500, 3)))
    content = values(n_events, n_keys, kind)
    with tempfile.TemporaryDirectory() as directory:
        models = KeyModels({}, Path(directory), max_models)
        policy = Policy(checkpoint_every=checkpoint_seconds)
        source = MemorySource({("events", 0): content}, size=5000)
        service = Service(
            source, CountingSink(), models, KeyStore(models), Decoder(Fields(key="customer")), policy
        )
        before, began, wall = memory(), time.process_time(), time.perf_counter()
        service.run()
        cpu, wall, after = time.process_time() - began, time.perf_counter() - wall, memory()
        size = sum(path.stat().st_size for path in Path(directory).rglob("*.sqlite"))
        seconds = {name: round(value, 1) for name, value in service.stats.seconds.items()}
    print(
        json.dumps(
            {
                "kind": kind,
                "max_models": max_models,
                "checkpoint every, s": checkpoint_seconds,
                "keys": models.n_keys,
                "events": n_events,
                "CPU s": round(cpu, 1),
                "events per CPU s": round(n_events / cpu),
                "wall s": round(wall, 1),
                "memory of models, MB": round((after - before) / 1e6),
                "KB per model in memory": round((after - before) / 1e3 / max(models.n_live, 1)),
                "most memory, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
                "disk, MB": round(size / 1e6),
                "loaded": models.n_loaded,
                "evicted": models.n_evicted,
                "stages": seconds,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--one", nargs=3, metavar=("KIND", "MAX_MODELS", "CHECKPOINT_SECONDS"))
    args = parser.parse_args()
    if args.one:
        kind, max_models, seconds = args.one
        measure(args.events, args.keys, kind, int(max_models), float(seconds))
        return
    for kind, max_models, seconds in (
        ("zipf", args.keys, 60),
        ("zipf", args.keys // 5, 60),
        ("uniform", args.keys, 60),
        ("uniform", args.keys // 5, 60),
    ):
        command = [sys.executable, __file__, "--events", str(args.events), "--keys", str(args.keys)]
        subprocess.run([*command, "--one", kind, str(max_models), str(seconds)], check=True)


if __name__ == "__main__":
    main()
