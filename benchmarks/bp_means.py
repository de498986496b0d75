"""BP-means on planted features: how often all four are recovered, by noise and restarts, and how long a run takes.

Each data set has 200 images of 6 x 6 pixels, sums of any of four shapes, with Gaussian noise. A feature counts as
recovered if some column of Z is its own in 95% of the rows, or its complement: the base may hold a feature, and another
take it away. There is no peer to install: the paper's own figures (100 images in 100 principal components, Matlab) are
0.36 s a run for BP-means with 1,000 runs, 11 s for the collapsed algorithm with 1,000, 0.10 s for stepwise K-features
with 300 for each K.

    python benchmarks/bp_means.py                       40 data sets for each noise
    python benchmarks/bp_means.py --quick               5 data sets
    python benchmarks/bp_means.py --pictures DIR        also draws what was planted and what was found
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from streamclust.refit.bp_means.feature_allocation import FeatureAllocation
from streamclust.refit.bp_means.fit import fit_features
from streamclust.refit.bp_means.k_features import fit_k_features
from streamclust.streaming import StreamFeatures

SIDE = 6


def shapes() -> np.ndarray:
    """Four shapes of the images: a cross, a ring, a diagonal cross, a T."""
    A = np.zeros((4, SIDE, SIDE))
    A[0, 0:3, 1] = A[0, 1, 0:3] = 1
    A[1, 0:3, 3:6] = 1
    A[1, 1, 4] = 0
    for i in range(3):
        A[2, 3 + i, i] = A[2, 3 + i, 2 - i] = 1
    A[3, 3, 3:6] = A[3, 3:6, 4] = 1
    return A.reshape(4, SIDE * SIDE)


def planted(seed: int, noise: float, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = shapes()
    Z = rng.random((n, len(A))) < 0.5
    return Z @ A + noise * rng.normal(size=(n, A.shape[1])), Z


def recovered(Z: np.ndarray, truth: np.ndarray) -> bool:
    if Z.shape[1] == 0:
        return False
    same = (Z[:, :, None] == truth[:, None, :]).mean(axis=0)
    return bool(np.all(np.maximum(same, 1 - same).max(axis=0) > 0.95))


def rates(name: str, fit: Callable[[np.ndarray, int], FeatureAllocation], sets: int) -> None:
    for noise in (0.1, 0.3, 0.5):
        hits, seconds, sizes = 0, [], []
        for seed in range(sets):
            x, truth = planted(seed, noise)
            start = perf_counter()
            found = fit(x, seed)
            seconds.append(perf_counter() - start)
            hits += recovered(found.Z, truth)
            sizes.append(found.n_features)
        print(
            f"{name:<44} {noise:>5}  {hits:>3} of {sets:<3}  K {min(sizes)} to {max(sizes)}   "
            f"{np.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})",
            flush=True,
        )


def streamed(sets: int) -> None:
    """2,048 events of the same kind through StreamFeatures."""
    for noise in (0.1, 0.3, 0.5):
        hits, seconds, sizes = 0, [], []
        for seed in range(sets):
            x, truth = planted(seed, noise, 2048)
            model = StreamFeatures(seed=seed)
            start = perf_counter()
            model.learn_many(x)
            seconds.append(perf_counter() - start)
            hits += recovered(model.transform_many(x) > 0, truth)
            sizes.append(model.n_features)
        print(
            f"{'StreamFeatures, 2,048 events':<44} {noise:>5}  {hits:>3} of {sets:<3}  "
            f"K {min(sizes)} to {max(sizes)}   "
            f"{np.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})",
            flush=True,
        )


def draw(folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from streamclust.plots import plot_features

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"planted {k}" for k in range(4)]
    plot_features(shapes(), None, (SIDE, SIDE), names).savefig(folder / "planted.png", dpi=110)
    for noise in (0.1, 0.5):
        x, _ = planted(0, noise)
        plot_features(x[:6], None, (SIDE, SIDE), [f"image {i}" for i in range(6)]).savefig(
            folder / f"images-{noise}.png", dpi=110
        )
        fit_features(x).plot((SIDE, SIDE)).savefig(folder / f"found-{noise}.png", dpi=110)
    print(f"pictures in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5 data sets for each noise")
    parser.add_argument("--sets", type=int, default=40, help="data sets for each noise (default: 40)")
    parser.add_argument("--pictures", type=Path, help="a directory for pictures of the features")
    arguments = parser.parse_args()
    sets = 5 if arguments.quick else arguments.sets
    if arguments.pictures:
        draw(arguments.pictures)
    fit_features(planted(0, 0.1)[0], collapsed=True, restarts=1)  # kernels, from disk
    print(f"{'algorithm':<44} noise  all four      features   median time (range)")
    rates("BP-means, default settings", lambda x, _: fit_features(x), sets)
    for restarts in (1, 5):
        rates(
            f"BP-means, {restarts} restart(s), other seeds",
            lambda x, s, r=restarts: fit_features(x, restarts=r, rng=s + 1),
            sets,
        )
    rates("collapsed BP-means, default settings", lambda x, _: fit_features(x, collapsed=True), sets)
    rates("stepwise K-features, default settings", lambda x, _: fit_k_features(x), sets)
    rates("BP-means, the paper's start, 5 restarts", lambda x, _: fit_features(x, init="plus-plus"), sets)
    rates("stepwise K-features, the paper's start", lambda x, _: fit_k_features(x, init="plus-plus"), sets)
    streamed(min(sets, 10))


if __name__ == "__main__":
    main()
