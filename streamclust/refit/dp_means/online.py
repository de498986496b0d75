"""DP-means in a single pass: the rule by which events open clusters between refits.

A single pass depends on the order of the events, so clusters opened by it are provisional until a refit settles them.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints


def lead(points: Floats, penalty: float) -> Ints:
    """The group of each point, in their order: the first whose leader is within λ, else one that the point opens.

    `penalty` is λ², a squared distance. A leader is the point that opened its group: unlike a running mean it stays
    where it is, so that every point of a group is within λ of it.

    >>> lead(np.array([[0.0], [1.0], [9.0], [0.5]]), 4.0)
    array([0, 0, 1, 0])
    """
    leaders: list[Floats] = []
    groups = np.empty(len(points), dtype=np.int64)
    for i, point in enumerate(points):
        near = (g for g, leader in enumerate(leaders) if ((point - leader) ** 2).sum() <= penalty)
        groups[i] = next(near, len(leaders))
        if groups[i] == len(leaders):
            leaders.append(point)
    return groups
