"""Writes the JSON Schemas of the service's outputs to docs/schemas: python docs/_site/schemas.py."""

import json
from pathlib import Path
from typing import Any

import msgspec

from streamclust_connectors import output_records

SCHEMAS = Path(__file__).parents[1] / "schemas"
RECORDS = {
    "assignment": output_records.AssignmentOutput,
    "features": output_records.FeaturesOutput,
    "lifecycle": output_records.LifecycleOutput,
    "lifecycle-row": output_records.LifecycleRow,
    "refusal": output_records.RefusalOutput,
    "snapshot": output_records.SnapshotOutput,
}


def published_schemas() -> dict[str, Any]:
    """JSON Schema of each output, by the name of its file."""
    return {name: _schema(record) for name, record in RECORDS.items()}


def _schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    whole = msgspec.json.schema(record)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | whole["$defs"][record.__name__]


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for name, schema in published_schemas().items():
        (SCHEMAS / f"{name}.json").write_text(json.dumps(schema, indent=2) + "\n")
