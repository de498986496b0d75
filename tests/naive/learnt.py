"""The learnt prior by brute force: the loss written out in full, minimised by a general optimiser."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import multigammaln


def step_variance(values, weight, variance, neighbours=3, events=16):
    """The variance within the step that an event's value stands for, on average, event by event."""
    distinct, n, mean = sorted(set(values)), sum(weight), 0.0
    held = {v: sum(w for x, w in zip(values, weight, strict=True) if x == v) for v in distinct}

    def nearest(side):
        taken = []
        while side and (len(taken) < neighbours or sum(x in taken for x in values) < events):
            taken.append(side.pop(0))
        return taken

    for i, v in enumerate(distinct):
        alone = sum(w * w for x, w in zip(values, weight, strict=True) if x == v) / held[v]
        share = max(0.0, held[v] - alone) / n
        sides = [nearest(distinct[i + 1 :]), nearest(distinct[:i][::-1])]
        widths = [
            share * max(abs(v - other) for other in side) / sum(held[other] / n for other in side)
            for side in sides
            if side
        ]
        mean += held[v] / n * min([share**2 * variance] + [width**2 / 12 for width in widths])
    return mean


def loss(xi0, eta0, S, groups, m0, variance, blur):
    """-log p(groups | θ) - log p(θ) of full Gaussians."""
    d = len(m0)
    B0 = eta0 * S
    total = 0.0
    for x in groups:
        n = len(x)
        mean = x.mean(axis=0)
        step = mean - m0
        scatter = (x - mean).T @ (x - mean) + n * np.diag(blur)
        B = B0 + scatter + n * xi0 / (n + xi0) * np.outer(step, step)
        total += n * d / 2 * np.log(np.pi) + d / 2 * np.log((xi0 + n) / xi0)
        total += (eta0 + n) / 2 * np.linalg.slogdet(B)[1] - eta0 / 2 * np.linalg.slogdet(B0)[1]
        total += multigammaln(eta0 / 2, d) - multigammaln((eta0 + n) / 2, d)
    ratio = S / np.sqrt(np.outer(variance, variance))
    return total + (d + 1) / 2 * (np.trace(ratio) - np.linalg.slogdet(ratio)[1] - d)


def least_loss(groups, m0, variance, blur, least_eta, most_eta):
    """The least loss over θ, from several beginnings."""
    d = len(m0)
    low = np.tril_indices(d)

    def unpack(v):
        xi0 = np.exp(np.clip(v[0], -30.0, 0.0))
        eta0 = np.exp(np.clip(v[1], np.log(least_eta), np.log(most_eta)))
        L = np.zeros((d, d))
        L[low] = v[2:]
        L[np.diag_indices(d)] = np.exp(np.clip(np.diag(L), -20.0, 20.0))
        return xi0, eta0, (L @ L.T) * np.sqrt(np.outer(variance, variance))

    best = np.inf
    for eta in np.geomspace(least_eta, most_eta, 4):
        start = np.concatenate([[-2.0, np.log(eta)], np.zeros(len(low[0]))])
        found = minimize(
            lambda v: loss(*unpack(v), groups, m0, variance, blur), start, method="Nelder-Mead",
            options={"maxiter": 20000, "maxfev": 20000, "xatol": 1e-6, "fatol": 1e-8},
        )  # fmt: skip
        best = min(best, found.fun)
    return best
