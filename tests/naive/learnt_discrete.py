"""Slow twins of learnt priors of counts: evidences by the chain rule, the least loss by a general optimiser."""

import numpy as np
from scipy.optimize import minimize


def multinomial(words, psi0):
    """log p of words one after the other: each by what came before it (Pólya's urn)."""
    urn, total = np.array(psi0, dtype=float), 0.0
    for word in words:
        total += np.log(urn[word] / urn.sum())
        urn[word] += 1
    return total


def bernoulli(events, ones, zeros):
    """log p of yes/no events one after the other."""
    ones, zeros, total = np.array(ones, dtype=float), np.array(zeros, dtype=float), 0.0
    for x in np.asarray(events):
        total += np.log(np.where(x > 0, ones, zeros) / (ones + zeros)).sum()
        ones, zeros = ones + x, zeros + 1 - x
    return total


def least(loss, counts):
    """The least loss over pseudo-counts of that shape, from there on, in logarithms."""
    found = minimize(
        lambda logs: loss(np.exp(logs).reshape(counts.shape)),
        np.log(counts).ravel(),
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 100_000},
    )
    return float(found.fun)
