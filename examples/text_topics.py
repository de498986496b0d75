"""Text in high dimension: pages of manuals, embedded, projected at random, clustered, and described in words.

The pages are real and at hand: the documentation inside the packages that are installed anyway (NumPy, SciPy,
scikit-learn, matplotlib, Python), cut into pages of 300 words and shuffled. A page is thousands of weighted
word counts (TF-IDF), embedded in 50 numbers (latent semantic analysis of the first pages), and those are
projected at random to 16: clusters become rounder and keep their distances, and full covariances stay
affordable [Dasgupta, cited by the Bayesian k-means paper for its own data]. What one sees: the clusters, by
the words that set them apart, against the subjects the pages came from. A subject may be several clusters: it
has topics of its own.

Straight from the words, without the embedding, a random projection drowns the topics in the noise of single
words.

Run it: python examples/text_topics.py [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.random_projection import GaussianRandomProjection

from streamclust import StreamClusterer

SUBJECTS = {
    "statistics": ["scipy.stats"],
    "signals": ["scipy.signal"],
    "linear algebra": ["scipy.linalg", "numpy.linalg"],
    "images": ["scipy.ndimage"],
    "optimisation": ["scipy.optimize"],
    "special functions": ["scipy.special"],
    "linear models": ["sklearn.linear_model"],
    "figures": ["matplotlib.axes"],
    "networks": ["asyncio", "socket", "ssl", "http.client", "urllib.request"],
}
WORDS, EMBEDDED, PROJECTED = 300, 50, 16
BATCH = 250


def main() -> None:
    """Parse the arguments, read the pages, learn them, say and draw what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pages")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()

    pages, subjects = read(step=WORDS if arguments.quick else WORDS // 3)
    print(f"read     {len(pages):,} pages of {WORDS} words on {len(SUBJECTS)} subjects")
    vectorizer = TfidfVectorizer(stop_words="english", min_df=5, sublinear_tf=True, dtype=np.float64)
    first_pages = vectorizer.fit_transform(pages[: len(pages) // 2])
    words = vectorizer.transform(pages)
    embed = make_pipeline(TruncatedSVD(EMBEDDED, random_state=0), Normalizer()).fit(first_pages)
    project = GaussianRandomProjection(PROJECTED, random_state=0)
    project.fit(np.zeros((1, EMBEDDED)))

    model = StreamClusterer(max_leaves=1024, refit_every=2000)
    for first in range(0, len(pages), BATCH):  # as they come
        model.learn_many(project.transform(embed.transform(words[first : first + BATCH])))
    model.settle()
    ids = model.predict_many(project.transform(embed.transform(words)))

    table = np.array([[np.mean(subjects[ids == c.id] == s) for s in SUBJECTS] for c in model.clusters])
    described = {
        c.id: describe(words, ids == c.id, vectorizer.get_feature_names_out()) for c in model.clusters
    }
    print(f"found    {model.n_clusters} clusters, whose number nobody told")
    for cluster, row in zip(model.clusters, table, strict=True):
        subject = list(SUBJECTS)[row.argmax()]
        print(
            f"  {cluster.id:3d} {cluster.share:6.1%}  {row.max():4.0%} {subject:17s} {' '.join(described[cluster.id])}"
        )
    agreed = normalized_mutual_info_score(subjects, ids)
    print(f"agreed   normalized mutual information {agreed:.2f} with the subjects")

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "text_topics.png"
    draw(model, table, described).savefig(picture, dpi=150)
    print(f"picture  {picture}")


def read(step: int) -> tuple[list[str], np.ndarray]:
    """Pages that begin `step` words after each other, shuffled, and the subject of each."""
    pages, subjects = [], []
    for subject, modules in SUBJECTS.items():
        words = [
            word for module in modules for text in texts(module) for word in re.findall("[a-z]{3,}", text)
        ]
        starts = range(0, len(words) - WORDS + 1, step)
        pages += [" ".join(words[start : start + WORDS]) for start in starts]
        subjects += [subject] * len(starts)
    order = np.random.default_rng(0).permutation(len(pages))
    return [pages[i] for i in order], np.array(subjects)[order]


def texts(module: str) -> list[str]:
    """What a module says of its functions and classes and of their methods."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = vars(importlib.import_module(module))
        public = [found[name] for name in sorted(found) if not name.startswith("_") and callable(found[name])]
        methods = [
            vars(thing)[name] for thing in public if inspect.isclass(thing) for name in sorted(vars(thing))
        ]
        documents = [inspect.getdoc(thing) for thing in (*public, *filter(callable, methods))]
    return [text.lower() for text in dict.fromkeys(documents) if text]


def describe(words: sparse.csr_matrix, inside: np.ndarray, names: np.ndarray, n: int = 5) -> list[str]:
    """The words that weigh more on a cluster's pages than on the others, by most."""
    if not inside.any():
        return []
    lift = np.asarray(words[inside].mean(axis=0) - words[~inside].mean(axis=0)).ravel()
    return names[np.argsort(-lift)[:n]].tolist()


def draw(model: StreamClusterer, table: np.ndarray, described: dict[int, list[str]]) -> pyplot.Figure:
    """Each cluster a row, in words; where its pages came from, the darker the more."""
    order = np.lexsort([-table.max(axis=1), table.argmax(axis=1)])
    figure, ax = pyplot.subplots(figsize=(9, 1.5 + 0.28 * len(order)), layout="constrained")
    shown = ax.imshow(table[order], cmap="Blues", aspect="auto", vmin=0.0, vmax=1.0)
    ax.set_xticks(range(len(SUBJECTS)), SUBJECTS, rotation=40, ha="right")
    clusters = [model.clusters[k] for k in order]
    ax.set_yticks(range(len(order)), [f"{', '.join(described[c.id])}   {c.id}" for c in clusters])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.colorbar(shown, ax=ax, label="share of the cluster's pages", shrink=0.6)
    return figure


if __name__ == "__main__":
    main()
