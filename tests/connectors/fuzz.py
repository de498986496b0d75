"""Messages of every kind of rubbish among good ones, through the whole loop."""

import json
import math
import random

import msgspec
import numpy as np

from streamclust import StreamClusterer
from streamclust_connectors.decode import Decoder
from streamclust_connectors.service import Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource

P = ("in", 0)
CHUNK = 20_000


def good(draw):
    row = [round(draw.gauss(0, 1) + 9 * draw.randrange(3), 4) for _ in range(2)]
    return json.dumps({"x": row[0], "y": row[1]}).encode(), row


def truncated(draw):
    whole = good(draw)[0]
    return whole[: draw.randrange(1, len(whole) - 1)]


def wrong_type(draw):
    value = draw.choice(["a", [1], {"z": 1}, "NaN", ""])
    return json.dumps({"x": value, "y": value}).encode()  # of an event with one good value that is learnt


def deep(draw):
    return draw.choice([b"[", b'{"x":', b'{"x":[']) * draw.choice([3, 100, 5000])


def huge(draw):
    value = draw.choice([b"1e308", b"-1e200", b"1e999", b"9" * draw.choice([200, 5000]), b"1e121"])
    return b'{"x": %s, "y": %s}' % (value, value)


def not_a_number(draw):
    value = draw.choice([b"NaN", b"Infinity", b"-Infinity", b"nan", b"0x10", b"1.", b"+1", b"--1"])
    return b'{"x": %s, "y": %s}' % (value, value)


def binary(draw):
    return draw.randbytes(draw.randrange(1, 40)) + b"\xff"


def packed(draw):
    return msgspec.msgpack.encode({"x": draw.choice([math.nan, math.inf, 1.0]), "y": 2.0})


def empty(draw):
    return draw.choice(
        [b"", b" ", b"{}", b"[]", b"null", b"true", b"3", b'"x"', b'{"x": null}', b"[null]", b"[[]]", b"[{}]"]
    )


def broken(draw):
    """A good message with one byte changed so that it is none any more."""
    whole = bytearray(good(draw)[0])
    whole[draw.choice([0, len(whole) - 1])] = draw.choice(b"\x00[(,;\xfe")
    return bytes(whole)


def long_name(draw):
    return b'{"x": 1, "y": 2, "%s": 3}' % (b"n" * draw.choice([501, 10_000]))


BAD = (truncated, long_name, wrong_type, deep, huge, not_a_number, binary, packed, empty, broken)


def fuzz(n, seed, tell=lambda _: None):
    """Raises AssertionError if anything good is lost, or anything bad not told. Returns what was seen."""
    draw = random.Random(seed)
    clusterer, alone = StreamClusterer(seed=seed), StreamClusterer(seed=seed)
    sink, total, told = ListSink(channels=("dead-letters",)), 0, 0
    for first in range(0, n, CHUNK):
        value, row = good(draw)  # the first event of all names the features
        values, rows, bad = [value], [row], []
        for _ in range(min(CHUNK, n - first) - 1):
            if draw.random() < 0.5:
                value, row = good(draw)
                rows.append(row)
            else:
                value = draw.choice(BAD)(draw)
                bad.append(value)
            values.append(value)
        service = Service(MemorySource({P: values}, size=500), sink, clusterer, decoder=Decoder())
        service.run()
        clusterer = service.clusterer
        alone.learn_many([{"x": x, "y": y} for x, y in rows], shard=P)
        total, told = total + len(rows), told + len(bad)
        letters = sink.outputs.pop("dead-letters")
        assert [letter.value for letter in letters] == bad
        assert all(dict(letter.headers)["__streamclust.errors.message"] for letter in letters)
        assert clusterer.n_seen == total
        ours, theirs = (model.tree.total for model in (clusterer, alone))
        assert ours.weight[0] == total
        assert np.array_equal(ours.mean, theirs.mean)
        assert np.array_equal(ours.scatter, theirs.scatter)
        tell(f"{first + len(values):,} messages: {total:,} learnt, {told:,} dead letters")
    return {"messages": n, "learnt": total, "dead letters": told}
