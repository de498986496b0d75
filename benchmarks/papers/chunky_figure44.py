"""Chunky EM, figure 4.4: chunky EM against EM on points, from the same start."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

from benchmarks import chunky_em
from benchmarks.papers.page import Page

BASE = chunky_em.Setting(n=10_000, d=2, k=10, separation=3.0)
SWEEPS = {
    "n": (5_000, 10_000, 20_000, 50_000, 100_000),
    "d": (2, 4, 6, 8),
    "k": (5, 10, 15, 20),
    "separation": (1.0, 2.0, 3.0, 4.0),
}


def main() -> None:
    page = Page("Chunky EM, figure 4.4: against EM")
    seeds, cells = (1, 3) if page.quick else (20, 5)
    chunky_em.UNSEEN = 1_000
    settings = [(name, BASE._replace(**{name: v})) for name, values in SWEEPS.items() for v in values[:cells]]
    with threadpool_limits(1):
        rows = chunky_em.sweep("start", settings, seeds)
    page.say(
        "The paper's default (10,000 points, D = 2, K = 10, separation 3) and one parameter varied at a "
        f"time; mean of {seeds} data set(s). EM on points is scikit-learn's GaussianMixture from the same "
        "Voronoi start. The paper counts floating point operations, ours are CPU seconds. Its curves are "
        "pictures alone; its text says: always faster, at least linear in n; more so with separation, "
        "less so with dimensions and components; likelihood a little worse than EM's."
    )
    page.picture(chunky_em.drawn({"start": rows}), "Speedup and likelihood of chunky EM")
    page.table(
        [
            "N",
            "D",
            "K",
            "separation",
            "EM, s",
            "chunky EM, s",
            "tree, s",
            "speedup",
            "with the tree",
            "with final passes",
            "-log p above truth: boxes",
            "with passes",
            "EM",
        ],
        [
            [
                f"{s.n:,}",
                s.d,
                s.k,
                s.separation,
                f"{m['theirs']:.3f}",
                f"{m['seconds']:.3f}",
                f"{m['tree']:.3f}",
            ]
            + [f"{m[key]:.1f}" for key in ("alone x", "tree x", "passes x")]
            + [f"{m[key] - m['truth']:.4f}" for key in ("nll boxes", "nll", "nll peer")]
            for s, m in {setting: mean for _, setting, mean in rows}.items()
        ],
    )
    page.write()


if __name__ == "__main__":
    main()
