"""Hierarchies against their peers, on the same data in the same run.

Spherical RBHC beside fastcluster (linkage_vector, Ward), SciPy (up to 10,000 points: it keeps all distances) and
genieclust (another tree, for time only); then agglomerative Bayesian clustering by the lazy list, the conga line and
the naive search, in evaluations and time; then snapshots of a 1,024-leaf tree.

    python benchmarks/hierarchy_speed.py            n = 2,000 to 100,000
    python benchmarks/hierarchy_speed.py --quick    n = 2,000 and 5,000
"""

from __future__ import annotations

import argparse
from importlib import import_module
from time import perf_counter

import numpy as np
from scipy.cluster.hierarchy import linkage

from streamclust.hierarchy import agglomerate, agglomerate_steps, snapshot
from streamclust.hierarchy.agglomerate import informed
from streamclust.hierarchy.agglomerative import Agglomerative
from streamclust.hierarchy.problem import MergeProblem
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import refit_bkm
from streamclust.tree import SummaryTree
from streamclust_connectors.synthetic import SyntheticMixture

MOST_FOR_SCIPY = 10_000


def timed(call):  # noqa: ANN001, ANN201
    start = perf_counter()
    result = call()
    return result, perf_counter() - start


def peer(name: str):  # noqa: ANN201
    try:
        return import_module(name)
    except ImportError:
        print(f"(!) {name} is not installed: its column stays empty. pip install {name}")
        return None


def points_of(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.uniform(size=(n, d))
    centres = rng.normal(size=(20, d)) * 6
    return centres[rng.integers(20, size=n)] + rng.normal(size=(n, d))


def ward(sizes: list[int], repeats: int) -> None:
    fastcluster, genieclust = peer("fastcluster"), peer("genieclust")
    print("\nWard's tree (spherical RBHC), seconds, best of alternating runs")
    print("      n   D  data         ours   fastcluster   ratio     SciPy   genieclust   largest difference")
    agglomerate("spherical", Moments.rows_of_points(points_of("clustered", 2000, 2, 0)))
    for n in sizes:
        for d in (2, 16):
            for kind in ("clustered", "uniform"):
                x = points_of(kind, n, d, seed=n + d)
                ours, theirs = np.inf, np.inf
                for _ in range(repeats if n <= 20_000 else 1):
                    tree, seconds = timed(lambda: agglomerate("spherical", Moments.rows_of_points(x)))  # noqa: B023
                    ours = min(ours, seconds)
                    if fastcluster:
                        Z, seconds = timed(lambda: fastcluster.linkage_vector(x, "ward"))  # noqa: B023
                        theirs = min(theirs, seconds)
                scipy = timed(lambda: linkage(x, "ward")) if n <= MOST_FOR_SCIPY else None  # noqa: B023
                heights = scipy[0][:, 2] if scipy else Z[:, 2] if fastcluster else 2 * np.sqrt(tree.cost)
                worst = np.abs(2 * np.sqrt(tree.cost) - heights).max() / heights.max()
                genie = timed(lambda: genieclust.Genie(n_clusters=2).fit(x))[1] if genieclust else None  # noqa: B023
                print(
                    f"{n:>7} {d:>3}  {kind:<10} {ours:>7.3f}   "
                    f"{theirs:>11.3f}  {theirs / ours:>5.1f}x  {scipy[1] if scipy else np.nan:>8.3f}   "
                    f"{np.nan if genie is None else genie:>10.3f}   {worst:.1e}",
                    flush=True,
                )


def naive(family: object, x: np.ndarray) -> tuple[int, float]:
    """All pairs at every step, through the same compiled costs."""
    start = perf_counter()
    problem = MergeProblem.of(Agglomerative(), family, Moments.rows_of_points(x))
    from streamclust._kernels.hierarchy.costs import price

    active, evaluations = list(range(len(x))), 0
    while len(active) > 1:
        slots = np.array(active)
        best = (np.inf, 0, 0)
        for i in range(1, len(slots)):
            costs = problem.costs(int(slots[i]), slots[:i])
            evaluations += i
            j = int(costs.argmin())
            best = min(best, (float(costs[j]), int(slots[i]), int(slots[j])))
        price(*problem.arguments, best[1], best[2], slots, 0, np.empty(1))
        active.remove(best[2])
    return evaluations, perf_counter() - start


def abc(sizes: list[int], rule: str) -> None:
    print(f"\nABC, Gaussian, D = 2, 10 clusters at tau = 3, prior {rule!r}: evaluations in n², seconds")
    print("      n   lazy list           conga line          conga/lazy   naive")
    for n in sizes:
        x, _ = SyntheticMixture(2, n_clusters=10, tau=3.0, seed=n).sample(n)
        family = informed_by(rule, x)
        rows = Moments.rows_of_points(x)
        counts, seconds, costs = {}, {}, {}
        for _ in range(2 if n < 5000 else 1):
            for search in ("lazy", "conga"):
                steps, taken = timed(lambda: list(agglomerate_steps(family, rows, "abc", search)))  # noqa: B023
                counts[search] = steps[-1].evaluations / n**2
                costs[search] = steps[-1].dendrogram.cost
                seconds[search] = min(taken, seconds.get(search, np.inf))
        slow = naive(family, x) if n <= 400 else None
        same = "" if np.allclose(costs["lazy"], costs["conga"]) else "   (!) different sequences"
        print(
            f"{n:>7}   {counts['lazy']:>5.2f} n²  {seconds['lazy']:>7.3f}   {counts['conga']:>5.2f} n²  "
            f"{seconds['conga']:>7.3f}   {seconds['conga'] / seconds['lazy']:>9.1f}x"
            + (f"   {slow[0] / n**2:.1f} n²  {slow[1]:.3f}" if slow else "   -")
            + same,
            flush=True,
        )


def informed_by(rule: str, x: np.ndarray):  # noqa: ANN201
    from streamclust.families import Gaussian

    return informed("gaussian", x, "abc") if rule == "nearest" else Gaussian.informed(x, rule="agglomerative")


def snapshots(n: int) -> None:
    print(f"\nSnapshots of a tree of 1,024 leaves over {n:,} events, seconds (best of 3)")
    print("  D   K  method   consistent   raw")
    for d in (2, 8, 16):
        events, _ = SyntheticMixture(d, n_clusters=10, tau=3.0, seed=1).sample(n)
        tree = SummaryTree(d, max_leaves=1024)
        tree.insert(events)
        model = refit_bkm("gaussian", tree)
        labels = model.assign(tree.sample()[0])
        for method in ("rbhc", "abc", "bhc"):
            options = {"method": method, "sample_labels": labels, "clusters": model.clusters}
            best = {}
            for consistent in (True, False):
                runs = [
                    timed(
                        lambda: snapshot("gaussian", tree, model.labels, consistent=consistent, **options)  # noqa: B023
                    )[1]
                    for _ in range(4)
                ]
                best[consistent] = min(runs[1:])
            print(
                f"{d:>3} {model.n_clusters:>3}  {method:<6} {best[True]:>11.3f}  {best[False]:>6.3f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--part", choices=["ward", "abc", "snapshots"], help="one part only")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of points for Ward's tree")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs per cell up to 20,000 points (default: 3)"
    )
    arguments = parser.parse_args()
    sizes = arguments.sizes or ([2000, 5000] if arguments.quick else [2000, 5000, 20_000, 50_000, 100_000])
    if arguments.part in (None, "ward"):
        ward(sizes, arguments.repeats)
    if arguments.part in (None, "abc"):
        for rule in ("nearest", "agglomerative"):
            abc([400, 800] if arguments.quick else [400, 800, 1600, 3200, 6400], rule)
    if arguments.part in (None, "snapshots"):
        snapshots(50_000 if arguments.quick else 1_000_000)


if __name__ == "__main__":
    main()
