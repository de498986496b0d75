"""Record the exact bits of a dozen streams, or compare them with a record: refactoring must not change results.

`--write FILE` before a change, `--compare FILE` after it, on the same machine. Each stream is hashed as its checkpoint,
its lifecycle events and its predictions; a mismatch names the stream and the part.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamclust import StreamClusterer, StreamFeatures
from streamclust.checkpoint import read

Floats = np.ndarray
Hashes = dict[str, str]
"""Hash of each part of a stream's result."""

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], dtype=float)


def blobs(seed: int, n: int, centres: Floats = CENTRES) -> Floats:
    rng = np.random.default_rng(seed)
    return centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, centres.shape[1]))


def drifting(seed: int, n: int) -> Floats:
    x = blobs(seed, n)
    x[n // 2 :] += np.linspace(0, 8, n - n // 2)[:, None]
    return x


def wandering(seed: int, n: int, correlation: float = 100.0) -> Floats:
    rng = np.random.default_rng(seed)
    source, place, decay = rng.integers(5, size=n), np.zeros((5, 2)), np.exp(-1 / correlation)
    noise, x = rng.normal(size=(n, 2)) * np.sqrt(1 - decay**2), np.empty((n, 2))
    for i, k in enumerate(source):
        place[k] = decay * place[k] + noise[i]
        x[i] = CENTRES[k] + place[k]
    return x


def counts(seed: int, n: int) -> Floats:
    rng = np.random.default_rng(seed)
    rates = rng.dirichlet(np.full(12, 0.3), size=4)
    return np.array([rng.multinomial(40, rates[k]) for k in rng.integers(4, size=n)], dtype=float)


def gaps(seed: int, n: int) -> Floats:
    x = blobs(seed, n, np.random.default_rng(5).normal(size=(5, 6)) * 8)
    x[np.random.default_rng(seed + 1).random(x.shape) < 0.2] = np.nan
    return x


def wide(seed: int, n: int) -> Floats:
    rng = np.random.default_rng(3)
    topics = rng.normal(size=(6, 300)) * 0.6
    return blobs(seed, n, topics)


STREAMS = {
    "gaussian": ({}, lambda: blobs(1, 20_000)),
    "drifting": ({}, lambda: drifting(2, 20_000)),
    "wandering": ({}, lambda: wandering(3, 20_000)),
    "half-life": ({"half_life": 500.0}, lambda: blobs(4, 20_000)),
    "ignoring drift": ({"drift": "ignore"}, lambda: drifting(5, 12_000)),
    "diagonal": ({"family": "diagonal"}, lambda: blobs(6, 12_000)),
    "spherical, dp-means": ({"family": "spherical", "refit": "dp-means"}, lambda: blobs(7, 12_000)),
    "chunky-em": ({"refit": "chunky-em"}, lambda: blobs(8, 8_000)),
    "multinomial": ({"family": "multinomial"}, lambda: counts(9, 8_000)),
    "bernoulli": ({"family": "bernoulli"}, lambda: (counts(10, 8_000) > 2).astype(float)),
    "poisson": ({"family": "poisson"}, lambda: counts(11, 8_000)),
    "missing": ({}, lambda: gaps(12, 8_000)),
    "wide": ({}, lambda: wide(13, 6_000)),
    "in the foreground": ({"background": False}, lambda: drifting(14, 12_000)),
}


def digest(*parts: np.ndarray | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()[:16]


def state_digest(model: StreamClusterer | StreamFeatures) -> str:
    """Hash of all arrays and values of a model's checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.checkpoint"
        model.save(path)
        arrays, meta = read(path)
        kept = [name.encode() + digest(values).encode() for name, values in sorted(arrays.items())]
        return digest(json.dumps(meta, sort_keys=True, default=str).encode(), *kept)


def hashes(model: StreamClusterer, rows: Floats) -> Hashes:
    found = {"state": state_digest(model)}
    found["events"] = digest("\n".join(map(repr, model.events)).encode())
    answers = model.assign_many(rows[:500])
    found["predictions"] = digest(
        np.array(answers.cluster.tolist(), dtype=float), answers.probability, answers.novelty
    )
    return found


def plain(parameters: dict[str, object], rows: Floats) -> Hashes:
    model = StreamClusterer(seed=1, **parameters)
    for block in np.array_split(rows, 7):
        model.learn_many(block)
    return hashes(model, rows)


def by_one(rows: Floats) -> Hashes:
    model = StreamClusterer(seed=2)
    for row in rows:
        model.learn_one({"a": row[0], "b": row[1]})
    return hashes(model, rows)


def sharded(rows: Floats) -> Hashes:
    model = StreamClusterer(seed=3)
    for i, block in enumerate(np.array_split(rows, 12)):
        model.learn_many(block, shard=i % 3)
    other = StreamClusterer(seed=3)
    other.learn_many(rows[::3] + 40.0)
    model.merge(other)
    model.settle()
    return hashes(model, rows)


def restarted(rows: Floats) -> Hashes:
    model = StreamClusterer(seed=4)
    with tempfile.TemporaryDirectory() as directory:
        for block in np.array_split(rows, 9):
            model.learn_many(block)
            model.save(Path(directory) / "model.checkpoint")
            model = StreamClusterer.load(Path(directory) / "model.checkpoint")
    return hashes(model, rows)


def features(rows: Floats) -> Hashes:
    model = StreamFeatures(seed=5)
    model.learn_many(rows)
    return {"state": state_digest(model)}


def record(only: list[str] | None) -> dict[str, Hashes]:
    found = {}
    jobs = {
        name: (lambda parameters=parameters, rows=rows: plain(parameters, rows()))
        for name, (parameters, rows) in STREAMS.items()
    }
    jobs["one by one"] = lambda: by_one(drifting(15, 8_000))
    jobs["shards and merge"] = lambda: sharded(blobs(16, 12_000))
    jobs["restarts"] = lambda: restarted(drifting(17, 12_000))
    jobs["features"] = lambda: features(wide(18, 1_500)[:, :24])
    for name, job in jobs.items():
        if only and name not in only:
            continue
        found[name] = job()
        print(f"{name:22s} " + "  ".join(f"{part} {bits}" for part, bits in found[name].items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="where to record the bits")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a record to compare with")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of streams")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = record(options.only)
    if options.write:
        options.write.write_text(json.dumps(found, indent=1))
    if options.compare:
        known = json.loads(options.compare.read_text())
        wrong = [
            f"{name}: {part}"
            for name, parts in found.items()
            for part in parts
            if known[name].get(part) != parts[part]
        ]
        print(f"{len(found)} streams compared, {len(wrong)} differ" + "".join(f"\n  {w}" for w in wrong))
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
