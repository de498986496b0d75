import io
import json
import logging
import zipfile

import numpy as np
import pytest

from streamclust.checkpoint import CheckpointError, Checkpoints, State, files, read, write
from streamclust.streaming import StreamClusterer


@pytest.fixture
def state():
    return State(
        {"a": np.arange(5.0), "b.c": np.array([[1, 2]])}, {"n": 3, "x": 0.1, "deep": {"list": [1, "two"]}}
    )


def equal(a, b):
    same = a.arrays.keys() == b.arrays.keys()
    return same and all(np.array_equal(a.arrays[k], b.arrays[k]) for k in a.arrays)


def test_what_is_written_is_read(tmp_path, state):
    write(tmp_path / "x", state)
    again = read(tmp_path / "x")
    assert equal(again, state)
    assert {k: again.values[k] for k in state.values} == state.values
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_only_what_a_compressor_makes_much_smaller_is_compressed():
    noise, ones = np.random.default_rng(0).normal(size=(500, 8)), np.ones(4000)
    half_empty = np.where(np.arange(4000) < 1000, np.resize(noise, 4000), 0.0)
    state = State({"noise": noise, "ones": ones, "half_empty": half_empty}, {"n": 1})
    body = files.encode(state, compress=True)
    assert equal(files.decode(body), state)
    assert body == files.encode(state, compress=True)
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        stored = {one.filename for one in archive.infolist() if one.compress_type == zipfile.ZIP_STORED}
    assert "noise.npy" in stored
    assert not {"ones.npy", "half_empty.npy"} & stored
    assert len(body) < noise.nbytes + half_empty.nbytes / 2


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(tmp_path, state, keep):
    write(tmp_path / "x", state)
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(CheckpointError, match=r"damaged|not a streamclust checkpoint"):
        read(tmp_path / "x")


def test_a_file_with_one_bit_changed_is_refused(tmp_path, state):
    write(tmp_path / "x", state)
    content = bytearray((tmp_path / "x").read_bytes())
    content[-40] ^= 1
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        read(tmp_path / "x")


def test_another_format_and_another_file_are_told_apart(tmp_path, state, monkeypatch):
    monkeypatch.setattr(files, "FORMAT", 99)
    write(tmp_path / "new", state)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"format 99.*reads format 1"):
        read(tmp_path / "new")
    (tmp_path / "foreign").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match="not a streamclust checkpoint"):
        read(tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read(tmp_path / "nothing")


def test_a_checkpoint_without_a_clusterer_is_never_half_loaded(tmp_path, state):
    write(tmp_path / "x", state)
    with pytest.raises(CheckpointError, match="no clusterer"):
        StreamClusterer.load(tmp_path / "x")
    model = StreamClusterer()
    model.learn_many(np.random.default_rng(0).normal(size=(300, 2)))
    broken = model.to_state()
    del broken.arrays["shard0.tree.child"]
    write(tmp_path / "y", broken)
    with pytest.raises(CheckpointError, match="child"):
        StreamClusterer.load(tmp_path / "y")


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, state, monkeypatch):
    write(tmp_path / "x", state)

    def full(_descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write(tmp_path / "x", State({}, {}))
    monkeypatch.undo()
    assert equal(read(tmp_path / "x"), state)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_the_last_few_are_kept_and_a_damaged_one_is_passed_over_loudly(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None
    paths = [checkpoints.save(State({}, {"n": n})) for n in range(4)]
    assert [p.exists() for p in paths] == [False, False, True, True]
    assert checkpoints.latest().values["n"] == 3
    paths[3].write_bytes(b"rubbish")
    with caplog.at_level(logging.ERROR):
        assert checkpoints.latest().values["n"] == 2
    assert "not a streamclust checkpoint" in caplog.text
    paths[2].write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match="no checkpoint can be used"):
        checkpoints.latest()
    with pytest.raises(ValueError, match="keep"):
        Checkpoints(tmp_path, keep=0)


FOREIGN = ("backup.checkpoint", "²³.checkpoint", "7.checkpoint", "000000000009.checkpoint.old", "a.part")


def test_files_of_other_names_are_left_alone(tmp_path):
    for name in FOREIGN:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "000000000003.checkpoint").mkdir()
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.files() == []
    assert checkpoints.latest() is None
    (tmp_path / "000000000004.checkpointab_c.part").write_bytes(b"half")
    checkpoints.remove_unfinished()
    saved = [checkpoints.save(State({}, {"n": n})).name for n in range(4)]
    assert saved == [f"00000000000{number}.checkpoint" for number in (4, 5, 6, 7)]
    assert checkpoints.latest().values["n"] == 3
    assert {path.name for path in tmp_path.iterdir()} == {*FOREIGN, "000000000003.checkpoint", *saved[2:]}


def test_the_newest_is_the_one_of_the_largest_number(tmp_path):
    """Also where numbers have outgrown their twelve digits."""
    write(tmp_path / "999999999999.checkpoint", State({}, {"n": 0}))
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(State({}, {"n": 1}))
    assert checkpoints.latest().values["n"] == 1


def test_positions_travel_with_the_state(tmp_path):
    model = StreamClusterer(half_life=1000.0, family="poisson", missing="error")
    model.learn_many(np.random.default_rng(0).poisson(3.0, size=(300, 2)))
    positions = {"events": {"0": 300, "1": 17}}
    model.save(tmp_path / "x", positions)
    assert read(tmp_path / "x").values["positions"] == positions
    assert json.dumps(StreamClusterer.load(tmp_path / "x")._get_params(), default=str) == json.dumps(
        model._get_params(), default=str
    )
