"""Names that people give to clusters, and what becomes of them when clusters split and merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamclust.lineage.changes import Change

MAX_NAME_CHARACTERS = 80
"""Longest name of a cluster."""


def one_line(name: str) -> str:
    """Text without characters that cannot be printed, and with single spaces.

    >>> one_line(" night   shift ")
    'night shift'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def checked_name(name: str) -> str:
    """The name in one line; ValueError if it is empty or too long."""
    if not isinstance(name, str):
        raise TypeError(f"a name must be text, got {type(name).__name__}; None takes a name away")
    found = one_line(name)
    if not 1 <= len(found) <= MAX_NAME_CHARACTERS:
        raise ValueError(
            f"a name must have 1 to {MAX_NAME_CHARACTERS} printable characters, got {found[:100]!r}; "
            "None takes a name away"
        )
    return found


def inherited(names: Mapping[int, str], changes: Iterable[Change]) -> dict[int, str]:
    """Names after some changes: an id keeps its name; one without takes that of the heaviest that merged into it.

    >>> merge = Change("merged", 9_000, 8, {1: 50.0, 4: 9.0, 5: 11.0}, {1: 70.0})
    >>> inherited({4: "late", 5: "night shift"}, [merge])[1], inherited({1: "day", 4: "late"}, [merge])[1]
    ('night shift', 'day')
    """
    found = dict(names)
    for change in changes:
        named = {i: weight for i, weight in change.parents.items() if i in names}
        for child in change.children if change.kind == "merged" and named else ():
            found.setdefault(child, names[max(named, key=named.__getitem__)])
    return found
