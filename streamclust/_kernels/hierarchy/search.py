"""Which pair to merge next: nearest-neighbour chain, lazy nearest-neighbour list.

Nodes live in slots: a union takes a slot of its parts, so memory stays that of the leaves. Searches stop after
as many merges as they are asked for, and go on from there when called again: all their state is in arrays.
Merges are written to `pairs` (two nodes) and `costs`; leaves are nodes 0..n-1, merge t makes node n + t.
"""

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.hierarchy.costs import price
from streamclust._kernels.types import Floats, Ints

ACTIVE, MERGED, LENGTH, EVALUATIONS = 0, 1, 2, 3
"""Places in `state`: active nodes, merges done, length of the chain, costs evaluated."""
NOBODY = -1


@part
def retire(active: Ints, place: Ints, state: Ints, slot: int) -> None:
    """Take a slot out of the list of active ones; the last one takes its place."""
    state[ACTIVE] -= 1
    last = active[state[ACTIVE]]
    active[place[slot]] = last
    place[last] = place[slot]
    place[slot] = NOBODY


@kernel
def follow_chain(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    node: Ints,
    active: Ints,
    place: Ints,
    chain: Ints,
    position: Ints,
    state: Ints,
    threshold: float,
    pairs: Ints,
    costs: Floats,
    stop: int,
) -> None:
    """Nearest-neighbour chain: walk to the nearest neighbour until two are each other's, and merge those.

    Neighbours at more than `threshold` are roots: both retire [relaxed BHC, the chain with a threshold]. Where
    costs are not reducible, a merge can bring the tip nearer to an earlier link than to the one before
    it: the chain then goes on from there. Distances to the tip fall at every step, so this ends.
    """
    prices = np.empty(len(active))
    leaves = len(costs) + 1
    while state[MERGED] < stop and state[ACTIVE] > 1:
        if state[LENGTH] == 0:
            chain[0] = active[0]
            position[chain[0]] = 0
            state[LENGTH] = 1
        tip = chain[state[LENGTH] - 1]
        price(method, family, rows, d, prior, table, tip, NOBODY, active, state[ACTIVE], prices)
        state[EVALUATIONS] += state[ACTIVE] - 1
        before, nearest, least = NOBODY, NOBODY, np.inf
        if state[LENGTH] > 1:  # among equals the link before wins, or the chain would run in circles
            before = nearest = chain[state[LENGTH] - 2]
            least = prices[place[nearest]]
        for k in range(state[ACTIVE]):
            if prices[k] < least:
                nearest, least = active[k], prices[k]
        if nearest != before:
            link = position[nearest]
            if link == NOBODY:
                position[nearest] = link = state[LENGTH]
                chain[link] = nearest
            for k in range(link + 1, state[LENGTH]):
                position[chain[k]] = NOBODY
            state[LENGTH] = link + 1
            continue
        state[LENGTH] -= 2
        position[tip] = position[nearest] = NOBODY
        retire(active, place, state, nearest)
        if least > threshold:
            retire(active, place, state, tip)
            continue
        price(method, family, rows, d, prior, table, tip, nearest, active, 0, prices)
        pairs[state[MERGED], 0], pairs[state[MERGED], 1] = node[tip], node[nearest]
        costs[state[MERGED]] = least
        node[tip] = leaves + state[MERGED]
        state[MERGED] += 1


@kernel
def merge_lazily(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    node: Ints,
    active: Ints,
    neighbour: Ints,
    bound: Floats,
    state: Ints,
    pairs: Ints,
    costs: Floats,
    stop: int,
) -> None:
    """The cheapest merge of all, again and again, by a lazy list of nearest neighbours.

    Each node keeps a lower bound of its costs to the nodes before it: at first -∞. Losing nodes only raises
    the true value, so a bound is worked out anew only when it is the least of all and its neighbour is
    gone. Pauses after `stop` evaluations; ends when all is merged.
    """
    prices = np.empty(len(active))
    leaves = len(costs) + 1
    while state[ACTIVE] > 1 and state[EVALUATIONS] < stop:
        index = 1
        for k in range(2, state[ACTIVE]):
            if bound[active[k]] < bound[active[index]]:
                index = k
        slot = active[index]
        gone = neighbour[slot]
        count = index  # a bound asks the nodes before, a union all
        if gone != NOBODY:
            pairs[state[MERGED], 0], pairs[state[MERGED], 1] = node[gone], node[slot]
            costs[state[MERGED]] = bound[slot]
            node[slot] = leaves + state[MERGED]
            state[MERGED] += 1
            state[ACTIVE] -= 1
            count = state[ACTIVE]
            shift = 0
            for k in range(count):
                if active[k + shift] == gone:
                    shift = 1
                active[k] = active[k + shift]
        price(method, family, rows, d, prior, table, slot, gone, active, count, prices)
        state[EVALUATIONS] += count if gone == NOBODY else count - 1
        nearest, least = NOBODY, np.inf
        for k in range(count):
            other = active[k]
            if other < slot:
                if prices[k] < least:
                    nearest, least = other, prices[k]
            elif prices[k] < bound[other]:
                neighbour[other], bound[other] = slot, prices[k]
            elif neighbour[other] == slot:
                neighbour[other] = NOBODY
            if gone != NOBODY and neighbour[other] == gone:
                neighbour[other] = NOBODY
        neighbour[slot], bound[slot] = nearest, least
