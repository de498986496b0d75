"""Hierarchies, slowly: every pair at every step, every partition, every pair of leaves. Imports nothing of ours."""

from itertools import combinations

import numpy as np


def merge_costs(clusters, energy, own):
    """What merging each pair of clusters (tuples of leaves) costs, given E of each; E as one cluster is `energy`."""
    return {(a, b): energy(a + b) - own[a] - own[b] for a, b in combinations(clusters, 2)}


def united_energy(cost, apart, bhc):
    """E of a union: as one cluster; for BHC, of both hypotheses together."""
    return -np.logaddexp(-(cost + apart), -apart) if bhc else cost + apart


def greedy(n, energy, bhc=False):
    """The cheapest pair of all, n - 1 times; returns the costs."""
    clusters = [(i,) for i in range(n)]
    own = {c: energy(c) for c in clusters}
    costs = []
    while len(clusters) > 1:
        prices = merge_costs(clusters, energy, own)
        (a, b), cost = min(prices.items(), key=lambda item: item[1])
        clusters = [c for c in clusters if c not in (a, b)] + [a + b]
        own[a + b] = united_energy(cost, own[a] + own[b], bhc)
        costs.append(cost)
    return np.array(costs)


def members(children):
    """The leaves below every node."""
    n = len(children) + 1
    below = [(i,) for i in range(n)]
    for left, right in children:
        below.append(below[left] + below[right])
    return below


def regrets(children, energy, bhc=False):
    """For each merge, how much more it cost than the cheapest pair of its time; and what it cost.

    This judges a sequence of merges also where equal costs allow several.
    """
    below = members(children)
    n = len(children) + 1
    clusters = below[:n]
    own = {c: energy(c) for c in clusters}
    more, costs = [], []
    for t, (left, right) in enumerate(children):
        a, b = below[left], below[right]
        cost = energy(a + b) - own[a] - own[b]
        more.append(cost - min(merge_costs(clusters, energy, own).values()))
        costs.append(cost)
        clusters = [c for c in clusters if c not in (a, b)] + [below[n + t]]
        own[below[n + t]] = united_energy(cost, own[a] + own[b], bhc)
    return np.array(more), np.array(costs)


def consistent_partitions(children, node=None):
    """Every partition whose clusters are nodes of the tree, as tuples of nodes."""
    n = len(children) + 1
    node = 2 * n - 2 if node is None else node
    yield (node,)
    if node >= n:
        left, right = children[node - n]
        for a in consistent_partitions(children, left):
            for b in consistent_partitions(children, right):
                yield a + b


def purity(children, labels):
    """The definition: all pairs of one class, and the smallest subtree that holds both."""
    below = members(children)
    shares = []
    for i, j in combinations(range(len(labels)), 2):
        if labels[i] == labels[j]:
            smallest = min((m for m in below if i in m and j in m), key=len)
            shares.append(np.mean([labels[k] == labels[i] for k in smallest]))
    return float(np.mean(shares))
