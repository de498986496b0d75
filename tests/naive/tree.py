"""Slow twins of the summary tree. Imports nothing from the package."""

import numpy as np


def forward_weights(weights, times, half_life):
    """What each event weighs at the time of the latest one."""
    age = np.max(times) - np.asarray(times, dtype=np.longdouble)
    return np.asarray(weights, dtype=np.longdouble) * np.exp2(-age / np.longdouble(half_life))


def total(rows, weights):
    """Weight, mean and centred scatter of weighted rows, in extended precision and two passes."""
    x = np.asarray(rows, dtype=np.longdouble)
    w = np.asarray(weights, dtype=np.longdouble)
    weight = w.sum()
    moved = x - x[0]  # exact here, so that data far from the origin keep their digits
    mean = (w[:, None] * moved).sum(axis=0) / weight
    deviation = moved - mean
    return weight, x[0] + mean, np.einsum("n,ni,nj->ij", w, deviation, deviation)


def check_structure(arrays):
    """Every link of the tree, followed from the root; returns the depth of each leaf slot."""
    child, parent, node = arrays["child"], arrays["parent"], arrays["node"]
    leaves, free_pairs, free_slots, *_ = arrays["counts"]
    depth, pairs, stack = {}, set(), [(0, 0)]
    while stack:
        here, level = stack.pop()
        below = child[here]
        if below < 0:
            slot = int(~below)
            assert slot not in depth, "two nodes share a leaf"
            assert node[slot] == here, "a leaf points at another node"
            depth[slot] = level
            continue
        assert below % 2 == 1, "pairs start at odd nodes"
        pair = int(below - 1) // 2
        assert pair not in pairs, "a pair has two parents"
        pairs.add(pair)
        for part in (below, below + 1):
            assert parent[part] == here, "a child points at another parent"
            stack.append((int(part), level + 1))
    assert len(depth) == leaves == len(pairs) + 1
    assert set(np.flatnonzero(node >= 0)) == set(depth)
    assert sorted(arrays["free_slot"][:free_slots].tolist() + list(depth)) == list(range(len(node)))
    assert sorted(arrays["free_pair"][:free_pairs].tolist() + list(pairs)) == list(range(len(node) - 1))
    for slot in depth:
        n = arrays["count"][slot]
        points = arrays["points"][slot, :n]
        assert (points >= arrays["lo"][slot]).all(), "a sampled point below its box"
        assert (points <= arrays["hi"][slot]).all(), "a sampled point above its box"
        cutoff = arrays["cutoff"][slot]
        assert np.isinf(cutoff) or (arrays["key"][slot, :n] < cutoff).all(), "a key at or above the cutoff"
    return depth
