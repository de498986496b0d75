"""Numbers that tune the search of Bayesian k-means, all in one place.

Each has its unit and says what it trades. "Decided by" names the measurement on record; "not distinguished" means that
no benchmark on record separates the value from its neighbours. Constants of a formula and bounds on rounding errors
stand beside the code that uses them.
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
    """Clusters that the first start begins with (K_init): at least twice the K to be found. Fewer miss clusters, more
    cost time. Decided by 60 planted streams, on which starts from fewer saved nothing (docs/measured.md)."""
    start_growth: int = 3
    """Factor between the K_init of one start and the next; no further start is made if fewer than one cluster in
    `start_growth` is left. Larger finds more clusters and costs time. Not distinguished."""
    min_start_ratio: int = 2
    """K_init over the known K below which a challenger skips a start: such starts leave too many clusters. Saves time
    where K is large. Not distinguished; introduced with other savings (changelog)."""
    start_repeats: int = 4
    """Merge paths from each K_init over few rows, which have many local optima. Time against quality; not
    distinguished."""
    few_rows: int = 1_000
    """Rows up to which merge paths are repeated, and rows that principal axes of a cluster are computed from. Time
    against quality; not distinguished."""
    start_rows: int = 2_048
    """Rows of the sample that paths start on if leaves are too wide, and rows up to which the labels found under a
    fixed prior are one more start. Time against quality. Decided by planted mixtures of ten clusters in 32 dimensions,
    which paths alone merged (changelog)."""
    many_rows: int = 4_096
    """Rows from which on a challenger skips small starts, clusters that two searches agree on are refined, and wide
    points are searched by a subset. Saves time early in a stream. Decided by `benchmarks/following.py --only start`."""
    max_start_rows: int = 20_000
    """Points that a batch search starts on, at most. Bounds time; not distinguished."""
    max_start_numbers: float = 2e7
    """Rows x features² that a batch search starts on, at most. Bounds the time of wide data; not distinguished."""
    row_clusters: int = 8_000_000
    """Rows of a sample x clusters that a refit of them prices at a time, at most. Bounds time and memory (64 MB)."""
    least_rows: int = 8192
    """Rows that are refitted in any case: the sample of a summary of 512 leaves. Not distinguished."""
    max_share_within_leaves: float = 0.5
    """Share of the variance within leaves above which paths start on the sample: wide leaves hide clusters, but see
    rare ones. Not distinguished."""

    # ---------------------------------------------------------------- merge paths

    neighbours: int = 8
    """Nearest clusters of each with which merges are tried, and merges that a refinement tries one by one. Fewer are
    faster and miss merges; not distinguished."""
    point_iterations: int = 5
    """ME iterations after each round of merges, on points. Time against F; not distinguished."""
    short_iterations: int = 3
    """ME iterations after each round of merges on leaves or on the sample, after a warm start, and of a split before
    its prospects are judged: refinement settles the rest. Also turns of labels and prior before the first merge of a
    path, and of a refinement, at most. Time against F; not distinguished."""
    point_path_end: float = 0.4
    """Share of the best K so far below which a path on points ends. Lower is slower; not distinguished."""
    leaf_path_end: float = 0.7
    """Share of the best K so far below which a path on leaves, or from clusters found there, ends. Saves time; decided
    with the early refits of `benchmarks/following.py --only start`."""
    prior_rounds: int = 2
    """Rounds of EM each time that the prior is learnt. Time against F; not distinguished."""
    path_prior_rounds: int = 1
    """Rounds of EM at each step of a compiled path, which learns the prior again soon. Saves time; not
    distinguished."""

    # ---------------------------------------------------------------- refinement

    many_cuts: FirstCuts = (3, 2)
    """First cuts of a split in a search of points from nothing. Time against missed splits; not distinguished."""
    few_cuts: FirstCuts = (2, 1)
    """First cuts of a split elsewhere: the start has seen most of them. Saves time; not distinguished."""
    trial_iterations: int = 12
    """ME iterations by which a trial split or merge must lower F. Time against missed changes; not distinguished."""
    unchanged_share: float = 0.02
    """Share of the weight below which clusters count as unchanged: a failed split of such a cluster is not tried again,
    and labellings that differ by less lead to the same optimum. Saves time; the
    CPU of refits decided that two searches which agree are refined once (changelog), not the share."""
    min_sampled_events: float = 4.0
    """Sampled events in the smaller half of a split, at least: one stray event stands for all of its leaf. Rare
    clusters against false ones; decided by `tests/streaming/test_hard_streams.py`."""

    # ---------------------------------------------------------------- boundaries

    near_nats: float = 2.0
    """Nats per event: rows whose second cluster costs at most this much more are moved one by one. Time against F; not
    distinguished."""
    nudge_nats: float = 0.3
    """Nats per event by which a cluster is made cheaper or dearer to move its boundaries; not distinguished."""
    max_rows_per_feature: int = 50
    """Rows per feature and cluster below which rows lock themselves into their cluster, and leave-one-out relabelling
    is worth its time. Not distinguished."""
    patience_iterations: int = 6
    """Iterations of leave-one-out relabelling without a lower F, or partitions of a search for the radius of DP-means
    no better than the best, after which it ends. Time against F; not distinguished."""

    max_scale_variance: float = 0.1
    """Variance of the log of rows' scales up to which clusters count as Gaussian and may have own covariances:
    that of a t distribution of 20 degrees of freedom. Clusters that differ in covariance alone against tails taken for
    such clusters. Decided by `benchmarks/papers/bkm_table1.py` (at most 0.07) and `benchmarks/real.py` (tables on which
    it matters have 0.23 to 3.8)."""

    # ---------------------------------------------------------------- transforms of skewed features

    min_span: float = 25.0
    """Ratio of the last to the first hundredth of a feature's positive values from which its logarithm is tried: that
    of the exponential of a normal of deviation 0.7. Less is nearly symmetric. Decided by `benchmarks/mixed.py`
    (skewed numbers: with 100, K 5 and 6 for 3); of 9 real tables the same features are taken with 25 and 100."""
    tail_share: float = 0.01
    """Share of the values on either side that the span leaves out: single extremes are no tail."""
    knee_share: float = 0.1
    """Share of the values that are nearer to 0 than the knee. Fewer would find clusters in an exponential's values near
    0; decided by exponentials, and by logarithms of normals, to which a hundredth and a tenth are alike."""
    transform_nats: float = 10.0
    """Nats by which a transform must lower F. Not distinguished: planted tails gain 150 or more in 1,000 rows."""
    transform_rows: int = 1000
    """Rows that the evidence is taken from, at most. Time against power; not distinguished."""
    min_skewed_events: int = 20
    """Positive values from which a feature can be told to span decades."""

    # ---------------------------------------------------------------- time and memory alone

    max_iterations: int = 200
    """ME iterations, or rounds of moves, in a row: F falls at each, so all end by themselves long before."""
    wide_features: int = 256
    """Features above which rows are wide: costs come from matrix products, which are 2 to 15 times slower than the
    blocked kernel below, and k-means++ measures distances along half as many random directions."""
    pair_numbers: int = 4_000_000
    """Numbers in a batch of merged scatters. Bounds memory."""

    @property
    def min_start_leaves(self) -> int:
        """Leaves below which a search starts on the sample, which is then small: four per K_init."""
        return 4 * self.first_start

    @property
    def offered_clusters(self) -> int:
        """Clusters nearest to its own that a row of a compiled path chooses among, if there are twice as many."""
        return 2 * self.neighbours

    @property
    def seed_directions(self) -> int:
        """Random directions along which k-means++ measures the distances of wide rows."""
        return self.wide_features // 2


TUNING = SearchTuning()
