"""MAD-Bayes, figure 2: the features of pictures of a table."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot

from benchmarks.papers.page import Page
from benchmarks.papers.pictures import OBJECTS, SHAPE, components, matched, planted_tables
from streamclust.refit.bp_means.k_features import fit_k_features


def main() -> None:
    page = Page("MAD-Bayes, figure 2: the table's features")
    pictures, truth = planted_tables()
    x, directions = components(pictures)
    found = fit_k_features(x)
    features = found.A @ directions
    base = int(found.counts.argmax())
    rest = [k for k in range(found.n_features) if k != base]
    kinds = np.unique(truth, axis=0)[[0, 4, 9, -1]]
    chosen = [int(np.flatnonzero((truth == kind).all(axis=1))[0]) for kind in kinds]
    figure, axes = pyplot.subplots(
        2, max(4, 1 + len(rest)), figsize=(13, 4.6), layout="constrained", squeeze=False
    )
    for ax in axes.flat:
        ax.axis("off")
    rows = []
    for ax, n in zip(axes[0], chosen, strict=False):
        ax.imshow(pictures[n].reshape(SHAPE), cmap="gray", vmin=-0.1, vmax=1.2)
        code = "".join(str(int(found.Z[n, k])) for k in [base, *rest])
        ax.set_title(f"picture {n}: {code}")
        rows.append(
            [
                n,
                ", ".join(name for name, there in zip(OBJECTS, truth[n], strict=True) if there) or "nothing",
                code,
            ]
        )
    axes[1, 0].imshow(features[base].reshape(SHAPE), cmap="gray", vmin=-0.1, vmax=1.2)
    axes[1, 0].set_title("base")
    for ax, k in zip(axes[1, 1:], rest, strict=False):
        same = (found.Z[:, [k]] == truth).mean(axis=0)
        named = OBJECTS[int(np.maximum(same, 1 - same).argmax())]
        sign = "added" if same.max() >= (1 - same).max() else "taken away"
        ax.imshow(features[k].reshape(SHAPE), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
        ax.set_title(f"{named}, {sign}")
    page.say(
        "Stepwise K-features on the planted pictures of figure 1: "
        f"{found.n_features} features, as in the paper (a base and four objects); the objects of "
        f"{matched(found.Z, truth):.0%} of the pictures are all told. Above, four pictures with their "
        "features; below, the base and what the others add to it or take away."
    )
    page.picture(figure, "Pictures and their features")
    page.table(["picture", "on it", "features: base, then the others"], rows)
    page.write()


if __name__ == "__main__":
    main()
