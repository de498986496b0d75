"""A sketch's map, and principal directions, one number at a time."""

import math

import numpy as np


def coordinates(row, centre, scale, directions, unit):
    """Coordinates of one event, and the squared length of what they leave out; NaN is the centre."""
    values = [float(v) for v in row]
    if unit:
        length = math.sqrt(math.fsum(v * v for v in values if not math.isnan(v)))
        values = [v / length for v in values]
    gaps = [0.0 if math.isnan(v) else (v - c) / s for v, c, s in zip(values, centre, scale, strict=True)]
    found = [math.fsum(g * a for g, a in zip(gaps, column, strict=True)) for column in directions.T]
    back = [math.fsum(z * a for z, a in zip(found, line, strict=True)) for line in directions]
    return found, math.fsum((g - b) ** 2 for g, b in zip(gaps, back, strict=True))


def variances(rows, weight):
    """Variances of standardised rows along their principal directions, the largest first."""
    mean = np.average(rows, axis=0, weights=weight)
    gaps = rows - mean
    deviation = np.sqrt(np.average(gaps**2, axis=0, weights=weight))
    scaled = gaps / np.where(deviation > 0, deviation, 1.0) * np.sqrt(weight / weight.sum())[:, None]
    return np.linalg.svd(scaled, compute_uv=False) ** 2
