"""Ward's tree in rounds: every two nodes that are each other's nearest merge at once.

Ward's cost is reducible: no merge brings a node nearer to a third one. So pairs of mutual neighbours merge in any
order, and a node whose neighbour is still there keeps it. Neighbours are sought in a kd-tree of the nodes,
built anew each round: node k has the children 2k+1 and 2k+2, and rows stand in the order of its leaves.

Costs in here are |a||b|/(|a|+|b|) ‖x̄_a - x̄_b‖², twice RBHC's.
"""

import numpy as np

from streamclust._kernels.compile import kernel, kernel_with_free_sums, part, part_with_free_sums
from streamclust._kernels.types import Floats, Ints

LEAF_SIZE = 8
DEEPEST = 64


@part
def select(mean: Floats, axis: int, order: Ints, low: int, high: int, middle: int) -> None:
    """Order low..high so that none before `middle` is greater than it on the axis, and none after less."""
    last = high - 1
    while low < last:
        pivot = mean[order[(low + last) // 2], axis]
        i, j = low, last
        while i <= j:
            while mean[order[i], axis] < pivot:
                i += 1
            while mean[order[j], axis] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j
        elif middle >= i:
            low = i
        else:
            return


@kernel
def sort_into_tree(mean: Floats, order: Ints, start: Ints) -> None:
    """Order the rows by the leaves of a kd-tree of len(start) - 1 nodes: node k's begin at start[k].

    Each node is halved across its widest side.
    """
    nodes = len(start) - 1
    stop = np.empty(nodes, dtype=np.int64)
    start[0], stop[0] = 0, len(mean)
    d = mean.shape[1]
    for k in range(nodes // 2):
        low, high = start[k], stop[k]
        widest, axis = -1.0, 0
        for i in range(d):
            least = greatest = mean[order[low], i]
            for r in range(low + 1, high):
                value = mean[order[r], i]
                least = min(least, value)
                greatest = max(greatest, value)
            if greatest - least > widest:
                widest, axis = greatest - least, i
        middle = (low + high) // 2
        select(mean, axis, order, low, high, middle)
        start[2 * k + 1], stop[2 * k + 1] = low, middle
        start[2 * k + 2], stop[2 * k + 2] = middle, high
    start[nodes] = len(mean)


@kernel
def bound_nodes(weight: Floats, mean: Floats, start: Ints, lo: Floats, hi: Floats, lightest: Floats) -> None:
    """Boxes and least weights of the tree's nodes; the rows are in the order of its leaves."""
    nodes, d = lo.shape
    for k in range(nodes - 1, -1, -1):
        if 2 * k + 1 < nodes:
            a, b = 2 * k + 1, 2 * k + 2
            lightest[k] = min(lightest[a], lightest[b])
            for i in range(d):
                lo[k, i], hi[k, i] = min(lo[a, i], lo[b, i]), max(hi[a, i], hi[b, i])
            continue
        lightest[k] = np.inf
        for i in range(d):
            lo[k, i], hi[k, i] = np.inf, -np.inf
        for r in range(start[k], start[k + 1]):
            lightest[k] = min(lightest[k], weight[r])
            for i in range(d):
                lo[k, i], hi[k, i] = min(lo[k, i], mean[r, i]), max(hi[k, i], mean[r, i])


@part_with_free_sums
def box_cost(mean: Floats, row: int, own: float, lo: Floats, hi: Floats, lightest: Floats, k: int) -> float:
    """No node in the box of tree node k is nearer to the row than this."""
    total = 0.0
    for i in range(mean.shape[1]):
        outside = max(max(lo[k, i] - mean[row, i], mean[row, i] - hi[k, i]), 0.0)
        total += outside * outside
    return own * lightest[k] / (own + lightest[k]) * total


@part_with_free_sums
def pair_cost(weight: Floats, mean: Floats, a: int, b: int) -> float:
    """Twice the cost of merging rows a and b."""
    total = 0.0
    for i in range(mean.shape[1]):
        deviation = mean[a, i] - mean[b, i]
        total += deviation * deviation
    return weight[a] * weight[b] / (weight[a] + weight[b]) * total


@kernel_with_free_sums
def find_in_tree(
    wanted: Ints,
    weight: Floats,
    mean: Floats,
    start: Ints,
    lo: Floats,
    hi: Floats,
    lightest: Floats,
    neighbour: Ints,
    cost: Floats,
) -> int:
    """The nearest neighbour of each wanted row, exactly; returns how many rows and boxes were looked at.

    From its own leaf upwards: the nearest is mostly close by, and then few other boxes can hold a nearer one.
    """
    nodes = len(lightest)
    stack = np.empty(DEEPEST, dtype=np.int64)
    bounds = np.empty(DEEPEST)
    looked = 0
    first_leaf = nodes // 2
    for row in wanted:
        low, high = first_leaf, nodes  # the last leaf that begins at or before the row
        while high - low > 1:
            middle = (low + high) // 2
            if start[middle] <= row:
                low = middle
            else:
                high = middle
        own = weight[row]
        nearest, least = -1, np.inf
        above = low
        size = 1
        stack[0], bounds[0] = low, 0.0
        while True:
            while size > 0:
                size -= 1
                k = stack[size]
                if bounds[size] > least:
                    continue
                if k >= first_leaf:
                    for r in range(start[k], start[k + 1]):
                        if r != row:
                            value = pair_cost(weight, mean, row, r)
                            if value < least or nearest < 0:
                                nearest, least = r, value
                    looked += start[k + 1] - start[k]
                    continue
                a, b = 2 * k + 1, 2 * k + 2
                near = box_cost(mean, row, own, lo, hi, lightest, a)
                far = box_cost(mean, row, own, lo, hi, lightest, b)
                looked += 2
                if far < near:
                    a, b, near, far = b, a, far, near
                if far <= least:
                    stack[size], bounds[size] = b, far
                    size += 1
                if near <= least:
                    stack[size], bounds[size] = a, near
                    size += 1
            if above == 0:
                break
            other = above + 1 if above % 2 == 1 else above - 1
            stack[0], bounds[0] = other, box_cost(mean, row, own, lo, hi, lightest, other)
            size = 1
            looked += 1
            above = (above - 1) // 2
        neighbour[row], cost[row] = nearest, least
    return looked


@kernel_with_free_sums
def find_by_scan(wanted: Ints, weight: Floats, mean: Floats, neighbour: Ints, cost: Floats) -> None:
    """The nearest neighbour of each wanted row, by looking at all; where all are wanted, at each pair once."""
    d = mean.shape[1]
    every = len(wanted) == len(weight)
    for row in wanted:
        neighbour[row], cost[row] = -1, np.inf
    for row in wanted:
        own, point = weight[row], mean[row]
        nearest, least = neighbour[row], cost[row]
        for r in range(row if every else len(weight)):
            if r == row:
                continue
            squares = 0.0
            for i in range(d):
                deviation = point[i] - mean[r, i]
                squares += deviation * deviation
            bar = max(least, cost[r]) if every else least
            both = own + weight[r]
            if own * weight[r] * squares >= bar * both:  # mostly, and without a division
                continue
            value = own * weight[r] / both * squares
            if value < least:
                nearest, least = r, value
            if every and value < cost[r]:
                neighbour[r], cost[r] = row, value
        neighbour[row], cost[row] = nearest, least


@kernel
def merge_pairs(
    weight: Floats,
    mean: Floats,
    node: Ints,
    neighbour: Ints,
    cost: Floats,
    pairs: Ints,
    costs: Floats,
    merged: int,
) -> int:
    """Merge all pairs of mutual neighbours; returns how many merges there now are.

    The union takes the first one's row, the second one's weight becomes 0. Neighbours that are gone, and
    those of unions, become -1. Equal costs can leave no mutual pair: then the cheapest one merges.
    """
    m, d = mean.shape
    before = merged
    cheapest = 0
    for a in range(m):
        if cost[a] < cost[cheapest]:
            cheapest = a
    for attempt in range(2):
        for a in range(m):
            b = neighbour[a]
            mutual = b >= 0 and neighbour[b] == a and a < b
            if not (mutual or (attempt == 1 and a == cheapest)):
                continue
            total = weight[a] + weight[b]
            share = weight[b] / total
            squares = 0.0
            for i in range(d):
                deviation = mean[b, i] - mean[a, i]
                squares += deviation * deviation
                mean[a, i] += share * deviation
            costs[merged] = 0.5 * weight[a] * share * squares
            pairs[merged, 0], pairs[merged, 1] = node[a], node[b]
            node[a] = len(costs) + 1 + merged
            weight[a], weight[b] = total, 0.0
            neighbour[a] = neighbour[b] = -2
            merged += 1
        if merged > before:
            break
    for a in range(m):
        if neighbour[a] >= 0 and neighbour[neighbour[a]] == -2:
            neighbour[a] = -1
    for a in range(m):
        if neighbour[a] == -2:
            neighbour[a] = -1
    return merged
