"""A plateau fitted to a histogram: Φ((y - a) / s) Φ((b - y) / r) exp(β y), normalised over the bins.

The best of a grid of such curves first. Their logs are sums of a rise, a fall and a tilt, so that one product with the
rises and falls prices them all. Then coordinate steps.
"""

import math

import numpy as np

from streamclust._kernels.compile import part
from streamclust._kernels.shapes.line import BINS, MARGIN, SPAN
from streamclust._kernels.types import Floats

ROUNDS = 3
"""Rounds of coordinate steps, each with half the steps of the one before."""
PLACE_STEP, SLOPE_STEP, TILT_STEP = 0.05, 1.5, 0.5
"""The first steps of a and b, of s and r (a factor), and of β."""
WIDTH = SPAN / BINS
"""Of a bin, in units of the inner range."""
FAR = -8.0
"""Below, Φ is nothing beside 1, and its log is worked out by the asymptotic series."""


@part
def log_normal_cdf(z: float) -> float:
    """log Φ(z)."""
    if z > FAR:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2.0)))
    square = 1.0 / (z * z)
    series = 1.0 - square * (1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square)))
    return -z * z / 2 - math.log(-z) - math.log(2 * math.pi) / 2 + math.log(series)


@part
def raise_curve(place: float, slope: float, seen: Floats, rise: Floats) -> float:
    """Make `rise` Φ((y - place) / slope) at the middle of each bin; returns the sum of its logs over the events."""
    total = 0.0
    for b in range(BINS):
        z = ((b + 0.5) * WIDTH - MARGIN - place) / slope
        if z > -FAR:
            rise[b] = 1.0
        elif z > FAR:
            rise[b] = 0.5 * math.erfc(-z / math.sqrt(2.0))
            if seen[b] > 0.0:
                total += seen[b] * math.log(rise[b])
        else:
            rise[b] = 0.0
            if seen[b] > 0.0:
                total += seen[b] * log_normal_cdf(z)
    return total


@part
def log_total(rise: Floats, fall: Floats, growth: Floats) -> float:
    """log Σ rise fall growth over the bins; the fall is a rise seen from the right."""
    total = 0.0
    for b in range(BINS):
        total += rise[b] * fall[BINS - 1 - b] * growth[b]
    return math.log(total)


@part
def grow(tilt: float, growth: Floats) -> None:
    """Make `growth` exp(tilt y) at the middle of each bin: the powers of one factor."""
    factor = math.exp(tilt * WIDTH)
    growth[0] = math.exp(tilt * (0.5 * WIDTH - MARGIN))
    for b in range(1, BINS):
        growth[b] = growth[b - 1] * factor


@part
def dot_bins(histogram: Floats, curve: Floats) -> float:
    """Σ_b histogram curve."""
    total = 0.0
    for b in range(BINS):
        if histogram[b] > 0.0:
            total += histogram[b] * curve[b]
    return total


@part
def best_of_grid(
    seen: Floats, mirrored: Floats, moment: float, rises: Floats, tilts: Floats, log_totals: Floats
) -> tuple[int, int, int]:
    """The rise, fall and tilt of the grid's curve that is likeliest."""
    n_rises = rises.shape[0]
    n = 0.0
    for b in range(BINS):
        n += seen[b]
    up, down = np.empty(n_rises), np.empty(n_rises)
    for k in range(n_rises):
        up[k] = dot_bins(seen, rises[k])
        down[k] = dot_bins(mirrored, rises[k])
    n_tilts = tilts.size
    base, row = np.empty(n_rises * n_tilts), np.empty(n_rises * n_tilts)
    for m in range(n_rises):
        for q in range(n_tilts):
            base[m * n_tilts + q] = down[m] + tilts[q] * moment
    best_rise, best_rest = 0, 0
    most = -np.inf
    for k in range(n_rises):
        flat = log_totals[k]
        for x in range(row.size):
            row[x] = base[x] - n * flat[x]
        highest = -np.inf
        for x in range(row.size):
            highest = row[x] if row[x] > highest else highest
        if highest + up[k] > most:
            most = highest + up[k]
            best_rise, best_rest = k, 0
            while row[best_rest] < highest:
                best_rest += 1
    return best_rise, best_rest // n_tilts, best_rest % n_tilts


@part
def best_plateau(
    seen: Floats,
    places: Floats,
    slopes: Floats,
    rises: Floats,
    tilts: Floats,
    log_totals: Floats,
    log_mass: Floats,
) -> None:
    """Fit a plateau to a histogram; `log_mass` gets the log of each bin's mass under it.

    The grid: `rises` (R, BINS) with their `places` and `slopes`, `tilts` (T,), and `log_totals` (R, R T) of the curves
    of each rise, and each fall and tilt. A fall is a rise seen from the right: at 1 - place.
    """
    n, moment = 0.0, 0.0
    mirrored = np.empty(BINS)
    for b in range(BINS):
        n += seen[b]
        mirrored[b] = seen[BINS - 1 - b]
        moment += seen[b] * ((b + 0.5) * WIDTH - MARGIN)
    k, m, q = best_of_grid(seen, mirrored, moment, rises, tilts, log_totals)
    place, slope, value = np.empty(2), np.empty(2), np.empty(2)
    place[0], place[1], slope[0], slope[1] = places[k], places[m], slopes[k], slopes[m]
    tilt = tilts[q]
    rise, growth = np.empty((2, BINS)), np.empty(BINS)
    value[0] = raise_curve(place[0], slope[0], seen, rise[0])
    value[1] = raise_curve(place[1], slope[1], mirrored, rise[1])
    grow(tilt, growth)
    total = log_total(rise[0], rise[1], growth)
    most = value[0] + value[1] + tilt * moment - n * total
    tried = np.empty(BINS)
    step = 1.0
    for _ in range(ROUNDS):
        for which in range(4):  # a, b, s, r
            side = which % 2
            for sign in (1.0, -1.0):
                new_place, new_slope = place[side], slope[side]
                if which < 2:
                    new_place += sign * step * PLACE_STEP
                else:
                    new_slope *= SLOPE_STEP ** (sign * step)
                new_value = raise_curve(new_place, new_slope, seen if side == 0 else mirrored, tried)
                if side == 0:
                    new_total = log_total(tried, rise[1], growth)
                else:
                    new_total = log_total(rise[0], tried, growth)
                likelihood = new_value + value[1 - side] + tilt * moment - n * new_total
                if likelihood > most:
                    most, total = likelihood, new_total
                    place[side], slope[side], value[side] = new_place, new_slope, new_value
                    for b in range(BINS):
                        rise[side, b] = tried[b]
                    break  # the other sign leads back
        for sign in (1.0, -1.0):
            new_tilt = tilt + sign * step * TILT_STEP
            grow(new_tilt, tried)
            new_total = log_total(rise[0], rise[1], tried)
            likelihood = value[0] + value[1] + new_tilt * moment - n * new_total
            if likelihood > most:
                most, total, tilt = likelihood, new_total, new_tilt
                for b in range(BINS):
                    growth[b] = tried[b]
                break
        step /= 2
    for b in range(BINS):
        y = (b + 0.5) * WIDTH - MARGIN
        up = log_normal_cdf((y - place[0]) / slope[0])
        down = log_normal_cdf((1.0 - y - place[1]) / slope[1])
        log_mass[b] = up + down + tilt * y - total
