"""A summary tree as arrays: its settings beside the arrays of its storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamclust._kernels.tree.arrays import Tree
from streamclust.tree import storage
from streamclust.tree.rows import check_links, check_shapes, whole_number

PREFIX = "setting_"
"""Of the names of arrays that hold a setting."""


def packed(tree: Tree, settings: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Copies of the storage's arrays, and an array for each setting; None becomes -1, and ∞ for a half-life."""
    arrays = {name: value.copy() for name, value in tree._asdict().items()}
    for name, value in settings.items():
        absent = np.inf if name == "half_life" else -1
        arrays[PREFIX + name] = np.array(absent if value is None else value)
    return arrays


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> tuple[Tree, dict[str, Any]]:
    """The storage and the settings of a tree, checked; ValueError if the arrays are not one."""
    check_shapes(arrays)
    tree = storage.from_arrays(arrays)
    check_links(tree)
    try:
        found = {name[len(PREFIX) :]: a.item() for name, a in arrays.items() if name.startswith(PREFIX)}
        return tree, {
            "scatter": found["scatter"],
            "max_leaves": None if found["max_leaves"] == -1 else found["max_leaves"],
            "split": found["split"],
            "half_life": None if found["half_life"] == np.inf else found["half_life"],
            "seed": found["seed"],
            "timed": None if found["timed"] == -1 else bool(found["timed"]),
            "draws": whole_number("draws", found["draws"], least=0),
        }
    except KeyError as missing:
        raise ValueError(f"not a summary tree: setting {missing} is missing") from None
    except ValueError as wrong:
        raise ValueError(f"not a summary tree: {wrong}") from None
