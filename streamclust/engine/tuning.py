"""Numbers that tune the engine, all in one place.

Each has its unit and says what it trades. "Decided by" names the measurement on record; "not distinguished" means that
no benchmark on record separates the value from its neighbours. Constants of a formula and bounds on rounding errors
stand beside the code that uses them; the search has its own numbers in `refit/bkm/tuning.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class EngineTuning:
    """Tuning of looks, refits, drift, births, retirement and memory.

    >>> EngineTuning().look_events, EngineTuning().settled_events
    (2048, 4096)
    """

    # ---------------------------------------------------------------- recent events

    look_events: int = 2_048
    """Events between two looks of a stream that does not change, events kept in a row, and events for which a cluster
    must stay away, at least, to be gone. Fewer see changes sooner, cost more per event, and take sources that report in
    blocks for ended. Decided by counts of which two of six clusters are replaced
    (`tests/engine/test_changed_counts.py`): with 8,192 those that ended are still there 3,000 events later."""
    block_events: int = 8
    """Events of a block, of which one is watched. The hash that chooses it gives three bits, so it cannot be changed
    alone. More cover a longer time with the same memory. Not distinguished."""

    # ---------------------------------------------------------------- wide events

    max_directions: int = 64
    """Directions of a sketch in which clusters have independent coordinates, at most, unless told: as many as events
    have that are learnt as they are. Decided by `benchmarks/wide.py --embeddings` (16 to 128 directions)."""
    min_agreement: float = 0.8
    """Adjusted Rand index of the clusters that two halves of the first events have in few directions, below which a
    sketch has more. Decided by banking77 (.45 to .54) and planted topics (.96 to 1)."""

    # ---------------------------------------------------------------- schedule

    min_refit_events: int = 20
    """Events of the first refit, and strays searched for clusters, at least. Fewer show clusters sooner, and wrong
    ones. Not distinguished."""
    max_first_events: int = 100
    """Events before the first refit, at most. Bounds the wait of wide streams. Not distinguished."""
    clear_factor: int = 2
    """Factor by which one amount is clearly more than another: events at one early refit than at the last, evidence of
    one search from nothing than of the last, events than a summary's sample can hold, how much a level stands out than
    the one on show. Larger costs less time, keeps ids quieter, and keeps wrong clusters for longer. Not
    distinguished."""
    major_share: float = 0.5
    """Share above which a part is a major part of the whole: growth of the evidence, or of strays, until the next refit
    or search of them; events outside every cluster that the outside alarm tests against the usual share; events that
    lack some feature, above which a new one starts no search; squared steps between two cells, of the squared
    differences of any two of their events, below which, in every feature, both are parts of the way of one source
    (about 1 for independent sources). The last is decided by `benchmarks/dependent.py`, with its neighbours not
    tried."""

    # ---------------------------------------------------------------- transforms

    min_transform_events: int = 128
    """Events at which it is first decided which features are transformed; then at 4 and 16 times as many. Fewer
    transform sooner; more judge by more. Not distinguished."""

    # ---------------------------------------------------------------- drift

    change_p_value: float = 1e-9
    """p-value below which the stream has changed: of windows with equal means, or of leaves with the shares of all
    events. Smaller reacts later; larger gives new ids to clusters that have not changed. Decided by
    `benchmarks/dependent.py` (no late event in independent streams)."""
    rare_p_value: float = 1e-4
    """p-value of what is too rare to be chance, but no change of the stream: of windows with equal means, below which
    means are moved, and of a Gaussian's event, below which it belongs to no cluster. Larger follows noise, which does
    little harm, since means move by no more than James and Stein allow; smaller sees new clusters that are further away
    only. Not distinguished."""
    min_sample: float = 8.0
    """Events, or degrees of freedom, that a statistic needs to be judged, at least: events of a cluster in a window,
    freedom of a comparison before anything is known of how means wander, events per feature of the first refit. With
    fewer, tails of chi-squared are wrong and early clusters, too; with more, wandering sources look like changes for
    longer. Decided by `benchmarks/dependent.py`."""
    max_rounds: int = 3
    """Rounds at most: of assigning events and moving clusters, of searches of a refit as evidence becomes known, of
    DP-means in new units; and radii tried between two others. More cost time; few clusters are still moving by then.
    Not distinguished."""

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

    # ---------------------------------------------------------------- births and retirement

    alarm_nats: float = 20.0
    """Log-likelihood ratio at which the outside alarm sounds first: six events in a row, where one in a hundred is
    usual. Larger opens new clusters later, smaller searches more often. Decided by `benchmarks/dependent.py --only
    births` (a takeover has an id after 10 to 20 events; heavy tails as without the alarm)."""
    alarm_reach: float = 2.0
    """Squared distance, in multiples of the one that holds nearly all of a cluster, beyond which events open clusters
    as soon as the alarm sounds. Smaller opens clusters where one has moved. Decided by a move of 3.5 deviations
    (tests/engine/test_drift.py)."""

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
    min_expected_events: float = 30.0
    """Events of the present that a cluster's weight must let expect before it is judged for retirement. Fewer retire
    clusters by chance, more keep dead ones for longer. Not distinguished."""
    retired_share: float = 0.002
    """Share of the present's events below which a cluster is retired; chance brings it about once in a million. Larger
    retires rare clusters. Not distinguished."""
    presence_events: int = 16
    """Events that tell whether a cluster is there. If a retired one has as many of the present's, it is active again;
    if an absent one's share must let expect so many watched ones, it is gone: chance brings none once in ten million.
    Fewer retire clusters by chance and let noise resume them, more keep dead ones for longer. Decided by clusters that
    are replaced (docs/measured.md): gone within two looks."""
    min_fresh_share: float = 1 / 32
    """Weight of unknown events, as a share of the present, from which clusters learn at a look. Smaller is fresher and
    costs time. Not distinguished."""

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
    """Leaves of a summary of few clusters, and step by which it grows; components of retired clusters that are kept,
    the heaviest. More sample more events, know more of what may return, and make refits and looks slower. Not
    distinguished."""
    leaves_per_cluster: int = 8
    """Leaves for each cluster. With fewer, clusters share leaves, and too few of their events are sampled to tell their
    number. Not distinguished."""
    max_summary_bytes: int = 2**26
    """Memory of one summary at most; it has `first_leaves` in any case. Bounds memory; not distinguished."""

    # ---------------------------------------------------------------- DP-means

    max_radius_factor: float = 1.25
    """Factor between radii beyond which others between them are tried, and steps by which a warm refit changes its
    radius. Smaller is finer and slower. Not distinguished."""

    # ---------------------------------------------------------------- derived

    @cached_property
    def look_sample_events(self) -> int:
        """Watched events between two looks: events of the shortest window compared, between two looks soon after a
        change, and distinct or independent events that a present must have to be refitted alone.
        """
        return self.look_events // self.block_events

    @cached_property
    def min_visit_events(self) -> int:
        """Watched events from which it is noted which clusters were there."""
        return self.look_sample_events // 2

    @cached_property
    def min_search_events(self) -> int:
        """Events of the present that a refit reads, events with a new feature before clusters are searched for with it,
        and events of counts that are searched for new clusters: half of those between two looks.
        """
        return self.look_events // 2

    @cached_property
    def window_events(self) -> int:
        """Watched events kept, a power of two. A stream of fewer is all watched and young: its looks come twice as
        often, and its refits take effect at once.
        """
        return 2 * self.look_events

    @property
    def settled_events(self) -> int:
        """Events of a stream that is young; events for which a cluster is, and for which new features wait."""
        return self.window_events

    @cached_property
    def quiet_growth(self) -> int:
        """`clear_factor` if the last refit changed no id, and the factor between searches after a new feature."""
        return self.clear_factor**2

    @cached_property
    def inside_mass(self) -> float:
        """Share of a Gaussian within the ellipsoid outside which an event belongs to no cluster."""
        return 1.0 - self.rare_p_value

    @cached_property
    def max_leaves(self) -> int:
        """Leaves at most: the time of a refit is proportional to them and to the number of clusters."""
        return self.leaves_per_cluster * self.first_leaves

    @cached_property
    def max_whole_counts(self) -> int:
        """Features of counts up to which the latest events are all kept: in a quarter of a summary's memory."""
        return self.max_summary_bytes // (4 * 8 * self.look_events)


TUNING = EngineTuning()
