"""`shape="any"` in a stream: clusters of several components keep their ids, and everything speaks of clusters."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.engine.joining import joined_components, tree_of
from streamclust.engine.settings import EngineSettings
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points

pytestmark = pytest.mark.compiled


def moons(n, seed=0, noise=0.07):
    x, truth = make_moons(n, noise=noise, random_state=seed)
    order = np.random.default_rng(seed).permutation(n)
    return x[order], truth[order]


@pytest.fixture(scope="module")
def learnt():
    x, truth = moons(20_000)
    model = StreamClusterer(shape="any", refit_every=2000, background=False)
    model.learn_many(x)
    return model, x, truth


def test_shapes_are_found(learnt):
    model, x, truth = learnt
    assert adjusted_rand_score(truth, model.predict_many(x)) > 0.95
    assert model.n_clusters == 2
    plain = StreamClusterer(shape="ellipse", refit_every=2000, background=False)
    plain.learn_many(x)
    assert plain.n_clusters > 4


def test_stationary_shapes_are_quiet(learnt):
    """No lifecycle event after the tenth refit."""
    model, _, _ = learnt
    assert not [change for change in model.lineage if change.at > 2000 * 5]


def test_everything_speaks_of_clusters(learnt):
    model, x, _ = learnt
    published = model.model
    assert len(published.names) == 2 < published.result.n_clusters
    probability = published.probability(x[:500])
    assert probability.shape == (500, 2)
    assert_allclose(probability.sum(axis=1), 1.0)
    assigned = published.assign(x[:500])
    place = (assigned.cluster[:, None] == published.names).argmax(axis=1)
    assert_allclose(assigned.probability, probability[np.arange(500), place])
    assert_array_equal(assigned.cluster, published.predict(x[:500]))
    assert_allclose(assigned.novelty, published.novelty(x[:500]))
    for row, name in zip(x[:50], assigned.cluster[:50], strict=True):
        assert model.predict_one(dict(enumerate(row))) == name
    found = model.clusters
    assert [cluster.id for cluster in found] == sorted(published.names, key=lambda i: -dict(zip(
        published.names.tolist(), model.view().clusters.weight.tolist(), strict=True))[i])  # fmt: skip
    assert sum(cluster.weight for cluster in found) == pytest.approx(20_000)
    assert sum(len(cluster.components) for cluster in found) == published.result.n_clusters
    for cluster in found:
        assert isinstance(cluster.components, Moments)
        assert model.predict_one(model.centers[cluster.id]) == cluster.id
    tree = model.snapshot()
    assert set(tree.ids[tree.cut_nodes(k=2)]) == set(published.names)


def test_batching_and_restarts_change_no_bit(tmp_path):
    x, _ = moons(6000, seed=3)
    whole = StreamClusterer(shape="any", refit_every=1000)
    whole.learn_many(x)
    parts = StreamClusterer(shape="any", refit_every=1000)
    for start in range(0, 6000, 700):
        parts.learn_many(x[start : start + 700])
        parts.save(tmp_path / "state")
        parts = StreamClusterer.load(tmp_path / "state")
    one, two = whole.model, parts.model
    assert (one.ids, one.owner, one.hidden, one.version) == (two.ids, two.owner, two.hidden, two.version)
    assert_array_equal(one.result.clusters.mean, two.result.clusters.mean)
    assert [c.to_dict() for c in whole.lineage] == [c.to_dict() for c in parts.lineage]


def test_strips_between_which_events_come_merge():
    """What fills the gap may be born first; then all become one cluster, that keeps an id, and stays."""
    rng = np.random.default_rng(5)
    apart = rng.uniform(size=(20_000, 2)) * [6.0, 1.0]
    apart[:, 1] += 3.0 * rng.integers(2, size=20_000)
    model = StreamClusterer(shape="any", refit_every=2000, background=False)
    model.learn_many(apart)
    assert model.n_clusters == 2
    before, ids = len(model.lineage), set(model.model.ids)
    full = rng.uniform(size=(60_000, 2)) * [6.0, 4.0]
    model.learn_many(full)
    model.settle()
    assert model.n_clusters == 1
    changes = list(model.lineage)[before:]
    assert {change.kind for change in changes} <= {"born", "merged"}
    merges = [change for change in changes if change.kind == "merged"]  # of two clusters, or of three at once
    assert sum(len(merge.parents) - len(merge.children) for merge in merges) == 1 + len(changes) - len(merges)
    assert set(model.model.names.tolist()) < ids


def test_the_estimator_of_tables():
    x, truth = make_circles(3000, factor=0.5, noise=0.05, random_state=2)
    model = StreamEstimator(shape="any").fit(x)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert model.n_clusters_ == len(model.ids_) == len(model.clusters_) == model.predict_proba(x).shape[1]


def test_shapes_are_not_offered_for_counts():
    with pytest.raises(ValueError, match='shape="any" joins Gaussians'):
        StreamClusterer("poisson", shape="any")


def test_streams_of_gaussians_join_by_default():
    """Not where a density, a radius or counts are asked for."""
    for settings, joins in (
        (EngineSettings(), True),
        (EngineSettings("diagonal"), True),
        (EngineSettings(shape="ellipse"), False),
        (EngineSettings("poisson"), False),
        (EngineSettings(refit="chunky-em"), False),
        (EngineSettings(refit="chunky-em", shape="any"), True),
        (EngineSettings(refit="dp-means"), False),
    ):
        assert settings.joins == joins


def test_older_checkpoints_go_on_with_ellipses():
    model = StreamClusterer(shape="ellipse")
    model.learn_many(moons(200)[0])
    state = model.to_state()
    for kept in (state.values["parameters"], state.values["settings"]):
        del kept["shape"]
    loaded = StreamClusterer.from_state(state)
    assert loaded.shape == "ellipse"
    assert len(loaded.model.names) == len(loaded.model.rows)  # each component is a cluster


def test_joins_last_within_a_standard_error():
    """Two halves of a bell whose height is all but 0 stay as they were; anew, the height alone decides."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    half = (x[:, 0] > 0).astype(int)
    found = fit_points("gaussian", x[:50])
    for shift in (0.0, 1.6, 2.2, 4.0):
        y = x + shift * half[:, None] * [1.0, 0.0]
        result = replace(found, labels=half, clusters=Moments.rows_of_points(y).to_groups(half, kind="full"))
        given = result, y, np.ones(3000), half
        edges = tree_of(*given).edges
        (h,), (se,) = edges.height, edges.error
        before = {name: joined_components(*given, np.array(parent))[0].max() == 0
                  for name, parent in (("one", [0, 0]), ("two", [0, 1]))}  # fmt: skip
        assert before == {"one": h < se, "two": h < -se}
        assert (joined_components(*given, np.array([0, 1]), anew=True)[0].max() == 0) == (h < 0)


def test_a_ring_that_opens_is_told_once():
    """At two places: of all that is told afterwards one split alone has two children of weight."""
    rng = np.random.default_rng(0)
    model = StreamClusterer(half_life=2000, refit_every=1000, background=False)
    for gap in (0.0, 0.4):
        angle = rng.uniform(-np.pi / 2 + gap, np.pi / 2 - gap, size=12_000) + np.pi * rng.integers(
            2, size=12_000
        )
        model.learn_many(
            np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.05 * rng.normal(size=(12_000, 2))
        )
        if not gap:
            assert [change.kind for change in model.lineage] == ["born"]
    heavy = 0.1 * model.view().clusters.weight.sum()
    told = [change for change in model.lineage if sum(w > heavy for w in change.children.values()) > 1]
    assert [change.kind for change in told] == ["split"]
    assert sum(cluster.share for cluster in model.clusters[:2]) > 0.95


def test_moons_that_drift_together_and_apart_are_told_once_each():
    """Until the tip of one meets the tip of the other, a curve like an S, and away again."""
    legs = [(8000, 0, 0), (4000, 0, 1), (8000, 1, 1), (4000, 1, 0), (8000, 0, 0)]
    near = np.concatenate([np.linspace(a, b, n) for n, a, b in legs])
    rng = np.random.default_rng(0)
    angle, moon = rng.uniform(0, np.pi, size=len(near)), rng.integers(2, size=len(near))
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([2.8 - 0.8 * near - np.cos(angle), -np.sin(angle)], axis=1)
    x = np.where(moon[:, None] == 1, lower, upper) + 0.07 * rng.normal(size=(len(near), 2))
    model = StreamClusterer(background=False)
    model.learn_many(x)
    told = [change for change in model.lineage if change.at > 8000]
    assert [change.kind for change in told] == ["merged", "split"]
    assert told[0].at < 20_000
    assert adjusted_rand_score(moon[-4000:], model.predict_many(x[-4000:])) > 0.95
