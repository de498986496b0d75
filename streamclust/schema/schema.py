"""Schema: names of features <-> columns of rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats
from streamclust.parameters import MAX_UNREDUCED_FEATURES, Missing
from streamclust.schema.cells import (
    NOTHING_INVALID,
    Cells,
    Columns,
    dense_row,
    plain_row,
    table_of,
    values_getter,
)
from streamclust.schema.names import (
    check_name,
    in_order,
    json_name,
    missing_feature,
    name_order,
    new_feature,
    not_a_table,
)
from streamclust.utils.late import issparse
from streamclust.utils.values import (
    check_choice,
    check_magnitude,
    check_table_kind,
    floats_as_they_are,
    is_numeric,
    shown,
    to_number,
    to_numbers,
)

if TYPE_CHECKING:
    from narwhals.stable.v2 import DataFrame


Sparse = Any
"""A sparse matrix or array of SciPy."""


class Schema:
    """The features of a stream, in the order in which they first appeared.

    `missing="impute"` and `missing="zero"` take events that lack features or bring new ones: rows hold NaN for what is
    missing, and whoever reads them fills it in. `missing="error"` refuses both once the features are known, from
    `names` or from the first event. Past `max_features` a new feature is refused, and past `max_grown` in a stream that
    did not begin with more. Features that first appear in the
    same event get columns in this `order`, those not in it after them. `lenient`: a value that is no number, or too
    large, is missing, and `Cells.invalid` names it; else it is an error.

    >>> Schema(order=["y", "x"]).row({"a": 0.0, "x": 1.0, "y": 2.0})
    array([2., 1., 0.])
    >>> strict = Schema(["x", "y"], missing="error")
    >>> strict
    Schema(names=['x', 'y'], missing='error')
    >>> strict.row({"y": 2, "x": 1})
    array([1., 2.])
    >>> strict.row({"x": 1})
    Traceback (most recent call last):
        ...
    ValueError: feature 'y' is missing, which missing="error" forbids; use missing="impute" or "zero" to allow it
    """

    def __init__(
        self,
        names: Iterable[Hashable] | None = None,
        missing: Missing = "impute",
        max_features: int | None = None,
        order: Sequence[Hashable] | None = None,
        max_grown: int | None = None,
        lenient: bool = False,
    ) -> None:
        check_choice("missing", missing, get_args(Missing))
        if isinstance(names, (str, bytes, AbstractSet)):
            raise TypeError(f"names must be a list, whose order is that of the columns, got {shown(names)}")
        listed = list(names or ())
        for name in listed:
            if not isinstance(name, Hashable):
                raise TypeError(f"the name of a feature must be hashable, got {shown(name)}")
        self.missing: Missing = missing
        self.max_features = max_features
        self.max_grown = max_grown
        self.lenient = lenient
        self.order = tuple(order or ())
        self._place = {name: i for i, name in enumerate(self.order)}
        self.adopt({name: column for column, name in enumerate(dict.fromkeys(listed))})
        if len(self) < len(listed):
            repeated = next(name for name in listed if listed.count(name) > 1)
            raise ValueError(f"names must differ from each other, got {repeated!r} more than once")

    def adopt(self, columns: Columns) -> None:
        """Add the new features that `cells` found."""
        # All are replaced, never changed in place, and no reader needs two of them: a thread that predicts
        # meanwhile sees the schema as it was before or as it is after.
        self._columns = columns
        self._names = tuple(columns)
        self.values_of = values_getter(self._names)

    def with_names(self, names: Iterable[Hashable]) -> Schema:
        """A copy with these features."""
        twin = copy(self)
        twin.adopt({name: column for column, name in enumerate(names)})
        return twin

    def strict(self) -> Schema:
        """A copy for which a value that is no number is an error."""
        twin = copy(self)
        twin.lenient = False
        return twin

    def take(self, cells: Cells) -> None:
        """Have the features that an event brings."""
        if cells.columns is not self._columns:
            self.adopt(cells.columns)

    # ---------------------------------------------------------------- reading

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The features, in the order of their columns."""
        return self._names

    @property
    def columns(self) -> Columns:
        """The column of each feature."""
        return self._columns

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self._names == other._names and self.missing == other.missing

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self._names[:10])) + (", ..." if len(self) > 10 else "")
        return f"Schema(names=[{shown}], missing={self.missing!r})"

    def column(self, name: Hashable) -> int:
        """Look up the column of a feature."""
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f"no feature {name!r} has been seen; the schema is {self!r}") from None

    def mapping(self, row: ArrayLike) -> dict[Hashable, float]:
        """Name the values of a row; one made before the last features appeared has only the earlier ones.

        >>> Schema(["x", "y"]).mapping([1.0, 2.0])
        {'x': 1.0, 'y': 2.0}
        """
        values = np.asarray(row, dtype=float)
        if values.ndim != 1 or len(values) > len(self):
            raise ValueError(f"a row has at most {len(self)} values, got an array of shape {values.shape}")
        return dict(zip(self._names, values.tolist(), strict=False))

    # ---------------------------------------------------------------- one event

    def row(self, x: Mapping[Any, Any], extend: bool = True) -> Floats:
        """Turn one event into a row. With `extend=False` (prediction) new features are ignored, not added."""
        plain = self.plain_row(x)
        if plain is not None:
            return plain
        cells = self.cells(x, extend)
        if cells.columns is not self._columns:
            self.adopt(cells.columns)
        return dense_row(cells)

    def plain_row(self, x: object) -> Floats | None:
        """Row of an event that has exactly the known features, all plain numbers up to MAX_MAGNITUDE; else None."""
        return plain_row(x, self.values_of)

    def cells(self, x: Mapping[Any, Any], extend: bool = True) -> Cells:
        """Parse one event; its new features join the schema only by `adopt`."""
        return self._read(x, self._columns, extend)

    def _read(self, x: Mapping[Any, Any], columns: Columns, extend: bool, where: str = "") -> Cells:
        if not isinstance(x, Mapping):
            raise TypeError(
                f"{where}an event must map features to numbers, as {{'x': 1.0}} does, "
                f"got {shown(x)} ({type(x).__name__})"
            )
        strict = self.missing == "error"
        settled, known = len(columns) > 0, columns
        at: list[int] = []
        values: list[float] = []
        invalid: dict[Hashable, str] = {}
        for name, value in in_order(x, columns, self._new_order):
            column = columns.get(name)
            if column is None and (extend or strict):
                check_name(name, where)
            if column is None and strict and settled:
                raise new_feature(name, where)
            if column is None and not extend:
                continue
            number = self._number(name, value, where, invalid)
            if math.isnan(number):
                if strict:
                    raise missing_feature(name, where)
                continue
            if column is None:
                if columns is known:
                    columns = dict(known)
                column = self._new_column(name, columns, len(known), where)
            at.append(column)
            values.append(number)
        if strict and settled and len(x) < len(columns):
            raise missing_feature(next(name for name in columns if name not in x), where)
        return Cells(at, values, columns, invalid or NOTHING_INVALID)

    def _number(self, name: Hashable, value: object, where: str, invalid: dict[Hashable, str]) -> float:
        """The value as a number, NaN if it is missing; where that is allowed, one that cannot be read is `invalid`."""
        if not self.lenient:
            return to_number(name, value, where)
        try:
            return check_magnitude(name, to_number(name, value, where))
        except (TypeError, ValueError) as error:
            invalid[name] = str(error)
            return math.nan

    def _new_column(self, name: Hashable, columns: Columns, known: int, where: str = "") -> int:
        """Assign the next column to a new feature, or refuse it; `known`: how many there were before its event."""
        grown = self.max_grown is not None and 0 < known <= self.max_grown
        most = self.max_grown if grown else self.max_features
        if most is not None and len(columns) >= most:
            raise ValueError(
                f"{where}feature {shown(name)} is one too many: max_features allows {most}; raise it if "
                "memory allows, leave out names that never end (ids, dates), or hash or project features into fewer "
                "columns first"
            )
        return columns.setdefault(name, len(columns))

    # ---------------------------------------------------------------- many events

    def table(self, data: object, extend: bool = True, copy: bool = True) -> Floats:
        """Rows of many events: a list of mappings, a frame (pandas, polars, pyarrow) or a numpy table.

        Columns of a frame are matched by name. Those of a numpy table are the schema's, in its order; they
        name themselves 0, 1, 2, ... where the schema is still empty. Either all rows are taken or none. Not `copy`: a
        wide array of finite floats comes back as it is, perhaps of single precision.

        >>> Schema().table(np.array([[1, 2], [3, 4]]))
        array([[1., 2.],
               [3., 4.]])
        """
        if isinstance(data, np.ndarray):
            return self._read_array(data, extend, copy)
        if issparse(data):
            return self._read_array(cast(Any, data).toarray(), extend)
        if isinstance(data, (str, bytes, Mapping)):
            raise TypeError(not_a_table(data))
        check_table_kind(data)
        if not isinstance(data, Sequence):
            from river.utils.dataframe import into_frame  # slow to import, and only for frames

            try:
                frame = into_frame(cast(Any, data))
            except TypeError:
                if not isinstance(data, Iterable):
                    raise TypeError(not_a_table(data)) from None
            else:
                return self._read_frame(frame, extend)
        return self._read_events(data, extend)

    def _read_events(self, events: Iterable[Mapping[Any, Any]], extend: bool) -> Floats:
        rows = self.read_events(events, extend)
        return table_of(rows, len(self))

    def read_events(self, events: Iterable[Mapping[Any, Any]], extend: bool = True) -> list[Floats | Cells]:
        """Read many events, each as a row or as cells: all of them or, if one is refused, none."""
        columns, values = self._columns, self.values_of
        rows: list[Floats | Cells] = []
        for i, x in enumerate(events):
            row: Floats | Cells | None = plain_row(x, values)
            if row is None:
                row = self._read(x, columns, extend, f"row {i}: ")
                if len(row.columns) > len(columns):
                    columns = row.columns
                    values = values_getter(tuple(columns))
            rows.append(row)
        if columns is not self._columns:
            self.adopt(columns)
        return rows

    def read_sparse(self, matrix: Sparse) -> list[Floats | Cells]:
        """Read the rows of a sparse table, with the columns of a numpy table, at the cost of the values it holds."""
        rows = matrix.tocsr()
        names = self._columns_of(rows.shape[1])
        values = self.sparse_values(rows).tolist()
        if not len(self):
            self.adopt({name: column for column, name in enumerate(names)})
        indices, edges = rows.indices.tolist(), rows.indptr.tolist()
        parts = ((indices[a:b], values[a:b]) for a, b in pairwise(edges))
        return [
            Cells(at or [0], found or [0.0], self._columns) for at, found in parts
        ]  # a row of zeros is an event

    def sparse_values(self, matrix: Sparse) -> Floats:
        """The values that a sparse table of the schema's columns holds, as numbers."""
        names = self._columns_of(matrix.shape[1])
        return to_numbers(names[:1], np.asarray(matrix.data)[:, None])[:, 0]

    def _columns_of(self, width: int) -> tuple[Hashable, ...]:
        """The names of the columns of a table of this width: those known, or else 0, 1, 2, ..."""
        if len(self) and width != len(self):
            raise ValueError(
                f"the schema has {len(self)} features, the array has {width} columns; give it as many, "
                "or name its columns (a frame or a list of mappings)"
            )
        columns: Columns = dict(self._columns)
        if not columns:
            # Position is the only name these columns have: one counts as seen even before its first number.
            for name in range(width):
                self._new_column(name, columns, known=0)
        return tuple(columns)

    def _read_array(self, array: np.ndarray[Any, Any], extend: bool, copy: bool = True) -> Floats:
        if array.ndim != 2:
            raise ValueError(
                f"a table needs rows and columns, got an array of shape {array.shape}; "
                "use .reshape(1, -1) for one event, .reshape(-1, 1) for one feature"
            )
        if not len(self) and not extend:
            return np.empty((len(array), 0))
        names = self._columns_of(array.shape[1])
        kept = not copy and len(names) > MAX_UNREDUCED_FEATURES and floats_as_they_are(array)
        table = array if kept else to_numbers(names, array)
        self._refuse_holes(names, table)
        if not len(self):
            self.adopt({name: column for column, name in enumerate(names)})
        return table

    def _read_frame(self, frame: DataFrame[Any], extend: bool) -> Floats:
        strict = self.missing == "error" and len(self) > 0 and len(frame) > 0
        if strict:
            for new in frame.columns:
                if new not in self._columns:
                    raise new_feature(new)
            for known in self._names:
                if known not in frame.columns:
                    raise missing_feature(known)
        columns = dict(self._columns)
        found: dict[Hashable, Floats] = {}
        for series in frame.iter_columns():
            if extend and series.name not in columns:
                check_name(series.name)
            if extend or series.name in columns:
                values = series.to_numpy()
                listed = values[:, None] if is_numeric(values) else [[v] for v in series.to_list()]
                found[series.name] = to_numbers((series.name,), listed)[:, 0]
                self._refuse_holes((series.name,), found[series.name][:, None])
        first = {name: int(np.isnan(v).argmin()) for name, v in found.items() if not np.isnan(v).all()}
        # The order in which reading event by event would meet them: by row, within a row as those of one event.
        for name in sorted(first, key=lambda name: (first[name], self._new_order(name))):
            if name not in columns:
                self._new_column(name, columns, len(self))
        table = np.full((len(frame), len(columns)), np.nan)
        for name, values in found.items():
            if name in columns:
                table[:, columns[name]] = values
        if len(columns) > len(self):
            self.adopt(columns)
        return table

    def _new_order(self, name: Hashable) -> tuple[int, tuple[str, Any]]:
        """Sort key of features that first appear in the same event."""
        return self._place.get(name, len(self._place)), name_order(name)

    def _refuse_holes(self, names: Sequence[Hashable], table: Floats) -> None:
        if self.missing == "error" and np.isnan(table).any():
            i, column = np.argwhere(np.isnan(table))[0]
            raise missing_feature(names[column], f"row {i}: ")

    # ---------------------------------------------------------------- saving

    def to_dict(self) -> dict[str, Any]:
        """Write the schema as JSON can hold it; names must be text or integers, which alone survive there.

        >>> Schema(["x", 3]).to_dict()
        {'names': ['x', 3], 'missing': 'impute'}
        """
        return {"names": [json_name(name) for name in self._names], "missing": self.missing}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        """Read what `to_dict` wrote."""
        if set(state) - {"fields"} != {"names", "missing"}:
            raise ValueError(f"a saved schema holds 'names' and 'missing', got {sorted(map(str, state))}")
        return cls([json_name(name) for name in state["names"]], state["missing"])
