"""Lineage: stable cluster ids, the log of their lifecycle events, and the history of their shares."""

from streamclust.lineage.changes import Change, Kind, labelled
from streamclust.lineage.history import History, HistoryStep
from streamclust.lineage.lineage import MAX_EVENTS, Lineage, Mark
from streamclust.lineage.matching import majority
from streamclust.lineage.names import MAX_NAME_CHARACTERS, checked_name, one_line
from streamclust.lineage.visits import Visits

__all__ = [
    "MAX_EVENTS",
    "MAX_NAME_CHARACTERS",
    "Change",
    "History",
    "HistoryStep",
    "Kind",
    "Lineage",
    "Mark",
    "Visits",
    "checked_name",
    "labelled",
    "majority",
    "one_line",
]
