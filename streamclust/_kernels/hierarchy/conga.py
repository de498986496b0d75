"""The conga line: a dynamic closest pair for any cost [Eppstein 1998; BKM section 9.2].

The nodes are divided among a few subsets. Each subset has a graph: a path that starts at a member and goes on
from a member to the nearest node, from another node to the nearest member, never to a node it has been to.
The closest pair of all is always an edge of some graph.

Edges are rows of `edges` (source, target, graph) and `lengths`; state as in `hierarchy_search`.
"""

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.hierarchy.costs import price
from streamclust._kernels.hierarchy.search import ACTIVE, EVALUATIONS, MERGED, NOBODY, retire
from streamclust._kernels.types import Floats, Ints

SOURCE, TARGET, GRAPH = 0, 1, 2
EDGES = 2
"""Place in `state`: how many edges there are."""
MOST_SUBSETS = 66
"""More than log2 of any number of nodes."""


@part
def drop_graph(edges: Ints, lengths: Floats, state: Ints, graph: int) -> None:
    """Forget the edges of one graph."""
    kept = 0
    for e in range(state[EDGES]):
        if edges[e, GRAPH] != graph:
            for c in range(3):
                edges[kept, c] = edges[e, c]
            lengths[kept] = lengths[e]
            kept += 1
    state[EDGES] = kept


@part
def draw_path(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    active: Ints,
    subset: Ints,
    graph: int,
    walked: Ints,
    edges: Ints,
    lengths: Floats,
    state: Ints,
    others: Ints,
    prices: Floats,
) -> None:
    """Draw the path of a subset anew."""
    drop_graph(edges, lengths, state, graph)
    tip = NOBODY
    for k in range(state[ACTIVE]):
        walked[active[k]] = 0
        if tip == NOBODY and subset[active[k]] == graph:
            tip = active[k]
    while tip != NOBODY:
        walked[tip] = 1
        count = 0
        for k in range(state[ACTIVE]):
            slot = active[k]
            if walked[slot] == 0 and (subset[tip] == graph or subset[slot] == graph):
                others[count] = slot
                count += 1
        price(method, family, rows, d, prior, table, tip, NOBODY, others, count, prices)
        state[EVALUATIONS] += count
        nearest, least = NOBODY, np.inf
        for k in range(count):
            if prices[k] < least:
                nearest, least = others[k], prices[k]
        if nearest != NOBODY:
            e = state[EDGES]
            edges[e, SOURCE], edges[e, TARGET], edges[e, GRAPH], lengths[e] = tip, nearest, graph, least
            state[EDGES] += 1
        tip = nearest


@part
def unite_subsets(
    sizes: Ints, stale: Ints, subset: Ints, active: Ints, edges: Ints, lengths: Floats, state: Ints
) -> None:
    """Unite subsets until there are at most log2 of the nodes: each time the two of the most similar sizes.

    Where the new paths might not fit into the room for edges, all unite: one path has fewer edges than there
    are nodes.
    """
    while True:
        count = 0
        needed = state[EDGES]
        best, small, large = np.inf, NOBODY, NOBODY
        for s in range(MOST_SUBSETS):
            if sizes[s] > 0:
                count += 1
                needed += 2 * sizes[s] * stale[s]
                for t in range(MOST_SUBSETS):
                    if t != s and sizes[t] >= sizes[s] and sizes[t] / sizes[s] < best:
                        best, small, large = sizes[t] / sizes[s], s, t
        if count <= 1 or (2 ** (count - 1) < state[ACTIVE] and needed <= len(lengths)):
            return
        for k in range(state[ACTIVE]):
            if subset[active[k]] == small:
                subset[active[k]] = large
        sizes[large] += sizes[small]
        sizes[small] = 0
        stale[large], stale[small] = 1, 0
        drop_graph(edges, lengths, state, small)
        drop_graph(edges, lengths, state, large)


@part
def delete(
    slot: int, fresh: int, subset: Ints, sizes: Ints, stale: Ints, edges: Ints, lengths: Floats, state: Ints
) -> None:
    """Take a node out of all paths; those who held on to it form the new subset `fresh`."""
    sizes[subset[slot]] -= 1
    subset[slot] = NOBODY
    kept = 0
    for e in range(state[EDGES]):
        source, target = edges[e, SOURCE], edges[e, TARGET]
        if target == slot and subset[source] != fresh:
            sizes[subset[source]] -= 1
            sizes[fresh] += 1
            subset[source] = fresh
        if target != slot and source != slot:
            for c in range(3):
                edges[kept, c] = edges[e, c]
            lengths[kept] = lengths[e]
            kept += 1
    state[EDGES] = kept
    stale[fresh] = 1


@kernel
def follow_conga_line(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    node: Ints,
    active: Ints,
    place: Ints,
    subset: Ints,
    sizes: Ints,
    stale: Ints,
    edges: Ints,
    lengths: Floats,
    state: Ints,
    pairs: Ints,
    costs: Floats,
    stop: int,
) -> None:
    """Merge the closest pair, again and again: two nodes are deleted, their union is inserted.

    After each of the three, a new subset's path is drawn, and those of subsets that unite. `stale` says whose
    paths must be drawn: at first that of subset 0, which has all the nodes.
    """
    others, prices = np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
    walked = np.zeros(len(rows), dtype=np.int64)
    leaves = len(costs) + 1
    first = second = NOBODY
    step = 0
    while state[MERGED] < stop:
        fresh = 0
        while sizes[fresh] > 0:
            fresh += 1
        if step == 1:
            shortest = 0
            for e in range(1, state[EDGES]):
                if lengths[e] < lengths[shortest]:
                    shortest = e
            first, second = edges[shortest, SOURCE], edges[shortest, TARGET]
            pairs[state[MERGED], 0], pairs[state[MERGED], 1] = node[first], node[second]
            costs[state[MERGED]] = lengths[shortest]
            retire(active, place, state, second)
            delete(second, fresh, subset, sizes, stale, edges, lengths, state)
        elif step == 2:
            retire(active, place, state, first)
            delete(first, fresh, subset, sizes, stale, edges, lengths, state)
        elif step == 3:
            price(method, family, rows, d, prior, table, first, second, active, 0, prices)
            active[state[ACTIVE]], place[first] = first, state[ACTIVE]
            state[ACTIVE] += 1
            node[first] = leaves + state[MERGED]
            subset[first], sizes[fresh], stale[fresh] = fresh, 1, 1
            state[MERGED] += 1
        unite_subsets(sizes, stale, subset, active, edges, lengths, state)
        for s in range(MOST_SUBSETS):
            if stale[s] == 1:
                stale[s] = 0
                draw_path(
                    method, family, rows, d, prior, table, active, subset, s, walked, edges, lengths, state,
                    others, prices,
                )  # fmt: skip
        step = step % 3 + 1
