"""Slow twin of the layer that joins components into clusters: one edge at a time, every window, SciPy's functions."""

import itertools
from functools import cache

import numpy as np
from scipy import stats

BINS, FINE = 60, 240
EDGES = np.linspace(-0.25, 1.25, BINS + 1)
CENTRES = (EDGES[1:] + EDGES[:-1]) / 2
WIDTH = 1.5 / BINS
STARTS = (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
SLOPES = (0.02, 0.05, 0.1, 0.2, 0.3)
TILTS = (-2.0, -1.0, 0.0, 1.0, 2.0)


def standardised(mean, covariance, points, omega):
    """Everything about the points' mean, in units of their deviations; covariances with 1e-6 more."""
    share = omega / omega.sum()
    middle = share @ points
    deviation = np.sqrt(share @ (points - middle) ** 2)
    deviation[deviation == 0] = 1.0
    spread = covariance / np.outer(deviation, deviation) + 1e-6 * np.eye(len(middle))
    return (mean - middle) / deviation, spread, (points - middle) / deviation


def best_two(weight, mean, covariance, points):
    joint = np.stack(
        [
            np.log(w) + stats.multivariate_normal(m, S).logpdf(points).reshape(len(points))
            for w, m, S in zip(weight, mean, covariance, strict=True)
        ]
    )
    order = np.argsort(-joint, axis=0, kind="stable")
    return order[0], order[1]


def adjacent(first, second, omega, k):
    """Pairs (i, j): at least 1% of either's weight has the other as second, and both own something."""
    pairs = []
    for i, j in itertools.combinations(range(k), 2):
        own = [omega[first == c].sum() for c in (i, j)]
        other = [omega[(first == a) & (second == b)].sum() for a, b in ((i, j), (j, i))]
        if min(own) > 0 and any(o >= 0.01 * w for o, w in zip(other, own, strict=True)):
            pairs.append((i, j))
    return pairs


def quantile(t, omega, share):
    order = np.argsort(t, kind="stable")
    below = np.cumsum(omega[order])
    return t[order][np.searchsorted(below, share * below[-1])]


def plateau(a, b, s, r, beta):
    """Log mass of each bin under Φ((y-a)/s) Φ((b-y)/r) exp(β y)."""
    log_f = stats.norm.logcdf((CENTRES - a) / s) + stats.norm.logcdf((b - CENTRES) / r) + beta * CENTRES
    return log_f - np.log(np.exp(log_f - log_f.max()).sum()) - log_f.max()


@cache
def grid():
    """Parameters and curves of every plateau that a fit may start from."""
    every = [(a, 1 - b, *rest) for a, b, *rest in itertools.product(STARTS, STARTS, SLOPES, SLOPES, TILTS)]
    return every, np.array([plateau(*parameters) for parameters in every])


def best_plateau(F):
    every, curves = grid()
    score = curves @ F
    best = int(score.argmax())
    parameters, most = list(every[best]), score[best]
    for step in (1.0, 0.5, 0.25):
        for which in range(5):
            for sign in (1, -1):
                tried = list(parameters)
                if which in (2, 3):
                    tried[which] = tried[which] * 1.5 ** (sign * step)
                else:
                    tried[which] = tried[which] + sign * step * (0.05 if which < 2 else 0.5)
                value = plateau(*tried) @ F
                if value > most:
                    parameters, most = tried, value
    return plateau(*parameters)


def two_bells(Fi, Fj, steps=40):
    """Log mass of each bin under two Gaussians by EM from ownership; and the peaks of the two, mass / σ."""
    F = Fi + Fj
    r = np.divide(Fi, F, out=np.zeros_like(F), where=F > 0)
    r = np.stack([r, np.where(F > 0, 1 - r, 0.0)])
    for _ in range(steps + 1):
        mass = r @ F
        if not np.all(mass > 1e-9 * F.sum()):
            return None
        mean = r @ (F * CENTRES) / mass
        variance = np.array(
            [rk @ (F * (CENTRES - m) ** 2) / n for rk, m, n in zip(r, mean, mass, strict=True)]
        )
        variance = np.maximum(variance, (0.7 * WIDTH) ** 2)
        log = np.stack(
            [
                np.log(n / F.sum()) + stats.norm.logpdf(CENTRES, m, np.sqrt(v))
                for n, m, v in zip(mass, mean, variance, strict=True)
            ]
        )
        total = np.logaddexp(log[0], log[1])
        r = np.exp(log - total)
    return total + np.log(WIDTH), mass / np.sqrt(variance)


def gap(G, low, high):
    """The least upper bound of valley to peak over windows between fine bins low and high; inf where none fits."""
    least = np.inf
    for width in (1, 2, 4, 8, 16):
        sums = np.convolve(G, np.ones(width), "valid")
        starts = range(max(low, width), min(high - width, FINE - 2 * width) + 1)
        c = np.array([sums[start] for start in starts])
        p = np.array([min(sums[: s - width + 1].max(), sums[s + width :].max()) for s in starts])
        if np.any(p > 0):
            q = stats.beta.ppf(0.999, c[p > 0] + 1, p[p > 0])
            least = min(least, (q[q < 1] / (1 - q[q < 1])).min(initial=np.inf))
    return least


def height(i, j, mean, covariance, points, omega, first):
    """(h, h that a narrow gap makes, se, peak of i, peak of j)."""
    d = mean[j] - mean[i]
    u = np.linalg.solve(covariance[i] + covariance[j], d)
    u = u / (u @ d)
    mine = (first == i) | (first == j)
    t, w, is_j = (points[mine] - mean[i]) @ u, omega[mine], first[mine] == j
    n = w.sum() ** 2 / (w**2).sum()
    w = w * n / w.sum()
    low, high = quantile(t, w, 0.02), quantile(t, w, 0.98)
    if not high > low:
        low, high = t.min(), t.max()
    y = (t - low) / (high - low) + 1.5e-9
    Fi, Fj = (np.histogram(y[is_j == side], EDGES, weights=w[is_j == side])[0] for side in (False, True))
    F = Fi + Fj
    n = F.sum()
    bells = two_bells(Fi, Fj)
    if bells is None:
        return np.inf, -np.inf, 0.0, 0.0, 0.0
    f2, peaks = bells
    f1 = best_plateau(F)
    gain = f2 - f1
    raw = F @ gain / n
    se = np.sqrt(F @ (gain - raw) ** 2 / n / n)
    raw -= 1.0 / n  # the boundary was chosen by the same events
    G = np.histogram(y, np.linspace(-0.25, 1.25, FINE + 1), weights=w)[0]
    ends = ((np.array([0.0, 1.0]) - low) / (high - low) + 0.25) / 1.5 * FINE
    rho = gap(G, max(int(np.ceil(ends[0])), 0), min(int(np.floor(ends[1])), FINE))
    return raw, (np.log(0.5) - np.log(rho)) / 10, se, peaks[0], peaks[1]


def expected(heights, errors, steps=50):
    """Each height as all of them let expect: EM for the shares of the heights measured, one event of each."""
    share = [1 / len(heights)] * len(heights)
    for _ in range(steps + 1):
        belongs = []
        for h, se in zip(heights, errors, strict=True):
            row = [w * stats.norm.pdf(h, atom, max(se, 1e-4)) for w, atom in zip(share, heights, strict=True)]
            belongs.append([value / sum(row) for value in row])
        share = [sum(column) / len(heights) for column in zip(*belongs, strict=True)]
    return [sum(p * atom for p, atom in zip(row, heights, strict=True)) for row in belongs]


def clusters(k, edges, caution=0.0):
    """The cluster of each component. Edges are (i, j, h, se, peak i, peak j)."""
    label = list(range(k))

    def join(a, b):
        old, new = label[b], label[a]
        label[:] = [new if x == old else x for x in label]

    low = [e for e in edges if e[2] + caution * e[3] < 0]
    for i, j, _, _, a, b in low:
        if max(a, b) <= 4 * min(a, b):
            join(i, j)
    alone = [c for c in range(k) if label.count(label[c]) == 1]
    for c in alone:
        mine = sorted((h, j if i == c else i) for i, j, h, *_ in low if c in (i, j))
        above = all((b if i == c else a) > (a if i == c else b) for i, j, _, _, a, b in low if c in (i, j))
        if mine and above:
            join(mine[0][1], c)
    return np.unique(label, return_inverse=True)[1]
