"""Random streams for `soak.py`: drawn from a seed, each with some of the troubles that real streams have."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from streamclust.parameters import GAUSSIANS

BLOCK_EVENTS = 1000
"""Events that are drawn at once: their clusters are alike, and what is stuck is stuck for all of them."""
N_LEARNERS = 4
WIDE_FEATURES = 80
"""More than are learnt as they are: events go through a sketch."""
SHARE_OF_STREAMS = {
    "weights": 0.4,  # over many powers of ten
    "stuck": 0.3,  # a sensor, or all of them, repeats one value
    "ties": 0.2,  # values are rounded
    "repeats": 0.2,  # each event several times in a row
    "outliers": 0.25,  # up to 1e100
    "missing": 0.25,
    "features": 0.2,  # that come later
    "constant": 0.15,
    "vanishing": 0.4,  # clusters that come and go
    "drift": 0.4,
    "wide": 0.05,
    "shards": 0.3,
    "merges": 0.3,  # of clusterers that learn some of the events
    "restarts": 0.5,  # from a checkpoint
    "interrupts": 0.4,  # by Ctrl-C
    "threads": 0.15,  # that learn and predict at once
}
"""Troubles, and how many of all streams have each."""
TWINS = 0.35
"""Share of streams that are learnt once more undisturbed, to compare the bits."""


class Block(NamedTuple):
    """Events of a moment, all of one shard."""

    rows: np.ndarray
    """Over the features known by then; NaN where a value is missing."""
    weight: np.ndarray | None
    shard: int
    merged: bool
    """Whether another clusterer learns them, which is then merged."""
    named: bool
    """Whether values come with the names of their features: arrays can bring no new ones."""

    @property
    def events(self):
        """The rows as mappings without what is missing."""
        return [{i: v for i, v in enumerate(row) if v == v} for row in self.rows.tolist()]

    @property
    def table(self):
        """The events as `learn_many` takes them."""
        return self.events if self.named else self.rows

    def part(self, start, stop):
        weight = None if self.weight is None else self.weight[start:stop]
        return self._replace(rows=self.rows[start:stop], weight=weight)


def log_uniform(rng, low, high):
    return float(10.0 ** rng.uniform(np.log10(low), np.log10(high)))


@dataclass(frozen=True)
class Plan:
    """A stream: its seed, length and troubles without those left out; all else follows from the seed."""

    seed: int
    n_events: int
    without: frozenset = frozenset()

    def rng(self, purpose):
        return np.random.default_rng([self.seed, purpose])

    @cached_property
    def parameters(self):
        """Parameters of the clusterer."""
        rng = self.rng(0)
        family = str(rng.choice([*GAUSSIANS, *GAUSSIANS, "multinomial", "bernoulli", "poisson"]))
        refit = str(rng.choice(["bkm", "chunky-em", "dp-means"])) if family in GAUSSIANS else "bkm"
        half_life = log_uniform(rng, 50, 1e6) if rng.random() < 0.6 else None
        mixture = str(rng.choice(["finite", "infinite", *["uninformative"] * (family == "gaussian")]))
        more = {
            "mixture": "finite" if refit == "chunky-em" else mixture,
            "drift": str(rng.choice(["follow", "follow", "ignore"])),
            "background": bool(rng.random() < 0.8),
            "refit_every": int(rng.choice([2000, 20_000])),
        }
        return {"family": family, "refit": refit, "half_life": half_life, "seed": self.seed} | more

    @cached_property
    def troubles(self):
        rng = self.rng(1)
        found = {name for name, share in SHARE_OF_STREAMS.items() if rng.random() < share} - self.without
        if self.parameters["family"] not in GAUSSIANS:
            found -= {"ties", "missing", "wide"}
        if self.parameters["family"] == "bernoulli":
            found -= {"outliers"}
        if "wide" in found:
            found -= {"merges", "features", "outliers"}  # sketches of other clusterers differ
        return frozenset(found)

    @property
    def has_twin(self):
        return bool(self.rng(2).random() < TWINS) and "threads" not in self.troubles

    def __str__(self):
        half_life = self.parameters["half_life"]
        kept = f"{self.parameters['family']} {self.parameters['refit']}"
        kept += "" if half_life is None else f", half-life {half_life:.0f}"
        return (
            f"{kept}; {', '.join(sorted(self.troubles)) or 'no trouble'}{'; twin' if self.has_twin else ''}"
        )

    def blocks(self):
        """The events, block by block."""
        rng = self.rng(3)
        draw = Mixture(self, rng)
        done = width = 0
        while done < self.n_events:
            rows = draw.rows(min(BLOCK_EVENTS, self.n_events - done), done)
            # Only clusterers that know the same features can be merged.
            merged = "merges" in self.troubles and rng.random() < 0.05 and rows.shape[1] == width
            shard = 0 if merged or "shards" not in self.troubles else int(rng.integers(3))
            yield Block(rows, self._weight(rng, len(rows)), shard, merged, "features" in self.troubles)
            done, width = done + len(rows), rows.shape[1]

    def _weight(self, rng, n):
        if "weights" not in self.troubles:
            return None
        powers = self.rng(5).choice([1.0, 3.0, 20.0])
        return 10.0 ** rng.uniform(-powers, powers, size=n)


class Mixture:
    """Draws rows of a few clusters, and makes trouble with them."""

    def __init__(self, plan, rng):
        self.rng, self.family, self.troubles = rng, plan.parameters["family"], plan.troubles
        self.d = WIDE_FEATURES if "wide" in self.troubles else int(rng.integers(1, 9))
        self.d = max(self.d, 2 if self.family == "multinomial" or "features" in self.troubles else 1)
        self.k = int(rng.integers(1, 9))
        self.first_width = self.d if "features" not in self.troubles else int(rng.integers(1, self.d))
        self.known_at = np.sort(rng.uniform(0, 0.6, size=self.d)) * plan.n_events
        self.known_at[: self.first_width] = 0
        self.unit = log_uniform(rng, 1e-3, 1e3)
        self.centres = 8.0 * rng.normal(size=(self.k, self.d))
        self.turns = self._turns()
        self.velocity = rng.normal(size=(self.k, self.d)) * log_uniform(rng, 1e-2, 1.0)

    def _turns(self):
        """Maps from noise to each cluster's own: clusters of the family, of which there are few."""
        turns = self.rng.normal(size=(self.k, self.d, self.d)) / np.sqrt(self.d)
        if self.family == "gaussian":
            return turns
        scale = np.abs(turns[:, :, 0]) if self.family == "diagonal" else np.abs(turns[:, :1, 0])
        return (0.1 + scale)[:, :, None] * np.eye(self.d)

    def rows(self, n, done):
        if "drift" in self.troubles:
            self.centres += self.velocity * self.rng.normal()
        rows = self._harmed(self._drawn(n))
        return np.ascontiguousarray(rows[:, : np.count_nonzero(self.known_at <= done)])

    def _drawn(self, n):
        rng, present = self.rng, np.arange(self.k)
        if "vanishing" in self.troubles:
            present = rng.choice(self.k, size=rng.integers(1, self.k + 1), replace=False)
        label = rng.choice(present, size=n)
        if self.family in GAUSSIANS:
            noise = np.einsum("nd,nde->ne", rng.normal(size=(n, self.d)), self.turns[label])
            return self.unit * (self.centres[label] + noise)
        if self.family == "bernoulli":
            return (rng.random((n, self.d)) < 1 / (1 + np.exp(-self.centres[label] / 4))).astype(float)
        rate = np.exp(np.clip(self.centres[label] / 4, -4, 6))
        if self.family == "poisson":
            return rng.poisson(rate).astype(float)
        return rng.multinomial(20, rate / rate.sum(axis=1, keepdims=True)).astype(float)

    def _harmed(self, rows):
        rng, n = self.rng, len(rows)
        if "ties" in self.troubles:
            rows = np.round(rows / self.unit) * self.unit
        if "constant" in self.troubles:
            rows[:, 0] = 1.0
        if "repeats" in self.troubles:
            rows = np.repeat(rows, rng.integers(1, 6, size=n), axis=0)[:n]
        if "stuck" in self.troubles and rng.random() < 0.3:
            stuck = slice(None) if rng.random() < 0.5 else slice(0, rng.integers(1, self.d + 1))
            rows[:, stuck] = rows[0, stuck]
        if "outliers" in self.troubles and rng.random() < 0.3:
            which = rng.choice(n, size=rng.integers(1, 6))
            most = 100.0 if self.family in GAUSSIANS else 9.0
            rows[which] *= np.trunc(10.0 ** rng.uniform(1, most, size=(len(which), 1)))
        if self.family == "multinomial":
            rows[:, 0] += rows[:, : self.first_width].sum(axis=1) == 0  # none without any count
        if "missing" in self.troubles:
            gone = rng.random(rows.shape) < rng.choice([0.02, 0.3])
            gone[0] = gone[:, 0] = False  # the first event of a clusterer must be complete, and none empty
            rows[gone] = np.nan
        return rows
