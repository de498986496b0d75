"""Commands snapshot ls, show and export: hierarchies from checkpoints and from outputs of a service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import examples, results

if TYPE_CHECKING:
    from streamclust.hierarchy import Dendrogram, MethodName
    from streamclust_connectors.decode.fields import Json

app = typer.Typer(no_args_is_help=True, help="List, show and export hierarchies.")

FORMATS = {".json": "json", ".nwk": "newick", ".newick": "newick", ".npy": "linkage", ".png": "png"}

Origin = Annotated[
    Path,
    typer.Argument(
        exists=True,
        help="A checkpoint, a snapshot (.json), outputs of a service (.jsonl), or a directory of such files.",
    ),
]
Which = Annotated[
    int, typer.Option("--index", "-n", help="Index of the hierarchy, as printed by ls; -1 for the latest.")
]
Method = Annotated[str, typer.Option(help="rbhc, abc or bhc; only used for a checkpoint.")]
Cut = Annotated[
    int | None, typer.Option("--clusters", "-k", min=1, help="Number of clusters to cut the hierarchy into.")
]


@dataclass(frozen=True)
class StoredHierarchy:
    """A hierarchy in a file: stored, or built from a checkpoint on demand."""

    name: str
    kind: str
    events: int | None
    version: int | None
    features: list[Any]
    build: Callable[[MethodName], Dendrogram]
    """Builds the hierarchy by a method, if it is not stored."""


@app.command(epilog=examples("streamclust snapshot ls state/0", "streamclust snapshot ls found.jsonl"))
def ls(path: Origin) -> None:
    """List hierarchies."""
    from streamclust_connectors.cli.tables import table

    rows = [(i, f.kind, f.events, f.version, f.name) for i, f in enumerate(found_in(path))]
    results().print(table(None, ("index", "kind", "events", "version", "name"), rows))


@app.command(
    epilog=examples(
        "streamclust snapshot show events.csv.checkpoint", "streamclust snapshot show state/0 -k 4"
    )
)
def show(path: Origin, index: Which = -1, method: Method = "rbhc", k: Cut = None) -> None:
    """Print the clusters of a hierarchy, and the merges above them."""
    from streamclust_connectors.cli.tables import counted, mean, table

    found = chosen(path, index)
    tree = built(found, method)
    nodes = tree.cut_nodes(checked(tree, k)) if k is not None or tree.stop is not None else tree.cut_nodes(1)
    total = float(tree.leaves.weight.sum())
    names = [str(name) for name in found.features] or [str(i) for i in range(tree.leaves.n_features)]
    rows = [
        (
            int(node),
            None if tree.ids[node] < 0 else int(tree.ids[node]),
            f"{tree.weight[node] / total:.1%}",
            int(tree.count[node]),
            mean(dict(zip(names, tree.moments.mean[node].tolist(), strict=False))),
        )
        for node in sorted(nodes.tolist(), key=lambda node: -tree.weight[node])
    ]
    console = results()
    title = f"{counted(len(nodes), 'cluster')} of {tree.n_leaves} leaves, {tree.method}: {found.name}"
    console.print(table(title, ("node", "id", "share", "leaves", "mean"), rows))
    n, merges = tree.n_leaves, range(len(tree.cost) - 1, max(-1, len(tree.cost) - len(nodes)), -1)
    above = [(int(a), int(b), n + t, float(tree.cost[t])) for t in merges for a, b in [tree.children[t]]]
    if above:
        console.print(table("merges above them", ("node", "with", "make", "at a cost of"), above))


@app.command(
    epilog=examples(
        "streamclust snapshot export events.csv.checkpoint tree.png",
        "streamclust snapshot export state/0 tree.nwk --method abc",
        "streamclust snapshot export found.jsonl linkage.npy --index 0",
    )
)
def export(
    path: Origin,
    output: Annotated[
        Path, typer.Argument(help="File to write: .json, .nwk, .npy (SciPy's linkage) or .png.")
    ],
    index: Which = -1,
    method: Method = "rbhc",
    k: Cut = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="json, newick, linkage or png; by default from OUTPUT's name."),
    ] = None,
) -> None:
    """Write a hierarchy for other tools."""
    written_as = form or FORMATS.get(output.suffix.lower(), "")
    if written_as not in FORMATS.values():
        raise typer.BadParameter(
            f"unknown format {form or output.name!r}; use .json, .nwk, .npy or .png, or give --format"
        )
    tree = built(chosen(path, index), method)
    write(tree, output, written_as, k)
    typer.echo(f"{tree!r} -> {output}")


def write(tree: Dendrogram, output: Path, form: str, k: int | None) -> None:
    """Write a hierarchy in one of the formats."""
    if form == "json":
        output.write_text(json.dumps(tree.to_dict()) + "\n")
    elif form == "newick":
        output.write_text(tree.to_newick() + "\n")
    elif form == "linkage":
        import numpy as np

        linkage = tree.to_linkage()
        with output.open("wb") as file:
            np.save(file, linkage)
    else:
        try:
            import matplotlib as mpl
        except ImportError:
            raise ImportError("a plot needs matplotlib; run: pip install 'streamclust[plots]'") from None
        mpl.use("agg")
        from matplotlib import pyplot

        tree.plot(k=checked(tree, k))
        pyplot.savefig(output, dpi=150, format="png")
        pyplot.close()


def checked(tree: Dendrogram, k: int | None) -> int | None:
    """The number of clusters, checked against the size of the tree."""
    if k is not None and k > tree.n_leaves:
        raise typer.BadParameter(
            f"must be at most the number of leaves, {tree.n_leaves}; got {k}", param_hint="--clusters"
        )
    return k


# -------------------------------------------------------------------- finding


def chosen(path: Path, index: int) -> StoredHierarchy:
    """The hierarchy at an index; negative indices count from the newest."""
    found = list(found_in(path))
    if not found:
        raise BadData(f"{path} contains no checkpoint and no snapshot")
    if not -len(found) <= index < len(found):
        raise typer.BadParameter(
            f"must be between {-len(found)} and {len(found) - 1}, got {index}", param_hint="--index"
        )
    return found[index]


def built(found: StoredHierarchy, method: str) -> Dendrogram:
    """Build a hierarchy, with a status line: it may take a moment for a checkpoint."""
    from streamclust_connectors.cli.options import messages

    if method not in ("rbhc", "abc", "bhc"):
        raise typer.BadParameter(f"must be rbhc, abc or bhc, got {method!r}", param_hint="--method")
    with messages().status("building the hierarchy"):
        return found.build(cast("MethodName", method))


def found_in(path: Path) -> Iterator[StoredHierarchy]:
    """Hierarchies of a file, or of all files of a directory, in order of their names."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix in (".checkpoint", ".json", ".jsonl") and "partitions" not in file.parts:
                yield from found_in(file)
    elif path.suffix == ".json":
        yield from stored(path, read_json(path, path.read_bytes()))
    elif path.suffix in (".jsonl", ".ndjson"):
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if b'"dendrogram"' in line:
                    yield from stored(path, read_json(path, line), f"{path}:{number}")
    else:
        yield from checkpointed(path)


def read_json(path: Path, content: bytes) -> Json:
    """Parse the JSON of a snapshot."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise BadData(f"{path} is not JSON: {error}") from None


def stored(path: Path, content: Json, name: str | None = None) -> Iterator[StoredHierarchy]:
    """A snapshot as a service sends it, or a hierarchy alone; nothing for any other JSON."""
    if not isinstance(content, dict) or not ("dendrogram" in content or "children" in content):
        return
    tree = content.get("dendrogram", content)

    def build(_: MethodName) -> Dendrogram:
        from streamclust.hierarchy import Dendrogram

        bare = (
            {"scatter": [[] for _ in tree["weight"]], "kind": "none"} if tree.get("scatter") is None else {}
        )
        try:
            return Dendrogram.from_dict(tree | bare)
        except ValueError as error:
            raise BadData(f"{name or path}: {error}") from None

    features = content.get("features", [])
    yield StoredHierarchy(
        name or str(path), "snapshot", content.get("events"), content.get("version"), features, build
    )


def checkpointed(path: Path) -> Iterator[StoredHierarchy]:
    """A checkpoint, whose hierarchy is built when asked for."""
    from streamclust.checkpoint import read
    from streamclust.streaming import StreamClusterer

    state = read(path)
    version = state.values.get("model", {}).get("version")
    names = state.values.get("schema", {}).get("names", [])

    def build(method: MethodName) -> Dendrogram:
        model = StreamClusterer.from_state(state)
        if not model.n_seen:
            raise BadData(f"{path} has no hierarchy: it has learnt no events")
        return model.snapshot(method)

    yield StoredHierarchy(str(path), "checkpoint", state.values.get("n_seen"), version, names, build)
