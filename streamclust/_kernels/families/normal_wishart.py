"""Normal-Wishart posteriors and evidences, cluster by cluster [BKM eqs. 18-20].

A refit asks for those of a few clusters hundreds of times: array operations would spend it all on calls.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.triangular import factorise_in_place, invert_lower
from streamclust._kernels.types import Floats

FIRST_JITTER = 1e-12
"""The first ridge tried on a matrix that is not positive definite, relative to its mean diagonal entry."""


@part
def digamma(x: float) -> float:
    """ψ(x) for x > 0: up by ψ(x) = ψ(x + 1) - 1/x to where the asymptotic series has all digits."""
    total = 0.0
    while x < 8.0:
        total -= 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    series = 1 / 12 - z * (
        1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))))
    )
    return total + math.log(x) - 0.5 / x - z * series


@shared_part
def factorise(matrix: Floats, factor: Floats) -> float:
    """The lower Cholesky factor, and log |matrix|; the jitter policy is that of `families.linalg.cholesky`.

    The upper half of `factor` holds its transpose.
    """
    d = len(matrix)
    trace = 0.0
    for i in range(d):
        trace += matrix[i, i]
    ridge = 0.0
    while math.isfinite(trace):
        for i in range(d):
            for j in range(i + 1):
                factor[i, j] = matrix[i, j]
            factor[i, i] += ridge
        log_det = factorise_in_place(factor, 0.0)
        if log_det < math.inf:
            return log_det
        if not trace > 0.0:
            raise ValueError("a covariance needs a positive trace; the rows of a cluster have no spread")
        ridge = FIRST_JITTER * trace / d if ridge == 0.0 else 10.0 * ridge
    raise ValueError("a matrix to factorise holds NaN or infinity; check the data and the prior it came from")


@shared_part
def update(
    weight: float, mean: Floats, scatter: Floats, xi0: float, m0: Floats, B0: Floats, blur: Floats,
    m: Floats, B: Floats,
) -> float:  # fmt: skip
    """(18): writes m and the lower half of B, returns ξ. m is a step from m0: (n x̄ + ξ0 m0)/ξ loses digits.

    Every event adds `blur`, the variance below which a feature cannot tell values apart, to B's diagonal.
    """
    d = len(m0)
    xi = xi0 + weight
    pull = weight * xi0 / xi
    for i in range(d):
        m[i] = mean[i] - m0[i] if weight > 0.0 else 0.0
    for i in range(d):
        row, step = B[i, : i + 1], pull * m[i]
        for j in range(len(row)):
            row[j] = B0[i, j] + step * m[j]
        if len(scatter) > 0:
            own = scatter[i * d : i * d + i + 1]
            for j in range(len(row)):
                row[j] += own[j]
        row[i] += weight * blur[i]
    for i in range(d):
        m[i] = m0[i] + weight / xi * m[i]
    return xi


@shared_part
def learn(
    weight: float, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats,
    m: Floats, B: Floats, W: Floats, factor: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """One cluster's posterior: writes m, B's lower half and W = L⁻¹ of B = L Lᵀ; ξ, log|B| and the constant of (20).

    The constant is ½ log|B| + D/(2ξ) - ½ Σ_d ψ((η+1-d)/2), and (η/2) tr(B⁻¹ diag(blur)) for the blur of each event.
    """
    d = len(m0)
    xi = update(weight, mean, scatter, xi0, m0, B0, blur, m, B)
    log_det = factorise(B, factor)
    invert_lower(factor, W)
    expected, blurred = 0.0, 0.0
    for i in range(d):
        expected += digamma((eta0 + weight - i) / 2)
        for j in range(i + 1):
            blurred += W[i, j] * W[i, j] * blur[j]
    return xi, log_det, (log_det + d / xi - expected + (eta0 + weight) * blurred) / 2


@kernel
def posteriors(
    weight: Floats,
    mean: Floats,
    scatter: Floats,
    xi0: float,
    m0: Floats,
    eta0: float,
    B0: Floats,
    blur: Floats,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """ξ, m, B, W, log|B| and the constant of (20), of each row of moments."""
    rows, d = mean.shape
    xi, log_det, constant = np.empty(rows), np.empty(rows), np.empty(rows)
    m, B, W = np.empty((rows, d)), np.empty((rows, d, d)), np.empty((rows, d, d))
    factor = np.empty((d, d))
    for r in range(rows):
        xi[r], log_det[r], constant[r] = learn(
            weight[r], mean[r], scatter[r], xi0, m0, eta0, B0, blur, m[r], B[r], W[r], factor
        )
        for i in range(d):
            for j in range(i):
                B[r, j, i] = B[r, i, j]
    return xi, m, B, W, log_det, constant


@shared_part
def log_marginal(
    n: float, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats,
    prior: float, m: Floats, B: Floats, factor: Floats,
) -> float:  # fmt: skip
    """log ∫ p(X|θ) p(θ) dθ of one cluster, its part of -(19) (erratum 1: the short paper drops a D).

    `prior` is what `log_marginal_prior` says.
    """
    d = len(m0)
    xi = update(n, mean, scatter, xi0, m0, B0, blur, m, B)
    value = prior - 0.5 * (eta0 + n) * factorise(B, factor)
    value -= d / 2 * (n * math.log(math.pi) + math.log(xi / xi0))
    for i in range(d):
        value += math.lgamma((eta0 + n - i) / 2)
    return value


@part
def log_marginal_prior(eta0: float, B0: Floats, factor: Floats) -> float:
    """The part of every cluster's log evidence that the prior alone decides."""
    prior = 0.5 * eta0 * factorise(B0, factor)
    for i in range(len(B0)):
        prior -= math.lgamma((eta0 - i) / 2)
    return prior


@kernel
def log_marginals(
    weight: Floats,
    mean: Floats,
    scatter: Floats,
    xi0: float,
    m0: Floats,
    eta0: float,
    B0: Floats,
    blur: Floats,
) -> Floats:
    """log ∫ p(X|θ) p(θ) dθ of each row."""
    rows, d = mean.shape
    out = np.empty(rows)
    m, B, factor = np.empty(d), np.empty((d, d)), np.empty((d, d))
    prior = log_marginal_prior(eta0, B0, factor)
    for r in range(rows):
        out[r] = log_marginal(weight[r], mean[r], scatter[r], xi0, m0, eta0, B0, blur, prior, m, B, factor)
    return out
