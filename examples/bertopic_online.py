"""BERTopic online: topics of a stream of texts whose number nobody tells, with ids that stay.

BERTopic turns clusters of embedded texts into topics in words. In its online mode the cluster model must have
`partial_fit`: its manual offers MiniBatchKMeans, which must be told the number of topics (50 there), and River's
DBSTREAM. `StreamEstimator` takes their place. The texts are pages of manuals (see text_topics.py), embedded by TF-IDF
and SVD in 100 numbers, so nothing is downloaded; two subjects come in the second half only. What one sees: the topics,
when each was first told, and how well each cluster model agrees with the subjects (normalized mutual information), on
the same embeddings in the same batches. MiniBatchKMeans also comes told the number of subjects, which nobody knows
beforehand.

BERTopic in its light installation: pip install --no-deps bertopic; pip install pandas plotly pyyaml tqdm

Run it: python examples/bertopic_online.py [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
from matplotlib import pyplot
from river import cluster, stream
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from text_topics import SUBJECTS, WORDS, read

from streamclust.batch import StreamEstimator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from bertopic import BERTopic
    from bertopic.dimensionality import BaseDimensionalityReduction
    from bertopic.vectorizers import OnlineCountVectorizer

EMBEDDED = 100
LATE = ("networks", "figures")
"""Subjects that come in the second half alone."""


class RiverClusters:
    """A clusterer of River as BERTopic's manual wraps it."""

    def __init__(self, model: cluster.DBSTREAM) -> None:
        self.model = model

    def partial_fit(self, embeddings: np.ndarray) -> Self:
        """Learn the texts of a batch, then label them."""
        for x, _ in stream.iter_array(embeddings):
            self.model.learn_one(x)
        self.labels_ = self.predict(embeddings)
        return self

    def predict(self, embeddings: np.ndarray) -> np.ndarray:
        """The cluster of each text."""
        return np.array([self.model.predict_one(x) for x, _ in stream.iter_array(embeddings)])


def main() -> None:
    """Parse the arguments, read the texts, let each cluster model make topics of them, say and draw what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pages")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()

    pages, subjects = late_last(*read(step=WORDS // 2 if arguments.quick else WORDS // 4))
    half = len(pages) // 2
    embed = make_pipeline(
        TfidfVectorizer(stop_words="english", min_df=5, sublinear_tf=True),
        TruncatedSVD(EMBEDDED, random_state=0),
        Normalizer(),
    )
    vectors = embed.fit(pages[:half]).transform(pages)
    print(
        f"read     {len(pages):,} pages on {len(SUBJECTS)} subjects, {len(LATE)} of them from page {half:,} on"
    )

    models = {
        "StreamEstimator": StreamEstimator(scale="unit", outliers=0.01),
        "DBSTREAM": RiverClusters(cluster.DBSTREAM()),
        "MiniBatchKMeans": MiniBatchKMeans(50, random_state=0, n_init=3),
        f"MiniBatchKMeans told {len(SUBJECTS)}": MiniBatchKMeans(len(SUBJECTS), random_state=0, n_init=3),
    }
    agreed = {}
    for name, model in models.items():
        began = time.process_time()
        topics, first = learnt(model, pages, vectors)
        labels = model.predict(vectors)
        agreed[name] = normalized_mutual_info_score(subjects, labels)
        took = time.process_time() - began
        n = len(set(labels.tolist()) - {-1})
        print(
            f"{name:26} {n:3} topics, normalized mutual information {agreed[name]:.3f}, {took:.0f} s of CPU"
        )
        if isinstance(model, StreamEstimator):
            tell(topics, first, labels, subjects)
            share = table(labels, subjects)

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "bertopic_online.png"
    draw(share, agreed).savefig(picture, dpi=150)
    print(f"picture  {picture}")


def late_last(pages: list[str], subjects: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The pages in an order in which those on late subjects stand in the second half."""
    late = np.isin(subjects, LATE)
    early, rest = np.flatnonzero(~late), np.flatnonzero(late)
    first = early[: len(pages) // 2]
    second = np.random.default_rng(1).permutation(np.concatenate([early[len(first) :], rest]))
    order = np.concatenate([first, second])
    return [pages[i] for i in order], subjects[order]


def batches(n: int, size: int = 500) -> Iterator[slice]:
    """Slices of so many pages."""
    return (slice(start, start + size) for start in range(0, n, size))


def learnt(model: object, pages: list[str], vectors: np.ndarray) -> tuple[BERTopic, dict[int, int]]:
    """Topics of all pages, learnt in batches, and after how many pages each id of a cluster was first told."""
    topics = BERTopic(
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=model,
        vectorizer_model=OnlineCountVectorizer(stop_words="english"),
        embedding_model=None,
    )
    first: dict[int, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas' and scikit-learn's, about how BERTopic calls them
        for part in batches(len(pages)):
            topics.partial_fit(pages[part], vectors[part])
            for label in set(model.labels_.tolist()):  # type: ignore[attr-defined]
                first.setdefault(label, part.stop)
    return topics, first


def tell(topics: BERTopic, first: dict[int, int], labels: np.ndarray, subjects: np.ndarray) -> None:
    """Each topic: its pages, when it was first told, its commonest subject and its words."""
    for label in sorted(set(labels.tolist())):
        own = subjects[labels == label]
        names, counts = np.unique(own, return_counts=True)
        words = topics.get_topic(topics.topic_mapper_.get_mappings().get(label, label)) or []
        said = " ".join(word for word, _ in words[:5]) if label >= 0 else "(outliers)"
        since = f"from page {first[label]:,}" if label in first else "at the end"
        most = f"{counts.max() / len(own):4.0%} {names[counts.argmax()]:17}"
        print(f"  {label:3d} {len(own):5} pages, {since:15} {most} {said}")


def table(labels: np.ndarray, subjects: np.ndarray) -> np.ndarray:
    """Share of each topic's pages on each subject."""
    ids = sorted(set(labels.tolist()) - {-1})
    return np.array([[np.mean(subjects[labels == k] == s) for s in SUBJECTS] for k in ids])


def draw(share: np.ndarray, agreed: dict[str, float]) -> pyplot.Figure:
    """Topics against subjects, and the three agreements."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained", width_ratios=[2, 1])
    left.imshow(
        share[np.argsort(share.argmax(axis=1), kind="stable")], cmap="Blues", aspect="auto", vmin=0, vmax=1
    )
    left.set_xticks(range(len(SUBJECTS)), SUBJECTS, rotation=40, ha="right")
    left.set_ylabel("topic")
    right.barh(list(agreed), list(agreed.values()))
    right.set_xlabel("normalized mutual information")
    return figure


if __name__ == "__main__":
    main()
