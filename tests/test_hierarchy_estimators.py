"""The hierarchical scikit-learn estimators: their contract, their answers, and bad input."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamclust.batch import AgglomerativeBayesian, BayesianHierarchical, RelaxedBHC
from streamclust.families import Gaussian
from tests.streams import clustered

pytestmark = pytest.mark.compiled
ALL = [RelaxedBHC, AgglomerativeBayesian, BayesianHierarchical]
each = pytest.mark.parametrize("estimator", ALL)


@parametrize_with_checks(
    [RelaxedBHC(), RelaxedBHC("spherical"), AgglomerativeBayesian(), BayesianHierarchical()]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return clustered(300, 3, k=4, seed=2, spread=15.0)


@each
@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_separated_clusters_are_found(blobs, estimator, family):
    x, z = blobs
    ward = estimator is RelaxedBHC and family == "spherical"  # for which the rule for λ is rough
    model = estimator(family, n_clusters=4 if ward else None).fit(x)
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(z, model.labels_) > 0.99
    assert model.children_.shape == (299, 2)
    Z = np.column_stack([model.children_, model.distances_, model.dendrogram_.count[300:]])
    assert is_valid_linkage(Z)
    np.testing.assert_array_equal(model.fit_predict(x), model.labels_)
    assert estimator(family, n_clusters=7).fit(x).n_clusters_ == 7


def test_spherical_is_ward(blobs):
    x, _ = blobs
    ward = fcluster(linkage(x, "ward"), 9, criterion="maxclust")
    assert adjusted_rand_score(ward, RelaxedBHC("spherical", n_clusters=9).fit(x).labels_) == 1.0


def test_searches_and_thresholds(blobs):
    x, z = blobs
    lazy, chain = (RelaxedBHC("diagonal", search, n_clusters=4).fit(x) for search in ("lazy", "chain"))
    assert adjusted_rand_score(lazy.labels_, chain.labels_) > 0.98
    auto = RelaxedBHC().fit(x)
    assert auto.threshold_ > 0
    same = RelaxedBHC(threshold=auto.threshold_).fit(x)
    np.testing.assert_array_equal(same.labels_, auto.labels_)
    assert RelaxedBHC(threshold=np.inf).fit(x).n_clusters_ == 1
    assert RelaxedBHC(threshold=0.0).fit(x).n_clusters_ == 300
    conga = AgglomerativeBayesian(search="conga").fit(x)
    assert adjusted_rand_score(z, conga.labels_) > 0.99


def test_priors(blobs):
    x, _ = blobs
    by_rule = AgglomerativeBayesian(prior="agglomerative").fit(x).dendrogram_
    informed = AgglomerativeBayesian(Gaussian.informed(x, rule="agglomerative")).fit(x).dendrogram_
    np.testing.assert_array_equal(by_rule.children, informed.children)
    given = AgglomerativeBayesian(prior=0.5).fit(x).dendrogram_
    full = AgglomerativeBayesian(prior=0.5 * np.eye(3)).fit(x).dendrogram_
    np.testing.assert_array_equal(given.children, full.children)
    assert (
        BayesianHierarchical(alpha=1e-3).fit(x).n_clusters_
        <= BayesianHierarchical(alpha=1e6).fit(x).n_clusters_
    )
    with pytest.raises(ValueError, match="prior of its own"):
        AgglomerativeBayesian(Gaussian.informed(x), prior=0.5).fit(x)
    with pytest.raises(ValueError, match="rule must be one of"):
        AgglomerativeBayesian(prior="none").fit(x)


@each
@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
def test_counts(estimator, family):
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=200)
    if family == "bernoulli":
        x = (rng.random((200, 30)) < np.where(rng.random((3, 30)) < 0.5, 0.1, 0.9)[z]).astype(float)
    else:
        x = rng.poisson(rng.gamma(0.5, 20.0, size=(3, 12))[z]).astype(float)
    assert adjusted_rand_score(z, estimator(family, n_clusters=3).fit(x).labels_) > 0.9
    for bad in (-1.0, 0.5):
        x[7, 2] = bad
        with pytest.raises(ValueError, match=f"{family} data must be"):
            estimator(family).fit(x)


def test_prior_of_counts():
    x = (np.random.default_rng(0).random((60, 10)) < 0.3).astype(float)
    trees = [AgglomerativeBayesian("bernoulli", prior=w).fit(x).dendrogram_.cost for w in (0.1, 1.0)]
    assert not np.allclose(*trees)
    np.testing.assert_array_equal(AgglomerativeBayesian("bernoulli").fit(x).dendrogram_.cost, trees[0])


def test_verbose(blobs, capsys):
    x, _ = blobs
    AgglomerativeBayesian(verbose=True).fit(x)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["299", "of", "299", "merges"]


@each
def test_small_and_degenerate_data(estimator):
    one = estimator().fit([[1.0, 2.0]])
    assert one.labels_.tolist() == [0]
    assert one.n_clusters_ == 1
    equal = estimator().fit(np.full((20, 3), 7.0))
    assert equal.n_clusters_ == 1
    wide = estimator().fit(np.random.default_rng(0).normal(size=(4, 30)))
    assert 1 <= wide.n_clusters_ <= 4
    x, z = clustered(90, 2, k=3, seed=2, spread=20.0)
    flat = np.column_stack([x, np.full(90, 3.0)])
    for moved in (flat, x * 1e-8, x + 1e8, np.repeat(x, 2, axis=0)[:180:2]):
        assert adjusted_rand_score(z, estimator(n_clusters=3).fit(moved).labels_) > 0.99


@each
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_none(estimator, value):
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        estimator().fit([[1.0, 2.0], [value, 1.0]])


@each
def test_bad_parameters(estimator, blobs):
    x, _ = blobs
    with pytest.raises(ValueError, match="n_clusters must be at most the 300 points"):
        estimator(n_clusters=301).fit(x)
    with pytest.raises(ValueError, match="n_clusters"):
        estimator(n_clusters=0).fit(x)
    with pytest.raises(ValueError, match="unknown family"):
        estimator("cauchy").fit(x)


def test_bad_thresholds(blobs):
    x, _ = blobs
    with pytest.raises(ValueError, match="a number or 'auto'"):
        RelaxedBHC(threshold="none").fit(x)
    with pytest.raises(ValueError, match="threshold must not be negative"):
        RelaxedBHC(threshold=-1.0).fit(x)
    with pytest.raises(ValueError, match="needs reducible costs"):
        AgglomerativeBayesian(search="chain").fit(x)
