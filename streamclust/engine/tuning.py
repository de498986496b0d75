"""Numbers that tune the engine, all in one place.

Each has its unit and says what it trades. "Decided by" names the measurement on record; "not distinguished" means that
no benchmark on record separates the value from its neighbours. Constants of a formula and bounds on rounding errors
stand beside the code that uses them; the search has its own numbers in `refit/bkm/tuning.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineTuning:
    """Tuning of looks, refits, drift, births, retirement and memory.

    >>> EngineTuning().look_events, EngineTuning().settled_events
    (2048, 4096)
    """

    # ---------------------------------------------------------------- recent events

    look_events: int = 2_048
    """Events between two looks of a stream that does not change, and events kept in a row. Fewer see changes sooner,
    and cost more per event. Not distinguished."""
    min_absence_events: int = 2_048
    """Events for which a cluster must stay away, at least, to be gone. Ends that are told sooner against sources that
    report in blocks, whose first absence may be taken for an end. Decided by counts of which two of six clusters are
    replaced (`tests/engine/test_changed_counts.py`): with 8,192 those that ended are still there 3,000 events later."""
    window_events: int = 4_096
    """Watched events kept, a power of two. A stream of fewer events is all watched and young: its looks come twice as
    often, and its refits take effect at once. More judge rare clusters better and cost time at each look. Not
    distinguished."""
    block_events: int = 8
    """Events of a block, of which one is watched. The hash that chooses it gives three bits, so it cannot be changed
    alone. More cover a longer time with the same memory. Not distinguished."""
    min_window_events: int = 256
    """Events of the shortest window compared, between two looks soon after a change, and distinct or independent events
    that a present must have to be refitted alone. Fewer react sooner; repeats and short ways of a source that wanders
    would look like clusters. Decided by `benchmarks/dependent.py`, which needs the last of the three."""
    min_search_events: int = 1_024
    """Events of the present that a refit reads, and events with a new feature before clusters are searched for with it,
    at least. From fewer a refit merges clusters that are far apart; more react later. Not distinguished."""

    # ---------------------------------------------------------------- schedule

    min_refit_events: int = 20
    """Events of the first refit, and strays searched for clusters, at least. Fewer show clusters sooner, and wrong
    ones. Not distinguished."""
    first_events_per_feature: int = 8
    """Events per feature before the first refit. Fewer show clusters sooner, and wrong ones. Not distinguished."""
    max_first_events: int = 100
    """Events before the first refit, at most. Bounds the wait of wide streams. Not distinguished."""
    early_growth: int = 2
    """Factor of events from one early refit to the next, and of evidence from one search from nothing to the next.
    Larger costs less time and keeps wrong clusters for longer. Not distinguished."""
    quiet_growth: int = 4
    """`early_growth` if the last refit changed no id, and the factor between searches after a new feature. If the
    summary's sample is full, searches from nothing wait for `early_growth` times this factor. Not distinguished."""
    refit_growth: float = 0.5
    """Share by which evidence, or the number of strays, must have grown since the last refit, or the last search of
    them. Larger costs less time. Not distinguished."""
    full_sample: float = 2.0
    """Events, in multiples of a summary's sample size, from which the sample is full: it then holds nearly nine in ten.
    Larger searches again more often. Not distinguished."""

    # ---------------------------------------------------------------- drift

    change_p_value: float = 1e-9
    """p-value below which the stream has changed: of windows with equal means, or of leaves with the shares of all
    events. Smaller reacts later; larger gives new ids to clusters that have not changed. Decided by
    `benchmarks/dependent.py` (no late event in independent streams)."""
    move_p_value: float = 1e-4
    """p-value of windows with equal means below which means are moved. Larger follows noise, which does little harm,
    since means move by no more than James and Stein allow. Not distinguished."""
    inside_mass: float = 0.9999
    """Share of a Gaussian within the ellipsoid outside which an event belongs to no cluster. Larger sees new clusters
    that are further away only. Not distinguished."""
    min_judged_events: float = 8.0
    """Events of a cluster in a window below which the test leaves it out. Fewer make chi-squared tails wrong. Not
    distinguished."""
    min_freedom: float = 8.0
    """Degrees of freedom of a comparison before anything is known of how means wander. Fewer make early changes less
    certain, more make wandering sources look like changes for longer. Decided by `benchmarks/dependent.py`."""
    update_rounds: int = 3
    """Rounds of assigning events and moving clusters, and searches of a refit as evidence becomes known, at most. More
    cost time; few clusters are still moving by then. Not distinguished."""

    # ---------------------------------------------------------------- dependence

    margin_deviates: float = 4.0
    """Normal deviates by which a variance must exceed that of independent events to count. Fewer find dependence
    sooner, and take independent streams for dependent. Decided by 7,000 independent sequences, none taken for dependent
    (docs/measured.md)."""
    min_bends: float = 6.0
    """Second differences that a variance is estimated from, at least; half of them show the wandering of means. Fewer
    see longer times, less surely. Decided by `benchmarks/dependent.py`, with its neighbours not tried."""
    rising: float = 1.3
    """Factor of growth at the last step of a variance curve from which it has not levelled off. Smaller takes noise for
    dependence longer than can be seen. Decided by `benchmarks/dependent.py`, with its neighbours not tried."""
    min_correlation_events: float = 1.5
    """Autocorrelation time below which events count as independent, in events. Larger misses weak dependence. Decided
    by `benchmarks/dependent.py`, with its neighbours not tried."""
    min_independent_per_feature: float = 4.0
    """Independent events, times D + 1, that a refit decides by, at least. Fewer merge clusters that are far apart, more
    split the ways of sources that wander. Decided by `benchmarks/dependent.py`."""
    max_median_weights: float = 4.0
    """Median weights that one event counts for in decisions, at most: half of the events are evidence then even if
    weights have infinite variance. More let single events look like clusters, fewer change shapes where weights are
    alike. Decided by streams of Pareto weights (tests/streaming/test_outliers.py)."""

    known_times: float = 20.0
    """Correlation times that the present must last before its own events tell how dependent they are. Until then they
    count for no more than before: a short part of a way looks like events that differ little. Decided by
    `benchmarks/dependent.py` (correlation over 1,000 events, D = 16)."""
    forgotten_half_lives: float = 10.0
    """Half-lives after which an event no longer tells how dependent the events are. Fewer tell less of slow wandering;
    more leave the stream without evidence for longer after a sensor was stuck. Not distinguished."""
    min_change_events: float = 2.0
    """Independent events of each cluster in which a change is seen, at least: the mean of fewer wanders anyway. More
    react later to changes of dependent streams. Decided by `benchmarks/dependent.py`."""
    continuous_share: float = 0.5
    """Squared steps between two cells, as a share of the squared differences of any two of their events, below which,
    in every feature, both are parts of the way of one source. It is about 1 for independent sources. Decided by
    `benchmarks/dependent.py`, with its neighbours not tried."""

    # ---------------------------------------------------------------- births and retirement

    alarm_share: float = 0.5
    """Share of events outside every cluster that the outside alarm tests against the usual share. Larger waits for
    clusters that take more of the stream, smaller looks at more bursts of outliers. Not distinguished."""
    alarm_nats: float = 20.0
    """Log-likelihood ratio at which the outside alarm sounds first: six events in a row, where one in a hundred is
    usual. Larger opens new clusters later, smaller searches more often. Decided by `benchmarks/dependent.py --only
    births` (a takeover has an id after 10 to 20 events; heavy tails as without the alarm)."""
    alarm_reach: float = 2.0
    """Squared distance, in multiples of the one that holds nearly all of a cluster, beyond which events open clusters
    as soon as the alarm sounds. Smaller opens clusters where one has moved. Decided by a move of 3.5 deviations
    (tests/engine/test_drift.py)."""
    dense_events: int = 32
    """Events of counts that the alarm compares at once. Bounds time; not distinguished."""
    max_whole_counts: int = 1_024
    """Features of counts up to which the latest events are all kept. Bounds memory, since vocabularies can be wide; not
    distinguished."""
    max_grouped_counts: int = 512
    """Events of counts, the latest outside all clusters, that are searched for new ones. Bounds time; not
    distinguished."""
    min_absent_events: float = 16.0
    """Watched events that an absent cluster's share must let expect before it is gone; chance brings none once in ten
    million. Fewer retire clusters by chance, more keep dead ones for longer. Decided by clusters that are replaced
    (docs/measured.md): gone within two looks."""
    min_visit_events: int = 128
    """Watched events from which it is noted which clusters were there. Fewer take noise for visits. Not
    distinguished."""

    min_cluster_events: int = 5
    """Events of a new cluster, of a cluster that a window moves and of a leaf in a chi-squared test, at least. Fewer
    open clusters for noise, more find rare ones later. Not distinguished."""
    large_share: float = 0.01
    """Share of the weight from which a cluster is large, and share of events outside every cluster up to which the
    stream has not changed. Smaller sees rarer clusters and opens more for noise. Not distinguished."""
    large_part_of_average: float = 0.1
    """Share of the average cluster's weight from which one of many clusters is large. Not distinguished."""
    young_reach: float = 6.0
    """Squared distance, in multiples of the one that holds nearly all events, within which a birth near a young cluster
    is taken for a part of it. Smaller opens several clusters for one. Not distinguished."""
    min_variance_share: float = 1e-6
    """Variance of a new cluster over the average variance, at least. Keeps covariances sound; not distinguished."""
    min_expected_events: float = 30.0
    """Events of the present that a cluster's weight must let expect before it is judged for retirement. Fewer retire
    clusters by chance, more keep dead ones for longer. Not distinguished."""
    retired_share: float = 0.002
    """Share of the present's events below which a cluster is retired; chance brings it about once in a million. Larger
    retires rare clusters. Not distinguished."""
    return_events: int = 16
    """Events of the present from which a retired cluster is active again. Fewer let noise resume it. Not
    distinguished."""
    max_retired_components: int = 256
    """Components of retired clusters kept, the heaviest. More of what may return against the time of a look. Not
    distinguished."""
    min_fresh_share: float = 1 / 32
    """Weight of unknown events, as a share of the present, from which clusters learn at a look. Smaller is fresher and
    costs time. Not distinguished."""
    max_filled_share: float = 0.5
    """Share of events that lack some feature above which a new feature starts no search: clusters would be those of the
    values filled in. Not distinguished."""

    # ---------------------------------------------------------------- refits

    margin_nats: float = 5.0
    """Nats by which a search from nothing, or rare clusters, must be better than the warm result. Larger keeps ids and
    misses clusters. Not distinguished."""
    caution_errors: float = 2.0
    """Standard errors by which components of a mixture must be one plateau to be joined: they overlap. More join less.
    Not distinguished."""
    share_rounds: int = 50
    """EM iterations for the shares of components. A component made of filled-in values alone loses about half of its
    share in each; more take longer and change little. Not distinguished."""

    # ---------------------------------------------------------------- memory of summaries

    first_leaves: int = 512
    """Leaves of a summary of few clusters, and step by which it grows. More sample more events and make refits slower.
    Not distinguished."""
    leaves_per_cluster: int = 8
    """Leaves for each cluster. With fewer, clusters share leaves, and too few of their events are sampled to tell their
    number. Not distinguished."""
    max_leaves: int = 4_096
    """Leaves at most: the time of a refit is proportional to them and to the number of clusters. Not distinguished."""
    max_summary_bytes: int = 2**26
    """Memory of one summary at most; it has `first_leaves` in any case. Bounds memory; not distinguished."""

    # ---------------------------------------------------------------- DP-means

    few_leaves: int = 128
    """Leaves below which DP-means clusters the sampled events, which are all events while the tree is young. Quality
    against time; not distinguished."""
    max_radius_factor: float = 1.25
    """Factor between radii beyond which others between them are tried, and steps by which a warm refit changes its
    radius. Smaller is finer and slower. Not distinguished."""
    max_radii_between: int = 3
    """Radii tried between those of two rough numbers of clusters, at most. Bounds time; not distinguished."""
    patience_partitions: int = 6
    """Partitions in a row, no better than the best, after which the search for a radius ends. Quality against time; not
    distinguished."""
    radius_rounds: int = 4
    """Searches for a radius, at most, each in units of the variation within the clusters of the one before. Quality
    against time; not distinguished."""

    # ---------------------------------------------------------------- levels

    level_margin: float = 2.0
    """Factor by which another level must stand out more than the one on show to replace it. Smaller follows the data
    sooner, larger keeps ids quieter. Not distinguished."""

    @property
    def settled_events(self) -> int:
        """Events of a stream that is young; events for which a cluster is, and for which new features wait."""
        return self.window_events

    @property
    def look_sample_events(self) -> int:
        """Watched events between two looks, by which a look judges."""
        return self.look_events // self.block_events


TUNING = EngineTuning()
