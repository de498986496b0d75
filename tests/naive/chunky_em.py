"""Chunky EM, slowly: loops over boxes, points and components, densities written out. Imports nothing of ours.

A box is an array of points; each has a weight. A mixture is a list of (share, mean, covariance matrix).
"""

import numpy as np


def log_density(x, mean, covariance):
    """(2.2)."""
    d = len(mean)
    deviation = x - mean
    distance = deviation @ np.linalg.solve(covariance, deviation)
    return -0.5 * (d * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + distance)


def average(box, weight, mean, covariance):
    """⟨log p(x|s)⟩ over a box's points."""
    values = [w * log_density(x, mean, covariance) for x, w in zip(box, weight, strict=True)]
    return sum(values) / sum(weight)


def log_softmax(values):
    values = np.asarray(values) - np.max(values)
    return values - np.log(np.exp(values).sum())


def softmax(values):
    return np.exp(log_softmax(values))


def shared_responsibilities(boxes, weights, mixture):
    """(3.14)."""
    return np.array(
        [
            softmax([np.log(pi) + average(box, weight, m, C) for pi, m, C in mixture])
            for box, weight in zip(boxes, weights, strict=True)
        ]
    )


def centroid_responsibilities(boxes, weights, mixture):
    """(2.23)."""
    rows = []
    for box, weight in zip(boxes, weights, strict=True):
        centroid = np.average(box, axis=0, weights=weight)
        rows.append(softmax([np.log(pi) + log_density(centroid, m, C) for pi, m, C in mixture]))
    return np.array(rows)


def free_energy(boxes, weights, mixture, responsibilities):
    """(3.13), summed over all boxes."""
    total = 0.0
    for box, weight, q in zip(boxes, weights, responsibilities, strict=True):
        for x, w in zip(box, weight, strict=True):
            for share, (pi, m, C) in zip(q, mixture, strict=True):
                if share > 0:
                    total += w * share * (np.log(pi) + log_density(x, m, C) - np.log(share))
    return total


def divergence(boxes, weights, mixture, responsibilities):
    """Σ over points of KL(q_b || p(s|x)), the last term of (3.12)."""
    total = 0.0
    for box, weight, q in zip(boxes, weights, responsibilities, strict=True):
        for x, w in zip(box, weight, strict=True):
            log_posterior = log_softmax([np.log(pi) + log_density(x, m, C) for pi, m, C in mixture])
            for share, log_p in zip(q, log_posterior, strict=True):
                if share > 0:
                    total += w * share * (np.log(share) - log_p)
    return total


def constrained(covariance, kind):
    """What is left of a covariance matrix in a diagonal or spherical one."""
    d = len(covariance)
    if kind == "diagonal":
        return np.diag(np.diag(covariance))
    if kind == "spherical":
        return np.trace(covariance) / d * np.eye(d)
    return covariance


def component(boxes, weights, responsibility, kind):
    """(3.16) and (3.17) for one component, with the points written out; also its weight."""
    d = boxes[0].shape[1]
    mass = sum(q * sum(weight) for q, weight in zip(responsibility, weights, strict=True))
    mean, covariance = np.zeros(d), np.zeros((d, d))
    if mass == 0:
        return mass, mean, covariance
    for box, weight, q in zip(boxes, weights, responsibility, strict=True):
        for x, w in zip(box, weight, strict=True):
            mean += q * w * x / mass
    for box, weight, q in zip(boxes, weights, responsibility, strict=True):
        for x, w in zip(box, weight, strict=True):
            covariance += q * w * np.outer(x - mean, x - mean) / mass
    return mass, mean, constrained(covariance, kind)


def m_step(boxes, weights, responsibilities, kind="full"):
    """(3.15)-(3.17)."""
    n = sum(sum(weight) for weight in weights)
    parts = [component(boxes, weights, q, kind) for q in np.transpose(responsibilities)]
    return [(mass / n, mean, covariance) for mass, mean, covariance in parts]


def partial_step(boxes, weights, mixture, candidate, owned, kind="full"):
    """(3.24), (3.27)-(3.29): the candidate after one step on the boxes `owned`, and the gain in F (3.26) before it."""
    alpha, m, C = candidate
    n = sum(sum(weight) for weight in weights)
    q = np.zeros(len(boxes))
    gain = 0.0
    shared = shared_responsibilities(boxes, weights, mixture)
    for b, (box, weight) in enumerate(zip(boxes, weights, strict=True)):
        size = sum(weight)
        old = free_energy([box], [weight], mixture, shared[b : b + 1])
        if b in owned:
            q[b] = softmax([np.log(alpha) + average(box, weight, m, C), np.log(1 - alpha) + old / size])[0]
        entropy = -sum(p * np.log(p) for p in (q[b], 1 - q[b]) if p > 0)
        gain += (1 - q[b]) * (old + size * np.log(1 - alpha)) + size * entropy - old
        if q[b] > 0:
            gain += q[b] * size * (average(box, weight, m, C) + np.log(alpha))
    mass, mean, covariance = component(boxes, weights, q, kind)
    return (mass / n, mean, covariance), gain
