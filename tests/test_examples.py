"""Every example runs, as a user would start it, on a short stream, and comes to the result it speaks of."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from streamclust.hierarchy import Dendrogram

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own files the old way
    from tests.connectors.conftest import broker_address, shared_broker  # noqa: F401

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def start(name, *arguments):
    """Run an example in a process of its own; what it printed."""
    command = [sys.executable, ROOT / "examples" / f"{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


@pytest.fixture
def quick(tmp_path):
    """Run an example in its short mode; what it printed. Its pictures are where it says, and are pictures."""

    def run(name, *arguments):
        said = start(name, "--quick", "--output", tmp_path / "pictures", *arguments)
        pictures = {Path(path) for path in re.findall(r"\S+\.png", said)}
        assert pictures
        assert pictures == set((tmp_path / "pictures").glob("*.png"))
        for picture in pictures:
            assert picture.read_bytes().startswith(b"\x89PNG")
        return said

    return run


def number(pattern, said):
    """The number that a line of the output says."""
    found = re.search(pattern, said)
    assert found, said
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_is(path):
    """A docstring that begins with one line, says what one sees and how to run it, and is tested here."""
    said = path.read_text().split('"""')[1]
    assert said.splitlines()[0].endswith(".")
    assert said.splitlines()[1] == ""
    assert f"Run it: python examples/{path.name}" in said
    assert f'"{path.stem}"' in Path(__file__).read_text()
    assert {"--quick", "--output"} <= set(re.findall(r'add_argument\("(--\w+)"', path.read_text()))


@pytest.mark.compiled
def test_tree_of_a_million(quick):
    said = quick("tree_of_a_million")
    assert number(r"clusters (\d+) found", said) == number(r"(\d+) were planted", said)
    assert number(r"differs by (\S+) of itself", said) < 1e-9


@pytest.mark.compiled
def test_drifting_stream(quick):
    said = quick("drifting_stream")
    assert "born 0 at event 1" in said
    assert number(r"adjusted Rand index (\S+)", said) > 0.7


@pytest.mark.compiled
def test_river_pipeline(quick):
    said = quick("river_pipeline")
    assert number(r"(\S+) at its end", said) > 0.7
    assert "split" in said


@pytest.mark.compiled
@pytest.mark.parametrize("family", ["bernoulli", "multinomial"])
def test_baskets(quick, family):
    said = quick("baskets", "--family", family)
    assert number(r"found\s+(\d+) kinds", said) == number(r"(\d+) are there", said)
    assert number(r"adjusted Rand index (\S+)", said) > 0.8
    assert re.search(r"since basket +1\d,\d+ .*coal", said)  # halfway, when summer came


@pytest.mark.compiled
def test_text_topics(quick):
    said = quick("text_topics")
    assert number(r"normalized mutual information (\S+)", said) > 0.5
    assert re.search(r"networks .*socket", said)
    assert re.search(r"signals .*filter", said)


@pytest.mark.compiled
def test_bertopic_online(quick):
    pytest.importorskip("bertopic", reason="pip install --no-deps bertopic")
    said = quick("bertopic_online")
    agreed = {
        name: number(rf"{name} +\d+ topics, normalized mutual information (\S+),", said)
        for name in ("StreamEstimator", "DBSTREAM", "MiniBatchKMeans")
    }
    assert agreed["StreamEstimator"] > max(agreed["DBSTREAM"], agreed["MiniBatchKMeans"])
    assert number(r"StreamEstimator +(\d+) topics", said) > 9


@pytest.mark.compiled
def test_image_features(quick):
    said = quick("image_features")
    assert "6 features" in said
    assert number(r"agreed\s+(\S+)%", said) > 99.0


@pytest.mark.compiled
def test_shapes(quick):
    said = quick("shapes")
    for scene in ("circles", "moons", "anisotropic"):
        assert number(rf"{scene} .*streamclust (\S+)", said) > 0.95


@pytest.mark.compiled
def test_hierarchy_over_time(quick, tmp_path):
    said = quick("hierarchy_over_time")
    snapshots = sorted((tmp_path / "pictures").glob("*.json"))
    assert len(snapshots) == 4
    for path in snapshots:
        tree = Dendrogram.from_dict(json.loads(path.read_text()))
        (ids,) = re.findall(rf"clusters \[(.+)\], \S+{path.name}", said)
        clusters = [int(i) for i in ids.split(", ")]
        assert sorted(tree.ids[tree.cut_nodes(k=len(clusters))].tolist()) == clusters


@pytest.mark.compiled
def test_checkpointed_service(quick):
    said = quick("checkpointed_service")
    assert 0 < number(r"life 1 .* holds (\S+) of", said) < 30_000
    assert "30,000 events learnt" in said
    assert "told     30,000 events were assigned" in said
    assert "the same, bit for bit" in said


@pytest.mark.compiled
def test_kafka_end_to_end(quick, broker_address):
    said = quick("kafka_end_to_end", "--bootstrap-servers", broker_address)
    assert "learnt   20,000 events" in said
    assert "told     20,000 assignments of 20,000 events" in said
    assert "refused  3 messages" in said
