"""Image features by BP-means: what comes and goes in the pictures of a camera, each thing found on its own.

The camera looks at a Chinese temple (a picture that scikit-learn ships). Dark balloons are in the sky or not,
bright flowers on the ground or not, each as it likes, and all is noisy. No picture is labelled, and 32
combinations are no 32 clusters: BP-means explains each picture as the sum of the features it has. What one
sees: some frames; the features found, the scene itself first (red adds light, blue takes it away), with the
share of the frames that have each; and the same frames, put together from their features alone.

Run it: python examples/image_features.py [--frames N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import SubFigure
from sklearn.datasets import load_sample_image

from streamclust.streaming import StreamFeatures

HEIGHT, WIDTH = 24, 36
PLACES = {  # row, column, side, how much light it adds, in how many of the frames it is
    "big balloon": (1, 24, 10, -0.7, 0.5),
    "small balloon": (2, 1, 6, -0.7, 0.4),
    "left flower": (16, 1, 7, 0.6, 0.35),
    "middle flower": (15, 15, 8, 0.6, 0.3),
    "right flower": (16, 27, 7, 0.6, 0.25),
}
NOISE = 0.1
SHOWN = 6
BATCH = 200


def main() -> None:
    """Parse the arguments, learn the frames, say and draw what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=4000, help="how many frames (default: 4,000)")
    parser.add_argument("--quick", action="store_true", help="a few frames")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n = 800 if arguments.quick else arguments.frames

    rng = np.random.default_rng(0)
    scene = shrunk("china.jpg")
    planted = things()
    model = StreamFeatures()
    for _ in range(0, n, BATCH):
        rows, there = frames(rng, scene, planted, BATCH)
        model.learn_many(rows)

    found = np.array([[*feature.values()] for feature in model.features.values()])
    print(
        f"found    {model.n_features} features in {n:,} frames: the scene, and {model.n_features - 1} things"
    )
    likeness = np.abs(np.corrcoef(planted.reshape(len(planted), -1), found)[: len(planted), len(planted) :])
    for thing, row in zip(PLACES, likeness, strict=True):
        print(f"  {thing:13s}  is feature {row.argmax()}, with a correlation of {row.max():.3f}")
    rows, there = frames(rng, scene, planted, 1000)
    has = has_features(model, rows)[:, likeness.argmax(axis=1)]
    right = np.array([max(np.mean(h == t), np.mean(h != t)) for h, t in zip(has.T, there.T, strict=True)])
    print(f"agreed   {right.mean():.1%} of what is there or not in 1,000 new frames is told rightly")

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "image_features.png"
    draw(model, rows[:SHOWN], found).savefig(picture, dpi=150)
    print(f"picture  {picture}")


def shrunk(name: str, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A shipped picture in grey, of a few pixels, each the mean of a block."""
    grey = load_sample_image(name).mean(axis=2) / 255.0
    down, across = grey.shape[0] // height, grey.shape[1] // width
    cut = grey[: down * height, : across * width]
    return cut.reshape(height, down, width, across).mean(axis=(1, 3))


def things() -> np.ndarray:
    """What each thing adds to the light of a frame: a disc of it."""
    added = np.zeros((len(PLACES), HEIGHT, WIDTH))
    for k, (row, column, side, light, _) in enumerate(PLACES.values()):
        i = (np.arange(side) - (side - 1) / 2) / (side / 2)
        added[k, row : row + side, column : column + side] = light * (i[:, None] ** 2 + i**2 <= 1.0)
    return added


def frames(
    rng: np.random.Generator, scene: np.ndarray, planted: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Frames as rows of pixels, and which things are there."""
    there = rng.random((n, len(planted))) < [often for *_, often in PLACES.values()]
    light = scene.ravel() + there @ planted.reshape(len(planted), -1)
    return light + NOISE * rng.normal(size=light.shape), there


def has_features(model: StreamFeatures, rows: np.ndarray) -> np.ndarray:
    """Whether each frame has each feature."""
    return np.array([[i in found for i in model.features] for found in model.predict_many(rows)])


def draw(model: StreamFeatures, rows: np.ndarray, found: np.ndarray) -> pyplot.Figure:
    """Frames, features, and the frames again, made of features."""
    figure = pyplot.figure(figsize=(11, 6.2), layout="constrained")
    above, middle, below = figure.subfigures(3, height_ratios=[1, 1.35, 1])
    strip(above, rows, "frames as they come")
    model.plot((HEIGHT, WIDTH), figure=middle)
    middle.suptitle("features", x=0.01, ha="left")
    strip(
        below, has_features(model, rows).astype(float) @ found, "the same frames, put together from features"
    )
    return figure


def strip(part: SubFigure, rows: np.ndarray, title: str) -> None:
    """Pictures in a row."""
    part.suptitle(title, x=0.01, ha="left")
    for ax, row in zip(part.subplots(1, len(rows)), rows, strict=True):
        ax.imshow(row.reshape(HEIGHT, WIDTH), cmap="gray", vmin=0.0, vmax=1.0)
        ax.set_axis_off()


if __name__ == "__main__":
    main()
