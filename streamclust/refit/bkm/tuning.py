"""Numbers that tune the search of Bayesian k-means, all in one place.

Each has its unit, what it trades, and the benchmark that decided it. "Not distinguished" means that no benchmark of
the repository separates the value from its neighbours: it may be changed freely.
"""

from __future__ import annotations

from dataclasses import dataclass

FirstCuts = tuple[int, int]
"""First cuts of a cluster that a split tries: across principal directions, and between two random rows."""


@dataclass(frozen=True)
class SearchTuning:
    """Tuning of cold, warm and challenged searches.

    >>> SearchTuning().min_start_leaves, SearchTuning().offered_clusters
    (160, 16)
    """

    # ---------------------------------------------------------------- starts

    first_start: int = 40
    """Clusters that the first start begins with (K_init). More cost time, fewer miss clusters: K_init should be twice
    the K to be found. Decided by the planted grid of `benchmarks/real.py` (K up to 100)."""
    start_growth: int = 3
    """Factor between the K_init of one start and the next. No further start is made where fewer than 1 in
    `start_growth` of the clusters are left, so a larger factor makes more starts. Planted grid of `real.py`."""
    min_start_ratio: int = 2
    """K_init over the known K below which starts of a challenger are skipped: they leave too many clusters.
    `benchmarks/real.py --refits`, CPU of refits of streams."""
    start_repeats: int = 4
    """Paths from each K_init where rows are few: they have many local optima and cost little. Small tables of
    `real.py` (iris, wine, ecoli)."""
    few_rows: int = 1_000
    """Rows up to which starts are repeated; time against quality. Not distinguished between 500 and 2,000."""
    start_rows: int = 2_048
    """Rows of the sample that starts use where leaves are too wide, and rows up to which a fixed prior is tried as one
    more start. Not distinguished."""
    many_rows: int = 4_096
    """Rows from which on a challenger skips small starts, the result that two searches agree on is refined, and wide
    points are searched by a subset. Time against quality; `benchmarks/real.py --refits`."""
    max_start_rows: int = 20_000
    """Points that a batch search starts on, at most. Time and memory; not distinguished."""
    max_start_numbers: float = 2e7
    """Limit on rows x features² of the points that a batch search starts on: bounds the time of wide data. Not
    distinguished."""
    max_share_within_leaves: float = 0.5
    """Share of the variance within leaves above which a search starts on the sample. `benchmarks/wide.py`."""

    # ---------------------------------------------------------------- paths of merges

    neighbours: int = 8
    """Nearest clusters of each with which merges are tried. Fewer are faster and may miss a merge. Planted grid with
    K = 100 (`real.py --refits`)."""
    first_turns: int = 3
    """Turns of ME iterations and prior before the first merge. Not distinguished."""
    point_iterations: int = 5
    """ME iterations after each round of merges, on points. Not distinguished."""
    leaf_iterations: int = 3
    """ME iterations after each round of merges, on leaves, on the sample and from given clusters: the refinement that
    follows settles the rest. `benchmarks/real.py --refits`."""
    point_path_end: float = 0.4
    """Share of the best K so far below which a path on points ends; lower is slower. Not distinguished."""
    leaf_path_end: float = 0.7
    """The share for paths on leaves and on the sample, which begin near the best K. Not distinguished."""
    prior_rounds: int = 2
    """Rounds of EM each time that the prior is learnt. `benchmarks/real.py --refits`."""
    path_prior_rounds: int = 1
    """Rounds of EM on a compiled path, which learns the prior again soon. `benchmarks/real.py --refits`."""

    # ---------------------------------------------------------------- refinement

    refine_rounds: int = 3
    """Rounds of splits, merges and prior, at most. Not distinguished above 2."""
    min_gain_share: float = 1e-6
    """Share of F by which a round must lower F for another to follow. Not distinguished."""
    many_cuts: FirstCuts = (3, 2)
    """First cuts of a split in a batch search from nothing. Small tables of `real.py`."""
    few_cuts: FirstCuts = (2, 1)
    """First cuts of a split elsewhere: its start has seen most of them. `benchmarks/real.py --refits`."""
    split_iterations: int = 12
    """ME iterations between the halves of a cluster, at most. Not distinguished."""
    look_iterations: int = 3
    """ME iterations between halves after which hopeless splits are given up. Time only."""
    merge_iterations: int = 10
    """ME iterations that a merge may take to lower F. Not distinguished."""
    tried_merges: int = 5
    """Merges tried one by one, best closed form first. Not distinguished."""
    min_weight_change: float = 0.02
    """Relative change of a cluster's weight below which a failed split is not tried again. Time only."""
    min_sampled_events: float = 4.0
    """Sampled events of the smaller half of a split, at least: one stray event stands for all of its leaf.
    `tests/streaming/test_hard_streams.py`."""
    same_share: float = 0.98
    """Share of the weight on which two labellings with the same K must agree to count as the same optimum. Not
    distinguished."""

    # ---------------------------------------------------------------- boundaries

    near_nats: float = 2.0
    """Nats per event: rows whose second cluster costs at most this much more are moved one by one. Not
    distinguished."""
    nudge_nats: float = 0.3
    """Nats per event by which a cluster is made cheaper or dearer to move its boundaries. Not distinguished."""
    max_rows_per_feature: int = 50
    """Rows per feature and cluster below which rows lock themselves into their cluster. Wine and breast cancer in
    `real.py`."""
    patience_iterations: int = 6
    """Iterations without a lower F after which leave-one-out relabelling ends. Not distinguished."""

    # ---------------------------------------------------------------- limits of time and memory; results hardly change

    max_iterations: int = 200
    """Safety limit on ME iterations and on rounds of moves: F falls at each, so all end by themselves."""
    max_loose_iterations: int = 40
    """Limit on iterations of leave-one-out relabelling, where F may rise."""
    seed_directions: int = 128
    """Random directions by which k-means++ measures distances of rows twice as wide."""
    axis_rows: int = 500
    """Rows of a cluster from which principal axes are computed where the family keeps no full scatter."""
    max_svd_columns: int = 64
    """Columns up to which principal axes come from a singular value decomposition."""
    max_blocked_features: int = 256
    """Features up to which the blocked kernel computes costs: 2 to 15 times faster than BLAS below."""
    pair_numbers: int = 4_000_000
    """Numbers in a batch of merged scatters: bounds memory."""

    @property
    def min_start_leaves(self) -> int:
        """Leaves below which a search starts on the sample, which is then small: four per K_init."""
        return 4 * self.first_start

    @property
    def offered_clusters(self) -> int:
        """Clusters nearest to its own among which a row of a compiled path chooses, if there are twice as many."""
        return 2 * self.neighbours


TUNING = SearchTuning()
