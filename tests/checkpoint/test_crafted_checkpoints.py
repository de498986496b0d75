"""Checkpoints that nothing of ours wrote, though their checksums hold: each is refused, and its fault named."""

import hashlib
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from streamclust import StreamClusterer, StreamFeatures
from streamclust.checkpoint import CheckpointError, State, decode, encode, files, read
from streamclust.checkpoint.files import FORMAT, MAGIC

ALL = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
N_SAMPLED = 50
"""Changes of each state that are tried, unless all are."""


def two_clusters(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 9.0 * rng.integers(2, size=(n, 1))


def plain():
    model = StreamClusterer(half_life=500.0)
    for t in range(0, 1200, 100):
        model.learn_many(two_clusters(100, seed=t), time=t + np.arange(100.0), shard=t % 200)
    return model


def mixture():
    model = StreamClusterer(refit="chunky-em")
    model.learn_many(two_clusters(700))
    return model


def wide():
    model = StreamClusterer()
    model.learn_many(two_clusters(1300, 70))
    return model


def waiting():
    model = StreamClusterer()
    model.learn_many(two_clusters(30, 70), weight=np.full(30, 2.0))
    return model


def features():
    rng = np.random.default_rng(0)
    model = StreamFeatures(warmup=64)
    model.learn_many(
        rng.integers(2, size=(300, 2)) @ (5.0 * rng.normal(size=(2, 6))) + rng.normal(size=(300, 6))
    )
    return model


def levels():
    model = StreamClusterer(detail="auto", refit_every=10**6)
    model.learn_many(two_clusters(3_000))
    model.learn_many(two_clusters(40) + 60.0)
    assert model.to_state().values["model"]["opened"]
    return model


MODELS = {make.__name__: make for make in (plain, mixture, wide, waiting, features, levels)}


def deep(n):
    found = []
    for _ in range(n):
        found = [found]
    return found


WRONG = [None, "x", -1, 2**70, 1e308, [], {}, [[1, "x"]], deep(200), True]
"""Values that take the place of others."""


def places(values, path=()):
    """The path to every value, however deep."""
    yield path
    inner = (
        values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    )
    for key, value in list(inner)[:3] if isinstance(values, list) else inner:
        yield from places(value, (*path, key))


def with_value(values, path, new):
    """The values with another in one place; without it, if that is `...`."""
    changed = json.loads(json.dumps(values))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return changed


def array_changes(a):
    yield "dropped", None
    yield "scalar", np.zeros(())
    yield "empty", a[:0] if a.ndim else np.zeros(0)
    yield "another axis", a[None]
    yield "flat", a.reshape(-1)
    yield "text", np.full(a.shape, "x")
    if a.ndim:
        yield "one more", np.concatenate([a, a[-1:]])
        yield "one less", a[:-1]
        yield "wider", np.concatenate([a, a[..., :1]], axis=-1)
    if a.dtype.kind in "if":
        yield "single precision", a.astype(np.float32)
        yield (
            "other kind",
            a.astype(float) if a.dtype.kind == "i" else np.nan_to_num(a, posinf=0, neginf=0).astype(int),
        )
        yield "huge", np.full_like(a, 1e300 if a.dtype.kind == "f" else 2**62)
        yield "negative", np.full_like(a, -7)
    if a.dtype.kind == "f":
        yield "nan", np.full_like(a, np.nan)


def changes(state):
    """States that differ from this one in one thing, with what that is."""
    for name, a in state.arrays.items():
        for how, new in array_changes(a):
            others = {key: value for key, value in state.arrays.items() if key != name}
            yield f"{name}: {how}", State(others | ({} if new is None else {name: new}), state.values)
    for path in places(state.values):
        if path and path[0] not in ("positions", "library"):
            for new in (..., *WRONG):
                yield f"{path}: {str(new)[:20]}", State(state.arrays, with_value(state.values, path, new))


def use(model, x):
    """Whatever one does with a model that was loaded."""
    row = dict(enumerate(x[0].tolist()))
    model.predict_one(row)
    time = 5000.0 + np.arange(len(x)) if getattr(model, "half_life", None) and model.n_seen else None
    model.learn_many(x) if time is None else model.learn_many(x, time=time)
    if isinstance(model, StreamClusterer):
        assert model.clusters
        assert model.n_failed_refits >= 0
    model.to_state()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_state_is_refused_or_works(name):
    state = MODELS[name]().to_state()
    state = decode(encode(state))
    kind = StreamFeatures if name == "features" else StreamClusterer
    x = two_clusters(40, state.values["n_features"] if name not in ("wide", "waiting") else 70)
    use(kind.from_state(state), x)
    tried = list(changes(state))
    if not ALL:
        tried = [tried[i] for i in np.random.default_rng(0).choice(len(tried), N_SAMPLED, replace=False)]
    refused, failed = 0, []
    for what, changed in tried:
        try:
            model = kind.from_state(decode(encode(changed)))
        except CheckpointError:
            refused += 1
            continue
        except Exception as error:
            failed.append(f"{what}: loading raised {error!r}")
            continue
        try:
            use(model, x)
        except Exception as error:
            failed.append(f"{what}: {error!r}")
    assert failed == []
    assert refused > len(tried) / 3


@pytest.mark.parametrize("where", [("result", "n_effective"), ("path", "n_events")])
def test_evidence_of_no_events_is_refused(where):
    """Levels divide by it."""
    state = levels().to_state()
    with pytest.raises(CheckpointError, match="must be above 0"):
        StreamClusterer.from_state(State(state.arrays, with_value(state.values, ("model", *where), 0.0)))


# ---------------------------------------------------------------- files


def written(path, body):
    path.write_bytes(b"%s %d %s\n" % (MAGIC, FORMAT, hashlib.sha256(body).hexdigest().encode()) + body)
    return path


def archive(members, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def npy(header, content=b""):
    text = repr(header).encode() if isinstance(header, dict) else header
    return b"\x93NUMPY\x01\x00" + (len(text) + 1).to_bytes(2, "little") + text + b"\n" + content


def declared(shape, descr="<f8"):
    return {"descr": descr, "fortran_order": False, "shape": shape}


BODIES = {
    "no archive": b"x" * 100,
    "no values": archive({"a.npy": npy(declared((1,)), bytes(8))}),
    "values that are no object": archive({"values.json": b"[1]"}),
    "nested values": archive({"values.json": b"[" * 100_000}),
    "an array that declares more than it holds": archive(
        {"values.json": b"{}", "a.npy": npy(declared((10**12,)))}
    ),
    "no axes of that length": archive({"values.json": b"{}", "a.npy": npy(declared((2**62, 2**62)))}),
    "a negative axis": archive({"values.json": b"{}", "a.npy": npy(declared((-1, -1)), bytes(8))}),
    "objects": archive({"values.json": b"{}", "a.npy": npy(declared((1,), "|O"), bytes(8))}),
    "nothing, often": archive({"values.json": b"{}", "a.npy": npy(declared((10**15,), "<U0"))}),
    "a header that is nested": archive({"values.json": b"{}", "a.npy": npy(b"(" * 9000)}),
    "no header": archive({"values.json": b"{}", "a.npy": b""}),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_crafted_file_is_refused(tmp_path, what):
    with pytest.raises(CheckpointError):
        read(written(tmp_path / "x", BODIES[what]))
    with pytest.raises(CheckpointError):
        decode(BODIES[what])


def test_a_small_file_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALL_BYTES", 1 << 20)
    zeros = npy(declared((1 << 23,)), bytes(1 << 26))
    body = archive({"values.json": b"{}", "a.npy": zeros}, zipfile.ZIP_DEFLATED)
    del zeros
    assert len(body) < 100_000
    path = written(tmp_path / "x", body)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="declares a content of"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path):
    content = npy(declared((1 << 20,)), bytes(1 << 23))
    body = bytearray(archive({"values.json": b"{}", "a.npy": content}, zipfile.ZIP_DEFLATED))
    true = len(content).to_bytes(4, "little")
    at = body.rindex(true)
    body[at : at + 4] = (200).to_bytes(4, "little")
    with pytest.raises(CheckpointError):
        read(written(tmp_path / "x", bytes(body)))
