"""Exact moments of weighted points, in plain Python with fractions. Slow, and right."""

from fractions import Fraction


def exact(points, weights=None):
    """(weight, mean, scatter) of the points as fractions: Σw, Σwx / Σw, Σw (x - mean)(x - mean)ᵀ.

    Where there is no weight, mean and scatter are zero.
    """
    rows = [[fraction(value) for value in point] for point in points]
    shares = [fraction(1)] * len(rows) if weights is None else [fraction(w) for w in weights]
    width = range(len(rows[0]) if rows else 0)
    total = sum(shares, fraction(0))
    if total == 0:
        return total, [fraction(0) for _ in width], [[fraction(0) for _ in width] for _ in width]
    pairs = list(zip(shares, rows, strict=True))
    mean = [sum(w * x[i] for w, x in pairs) / total for i in width]
    scatter = [[sum(w * (x[i] - mean[i]) * (x[j] - mean[j]) for w, x in pairs) for j in width] for i in width]
    return total, mean, scatter


def moments(points, weights=None, kind="full"):
    """(weight, mean, scatter), rounded to floats once, at the very end."""
    weight, mean, scatter = exact(points, weights)
    return float(weight), floats(mean), floats(coarsen(scatter, kind))


def coarsen(scatter, kind):
    """A full scatter as itself, its diagonal, its trace ("scalar") or nothing ("none")."""
    diagonal = [scatter[i][i] for i in range(len(scatter))]
    return {"full": scatter, "diagonal": diagonal, "scalar": sum(diagonal), "none": []}[kind]


def mix(points, responsibility, weights=None, kind="full"):
    """The moments of every column j: point i counts weights[i] * responsibility[i][j] times."""
    weights = [1] * len(points) if weights is None else weights
    columns = range(len(responsibility[0]) if len(responsibility) else 0)
    shares = [
        [fraction(w) * fraction(r[j]) for w, r in zip(weights, responsibility, strict=True)] for j in columns
    ]
    return [moments(points, share, kind) for share in shares]


def groups(points, labels, n_groups, weights=None, kind="full"):
    """The moments of every label 0..n_groups-1; points labelled below 0 are in none."""
    return mix(points, [[int(label == g) for g in range(n_groups)] for label in labels], weights, kind)


def fraction(value):
    return value if isinstance(value, Fraction) else Fraction(float(value))


def floats(values):
    return [floats(value) for value in values] if isinstance(values, list) else float(values)
