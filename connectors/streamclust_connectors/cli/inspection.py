"""Command inspect: prints the content of a checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import examples, results

if TYPE_CHECKING:
    from streamclust.checkpoint import State

app = typer.Typer()

MAX_SHOWN_CHANGES = 5
"""Number of lifecycle events shown."""


@app.command(
    epilog=examples("streamclust inspect state/0", "streamclust inspect events.csv.checkpoint --json")
)
def inspect(
    checkpoint: Annotated[
        Path,
        typer.Argument(exists=True, help="A checkpoint, or a directory whose latest checkpoint is used."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the content of a checkpoint: events, clusters or features, lifecycle events, positions of the source."""
    from streamclust.checkpoint import read

    path = latest(checkpoint) if checkpoint.is_dir() else checkpoint
    state = read(path)
    found = summary(path, state)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from streamclust_connectors.cli import tables

    console = results()
    lifecycle = found.pop("lifecycle")
    positions, parameters = found.pop("positions"), found.pop("parameters", {})
    rows = [(name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in found.items()]
    rows.append(("settings", ", ".join(f"{n}={v}" for n, v in parameters.items())))
    rows.append(("positions", json.dumps(positions)))
    console.print(tables.facts(str(path), rows))
    if found["kind"] == "features":
        from streamclust.streaming import StreamFeatures

        console.print(tables.features(StreamFeatures.from_state(state)))
    elif "parameters" in state.values:
        from streamclust.streaming import StreamClusterer

        console.print(tables.clusters(StreamClusterer.from_state(state)))
    if "parameters" in state.values:
        from streamclust.lineage import Change

        for change in lifecycle["latest"]:
            console.print(f"  {Change.from_dict(change)!r}", markup=False)


def n_shown(model: dict[str, Any]) -> int:
    """Number of clusters of the level on show of a saved model."""
    ids, hidden = model.get("ids", []), set(model.get("hidden", []))
    shown = model.get("shown_ids") or ids
    return len({group for group, cluster in zip(shown, ids, strict=True) if cluster not in hidden})


def latest(directory: Path) -> Path:
    """The newest checkpoint below a directory."""
    files = sorted(directory.rglob("*.checkpoint"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise BadData(f"there is no checkpoint in {directory}")
    return files[-1]


def summary(path: Path, state: State) -> dict[str, Any]:
    """Summary of a checkpoint."""
    from streamclust.checkpoint import FORMAT

    values = state.values
    lineage = values.get("level", {}).get("lineage") or values.get("lineage", {})
    log = lineage.get("log", [])
    return {
        "kind": values.get("kind", "clusterer" if "parameters" in values else "one partition, handed over"),
        "format": FORMAT,
        "library": values.get("library"),
        "bytes": path.stat().st_size,
        "events": values.get("n_seen"),
        "refused": values.get("n_refused", 0),
        "refits": values.get("n_refits"),
        "version": values.get("model", {}).get("version"),
        "clusters": n_shown(values.get("model", {})),
        "features": values.get("schema", {}).get("names", []),
        "parts": [f"{part['key']}: {part['n_seen']} events" for part in values.get("shards", [])],
        "lifecycle": {
            "counts": Counter(change["kind"] for change in log),
            "latest": log[-MAX_SHOWN_CHANGES:],
        },
        "positions": values.get("positions", values.get("next", {})),
        "parameters": values.get("parameters", {}),
    }
