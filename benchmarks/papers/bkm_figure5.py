"""Bayesian k-means, figure 5: how many times faster trees and conga lines make the same result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import pyplot

from benchmarks import bkm_speedup
from benchmarks.bkm_speedup import Case, measure
from benchmarks.hierarchy_speed import informed_by, naive
from benchmarks.papers.page import Page, timed
from streamclust.hierarchy import agglomerate_steps
from streamclust.moments import Moments
from streamclust_connectors.synthetic import SyntheticMixture

PAPERS_LEAF = 1000
"""The paper's nodes of fewer points are leaves; needed here too where D² numbers for each node take much memory."""


def main() -> None:
    page = Page("Bayesian k-means, figure 5: speedups")
    bkm_speedup.REPEATS, bkm_speedup.STEPS = (2, 2) if page.quick else (5, 5)
    sizes = (5_000, 20_000, 80_000) if page.quick else (5_000, 10_000, 20_000, 40_000, 80_000, 1_000_000)
    high = 5_000 if page.quick else 20_000
    wide = (2, 8, 32, 256) if page.quick else (2, 4, 8, 16, 32, 64, 128, 256)
    curves = {
        "N": [Case("gaussian", n, 2, 3.0) for n in sizes],
        "τ": [Case("gaussian", 20_000, 2, tau) for tau in (0.5, 1.0, 2.0, 3.0, 5.0)],
        "D": [
            Case("gaussian", 20_000 if d <= 8 else high, d, 3.0, 16 if d <= 8 else PAPERS_LEAF) for d in wide
        ],
        "N, multinomial": [Case("multinomial", n, 8, 50) for n in sizes[:3]],
        "D, multinomial": [Case("multinomial", 10_000, d, 50) for d in (2, 4, 8, 16)],
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    rows = []
    for ax, (name, cases) in zip(axes.flat, curves.items(), strict=False):
        points = []
        for case in cases:
            times = measure(case, 0, ("difference",))
            points.append(
                (
                    axis_of(name, case),
                    times["loop"] / times["difference"],
                    times["blas"] / times["difference"],
                )
            )
            rows.append(
                [
                    case.family,
                    f"{case.n:,}",
                    case.d,
                    f"{case.tau:g}",
                    case.leaf_size,
                    f"{points[-1][1]:.1f}",
                    f"{points[-1][2]:.1f}",
                ]
            )
            print(name, case, points[-1], flush=True)
        at, loop, blas = zip(*points, strict=True)
        ax.plot(at, loop, "o-", label="against a compiled loop")
        ax.plot(at, blas, "s--", label="against BLAS")
        ax.set(
            xlabel=name,
            ylabel="speedup of an assignment step",
            xscale="linear" if name == "τ" else "log",
            yscale="log",
        )
        mark_places(ax, at)
        ax.axhline(1.0, color="0.7", lw=1)
    axes[0, 0].plot([80_000], [67], "r*", ms=11, label="the paper: 67")
    axes[0, 2].plot([256], [3.6], "r*", ms=11, label="the paper: 3.6")
    for ax in (axes[0, 0], axes[0, 2]):
        ax.legend(fontsize="small")
    merges: list[list[str]] = []
    conga(page, axes[1, 2], merges)
    page.say(
        "One assignment step of Bayesian k-means (K = 5, else the paper's defaults N = 20,000, D = 2, τ = "
        "3) through an exact tree, against brute force compiled with the same flags; the same labels. Of "
        "the paper's curves two numbers are in its text: 67 at N = 80,000 and 3.6 at D = 256."
    )
    page.picture(figure, "Speedups of trees and conga lines")
    page.table(["family", "N", "D", "τ (words)", "leaf", "against a loop", "against BLAS"], rows)
    page.say("Agglomerative Bayesian clustering (K = 10, D = 2, τ = 3), the same merges each:")
    page.table(
        [
            "n",
            "naive: costs, s",
            "conga line: costs, s",
            "lazy list: costs, s",
            "conga line, times faster",
            "lazy list",
        ],
        merges,
    )
    page.write()


def axis_of(curve: str, case: Case) -> float:
    return {"N": case.n, "D": case.d, "τ": case.tau}[curve[0]]


def mark_places(ax: pyplot.Axes, at: Sequence[float]) -> None:
    """Ticks where something was measured, and nowhere else: those of a short logarithmic axis overlap."""
    ax.minorticks_off()
    ax.set_xticks(at, [short(place) for place in at])


def short(number: float) -> str:
    """A number for an axis.

    >>> short(0.5), short(80_000), short(1_000_000)
    ('0.5', '80k', '1M')
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def conga(page: Page, ax: pyplot.Axes, rows: list[list[str]]) -> None:
    """Merges by the conga line and by the lazy list against the naive search."""
    points = []
    for search in ("conga", "lazy"):  # compiles what the first case would be timed with
        x = np.random.default_rng(0).normal(size=(20, 2))
        list(agglomerate_steps(informed_by("nearest", x), Moments.rows_of_points(x), "abc", search))
    for n in (100, 200, 400) if page.quick else (100, 200, 400, 800, 1600):
        x, _ = SyntheticMixture(2, n_clusters=10, tau=3.0, seed=n).sample(n)
        family = informed_by("nearest", x)
        slow, slow_seconds = timed(lambda: naive(family, x))  # noqa: B023
        cells, speedups = [f"{slow[0]:,}, {slow_seconds:.2f}"], []
        for search in ("conga", "lazy"):
            way = agglomerate_steps(family, Moments.rows_of_points(x), "abc", search)
            steps, seconds = timed(lambda: list(way))  # noqa: B023
            cells.append(f"{steps[-1].evaluations:,}, {seconds:.2f}")
            speedups.append(slow_seconds / seconds)
        rows.append([f"{n:,}", *cells, *(f"{value:.1f}" for value in speedups)])
        points.append((n, *speedups))
    at, line, lazy = np.array(points).T
    ax.plot(at, line, "o-", label="conga line")
    ax.plot(at, lazy, "s--", label="lazy list")
    ax.set(xlabel="n, ABC", ylabel="speedup of the whole tree", xscale="log", yscale="log")
    mark_places(ax, at)
    ax.legend(fontsize="small")


if __name__ == "__main__":
    main()
