"""Progress shown while kernels compile: a line on a terminal, a bar in a notebook, nothing in a pipe."""

from __future__ import annotations

import os
import sys
from typing import Any

FIRST = frozenset(
    {
        "blocks.add_coordinates",
        "blocks.block_distances",
        "blocks.block_distances_within",
        "check.all_within",
        "engine.assign.assign_points",
        "engine.assign.cheapest",
        "engine.dependence.block_bends",
        "engine.outside.watch_outside",
        "engine.continuity.crossings",
        "engine.windows.at_rest",
        "engine.windows.block_sums",
        "engine.windows.fit_statistics",
        "engine.windows.ladder_statistics",
        "engine.windows.mean_statistics",
        "engine.windows.see_points",
        "families.evidence.eta_of_most_evidence",
        "families.learnt_prior.improved_prior",
        "families.learnt_prior.inverse_factor",
        "families.normal_wishart.factorise",
        "families.normal_wishart.learn",
        "families.normal_wishart.log_marginal",
        "families.normal_wishart.log_marginals",
        "families.normal_wishart.posteriors",
        "families.normal_wishart.update",
        "levels.distances.squared_distances",
        "moments.add_outer",
        "moments.group_rows",
        "moments.merge_into",
        "refit.bkm.gain_of_merge",
        "refit.bkm.quadratic_costs",
        "refit.bkm.seed_centres",
        "refit.changes.change_of_terms",
        "refit.changes.merge_changes",
        "refit.changes.split_changes",
        "refit.changes.term_of_scaled",
        "refit.halves.iterate_halves",
        "refit.iterations.iterate_rows",
        "refit.iterations.nearest_clusters",
        "refit.merge_path.choose_merges",
        "refit.merge_path.merge_some",
        "refit.merge_path.score_clusters",
        "shapes.heights.judge_edges",
        "shapes.line.best_two",
        "tree.arrays.absorb_rows",
        "tree.arrays.descend_rows",
        "tree.arrays.sample_masses",
        "tree.far.make_far_room",
        "tree.far.open_far_leaf",
        "tree.learn.insert_events",
        "tree.learn.insert_rows",
        "tree.learn.make_room",
        "tree.learn.sum_nodes",
        "tree.split.propose",
        "tree.split.recount",
        "tree.swap.dissolve_leaf",
        "tree.swap.dissolve_losses",
        "tree.swap.merge_slot",
        "triangular.factorise_in_place",
        "triangular.invert_lower",
    }
)
"""Kernels and shared parts that a stream with the usual settings needs: the whole that progress is shown of."""

WORDS = "compiling for this machine, once"


class Line:
    """One line, written over while kernels compile and erased when they are done."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        """Kernels that were loaded or compiled so far."""
        self._depth = 0
        self._bar: Any = None

    def show(self, name: str) -> None:
        """A kernel starts to compile."""
        self._depth += 1
        if self._depth > 1:  # called by one that is being compiled
            return
        done = len(self.ready & FIRST) + (name in FIRST)
        text = f"{WORDS}: {done} of {len(FIRST)}" if name in FIRST else f"{WORDS}: {name}"
        if in_notebook():
            self._draw_bar(done, text)
        elif on_terminal():
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self, name: str) -> None:
        """The kernel is compiled."""
        self._depth -= 1
        self.ready.add(name)
        if self._depth == 0 and on_terminal() and not in_notebook():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _draw_bar(self, done: int, text: str) -> None:
        from IPython.display import HTML, display

        bar = HTML(f'<progress value="{done}" max="{len(FIRST)}"></progress> {text}')
        if self._bar is None:
            self._bar = display(bar, display_id=True)
        else:
            self._bar.update(bar)


def in_notebook() -> bool:
    """Whether output goes to a notebook."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


def on_terminal() -> bool:
    """Whether a person reads standard error."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


LINE = Line()
