"""Schema: names of features <-> columns of rows.

Events come as mappings, tables and frames; everything behind this door sees rows of float64. A value that
is absent, None or NaN is missing: the three mean the same, and the row holds NaN. A feature gets a column
with its first number, after the columns already there; features that appear in the same event stand in the order
of their names, so that the order within an event means nothing. So earlier events count as missing it, and an
older row is the beginning of a newer one.

>>> schema = Schema()
>>> schema.row({"x": 1, "y": 2.5})
array([1. , 2.5])
>>> schema.row({"z": 3.0, "x": None})
array([nan, nan,  3.])
>>> schema.names
('x', 'y', 'z')

Prediction reads the known features and never writes:

>>> schema.row({"y": 7.0, "colour": 4.0}, extend=False)
array([nan,  7., nan])
>>> schema.table([{"z": 1.0, "y": 2.0}, {"x": 3.0}])
array([[nan,  2.,  1.],
       [ 3., nan, nan]])

What is not a number is refused before anything is written:

>>> schema.row({"x": 1.0, "w": 2.0, "city": "Oslo"})
Traceback (most recent call last):
    ...
TypeError: feature 'city' must be a number, got 'Oslo' (str); encode text first, for example with river's \
preprocessing.OneHotEncoder
>>> "w" in schema
False
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from river.utils.dataframe import into_frame

from streamclust._kernels.types import Floats
from streamclust.values import PLAIN, is_numeric, shown, to_number, to_numbers

if TYPE_CHECKING:
    from narwhals.stable.v2 import DataFrame

Missing = Literal["impute", "error"]
Columns = dict[Hashable, int]


class Schema:
    """The features of a stream, in the order in which they first appeared.

    `missing="impute"` takes events that lack features or bring new ones; `missing="error"` refuses both
    once the features are known, from `names` or from the first event.

    >>> strict = Schema(["x", "y"], missing="error")
    >>> strict
    Schema(names=['x', 'y'], missing='error')
    >>> strict.row({"y": 2, "x": 1})
    array([1., 2.])
    >>> strict.row({"x": 1})
    Traceback (most recent call last):
        ...
    ValueError: feature 'y' is missing, which missing="error" forbids; use missing="impute" to allow it
    """

    def __init__(self, names: Iterable[Hashable] | None = None, missing: Missing = "impute") -> None:
        if missing not in ("impute", "error"):
            raise ValueError(f"missing must be 'impute' or 'error', got {missing!r}")
        if isinstance(names, (str, bytes, AbstractSet)):
            raise TypeError(f"names must be a list, whose order is that of the columns, got {shown(names)}")
        listed = list(names or ())
        for name in listed:
            if not isinstance(name, Hashable):
                raise TypeError(f"the name of a feature must be hashable, got {shown(name)}")
        self.missing: Missing = missing
        self._adopt({name: column for column, name in enumerate(dict.fromkeys(listed))})
        if len(self) < len(listed):
            repeated = next(name for name in listed if listed.count(name) > 1)
            raise ValueError(f"names must differ from each other, got {repeated!r} more than once")

    def _adopt(self, columns: Columns) -> None:
        # All are replaced, never changed in place, and no reader needs two of them: a thread that predicts
        # meanwhile sees the schema as it was before or as it is after.
        self._columns = columns
        self._names = tuple(columns)
        self._values = values_getter(self._names)

    # ---------------------------------------------------------------- reading

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The features, in the order of their columns."""
        return self._names

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
        plain = _plain_row(x, self._values)
        if plain is not None:
            return plain
        columns = dict(self._columns)
        row = self._read(x, columns, extend)
        if len(columns) > len(self):
            self._adopt(columns)
        return row

    def _read(self, x: Mapping[Any, Any], columns: Columns, extend: bool, where: str = "") -> Floats:
        """Turn one event into a row; new features go into `columns`, for the caller to adopt."""
        if not isinstance(x, Mapping):
            raise TypeError(
                f"{where}an event must map features to numbers, as {{'x': 1.0}} does, "
                f"got {shown(x)} ({type(x).__name__})"
            )
        strict = self.missing == "error"
        settled = len(columns) > 0
        row = [math.nan] * len(columns)
        for name, value in in_order(x, columns):
            column = columns.get(name)
            if column is None and strict and settled:
                raise _new_feature(name, where)
            if column is None and not extend:
                continue
            number = to_number(name, value, where)
            if math.isnan(number):
                if strict:
                    raise _missing_feature(name, where)
            elif column is None:
                columns[name] = len(row)
                row.append(number)
            else:
                row[column] = number
        if strict and settled and len(x) < len(row):
            raise _missing_feature(next(name for name in columns if name not in x), where)
        return np.array(row)

    # ---------------------------------------------------------------- many events

    def table(self, data: object, extend: bool = True) -> Floats:
        """Rows of many events: a list of mappings, a frame (pandas, polars, pyarrow) or a numpy table.

        Columns of a frame are matched by name. Those of a numpy table are the schema's, in its order; they
        name themselves 0, 1, 2, ... where the schema is still empty. Either all rows are taken or none.

        >>> Schema().table(np.array([[1, 2], [3, 4]]))
        array([[1., 2.],
               [3., 4.]])
        """
        if isinstance(data, np.ndarray):
            return self._read_array(data, extend)
        if isinstance(data, (str, bytes, Mapping)):
            raise TypeError(_not_a_table(data))
        if not isinstance(data, Sequence):
            try:
                frame = into_frame(cast(Any, data))
            except TypeError:
                if not isinstance(data, Iterable):
                    raise TypeError(_not_a_table(data)) from None
            else:
                return self._read_frame(frame, extend)
        return self._read_events(data, extend)

    def _read_events(self, events: Iterable[Mapping[Any, Any]], extend: bool) -> Floats:
        columns = dict(self._columns)
        values = self._values
        width = len(columns)
        rows: list[Floats] = []
        for i, x in enumerate(events):
            row = _plain_row(x, values)
            if row is None:
                row = self._read(x, columns, extend, f"row {i}: ")
                if len(columns) > width:
                    values, width = values_getter(tuple(columns)), len(columns)
            rows.append(row)
        table = np.full((len(rows), len(columns)), np.nan)
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        if len(columns) > len(self):
            self._adopt(columns)
        return table

    def _read_array(self, array: np.ndarray[Any, Any], extend: bool) -> Floats:
        if array.ndim != 2:
            raise ValueError(
                f"a table needs rows and columns, got an array of shape {array.shape}; "
                "use .reshape(1, -1) for one event, .reshape(-1, 1) for one feature"
            )
        width = array.shape[1]
        if len(self) and width != len(self):
            raise ValueError(
                f"the schema has {len(self)} features, the array has {width} columns; give it as many, "
                "or name its columns (a frame or a list of mappings)"
            )
        if not len(self) and not extend:
            return np.empty((len(array), 0))
        names = self._names or tuple(range(width))
        table = to_numbers(names, array)
        self._refuse_holes(names, table)
        if not len(self):
            # Position is the only name these columns have: one counts as seen even before its first number.
            self._adopt({name: column for column, name in enumerate(names)})
        return table

    def _read_frame(self, frame: DataFrame[Any], extend: bool) -> Floats:
        strict = self.missing == "error" and len(self) > 0 and len(frame) > 0
        if strict:
            for new in frame.columns:
                if new not in self._columns:
                    raise _new_feature(new)
            for known in self._names:
                if known not in frame.columns:
                    raise _missing_feature(known)
        columns = dict(self._columns)
        found: dict[Hashable, Floats] = {}
        for series in frame.iter_columns():
            if extend or series.name in columns:
                values = series.to_numpy()
                listed = values[:, None] if is_numeric(values) else [[v] for v in series.to_list()]
                found[series.name] = to_numbers((series.name,), listed)[:, 0]
                self._refuse_holes((series.name,), found[series.name][:, None])
        first = {name: int(np.isnan(v).argmin()) for name, v in found.items() if not np.isnan(v).all()}
        # The order in which reading event by event would meet them: by row, within a row by name.
        for name in sorted(first, key=lambda name: (first[name], name_order(name))):
            columns.setdefault(name, len(columns))
        table = np.full((len(frame), len(columns)), np.nan)
        for name, values in found.items():
            if name in columns:
                table[:, columns[name]] = values
        if len(columns) > len(self):
            self._adopt(columns)
        return table

    def _refuse_holes(self, names: Sequence[Hashable], table: Floats) -> None:
        if self.missing == "error" and np.isnan(table).any():
            i, column = np.argwhere(np.isnan(table))[0]
            raise _missing_feature(names[column], f"row {i}: ")

    # ---------------------------------------------------------------- saving

    def to_dict(self) -> dict[str, Any]:
        """Write the schema as JSON can hold it; names must be text or integers, which alone survive there.

        >>> Schema(["x", 3]).to_dict()
        {'names': ['x', 3], 'missing': 'impute'}
        """
        return {"names": [_json_name(name) for name in self._names], "missing": self.missing}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        """Read what `to_dict` wrote."""
        if set(state) != {"names", "missing"}:
            raise ValueError(f"a saved schema holds 'names' and 'missing', got {sorted(map(str, state))}")
        return cls(state["names"], state["missing"])


# -------------------------------------------------------------------- names and values


Values = Callable[[Mapping[Any, Any]], tuple[Any, ...]]


def values_getter(names: tuple[Hashable, ...]) -> Values:
    """A function from an event of just these features to its values in this order; KeyError for any other event."""
    if not names:
        return _no_values
    return itemgetter(*names) if len(names) > 1 else partial(_one_value, names[0])


def _one_value(name: Hashable, x: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (x[name],)


def _no_values(x: Mapping[Any, Any]) -> tuple[Any, ...]:
    raise KeyError("no features are known yet")


def _plain_row(x: object, values_of: Values) -> Floats | None:
    """Turn an event of just the known features, all plain finite numbers, into a row; or None."""
    if type(x) is not dict:  # its kin may invent what they lack
        return None
    try:
        values = values_of(x)
    except KeyError:
        return None
    if len(values) != len(x) or not PLAIN.issuperset(map(type, values)):
        return None
    try:
        # The sum of numbers is finite only if each of them is; sums that overflow take the careful path.
        if not math.isfinite(math.fsum(values)):
            return None
    except (OverflowError, ValueError):
        return None
    return np.array(values, dtype=np.float64)


def in_order(x: Mapping[Any, Any], columns: Columns) -> Iterable[tuple[Any, Any]]:
    """The items of an event, features that have no column yet in the order of their names."""
    new = [name for name in x if name not in columns]
    if len(new) < 2:
        return x.items()
    return [
        *((name, x[name]) for name in x if name in columns),
        *((name, x[name]) for name in sorted(new, key=name_order)),
    ]


def name_order(name: Hashable) -> tuple[str, Any]:
    """What names are sorted by: numbers among themselves, text among itself, anything else as it is written."""
    if isinstance(name, (int, float)):
        return "", name
    return type(name).__name__, name if isinstance(name, str) else repr(name)


def _json_name(name: Hashable) -> str | int:
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return int(name)
    if isinstance(name, str):
        return str(name)
    raise TypeError(
        f"feature {name!r} ({type(name).__name__}) cannot be saved: only text and integers survive as names; "
        "rename it, for example to str(name)"
    )


# -------------------------------------------------------------------- what the user is told


def _missing_feature(name: Hashable, where: str = "") -> ValueError:
    return ValueError(
        f'{where}feature {name!r} is missing, which missing="error" forbids; use missing="impute" to allow it'
    )


def _new_feature(name: Hashable, where: str = "") -> ValueError:
    return ValueError(
        f'{where}feature {name!r} is new, which missing="error" forbids; use missing="impute" to allow it'
    )


def _not_a_table(data: object) -> str:
    return (
        "many events are a list of mappings, a frame in memory (pandas, polars, pyarrow) or a numpy table, "
        f"got {shown(data)} ({type(data).__name__})"
    )
