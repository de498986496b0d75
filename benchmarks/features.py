"""StreamFeatures: where a search for features should read, and whether features of a moving stream are followed.

Events are sums of planted features, any of them, with Gaussian noise of variance 1. A feature counts as found if some
feature of the model is nearer to it, or to its negative, than half its length.

    python benchmarks/features.py                 everything, five seeds
    python benchmarks/features.py --only read     a search that reads leaves, the tree's sample, a uniform sample
    python benchmarks/features.py --only moving   slow drift, a feature that ends, a feature that is new
    python benchmarks/features.py --only rate     events per CPU second
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from time import process_time

import numpy as np

from streamclust import StreamFeatures
from streamclust.refit.bp_means.allocation import nearest_features
from streamclust.refit.bp_means.fit import fit_features
from streamclust.tree import SummaryTree

SAMPLE_ROWS = 1000
EVENTS = 20_000


def planted(seed: int, n_features: int, columns: int) -> np.ndarray:
    """Features of some 30% of the columns."""
    rng = np.random.default_rng(seed)
    A = 3.0 * rng.normal(size=(n_features, columns)) * (rng.random((n_features, columns)) < 0.3)
    A[np.arange(n_features), rng.integers(columns, size=n_features)] += 3.0
    return A


def drawn(rng: np.random.Generator, n: int, A: np.ndarray, share: float = 0.4) -> np.ndarray:
    """Events that have each feature with this probability."""
    return (rng.random((n, len(A))) < share) @ A + rng.normal(size=(n, A.shape[1]))


def found(A: np.ndarray, means: np.ndarray) -> int:
    """How many planted features some feature of the model is near to."""
    if len(means) == 0:
        return 0
    apart = [np.linalg.norm(sign * means[None] - A[:, None], axis=2).min(axis=1) for sign in (1, -1)]
    return int((np.minimum(*apart) < 0.5 * np.linalg.norm(A, axis=1)).sum())


def left_over(x: np.ndarray, means: np.ndarray) -> float:
    """Residual variance of events: 1 is the noise."""
    Z = nearest_features(x, means, np.zeros(len(means), dtype=bool)) if len(means) else np.zeros((len(x), 0))
    return float(np.mean((x - Z @ means) ** 2))


def span(values: Iterable[float], form: str = ".2f") -> str:
    """Median and range."""
    values = list(values)
    return f"{np.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


# ---------------------------------------------------------------- what a search reads


def leaves(tree: SummaryTree) -> tuple[np.ndarray, np.ndarray]:
    rows = tree.leaves()
    return rows.mean, rows.weight * SAMPLE_ROWS / rows.weight.sum()


def sample(tree: SummaryTree) -> tuple[np.ndarray, np.ndarray]:
    """As many rows of the tree's sample as a uniform sample has, picked evenly, with their weights."""
    x, w = tree.sample()
    kept = np.random.default_rng(0).permutation(len(x))[:SAMPLE_ROWS]
    return x[kept], w[kept] * SAMPLE_ROWS / w[kept].sum()


def reading(seeds: int) -> None:
    print(
        f"{EVENTS} events; a search reads about {SAMPLE_ROWS} rows: features found, residual variance of new events"
    )
    for n_features, columns in ((3, 8), (6, 16), (6, 64)):
        ways: dict[str, list[tuple[float, float]]] = {"leaves": [], "tree's sample": [], "uniform sample": []}
        for seed in range(seeds):
            A, rng = planted(seed, n_features, columns), np.random.default_rng([seed, 1])
            x, later = drawn(rng, EVENTS, A), drawn(rng, 2000, A)
            tree = SummaryTree(columns, scatter="diagonal", seed=seed)
            tree.insert(x)
            uniform = x[rng.permutation(EVENTS)[:SAMPLE_ROWS]], np.ones(SAMPLE_ROWS)
            for way, (rows, weight) in zip(ways, (leaves(tree), sample(tree), uniform), strict=True):
                means = fit_features(rows, weight=weight, restarts=1, max_features=2 * n_features, rng=seed).A
                ways[way] += [(found(A, means), left_over(later, means))]
        for way, got in ways.items():
            hits, rest = zip(*got, strict=True)
            print(
                f"  K {n_features:>2} D {columns:>2}  {way:<15} found {span(hits, '.0f'):<16} residual {span(rest)}",
                flush=True,
            )


# ---------------------------------------------------------------- streams that move


def streamed(model: StreamFeatures, pieces: Iterable[np.ndarray]) -> StreamFeatures:
    for piece in pieces:
        model.learn_many(piece)
    return model


def drifting(seed: int, A: np.ndarray, rng: np.random.Generator) -> str:
    """All features wander 4 deviations away, in each column, within 40,000 events."""
    away = 4.0 * rng.normal(size=A.shape)
    model = streamed(StreamFeatures(seed=seed), (drawn(rng, 100, A + away * i / 400) for i in range(400)))
    means = np.array([list(a.values()) for a in model.features.values()])
    return f"{left_over(drawn(rng, 2000, A + away), means):.2f} {len(model.events) - len(A)}"


def ending(seed: int, A: np.ndarray, rng: np.random.Generator) -> str:
    """One feature of six lacks from event 10,000 to 20,000."""
    model = streamed(StreamFeatures(seed=seed), (drawn(rng, 10_000, part) for part in (A, A[1:], A)))
    late = [change for change in model.events if change.at > 10_000]
    error = max(abs(w / (0.4 * 30_000) - 1) for w in sorted(model.weights.values())[1:])
    return f"{'/'.join(c.kind for c in late)} {'/'.join(str(c.at % 10_000) for c in late)} {error:.3f}"


def appearing(seed: int, A: np.ndarray, rng: np.random.Generator) -> str:
    """A feature that a tenth of the events have from 20,000 on."""
    model = streamed(StreamFeatures(seed=seed), [drawn(rng, 20_000, A[1:])])
    model.learn_many(drawn(rng, 10_000, A[1:]) + (rng.random((10_000, 1)) < 0.1) * A[0])
    late = [change for change in model.events if change.at > 20_000]
    return f"{'/'.join(c.kind for c in late) or 'none'} {'/'.join(str(c.at - 20_000) for c in late)}"


def moving(seeds: int) -> None:
    print(
        "slow drift: residual variance, late lifecycle events; a feature that ends and returns: lifecycle events, how"
    )
    print("many events after the change, error of the others' weights; a new feature of 10%: the same")
    for n_features, columns in ((3, 10), (6, 64)):
        for what in (drifting, ending, appearing):
            told = []
            for seed in range(seeds):
                A, rng = planted(seed, n_features, columns), np.random.default_rng([seed, 2])
                told.append(what(seed, A, rng))
            print(f"  K {n_features} D {columns}  {what.__name__:<10} {';  '.join(told)}", flush=True)


def rate(seeds: int) -> None:
    print("events per CPU second, D = 64: the first 10,000 events, the next 10,000")
    for n_features in (3, 6, 10, 12, 16):
        first, later = [], []
        for seed in range(seeds):
            A, rng = planted(seed, n_features, 64), np.random.default_rng([seed, 3])
            model = StreamFeatures(seed=seed)
            for rates in (first, later):
                x = drawn(rng, 10_000, A)
                start = process_time()
                model.learn_many(x)
                rates.append(10_000 / (process_time() - start))
        print(f"  K {n_features:>2}  {span(first, '7,.0f')}   {span(later, '7,.0f')}", flush=True)


PARTS: dict[str, Callable[[int], None]] = {"read": reading, "moving": moving, "rate": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, part in PARTS.items():
        if given.only in (None, name):
            part(given.seeds)


if __name__ == "__main__":
    main()
