"""A River pipeline under drift: a scaler, then clusters whose number nobody knows, scored as River scores.

Each event is a dictionary; it is predicted first and learnt after, one by one. In the course of the stream
every cluster moves, two appear, one splits and two vanish. What one sees: River's adjusted Rand index over
the latest events, which dips where the stream changes and recovers once the model has noticed; and the river
of clusters below it, with what was noticed when.

Run it: python examples/river_pipeline.py [--events N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from matplotlib import pyplot
from river import compose, metrics, preprocessing, utils

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import Drift

WINDOW = 1000
"""The score is that of so many events."""


def main() -> None:
    """Parse the arguments, follow the stream, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000, help="how many events (default: 100,000)")
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n = 18_000 if arguments.quick else arguments.events

    model = StreamClusterer(half_life=n / 20, refit_every=5000)
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), model)
    whole, recent = metrics.AdjustedRand(), utils.Rolling(metrics.AdjustedRand, WINDOW)
    at, score = [], []
    start = perf_counter()
    for i, (x, truth) in enumerate(events(n), 1):
        found = pipeline.predict_one(x)
        if found is not None:
            whole.update(truth, found)
            recent.update(truth, found)
        pipeline.learn_one(x)
        if i % 500 == 0 and i >= WINDOW:
            at.append(i)
            score.append(recent.get())
    seconds = perf_counter() - start

    for change in model.events:
        print(f"  {change!r}")
    print(f"found    {model.n_clusters} clusters at the end of {n:,} events")
    print(f"agreed   adjusted Rand index {whole.get():.3f} over the whole stream, {score[-1]:.3f} at its end")
    print(f"rate     {n / seconds:,.0f} events a second, scaled, predicted, scored and learnt one by one")
    picture = arguments.output / "river_pipeline.png"
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(model, at, score).savefig(picture, dpi=150)
    print(f"picture  {picture}")


def events(n: int) -> Iterator[tuple[dict[str, float], int]]:
    """Events as River has them, and the cluster that each came from."""
    for rows, labels in Drift(n_features=4, n_clusters=6, n_events=n, seed=5).batches(1000):
        for row, label in zip((rows * 10.0 ** np.arange(4)).tolist(), labels.tolist(), strict=True):
            yield dict(zip(("millivolts", "degrees", "grams", "pascals"), row, strict=True)), label


def draw(model: StreamClusterer, at: list[int], score: list[float]) -> pyplot.Figure:
    """The score above, the lives of the clusters below."""
    figure, (above, below) = pyplot.subplots(
        2, figsize=(9, 7), sharex=True, height_ratios=[1, 2], layout="constrained"
    )
    above.plot(at, score, color="0.15", linewidth=1.2)
    above.set(ylim=(0.0, 1.02), ylabel=f"adjusted Rand index\nof {WINDOW:,} events")
    above.spines[["top", "right"]].set_visible(False)
    model.lineage.plot(ax=below)
    for change in model.events:
        above.axvline(change.at, color="0.8", linewidth=0.8, zorder=0)
    return figure


if __name__ == "__main__":
    main()
