"""Messages with schemas beside JSON: what reading, writing and the whole service cost for each event.

Events and assignments are written with the schemas of a real registry (Apicurio's, see
tests/connectors/schema_registry), which is asked once for each schema. There is no broker: it costs the same for every
format. Figures are microseconds of CPU for each event, medians of repeats whose order changes, with the range; a
service learns, assigns, and writes each assignment as a message.

    python benchmarks/schemas.py                100,000 events, D = 8, 5 repeats
    python benchmarks/schemas.py --quick        20,000 events, 3 repeats
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from streamclust import StreamClusterer  # noqa: E402
from streamclust_connectors.decode import Decoder  # noqa: E402
from streamclust_connectors.interfaces import Encode, Message  # noqa: E402
from streamclust_connectors.output_records import AssignmentOutput  # noqa: E402
from streamclust_connectors.registry import Registry, reader, writer  # noqa: E402
from streamclust_connectors.service import Policy, Service  # noqa: E402
from streamclust_connectors.service.outputs import encode_json  # noqa: E402
from streamclust_connectors.sinks import ListSink  # noqa: E402
from streamclust_connectors.sources import MemorySource  # noqa: E402
from streamclust_connectors.synthetic import SyntheticMixture  # noqa: E402
from tests.connectors.schema_registry import RealRegistry, register  # noqa: E402

FORMATS = ("json", "avro", "protobuf", "json-schema")
STAGES = ("read", "write", "service")


def messages(format: str, url: str, rows: list[dict[str, float]]) -> list[bytes]:
    """Events as their producer writes them."""
    if format in ("json", "json-schema"):
        head = b"" if format == "json" else b"\0\0\0\0\1"
        return [head + json.dumps(row).encode() for row in rows]
    names = list(rows[0])
    if format == "avro":
        import fastavro

        schema = {
            "type": "record",
            "name": "Event",
            "fields": [{"name": name, "type": "double"} for name in names],
        }
        head = b"\0" + register(url, "events-avro", json.dumps(schema)).to_bytes(4, "big")
        parsed = fastavro.parse_schema(schema)
        return [head + written(fastavro, parsed, row) for row in rows]
    fields = " ".join(f"double {name} = {i};" for i, name in enumerate(names, 1))
    text = f'syntax = "proto3"; package shop; message Event {{ {fields} }}'
    head = b"\0" + register(url, "events-protobuf", text, "PROTOBUF").to_bytes(4, "big") + b"\0"
    tags = [bytes([8 * i + 1]) for i in range(1, len(names) + 1)]
    return [
        head + b"".join(t + np.float64(x).tobytes() for t, x in zip(tags, row.values(), strict=True))
        for row in rows
    ]


def written(fastavro: Any, schema: Any, row: dict[str, float]) -> bytes:  # noqa: ANN401  # an optional package
    """A record in Avro."""
    found = io.BytesIO()
    fastavro.schemaless_writer(found, schema, row)
    return found.getvalue()


def spent(action: Callable[[], object], n: int) -> float:
    """Microseconds of CPU for each of n events."""
    start = process_time()
    action()
    return 1e6 * (process_time() - start) / n


def measure(format: str, url: str, values: list[bytes]) -> dict[str, float]:
    """Cost of each stage in a format."""
    registry, n = Registry(url), len(values)
    decoder = Decoder(format="json" if format == "json" else reader(format, registry))
    encode: Encode = encode_json
    if format != "json":
        encode = writer(format, registry, f"out-{format}", AssignmentOutput)
    records = [Message(i, value) for i, value in enumerate(values)]
    names = list(decoder.decode(records[:1]).vectors[0])
    outputs = [AssignmentOutput(f"events-0-{i}", i % 9, 0.75, 1.5, 3, 2, None, None) for i in range(n)]
    encode(outputs[0])
    service = Service(
        MemorySource({("events", 0): records}), ListSink(("assignments",)), StreamClusterer(), decoder=decoder,
        policy=Policy(poll=0.0, encoders={"assignments": encode}),
    )  # fmt: skip
    return {
        "read": spent(lambda: decoder.decode(records, names), n),
        "write": spent(lambda: list(map(encode, outputs)), n),
        "service": spent(service.run, n),
    }


def main() -> None:
    """Measure all formats in turn, several times, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    n, repeats = (20_000, 3) if given.quick else (given.events, given.repeats)
    table = SyntheticMixture(given.features, n_clusters=8, tau=3.0, seed=1).sample(n)[0].round(6).tolist()
    rows = [{f"x{i}": x for i, x in enumerate(row)} for row in table]
    with tempfile.TemporaryDirectory() as directory:
        registry = RealRegistry(Path(directory)).start()
        try:
            values = {format: messages(format, registry.url, rows) for format in FORMATS}
            found = defaultdict(list)
            for repeat in range(repeats + 1):  # the first compiles, and asks the registry
                for i in range(len(FORMATS)):
                    format = FORMATS[(i + repeat) % len(FORMATS)]
                    cost = measure(format, registry.url, values[format] if repeat else values[format][:2000])
                    if repeat:
                        found[format].append(cost)
        finally:
            registry.stop()
    print(
        f"{n:,} events of {given.features} features, {repeats} repeats; µs of CPU for each event: median (range)\n"
    )
    print(
        "| format | bytes of an event | reading | writing an assignment | the service |\n|---|---|---|---|---|"
    )
    for format in FORMATS:
        size = np.mean([len(value) for value in values[format]])
        cells = (np.array([cost[stage] for cost in found[format]]) for stage in STAGES)
        told = (f"{np.median(cell):.1f} ({cell.min():.1f} to {cell.max():.1f})" for cell in cells)
        print(f"| {format} | {size:.0f} | " + " | ".join(told) + " |")


if __name__ == "__main__":
    main()
