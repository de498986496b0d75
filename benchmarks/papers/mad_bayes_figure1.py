"""MAD-Bayes, figure 1: BP-means, collapsed BP-means and K-features beside a Gibbs sampler: features, and how many.

The sampler is that of the Indian buffet process with Gaussian features, which are integrated out; a row's features are
drawn given those of all other rows. Noise and spread of the features are known to it.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from matplotlib import pyplot

from benchmarks.papers.page import Page, timed
from benchmarks.papers.pictures import NOISE, components, matched, planted_tables
from streamclust.refit.bp_means.fit import fit_features
from streamclust.refit.bp_means.k_features import fit_k_features

MOST_NEW = 3
"""Features that a row may bring by itself in one step."""


class BuffetSampler:
    """Gibbs sampling of Z, features integrated out."""

    def __init__(
        self, x: np.ndarray, Z: np.ndarray, mass: float, noise: float, spread: float, seed: int
    ) -> None:
        self.x, self.Z, self.mass = x, Z.astype(float), mass
        self.noise, self.spread = noise**2, spread**2
        self.rng = np.random.default_rng(seed)

    def sweep(self) -> int:
        """Draw every row's features once; how many there are then."""
        for n in range(len(self.x)):
            others = np.delete(self.Z, n, axis=0)
            kept = others.sum(axis=0) > 0
            self.Z, others = self.Z[:, kept], others[:, kept]
            precision = others.T @ others + self.noise / self.spread * np.eye(kept.sum())
            inverse = np.linalg.inv(precision)
            mean = inverse @ (others.T @ np.delete(self.x, n, axis=0))
            self.draw_row(n, others.sum(axis=0), mean, inverse)
        return self.Z.shape[1]

    def draw_row(self, n: int, counts: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> None:
        """Draw each feature of a row in turn, then how many new ones it has."""
        z, total = self.Z[n], len(self.x)
        for k in range(len(z)):
            log_odds = np.log(counts[k] / (total - counts[k]))
            for value, sign in ((1.0, 1), (0.0, -1)):
                z[k] = value
                log_odds += sign * self.log_density(n, z @ mean, self.noise * (1 + z @ inverse @ z))
            z[k] = self.rng.random() < 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
        variance = self.noise * (1 + z @ inverse @ z)
        new = np.arange(MOST_NEW + 1)
        rate = self.mass / total
        log_p = [
            self.log_density(n, z @ mean, variance + i * self.spread) + i * np.log(rate) - math.lgamma(i + 1)
            for i in new
        ]
        p = np.exp(np.array(log_p) - max(log_p))
        born = self.rng.choice(new, p=p / p.sum())
        if born:
            column = np.zeros((total, born))
            column[n] = 1.0
            self.Z = np.hstack([self.Z, column])

    def log_density(self, n: int, mean: np.ndarray, variance: float) -> float:
        """Of a row, up to a constant."""
        away = self.x[n] - mean
        return float(-0.5 * (away @ away / variance + len(away) * np.log(variance)))


def starts(x: np.ndarray, found: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The paper's four initialisations."""
    n = len(x)
    return {
        "one shared feature": np.ones((n, 1)),
        "5 random": np.hstack([np.ones((n, 1)), rng.random((n, 4)) < 0.5]),
        "10 random": np.hstack([np.ones((n, 1)), rng.random((n, 9)) < 0.5]),
        "that of BP-means": found,
    }


def main() -> None:
    page = Page("MAD-Bayes, figure 1: features, and how many")
    pictures, truth = planted_tables()
    x, _ = components(pictures)
    runs = 5 if page.quick else 100
    sweeps, last = (100, 30) if page.quick else (1000, 100)
    algorithms = {
        "collapsed BP-means": lambda restarts, seed: fit_features(
            x, collapsed=True, restarts=restarts, init="plus-plus", rng=seed
        ),
        "BP-means": lambda restarts, seed: fit_features(x, restarts=restarts, init="plus-plus", rng=seed),
        "stepwise K-features": lambda restarts, seed: fit_k_features(
            x, restarts=restarts, init="plus-plus", rng=seed
        ),
        "BP-means, this library's start": lambda restarts, seed: fit_features(x, restarts=restarts, rng=seed),
    }
    paper = {
        "collapsed BP-means": ("11", "1.1 · 10⁴", 5),
        "BP-means": ("0.36", "3.6 · 10²", 6),
        "stepwise K-features": ("0.10", "1.55 · 10²", 5),
    }
    spread = float(np.std(x, axis=0).mean())
    noise = NOISE * math.sqrt(
        pictures.shape[1] / x.shape[1]
    )  # of all pixels, in as many components as pictures
    rows, found = [], None
    for name, fit in algorithms.items():
        fit(1, 0)
        _, once = timed(lambda: fit(1, 0))  # noqa: B023
        found, total = timed(lambda: fit(runs, 0))  # noqa: B023
        theirs = paper.get(name, ("", "", ""))
        rows.append(
            [
                name,
                f"{once:.3f}",
                f"{total:.2f} ({runs} runs)",
                found.n_features,
                f"{matched(found.Z, truth):.0%}",
                *theirs,
            ]
        )
    features = fit_features(x).Z
    histogram: dict[str, Counter[int]] = {}
    seconds = 0.0
    for mass in (0.01, 0.1, 1.0):
        for name, Z in starts(x, features, np.random.default_rng(0)).items():
            sampler = BuffetSampler(x, Z, mass, noise, max(spread, 0.5), 0)
            drawn, taken = timed(lambda: [sampler.sweep() for _ in range(sweeps)])  # noqa: B023
            histogram.setdefault(name, Counter()).update(drawn[-last:])
            if name == "one shared feature" and mass == 1.0:
                seconds = taken
                told = matched(sampler.Z > 0, truth)
                rows.insert(
                    0,
                    [
                        f"Gibbs, {sweeps} sweeps",
                        f"{seconds:.1f}",
                        "",
                        drawn[-1],
                        f"{told:.0%}",
                        "8.5 · 10³",
                        "",
                        10,
                    ],
                )
        print(mass, flush=True)
    page.say(
        "100 pictures (24 x 32 pixels, noise of deviation .08) of a table with up to four objects, each "
        "there or not by a coin; all 100 principal components. The paper's photographs are not free: "
        "these are planted. Five features, the table and four objects, are what there is. λ² is this "
        "library's (from the noise); the paper's is 1, on its own scale."
    )
    page.table(
        [
            "algorithm",
            "CPU s a run",
            "CPU s in all",
            "features",
            "pictures whose objects are all told",
            "paper: s a run",
            "s in all",
            "features",
        ],
        rows,
    )
    figure, ax = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    ks = range(min(min(c) for c in histogram.values()), max(max(c) for c in histogram.values()) + 1)
    below = np.zeros(len(ks))
    for name, counts in histogram.items():
        height = np.array([counts[k] for k in ks], dtype=float)
        ax.bar(list(ks), height, bottom=below, label=name)
        below += height
    ax.set(xlabel="features", ylabel="draws", title="Gibbs sampling, by where it started")
    ax.legend(fontsize="small")
    page.say(
        f"The last {last} of {sweeps} draws of K, from each of the paper's four starts and masses .01, .1 "
        "and 1. In the paper no run has fewer than 7 features; its sampler also draws noise and spread, "
        "which ours is told."
    )
    page.picture(figure, "Number of features by Gibbs sampling")
    page.write()


if __name__ == "__main__":
    main()
