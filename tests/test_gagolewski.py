"""The benchmark of the public collection, on a folder of the same form: three small sets, one with noise, one with two
reference labellings, and published label vectors for some of them."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from benchmarks import gagolewski
from streamclust import StreamClusterer

ROOT = Path(__file__).parent.parent
rng = np.random.default_rng(0)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write(text)


def column(values):
    return "".join(f"{value}\n" for value in values)


def rows(values):
    return "".join(" ".join(f"{value:.6f}" for value in row) + "\n" for row in values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A collection and its results."""
    root = tmp_path_factory.mktemp("collection")
    data, results = root / "data", root / "results"
    two = np.repeat([1, 2], 150)
    x = rng.normal(size=(300, 2)) + 12.0 * two[:, None]
    noise = two.copy()
    noise[::10] = 0
    far = x.copy()
    far[::10] = rng.uniform(0, 40, size=(30, 2))
    write(data / "first/plain.data.gz", rows(x))
    write(data / "first/plain.labels0.gz", column(two))
    write(data / "first/noisy.data.gz", rows(far))
    write(data / "first/noisy.labels0.gz", column(noise))
    four = np.repeat([1, 2, 3, 4], 100)
    centres = np.array([[0, 0], [8, 0], [60, 0], [68, 0]])
    write(data / "second/nested.data.gz", rows(rng.normal(size=(400, 2)) + centres[four - 1]))
    write(data / "second/nested.labels0.gz", column((four + 1) // 2))
    write(data / "second/nested.labels1.gz", column(four))
    write(data / "second/large.data.gz", rows(np.zeros((10_001, 1))))
    write(data / "second/large.labels0.gz", column([1] * 10_001))
    guess = np.where(two == 1, 1, 2)
    guess[:15] = 2
    table = "Genie_G0.1,Genie_G0.3\n" + "".join(f"{a},{b}\n" for a, b in zip(two, guess, strict=True))
    write(results / "original/Genie/first/plain.result2.gz", table)
    write(results / "original/sklearn/first/plain.result2.gz", "sklearn_kmeans\n" + column(two))
    write(results / "original/Genie/first/noisy.result2.gz", table)
    write(
        results / "original/Genie/second/nested.result2.gz", "Genie_G0.3\n" + column(np.repeat([1, 2], 200))
    )
    return data, results, guess, noise


def test_sets_have_their_labels_and_large_ones_are_left_out(folder):
    found = {each.name: each for each in gagolewski.sets(folder[0])}
    assert sorted(found) == ["nested", "noisy", "plain"]
    assert [gagolewski.n_clusters(labels) for labels in found["nested"].references] == [2, 4]
    assert found["plain"].x.shape == (300, 2)
    assert [each.name for each in gagolewski.sets(folder[0], ["second"])] == ["nested"]


def test_noise_is_left_out_of_scores_and_the_best_reference_counts(folder):
    data, results, guess, noise = folder
    found = {each.name: each for each in gagolewski.sets(data)}
    told = gagolewski.published(results, found["noisy"], gagolewski.METHODS)
    kept = noise > 0
    assert told == {"Genie_G0.3": pytest.approx(adjusted_rand_score(noise[kept], guess[kept]))}
    assert gagolewski.published(results, found["plain"], gagolewski.METHODS)["sklearn_kmeans"] == 1.0
    nested = gagolewski.published(results, found["nested"], gagolewski.METHODS)
    assert nested == {"Genie_G0.3": 1.0}  # of the labelling with two clusters; there is no result for four


@pytest.mark.compiled
@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_hierarchy_is_cut_into_as_many_clusters_as_are_told(folder, k):
    (nested,) = gagolewski.sets(folder[0], ["second"])
    model = StreamClusterer()
    model.learn_many(nested.x[np.random.default_rng(1).permutation(400)])
    model.settle()
    labels = np.asarray(model.predict_many(nested.x))
    assert model.n_clusters == 4
    found = gagolewski.cut(model, nested.x, labels, k)
    assert len(np.unique(found)) == k
    if k <= 4:
        assert adjusted_rand_score(nested.references[0 if k == 2 else 1], found) == 1.0
    else:  # parts of clusters
        pairs = {(a, b) for a, b in zip(found.tolist(), labels.tolist(), strict=True)}
        assert len(pairs) == k


@pytest.mark.compiled
def test_the_script_prints_every_set_and_the_means(folder):
    data, results, *_ = folder
    command = [sys.executable, ROOT / "benchmarks/gagolewski.py", "--data", data, "--results", results]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^first/plain \(300 x 2, K 2, found 2\): ours, K found 1\.000, ours, told K 1\.000, ",
        done.stdout,
        re.M,
    )
    assert re.search(
        r"^second/nested \(400 x 2, K 2/4, found 4\): ours, K found 1\.000, ours, told K 1\.000",
        done.stdout,
        re.M,
    )
    assert "3 sets\n" in done.stdout
    assert re.search(
        r"^mean ARI, Genie_G0\.3: 0\.\d+ over 3 sets; \d\.\d+ over the 1 of all methods$", done.stdout, re.M
    )


def test_an_empty_folder_is_named(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/gagolewski.py", "--data", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"no set of at most 10,000 rows in {tmp_path}" in done.stderr
