"""Wide events that wait for a sketch or are kept to judge it: their state, and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from streamclust.checkpoint.validation import check_array
from streamclust.engine.event_rows import stacked_rows
from streamclust.engine.projection import Projection
from streamclust.engine.wide_events import Block, joined_blocks
from streamclust.sketch import Rows
from streamclust.utils.late import csr_array, issparse
from streamclust.utils.state import Arrays, State, under


def pack_projection(door: Projection, arrays: Arrays, waiting: bool = True) -> dict[str, Any]:
    """Pack the events that wait and the counts: arrays go into `arrays`, the rest is returned.

    Not `waiting`: without the events that wait.
    """
    if door.recent.rows:
        pack_rows(stacked_rows(door.recent.rows).astype(np.float32), "door.recent.", arrays)
        arrays["door.recent.residual"] = door.recent.residual.copy()
    return {
        "stage": door.stage,
        "width": door.width,
        "n_learnt": door.n_learnt,
        "recent": door.recent.count,
        "judged_from": door.judged_from,
        "waiting": pack_waiting(door.waiting if waiting else [], "door.", arrays),
    }


def unpack_projection(door: Projection, state: State) -> None:
    """Restore what `pack_projection` packed."""
    values = state.values.get("door")
    if values is None:  # an older checkpoint: nothing was reduced
        door.stage = "plain" if door.engine.n_seen else "new"
        return
    door.stage, door.width, door.n_learnt = values["stage"], values["width"], values["n_learnt"]
    door.judged_from = values.get("judged_from", 0)  # older checkpoints do not have it
    door.waiting = unpack_waiting(values["waiting"], under(state.arrays, "door."))
    if values["recent"]:
        arrays = under(state.arrays, "door.recent.")
        rows = unpack_rows(arrays)
        check_array("residual of recent events", arrays["residual"], door.recent.residual.shape)
        door.recent.residual[:] = arrays["residual"]
        door.recent.rows = [rows[i : i + 1] for i in range(rows.shape[0])]
        door.recent.count = values["recent"]


def pack_waiting(waiting: Sequence[Block], prefix: str, arrays: Arrays) -> list[Hashable]:
    """Events that wait: their arrays go into `arrays`, the shard of each block comes back."""
    blocks = joined_blocks(waiting)
    for i, block in enumerate(blocks):
        pack_rows(block.rows, f"{prefix}waiting{i}.", arrays)
        arrays[f"{prefix}waiting{i}.weight"] = block.weight
        arrays[f"{prefix}waiting{i}.time"] = block.time
    return [block.shard for block in blocks]


def unpack_waiting(shards: Sequence[Hashable], arrays: Arrays) -> list[Block]:
    """Restore what `pack_waiting` packed; JSON has turned tuples into lists."""
    found = []
    for i, shard in enumerate(shards):
        parts = under(arrays, f"waiting{i}.")
        key = tuple(shard) if isinstance(shard, list) else shard
        found.append(Block(unpack_rows(parts), parts["weight"], parts["time"], key))
    return found


def waiting_of(state: State, key: Hashable) -> list[Block]:
    """The events of a shard that wait in a saved clusterer."""
    values = state.values.get("door")
    found = [] if values is None else unpack_waiting(values["waiting"], under(state.arrays, "door."))
    return [block for block in found if block.shard == key]


def pack_rows(rows: Rows, prefix: str, arrays: Arrays) -> None:
    """Dense or sparse rows into `arrays`."""
    if issparse(rows):
        for name in ("data", "indices", "indptr"):
            arrays[prefix + name] = getattr(rows, name)
        arrays[prefix + "shape"] = np.array(rows.shape)
    else:
        arrays[prefix + "rows"] = rows


def unpack_rows(arrays: Arrays) -> Rows:
    """Restore rows that `pack_rows` packed."""
    if "rows" in arrays:
        return arrays["rows"]
    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    rows = csr_array(parts, shape=tuple(arrays["shape"].tolist()))
    rows.check_format(full_check=True)
    return rows
