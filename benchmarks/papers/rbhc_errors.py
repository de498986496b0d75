"""Relaxed BHC: how often its cost is not reducible, and the relative error of the second-order cost that would be."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot

from benchmarks.papers.page import Page
from benchmarks.purity import clusters_of
from streamclust.families import FAMILIES, AnyFamily
from streamclust.hierarchy.problem import MergeProblem
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.moments import Moments

STEP = 1e-3
"""Of the finite difference, as a part of the way between two clusters."""

LEAST_COST = 1e-5
"""Nats below which two costs together are 0: the finite difference is of generators of up to a hundred nats, whose
rounding errors it divides by STEP² and multiplies by the events."""


def approximate(family: AnyFamily, pair: Moments) -> float:
    """The cost of merging two rows, by the second derivative of φ at their union, along the line between them."""
    n = pair.weight
    share = n / n.sum()
    second = pair.covariance + np.einsum("ki,kj->kij", pair.mean, pair.mean) if pair.kind == "full" else None
    rows = []
    for way in (-STEP, 0.0, STEP):
        mix = share + way * np.array([1.0, -1.0])
        mean = mix @ pair.mean
        if second is None:
            rows.append(Moments(np.ones(1), mean[None], np.zeros((1, 0)), "none"))
        else:
            spread = np.einsum("k,kij->ij", mix, second) - np.outer(mean, mean)
            rows.append(Moments(np.ones(1), mean[None], spread[None], "full"))
    low, middle, high = family.generator(Moments.stack(rows))
    return float(0.5 * n[0] * n[1] / n.sum() * (low - 2 * middle + high) / STEP**2)


def trial(name: str, most: int, rng: np.random.Generator, scale: float = 1.0) -> tuple[float, float, bool]:
    """Exact and approximate cost of the cheapest of three merges, and whether the third cluster comes nearer by it."""
    parts = clusters_of(name, rng.integers(20, most + 1, size=3), rng)
    middle = parts[0].mean(axis=0)
    parts = [middle + scale * (part - middle) for part in parts] if scale != 1.0 else parts
    x = np.concatenate(parts)
    family = FAMILIES[name].informed(x / scale)  # smoothing as without the scale
    rows = Moments.rows_of_points(x).to_groups(
        np.repeat(np.arange(3), [len(part) for part in parts]), kind=family.scatter
    )
    problem = MergeProblem.of(Relaxed(), family, rows)
    cost = np.array([problem.costs(i, np.arange(3)) for i in range(3)])
    a, b = np.unravel_index(cost.argmin(), cost.shape)
    c = 3 - a - b
    union = rows.to_groups(np.where(np.arange(3) == c, 1, 0))
    after = MergeProblem.of(Relaxed(), family, union).costs(0, np.array([1]))[0]
    return (
        float(cost[a, b]),
        approximate(family, rows[[int(a), int(b)]]),
        bool(after < min(cost[a, c], cost[b, c]) - 1e-12),
    )


def relative(exact: np.ndarray, other: np.ndarray) -> tuple[float, int]:
    """Mean relative error of the merges that cost something, and the number of those that do not."""
    costly = exact + other > LEAST_COST
    errors = 2 * np.abs(exact - other)[costly] / (exact + other)[costly]
    return float(errors.mean()), int((~costly).sum())


def main() -> None:
    page = Page("Relaxed BHC: reducibility and relative errors")
    trials = 300 if page.quick else 20_000
    rows = []
    for name in ("poisson", "multinomial", "gaussian"):
        rng = np.random.default_rng(0)
        exact, other, broken = (
            np.array(column) for column in zip(*(trial(name, 100, rng) for _ in range(trials)), strict=True)
        )
        error, n_free = relative(exact, other)
        costs = f"{exact.mean():.4f}", f"{other.mean():.4f}"
        rows.append([name, *costs, f"{error:.4f}", f"{n_free}", f"{broken.sum()} of {trials:,}"])
    curve = max(trials // 5, 40)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    sizes = (40, 100, 200, 500)
    errors = []
    for most in sizes:
        exact, other, _ = zip(
            *(trial("gaussian", most, np.random.default_rng([1, i])) for i in range(curve)), strict=True
        )
        errors.append(relative(np.array(exact), np.array(other))[0])
    left.plot(sizes, errors, "o-")
    left.set(xlabel="largest cluster", ylabel="mean relative error", xscale="log", yscale="log")
    scales = (1.0, 0.3, 0.1, 0.03)
    by_scale = []
    for scale in scales:
        exact, other, _ = zip(
            *(trial("gaussian", 100, np.random.default_rng([2, i]), scale) for i in range(curve)), strict=True
        )
        by_scale.append(relative(np.array(exact), np.array(other))[0])
    right.plot(scales, by_scale, "o-")
    right.set(
        xlabel="scale of the covariance (smoothing stays)",
        ylabel="mean relative error",
        xscale="log",
        yscale="log",
    )
    page.say(
        "Three clusters of 20 to 100 points of one distribution; the cheapest merge. Exact is the loss of "
        "Bregman information, approximate its second-order expansion at the union, which is reducible. "
        "The paper's own numbers are not in its text (they are lost from its tables); it says: reducible "
        "in most cases, small relative errors, falling with the clusters' size and with the variance. "
        "Relative errors are of merges that cost something: two clusters of equal counts cost nothing by either."
    )
    page.table(
        ["family", "exact cost", "approximate", "relative error", "cost nothing", "not reducible"], rows
    )
    page.picture(figure, "Relative error against size and scale")
    page.table(["largest cluster", *map(str, sizes)], [["relative error", *(f"{e:.4f}" for e in errors)]])
    page.table(["scale", *map(str, scales)], [["relative error", *(f"{e:.4f}" for e in by_scale)]])
    page.write()


if __name__ == "__main__":
    main()
