"""Colours of clusters by their ids: the same in the dashboard and in every picture. No matplotlib."""

from __future__ import annotations

PALETTE = (
    "#1188bb", "#ff7700", "#bb0066", "#33aa00", "#dd77ee", "#336622", "#8844cc", "#997755",
    "#ee5588", "#0055bb", "#775577", "#66aa99", "#7799ff", "#cc3300", "#aa66aa", "#aa9911",
    "#228866", "#006677", "#4477ff", "#885500", "#cc8877", "#aa66ee", "#aa99cc", "#008800",
    "#992299", "#bb5566", "#00aadd", "#5566aa", "#778822", "#cc6600", "#dd55bb", "#ee4444",
    "#7777cc", "#ff7777", "#994444", "#5555dd", "#bb3399", "#ee77bb", "#119999", "#44aa66",
    "#aa7788", "#447788", "#bb0033", "#774499", "#889966", "#7799bb", "#557733", "#aa88ee",
    "#0099ff", "#dd3366", "#cc8833", "#aa5522", "#993366", "#cc88aa", "#229944", "#995588",
    "#aa44bb", "#0077cc", "#cc6699", "#7766ee", "#6644bb", "#555588", "#aa7700", "#77aa33",
)  # fmt: skip
"""64 colours; the first k of them are far apart for every k.

Each is the colour farthest from all before it (farthest-point traversal), among those whose contrast with white and
with the dashboard's dark ground is at least 2.5. The distance is that of Oklab, to which a third of the squared
distance is added that readers without green cones see [Machado, Oliveira and Fernandes 2009].
"""


def hex_colour(cluster: int) -> str:
    """The colour of a cluster; an id 64 higher has the same.

    >>> hex_colour(0), hex_colour(65) == hex_colour(1)
    ('#1188bb', True)
    """
    return PALETTE[cluster % len(PALETTE)]
