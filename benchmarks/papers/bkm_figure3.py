"""Bayesian k-means, figure 3: typical results at three separations."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot

from benchmarks.papers.page import Page
from streamclust.batch import BayesianKMeans
from streamclust.plots import plot_clusters
from streamclust_connectors.synthetic import SyntheticMixture

PAPER = {0.1: 8, 0.5: 9, 2.0: 10}


def main() -> None:
    page = Page("Bayesian k-means, figure 3: typical results")
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    counts = []
    sets = 3 if page.quick else 20
    for ax, (tau, theirs) in zip(axes, PAPER.items(), strict=True):
        found = []
        for seed in range(sets):
            x, _ = SyntheticMixture(2, n_clusters=10, tau=tau, seed=seed, moved=True).sample(1000)
            model = BayesianKMeans(prior="bkm", seed=seed).fit(x)
            found.append(model.n_clusters_)
            if seed == 0:
                plot_clusters(model.partition_.clusters, ax=ax, events=x, labels=model.labels_)
                ax.set_title(f"τ = {tau:g}: {model.n_clusters_} clusters (the paper's picture: {theirs})")
        counts.append([f"{tau:g}", theirs, found[0], f"{np.mean(found):.1f} ({min(found)} to {max(found)})"])
    page.say(
        "Ten clusters, 1,000 points, the paper's prior (21). The paper shows one set for each τ; ours "
        "shows the first."
    )
    page.picture(figure, "Bayesian k-means at three separations")
    page.table(["τ", "K in the paper's picture", "K in ours", f"K over {sets} sets"], counts)
    page.write()


if __name__ == "__main__":
    main()
