"""Stream: everything that an engine has learnt of a stream. The engine's parts share it, and checkpoints hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from streamclust.engine import schedule
from streamclust.engine.background import Refit
from streamclust.engine.model import Model
from streamclust.engine.outside_alarm import OutsideAlarm
from streamclust.engine.settings import EngineSettings
from streamclust.engine.shards import Shards
from streamclust.engine.shown_level import CommonWeight, ShownLevel
from streamclust.engine.tuning import TUNING
from streamclust.lineage import Lineage
from streamclust.sketch import Sketch, Transform
from streamclust.utils.state import State


@dataclass
class Counters:
    """Numbers of a stream that checkpoints hold, field by field: how far it has come, and what is due next."""

    n_seen: int = 0
    """Events learnt."""
    n_refits: int = 0
    next_refit: int = 1
    """Event count of the next refit."""
    next_look: int = TUNING.look_events // 2
    """Event count of the next look."""
    last_refit: int = 0
    """Event count at which the last refit started."""
    last_challenge: float = 0.0
    """Weight learnt when a refit last searched from nothing."""
    strays_searched: int = 0
    """Number of strays when they were last searched for rare clusters."""
    tolerated: float = TUNING.large_share
    """Share of the latest events that may lie outside every cluster of this model."""
    learnt_until: int = 0
    """Event count up to which the clusters have learnt the stream."""
    look_gap: int = TUNING.look_events // 2
    """Events between the last look and the next."""
    begin: int = 0
    """Event count of the last change of the stream, where the present begins. It falls only by a merge."""
    moving: bool = False
    """Whether clusters were moving at the last look."""
    change_due: int = schedule.NEVER
    """Event count from which a look starts a refit because the stream has changed."""
    ids_changed: bool = False
    """Whether the last refit changed the set of ids."""
    n_failed_refits: int = 0
    failures_in_a_row: int = 0
    last_failure: str = ""
    """Reason of the latest look or refit that failed; empty if none has failed."""
    known_features: int = 0
    """Number of features that were noticed."""
    feature_due: int = schedule.NEVER
    """Event count from which a look starts a search because features have appeared."""
    feature_gap: int = 0
    """Events between the last such search, or the first event that has the features, and the next."""
    features_since: int = 0
    """Event count at which features last appeared that earlier events have filled-in values of."""
    n_filled: int = 0
    """Events since then that lacked some feature."""
    alarm: OutsideAlarm = field(default_factory=OutsideAlarm)
    known_time: float = 1.0
    """Events that were worth one independent event at the last refit or change."""
    transform_due: int = TUNING.min_transform_events
    """Event count at which it is decided (again) which features are transformed."""

    def time_known_before(self, n_clusters: int, memory_events: float) -> float:
        """Events worth one independent event when the present began; 1 once the present is long enough to tell itself.

        By then what was known before is forgotten, too.

        >>> [Counters(n_seen=n, known_time=50.0).time_known_before(2, float("inf")) for n in (1_000, 3_000)]
        [50.0, 1.0]
        >>> Counters(n_seen=1_000, known_time=50.0).time_known_before(2, memory_events=500.0)
        1.0
        """
        lasting = min(TUNING.known_times * self.known_time * n_clusters, memory_events)
        return self.known_time if self.n_seen - self.begin < lasting else 1.0

    def to_values(self) -> dict[str, Any]:
        """The counters by name."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Counters from saved values; those that older checkpoints lack have their defaults."""
        names = {f.name for f in fields(cls)} & values.keys()
        counters = cls(**{name: values[name] for name in names})
        counters.alarm = OutsideAlarm(*counters.alarm)
        return counters


@dataclass
class Stream:
    """Trees, model, ids and counters of a stream."""

    settings: EngineSettings
    shards: Shards
    lineage: Lineage
    counters: Counters = field(default_factory=Counters)
    sketch: Sketch | None = None
    """Maps wide events to the coordinates of trees and models; None if those are the features."""
    transform: Transform = field(default_factory=Transform.none)
    """Of skewed features: rows of trees and models are transformed."""
    model: Model | None = None
    pending_refit: Refit | None = None
    """The refit that is running, or waits for the event at which it is published."""
    led: bool = False
    """Whether models come from elsewhere (`Engine.follow`): then nothing is refitted here."""
    level: ShownLevel = field(default_factory=ShownLevel)
    n_waited: int = 0
    """Events that waited for a sketch. Nobody sees a model of fewer, so the first refit comes after them."""

    def to_state(self, merged: bool = False) -> State:
        """Complete state, or with the shards `merged` into one; waits for a running refit."""
        arrays, values = self.shards.to_state(merged)
        values |= {"settings": self.settings.to_values(), "lineage": self.lineage.to_dict()}
        values |= self.counters.to_values()
        values["level"] = self.level.to_values()
        if self.sketch is not None:
            self.sketch.to_state().add_to(arrays, values, "sketch")
        if not self.transform.is_none:
            self.transform.to_state().add_to(arrays, values, "transform")
        if self.model is not None:
            self.model.to_state().add_to(arrays, values, "model")
        if self.pending_refit is not None:
            self.pending_refit.to_state().add_to(arrays, values, "refit")
        return State(arrays, values)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The stream that `to_state` saved."""
        values = state.values
        settings = EngineSettings.from_values(values["settings"])
        shards = Shards.from_state(state, settings)
        older = {"known_features": shards.n_features}  # older checkpoints do not have it
        sketch, refit = state.part("sketch"), state.part("refit")
        stream = cls(
            settings,
            shards,
            Lineage.from_dict(values["lineage"]),
            Counters.from_values(older | values),
            sketch=None if sketch is None else Sketch.from_state(sketch),
            transform=Transform.from_state(state.part("transform")),
            pending_refit=None if refit is None else Refit.from_state(refit),
        )
        if "level" in values:  # older checkpoints show the finest clusters
            stream.level = ShownLevel.from_values(values["level"])
        model = state.part("model")
        if model is not None:
            stream.model = replace(Model.from_state(model, stream.sketch), transform=stream.transform)
        return stream

    @property
    def n_seen(self) -> int:
        """Events learnt."""
        return self.counters.n_seen

    def publish(self, model: Model, shared: CommonWeight | None = None) -> None:
        """Publish a new version of the model, and show the level asked for.

        `shared` is the weight that its clusters have in common with those before, if those of one id are not the same.
        """
        self.model = self.level.show(self.settings, self.model, model, self.lineage.retired, shared)

    def show_as_of_now(self) -> None:
        """Publish the model again if the clusters have changed so that others are to be shown."""
        model = self.published
        if self.level.differs(self.settings, model, self.n_seen):
            self.publish(model.changed(version=model.version + 1, n_seen=self.n_seen))

    @property
    def reported(self) -> Lineage:
        """Ids and lifecycle events of the level on show."""
        return self.lineage if self.level.lineage is None else self.level.lineage

    @property
    def published(self) -> Model:
        """The model, where there must be one."""
        assert self.model is not None
        return self.model
