"""Chunky EM beside scikit-learn's GaussianMixture, on the same data in the same run, one thread each.

Figures 4.4 and 4.5 of Nunnink: speedup and held-out negative log-likelihood against the number of points, dimensions,
components, and the separation (4.1), around 100,000 points, D = 2, K = 10, separation 3.

start   (figure 4.4)  K given, both from the same start: Voronoi regions of K random points. Chunky EM alone, with the
                      tree's building, and with tree and final passes over the points.
greedy  (figure 4.5)  ChunkyGaussianMixture, K unknown, tree included, beside GaussianMixture told K (its own start).
number                how often K is found, over 10 seeds.
refit                 a refit of a 512-leaf tree after 100 thousand events and after 10 million.

Times are CPU seconds, so that other work on the machine counts for little.

    python benchmarks/chunky_em.py                       everything
    python benchmarks/chunky_em.py --only start --n 500000 --seeds 5      one setting
    python benchmarks/chunky_em.py --quick
    python benchmarks/chunky_em.py --plot figures.png
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from streamclust.batch import ChunkyGaussianMixture
from streamclust.moments import Moments
from streamclust.refit.chunky_em.fit import LEAF_POINTS, MIN_LEAVES, fit_mixture, refit_mixture
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEEPS = {
    "n": (10_000, 50_000, 100_000, 500_000),
    "d": (2, 4, 8, 16),
    "k": (5, 10, 20, 40),
    "separation": (1.0, 2.0, 3.0, 4.0),
}
UNSEEN = 20_000


class Setting(NamedTuple):
    """What a data set is made of."""

    n: int = 100_000
    d: int = 2
    k: int = 10
    separation: float = 3.0


class Generator:
    """A random mixture whose means are `separation` apart in the sense of (4.1), in the smallest cube that has room."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        _, d, k, separation = setting
        axes = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
        self.roots = axes * rng.uniform(0.5, 1.5, size=(k, 1, d))
        covariances = self.roots @ self.roots.swapaxes(1, 2)
        size = np.sqrt(np.trace(covariances, axis1=1, axis2=2))
        side = 1.0
        while True:
            means = rng.uniform(size=(k, d)) * side
            gaps = np.linalg.norm(means[:, None] - means, axis=-1) / np.maximum(size[:, None], size)
            if np.all(gaps[np.triu_indices(k, 1)] >= separation):
                break
            side *= 1.01
        weights = rng.uniform(0.5, 1.5, size=k)
        nothing = np.zeros(0, dtype=np.int64)
        self.mixture = Mixture("full", weights / weights.sum(), means, covariances, nothing, 1.0, 0.0)

    def sample(self, n: int) -> np.ndarray:
        """Points of the mixture."""
        return self.mixture.sample(n, self._rng)[0]


def voronoi(points: np.ndarray, k: int, seed: int) -> Moments:
    """The start of section 4.1.1: moments of the Voronoi regions of k random points.

    Drawn again if a region has too few points for a covariance.
    """
    rng = np.random.default_rng(seed)
    while True:
        seeds = points[rng.choice(len(points), k, replace=False)]
        region = ((seeds**2).sum(axis=1) - 2 * points @ seeds.T).argmin(axis=1)
        if np.bincount(region, minlength=k).min() > points.shape[1]:
            return Moments.rows_of_points(points).to_groups(region, k, kind="full")


def timed(call):  # noqa: ANN001, ANN201
    start = process_time()
    result = call()
    return result, process_time() - start


def from_the_same_start(setting: Setting, seed: int) -> dict[str, float]:
    generator = Generator(setting, seed)
    points, unseen = generator.sample(setting.n), generator.sample(UNSEEN)
    start = voronoi(points, setting.k, seed)
    leaf_size = int(np.clip(setting.n // MIN_LEAVES, *LEAF_POINTS))

    def build() -> SummaryTree:
        tree = SummaryTree(setting.d, max_leaves=None, leaf_size=leaf_size)
        tree.insert(points)
        assert tree.total.weight[0] == setting.n  # sums of all nodes are worked out when first asked for
        return tree

    peer = GaussianMixture(
        setting.k,
        weights_init=start.weight / setting.n,
        means_init=start.mean,
        precisions_init=np.linalg.inv(start.covariance),
    )
    tree, building = timed(build)
    boxes, alone = timed(lambda: refit_mixture(tree, start, n_components=setting.k))
    passed, whole = timed(lambda: fit_mixture(points, start=start, n_components=setting.k))
    _, theirs = timed(lambda: peer.fit(points))
    truth = generator.mixture.log_density(unseen).mean()
    return {
        "seconds": alone,
        "tree": building,
        "theirs": theirs,
        "alone x": theirs / alone,
        "tree x": theirs / (alone + building),
        "passes x": theirs / whole,
        "truth": -truth,
        "nll boxes": -boxes.log_density(unseen).mean(),
        "nll": -passed.log_density(unseen).mean(),
        "nll peer": -peer.score(unseen),
    }


def greedily(setting: Setting, seed: int) -> dict[str, float]:
    generator = Generator(setting, seed)
    points, unseen = generator.sample(setting.n), generator.sample(UNSEEN)
    ours, seconds = timed(lambda: ChunkyGaussianMixture(seed=seed).fit(points))
    peer, theirs = timed(lambda: GaussianMixture(setting.k, random_state=seed).fit(points))
    return {
        "seconds": seconds,
        "theirs": theirs,
        "x": theirs / seconds,
        "K": ours.n_components_,
        "truth": -generator.mixture.log_density(unseen).mean(),
        "nll": -ours.score(unseen),
        "nll peer": -peer.score(unseen),
    }


COLUMNS = {
    "start": "  ours  + tree  sklearn   speedup: alone, + tree, + passes    nll above truth: boxes, + passes, sklearn",
    "greedy": "  ours          sklearn   speedup                  K found    nll above truth:        ours,    sklearn",
}


def line(figure: str, setting: Setting, runs: list[dict[str, float]]) -> dict[str, float]:
    mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    head = f"{setting.n:>8,} {setting.d:>3} {setting.k:>3} {setting.separation:>5}"
    above = {key: mean[key] - mean["truth"] for key in mean if key.startswith("nll")}
    if figure == "start":
        ratios = "".join(f"{mean[key]:>10.1f}" for key in ("alone x", "tree x", "passes x"))
        print(
            f"{head} {mean['seconds']:>6.3f} {mean['tree']:>7.3f} {mean['theirs']:>8.2f} {ratios}   "
            f"{above['nll boxes']:>23.4f} {above['nll']:>9.4f} {above['nll peer']:>9.4f}",
            flush=True,
        )
    else:
        found = sum(run["K"] == setting.k for run in runs)
        print(
            f"{head} {mean['seconds']:>6.3f} {mean['theirs']:>16.2f} {mean['x']:>9.1f} {mean['K']:>14.1f} "
            f"({found}/{len(runs)}) {above['nll']:>24.4f} {above['nll peer']:>10.4f}",
            flush=True,
        )
    return mean


def sweep(figure: str, settings: list[tuple[str, Setting]], seeds: int) -> list[tuple[str, Setting, dict]]:
    run = from_the_same_start if figure == "start" else greedily
    print(f"\n{figure}, means of {seeds} seeds\n       N   D   K  sep.{COLUMNS[figure]}")
    run(Setting(n=10_000, d=settings[0][1].d), 0)  # once unmeasured: compiled kernels come from the disk
    done: dict[Setting, dict[str, float]] = {}
    for _, setting in settings:
        if setting not in done:
            done[setting] = line(figure, setting, [run(setting, seed) for seed in range(seeds)])
    return [(name, setting, done[setting]) for name, setting in settings]


def number(n: int, seeds: int) -> None:
    print(f"\nnumber of components found, {seeds} seeds, {n:,} points, truth 10")
    for d in (2, 8):
        for separation in (2.0, 3.0):
            found = []
            for seed in range(100, 100 + seeds):
                points = Generator(Setting(n, d, 10, separation), seed).sample(n)
                found.append(ChunkyGaussianMixture(seed=seed).fit(points).n_components_)
            print(
                f"D = {d}, separation {separation}: {found}, right {found.count(10)} of {seeds}", flush=True
            )


def refits(many: int) -> None:
    print("\nrefit of a tree of 512 leaves, D = 2, K = 10, separation 3; median of 7")
    generator, tree = Generator(Setting(), 0), SummaryTree(2, max_leaves=512)
    medians = []
    for events in (100_000, many):
        while tree.n_events < events:
            tree.insert(generator.sample(100_000))
        warm = refit_mixture(tree)
        cold_times = [timed(lambda: refit_mixture(tree))[1] for _ in range(7)]
        warm_times = [timed(lambda: refit_mixture(tree, warm))[1] for _ in range(7)]  # noqa: B023
        medians.append((np.median(cold_times), np.median(warm_times)))
        print(
            f"{events:>11,} events: from nothing {medians[-1][0]:.3f} s, warm {medians[-1][1]:.3f} s",
            flush=True,
        )
    cold, warm_ratio = np.divide(medians[1], medians[0])
    print(f"the later refit takes {cold:.2f} (from nothing) and {warm_ratio:.2f} (warm) times as long")


def drawn(results: dict[str, list[tuple[str, Setting, dict]]]) -> Figure:
    """Speedup, and held-out negative log-likelihood above that of the generating mixture."""
    from matplotlib import pyplot

    lines = {
        "start": {
            "alone x": "chunky EM",
            "tree x": "with the tree",
            "passes x": "with tree and final passes",
        },
        "greedy": {"x": "greedy, with the tree"},
    }
    keys = list(dict.fromkeys(name for rows in results.values() for name, _, _ in rows))
    shape = (len(keys), 2 * len(results))
    size = (3.4 * shape[1], 2.9 * shape[0])
    figure, axes = pyplot.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for column, (kind, rows) in enumerate(results.items()):
        for row, key in enumerate(keys):
            picked = [(getattr(setting, key), mean) for name, setting, mean in rows if name == key]
            at = [f"{value:,}" for value, _ in picked]
            left, right = axes[row, 2 * column], axes[row, 2 * column + 1]
            for name, title in lines[kind].items():
                left.plot(at, [mean[name] for _, mean in picked], "o-", label=title)
            left.axhline(1.0, color="0.7", lw=1)
            left.set(yscale="log", xlabel=key, ylabel="speedup")
            for name, color, title in (("nll peer", "0.6", "scikit-learn"), ("nll", "tab:blue", "chunky EM")):
                above = [mean[name] - mean["truth"] for _, mean in picked]
                right.plot(at, above, "o-", color=color, label=title)
            right.axhline(0.0, color="black", lw=1, label="generating mixture")
            right.set(xlabel=key, ylabel="-log p of unseen points, above truth")
        axes[0, 2 * column].set_title(
            "K given, the same start" if kind == "start" else "K unknown to chunky EM"
        )
        axes[0, 2 * column].legend(fontsize="small")
        axes[0, 2 * column + 1].legend(fontsize="small")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = ("start", "greedy", "number", "refit")
    parser.add_argument(
        "--only", nargs="+", choices=sections, default=sections, help="parts to run (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="small data, one seed")
    parser.add_argument("--seeds", type=int, default=3, help="data sets per setting (default: 3)")
    for name, kind in (("n", int), ("d", int), ("k", int), ("separation", float)):
        parser.add_argument(f"--{name}", type=kind, help=f"one setting only, with this {name}")
    parser.add_argument("--plot", metavar="FILE", help="draw figures 4.4 and 4.5")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)

    chosen = {name: getattr(arguments, name) for name in SWEEPS if getattr(arguments, name) is not None}
    base = Setting(**chosen)
    settings = [(name, base._replace(**{name: v})) for name, values in SWEEPS.items() for v in values]
    if chosen:
        settings = [("n", base)]
    elif arguments.quick:
        settings = [
            (name, Setting(n=20_000)._replace(**{name: v}))
            for name in ("d", "separation")
            for v in SWEEPS[name][:2]
        ]
    seeds = 1 if arguments.quick else arguments.seeds
    results = {}
    with threadpool_limits(1):
        for figure in ("start", "greedy"):
            if figure in arguments.only:
                results[figure] = sweep(figure, settings, seeds)
        if "number" in arguments.only:
            number(20_000, 2 if arguments.quick else 10)
        if "refit" in arguments.only:
            refits(300_000 if arguments.quick else 10_000_000)
    if arguments.plot and results:
        drawn(results).savefig(arguments.plot, dpi=110)
        print(f"drawn: {arguments.plot}")


if __name__ == "__main__":
    main()
