"""Input and result of a refit: plain data, which may be computed with in another thread and saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from streamclust._kernels.types import Floats
from streamclust.engine.dependence import RecentSequence
from streamclust.engine.fixed_components import FixedComponents
from streamclust.engine.imputation import Gaps
from streamclust.engine.model import Model
from streamclust.engine.results import Result, result_from_state, result_state
from streamclust.engine.settings import EngineSettings
from streamclust.families import FamilyLike, TiedGaussian
from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from streamclust.utils.state import State


@dataclass(frozen=True)
class SearchMode:
    """Search that a refit makes."""

    cold: bool
    """Whether it also searches from nothing."""
    settling: bool
    """Whether it is the last word on what was learnt."""
    fresh: bool
    """Whether it starts without the clusters and the prior of the old model: the last refit from those failed."""
    drifted: bool
    """Whether the stream has drifted, so that the tree stands for the latest events."""
    search_strays: bool
    """Whether it searches for rare clusters among the strays."""


@dataclass(frozen=True, eq=False)
class RefitEvents:
    """Recent events by which a refit judges what it finds."""

    present: Floats
    """Events since the stream last changed."""
    weight: Floats
    """Weights of the present's events."""
    strays: Floats
    """Watched events outside every large cluster."""
    watched: Floats
    """The latest events; none if drift is ignored or too few have been watched to judge by."""
    weight_of_one: float
    """Average weight of one of the latest events."""
    gaps: Gaps | None
    """All events, if they are all known and some of their values were missing."""
    sequence: RecentSequence
    """Recent events in their order, which tell how many independent events the tree's are worth."""
    ways: tuple[Floats, ...]
    """All recent events in their order, in a row and watched ones: the ways of sources."""
    n_events: float
    """Number of events that the tree stands for."""


@dataclass(frozen=True, eq=False)
class RefitInput:
    """Input of a refit: copies that nothing else writes to."""

    settings: EngineSettings
    number: int
    """Number of the refit, which seeds its random numbers."""
    tree: SummaryTree
    old: Model
    start: Moments
    """Components to start from."""
    fixed: FixedComponents
    """Components of the old model that the tree holds no events of: they stay as they are."""
    events: RefitEvents
    mode: SearchMode

    @property
    def is_independent(self) -> bool:
        """Whether clusters have independent coordinates of a sketch."""
        return self.old.sketch is not None and self.old.sketch.independent

    @property
    def family(self) -> FamilyLike:
        """The family of "bkm": clusters of independent coordinates share one covariance."""
        return TiedGaussian if self.is_independent else self.settings.family


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a refit, and the weight its clusters share with those before (old x new).

    `owner` is the cluster of each component; empty, if each is a cluster. `plateaus` are pairs of components
    whose events are one plateau.

    `outside` is the share of the present's events, when it began, that are in none of its clusters.
    """

    result: Result
    shared: Floats
    old_weight: Floats
    new_weight: Floats
    outside: float
    owner: tuple[int, ...] = ()
    plateaus: tuple[tuple[int, int], ...] = ()

    def to_state(self) -> State:
        """State of the result."""
        result = result_state(self.result)
        tables = {name: getattr(self, name) for name in ("shared", "old_weight", "new_weight")}
        values = {
            "outside": self.outside,
            "owner": list(self.owner),
            "plateaus": [list(pair) for pair in self.plateaus],
            "result": result.values,
        }
        return State(result.arrays | tables, values)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The result that `to_state` saved."""
        arrays, values = state
        return cls(
            result_from_state(State(arrays, values["result"])),
            arrays["shared"],
            arrays["old_weight"],
            arrays["new_weight"],
            values["outside"],
            tuple(values.get("owner", ())),  # older checkpoints have none of these
            tuple((int(i), int(j)) for i, j in values.get("plateaus", ())),
        )
