"""Figure 5 of Bayesian k-means: one assignment step through the tree, against brute force in the same run.

An assignment step labels every point and sums up each cluster's moments. Brute force is compiled with the same
flags, from points in plain arrays: "loop" as anyone would write it, D known at run time; "unrolled", for D = 2
and 3, compiled for that very D, as the descent is; and "blas", by matrix products, on as many cores as it takes.
Times are the least of several repeats in turns, several steps in a row, as k-means takes them. The tree is built
once for many steps: its time stands apart.

Then whole fits of points, CPU seconds with assign="tree", its building included, and without: the same clusters.

    python benchmarks/bkm_speedup.py [--quick] [--bounds] [--fits]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.tree.costs import label_points
from streamclust._kernels.tree.gather import gather
from streamclust._kernels.types import Floats, Ints
from streamclust.families import Gaussian, Multinomial
from streamclust.families.cost_form import CostForm
from streamclust.moments import Moments
from streamclust.refit import fit_points
from streamclust.tree import SummaryTree
from streamclust.tree.descent import BOUNDS, own
from streamclust.tree.label import dims, kernel_form, label_by_blas
from streamclust.tree.layout import layout
from streamclust_connectors.synthetic import SyntheticMixture, topics

K = 5
REPEATS, STEPS = 5, 5
NONE: Ints = np.empty(0, dtype=np.int64)


class Case(NamedTuple):
    """One line of the table."""

    family: str
    n: int
    d: int
    tau: float
    """Separation of the mixture; for counts, the length of a document."""
    leaf_size: int = 16


FULL = [
    *(Case("gaussian", n, 2, 3.0) for n in (20_000, 80_000, 1_000_000)),
    Case("gaussian", 80_000, 2, 3.0, leaf_size=32),
    *(Case("gaussian", 80_000, 2, tau) for tau in (0.5, 1.0, 2.0, 5.0)),
    *(Case("gaussian", n, d, 3.0) for d in (3, 4, 8) for n in (20_000, 80_000)),
    *(Case("gaussian", 1_000_000, d, 3.0) for d in (3, 4)),
    *(Case("multinomial", n, d, 50) for d in (2, 4, 8) for n in (20_000, 80_000)),
]
QUICK = [
    Case("gaussian", 20_000, 2, 3.0),
    Case("gaussian", 20_000, 4, 3.0),
    Case("multinomial", 20_000, 4, 50),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few small cases")
    parser.add_argument("--bounds", action="store_true", help="compare all bounds")
    parser.add_argument(
        "--seeds", type=int, default=2, help="data sets per case; the table shows their medians"
    )
    parser.add_argument("--fits", action="store_true", help="only whole fits")
    options = parser.parse_args()
    fits(options.quick)
    if options.fits:
        return
    bounds = tuple(BOUNDS) if options.bounds else ("difference",)
    names = ("loop", "unrolled", "blas", *bounds)
    print("milliseconds a step, and how many times faster than the loop, unrolled and BLAS the last bound is")
    print(f"{'family':12}{'N':>9}{'D':>3}{'tau':>5}{'leaf':>5}{'build s':>9}", end="")
    print("".join(f"{name:>11}" for name in names), f"{'/loop':>7}{'/unrolled':>10}{'/blas':>7}")
    for case in QUICK if options.quick else FULL:
        runs = [measure(case, seed, bounds) for seed in range(options.seeds)]
        times = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
        ratios = [float(np.median([run[name] / run[bounds[-1]] for run in runs])) for name in names[:3]]
        print(
            f"{case.family:12}{case.n:9}{case.d:3}{case.tau:5g}{case.leaf_size:5}{times['build']:9.2f}",
            end="",
        )
        print("".join(f"{1e3 * times[name]:11.3f}" for name in names), end=" ")
        print("{:7.1f}{:10.1f}{:7.1f}".format(*ratios), flush=True)


def fits(quick: bool) -> None:
    """Whole fits through a tree, and without."""
    print('whole fits, CPU seconds: all costs, assign="tree"')
    print(
        f"{'N':>9}{'D':>3} {'search':<9} {'mixture':<14} {'K':>3}{'costs':>9}{'tree':>9}{'ratio':>7}  same clusters"
    )
    for d in (2, 3, 4):
        for n in (1_000, 5_000, 20_000) if quick else (1_000, 5_000, 20_000, 80_000):
            x = SyntheticMixture(d, n_clusters=K, tau=3.0, seed=0).sample(n)[0]
            for search in ("auto", "top-down"):
                for mixture in ("finite", "infinite"):
                    seconds, found = [], []
                    for assign in ("blas", "tree"):
                        fit_points(
                            "gaussian", x[:200], mixture=mixture, search=search, assign=assign
                        )  # kernels
                        start = time.process_time()
                        found.append(fit_points("gaussian", x, mixture=mixture, search=search, assign=assign))
                        seconds.append(time.process_time() - start)
                    same = np.array_equal(found[0].labels, found[1].labels)
                    print(
                        f"{n:9}{d:3} {search:<9} {mixture:<14} {found[1].n_clusters:3}"
                        f"{seconds[0]:9.2f}{seconds[1]:9.2f}{seconds[0] / seconds[1]:7.2f}  {same}",
                        flush=True,
                    )


def measure(case: Case, seed: int, bounds: tuple[Any, ...]) -> dict[str, float]:
    """Seconds of each way to take the step, by name."""
    x, form, tree, build = scene(case, seed)
    steps: dict[str, Callable[[], Moments]] = {
        "loop": lambda: brute_force(x, form, tree, ()),
        "unrolled": lambda: brute_force(x, form, tree, dims(form)),
        "blas": lambda: sums(x, label_by_blas(x, form), tree, form, dims(form)),
    }
    for bound in bounds:
        steps[bound] = lambda bound=bound: own(tree, form, bound).moments  # type: ignore[misc]
    expected = steps["loop"]()
    for step in steps.values():  # compiles, and checks
        np.testing.assert_allclose(step().weight, expected.weight, atol=1e-6 * case.n)
    times = dict.fromkeys(steps, np.inf)
    for _ in range(REPEATS):
        for name, step in steps.items():
            for _ in range(STEPS):  # k-means takes many in a row
                start = time.perf_counter()
                step()
                times[name] = min(times[name], time.perf_counter() - start)
    return times | {"build": build}


def scene(case: Case, seed: int) -> tuple[Floats, CostForm, SummaryTree, float]:
    """Points, the costs of the clusters that made them, their tree, and the seconds it took to build."""
    family: Any
    if case.family == "gaussian":
        x, labels = SyntheticMixture(case.d, n_clusters=K, tau=case.tau, seed=seed).sample(case.n)
        family = Gaussian.informed(x)
    else:
        x, labels = topics(case.n, case.d, K, int(case.tau), seed)
        family = Multinomial()
    clusters = Moments.rows_of_points(x).to_groups(labels, K, kind=family.scatter)
    form = family.cost_form(family.posterior(clusters), np.log(clusters.weight))
    start = time.perf_counter()
    tree = SummaryTree(case.d, family.scatter, max_leaves=None, split="widest", leaf_size=case.leaf_size)
    tree.insert(x)
    layout(tree)
    return x, form, tree, time.perf_counter() - start


def brute_force(x: Floats, form: CostForm, tree: SummaryTree, unroll: tuple[int, ...]) -> Moments:
    """Label each point, then sum up each cluster: two compiled loops."""
    labels = np.empty(len(x), dtype=np.int64)
    label_points(x, *kernel_form(form, x.shape[1]), unroll, labels)
    return sums(x, labels, tree, form, unroll)


def sums(x: Floats, labels: Ints, tree: SummaryTree, form: CostForm, unroll: tuple[int, ...]) -> Moments:
    nodes = layout(tree)
    reference = np.ascontiguousarray(form[0] if len(form) == 3 else np.repeat(x[:1], K, axis=0))
    rows = gather(
        NONE, NONE, np.arange(len(x)), labels, nodes.weight, nodes.mean, nodes.scatter, x, np.ones(len(x)),
        nodes.origin, reference, unroll, (0,) * nodes.scatter.shape[1] if unroll else (),
    )  # fmt: skip
    return Moments.from_flat(*rows, nodes.kind)


if __name__ == "__main__":
    main()
