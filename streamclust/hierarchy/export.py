"""Hierarchies in other formats. Loops, not recursion: trees can be as deep as they have leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments

if TYPE_CHECKING:
    from networkx import DiGraph

RESERVED = set(" \t\n()[]{}':;,\"")


def leaf_names(names: Sequence[str] | None, n: int) -> list[str]:
    """A name for each leaf, quoted as Newick asks where it holds reserved characters."""
    if names is None:
        return [str(i) for i in range(n)]
    if len(names) != n:
        raise ValueError(f"{n} leaves need as many names, got {len(names)}")
    plain = [str(name) for name in names]
    return ["'" + s.replace("'", "''") + "'" if not s or RESERVED & set(s) else s for s in plain]


def newick(children: Ints, height: Floats, names: list[str]) -> str:
    """Newick's format, branches as long as the heights differ."""
    n = len(names)
    level = np.concatenate([np.zeros(n), height])
    parts: list[str] = []
    stack: list[tuple[int, str]] = [(2 * n - 2, ";")]
    while stack:
        node, after = stack.pop()
        if node < 0:
            parts.append(after)
        elif node < n:
            parts.append(names[node] + after)
        else:
            left, right = (int(child) for child in children[node - n])
            parts.append("(")
            stack.append((-1, ")" + after))
            stack.append((right, f":{level[node] - level[right]:g}"))
            stack.append((left, f":{level[node] - level[left]:g},"))
    return "".join(parts)


def networkx_graph(
    children: Ints, height: Floats, weight: Floats, ids: Ints, names: Mapping[int, str]
) -> DiGraph:
    """A networkx.DiGraph from parents to children."""
    try:
        networkx = import_module("networkx")
    except ImportError:
        raise ImportError("to_networkx needs networkx; install it, or use to_dict") from None
    graph = networkx.DiGraph()
    for node in range(len(weight)):
        cluster = int(ids[node])
        known: dict[str, Any] = {} if cluster < 0 else {"id": cluster}
        known |= {"name": names[cluster]} if cluster in names else {}
        graph.add_node(node, weight=float(weight[node]), height=float(height[node]), **known)
    n = len(children) + 1
    graph.add_edges_from((n + t, int(child)) for t, pair in enumerate(children) for child in pair)
    return graph


def read(stored: dict[str, Any]) -> dict[str, Any]:
    """The fields of a Dendrogram from its stored form, checked."""
    try:
        weight = np.asarray(stored["weight"], dtype=float)
        n = len(weight)
        mean = np.asarray(stored["mean"], dtype=float).reshape(n, -1)
        flat = np.asarray(stored["scatter"], dtype=float).reshape(n, -1) if n else np.zeros((0, 0))
        leaves = Moments.from_flat(weight, mean, flat, stored["kind"])
        fields: dict[str, Any] = {
            "children": np.asarray(stored["children"], dtype=np.int64).reshape(-1, 2),
            "cost": np.asarray(stored["cost"], dtype=float),
            "height": np.asarray(stored["height"], dtype=float),
            "ids": np.asarray(stored["ids"], dtype=np.int64),
            "source": np.asarray(stored["source"], dtype=np.int64),
            "leaves": leaves,
            "stop": None if stored["stop"] is None else int(stored["stop"]),
            "method": str(stored["method"]),
            "names": {int(i): str(name) for i, name in stored.get("names", ())},
        }
    except (KeyError, TypeError, ValueError) as wrong:
        raise ValueError(f"not a stored dendrogram: {wrong!r}") from None
    lengths = {"children": n - 1, "cost": n - 1, "height": n - 1, "ids": 2 * n - 1, "source": n}
    for name, length in lengths.items():
        if len(fields[name]) != length:
            raise ValueError(
                f"not a stored dendrogram: {n} leaves need {length} {name}, got {len(fields[name])}"
            )
    below = n + np.arange(n - 1)[:, None]
    each = np.sort(fields["children"], axis=None)
    if np.any(fields["children"] >= below) or not np.array_equal(each, np.arange(2 * n - 2)):
        raise ValueError("not a stored dendrogram: every node but the root must be the child of a later one")
    return fields
