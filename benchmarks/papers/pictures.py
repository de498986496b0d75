"""Planted pictures, in place of the paper's photographs: a table with up to four objects, faces of two habits."""

from __future__ import annotations

import numpy as np

SHAPE = (24, 32)
FACE = (28, 24)
NOISE = 0.08
OBJECTS = ("handaxe", "bottle", "phone", "note")


def grid(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[: shape[0], : shape[1]].astype(float)
    return y, x


def tabletop() -> tuple[np.ndarray, np.ndarray]:
    """The bare table, and what each of four objects adds to it, as rows of pixels."""
    y, x = grid(SHAPE)
    table = 0.45 + 0.01 * x - 0.006 * y
    axe = 0.5 * ((y > 3) & (y < 11) & (np.abs(x - 7) < (y - 2) / 2))
    bottle = -0.45 * (((y - 7) / 5) ** 2 + ((x - 23) / 3.5) ** 2 < 1)
    phone = -0.35 * ((y > 13) & (y < 22) & (x > 4) & (x < 10))
    note = 0.4 * ((y > 15) & (y < 21) & (x > 17) & (x < 29))
    return table.ravel(), np.array([part.ravel() for part in (axe, bottle, phone, note)])


def planted_tables(n: int = 100, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n pictures, each object there or not; and which are there."""
    rng = np.random.default_rng(seed)
    base, parts = tabletop()
    there = rng.random((n, len(parts))) < 0.5
    return base + there @ parts + NOISE * rng.normal(size=(n, base.size)), there


def planted_faces(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n faces: long hair or not, darker or not, one independent of the other."""
    rng = np.random.default_rng(seed)
    y, x = grid(FACE)
    oval = ((y - 14) / 11) ** 2 + ((x - 11.5) / 8) ** 2 < 1
    eyes = ((y - 11) ** 2 + (np.abs(x - 11.5) - 3.5) ** 2) < 2
    mouth = (np.abs(y - 19 + ((x - 11.5) / 5) ** 2) < 0.8) & (np.abs(x - 11.5) < 4)
    face = 0.2 + 0.6 * oval - 0.5 * eyes - 0.4 * mouth
    hair = -0.35 * ((np.abs(x - 11.5) > 6.5) & (np.abs(x - 11.5) < 10) & (y > 4) & (y < 24)) + 0.1 * (y > 22)
    skin = -0.22 * (oval & ~eyes)
    there = rng.random((n, 2)) < (0.45, 0.38)
    rows = face.ravel() + there @ np.array([hair.ravel(), skin.ravel()])
    return rows + NOISE * rng.normal(size=rows.shape), there


def components(pictures: np.ndarray, most: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of pictures along their principal directions, not centred; and the directions."""
    u, s, v = np.linalg.svd(pictures, full_matrices=False)
    return u[:, :most] * s[:most], v[:most]


def matched(Z: np.ndarray, truth: np.ndarray) -> float:
    """Part of the rows whose planted features are all told: each by some column of Z, or by its complement."""
    if Z.shape[1] == 0:
        return 0.0
    same = (Z[:, :, None] == truth[:, None, :]).mean(axis=0)
    flipped = 1 - same > same
    best = np.maximum(same, 1 - same).argmax(axis=0)
    told = np.array([Z[:, k] ^ flipped[k, j] for j, k in enumerate(best)]).T
    return float((told == truth).all(axis=1).mean())
