"""Schema: names of features <-> columns of rows.

Events come as mappings, tables and frames; the rest of the package sees rows of float64. A value that
is absent, None or NaN is missing: the three mean the same, and the row holds NaN. A feature gets a column
with its first number, after the columns already there; features that appear in the same event stand in the order
of their names, or in one that was given, so that the order within an event means nothing. So earlier events
count as missing it, and an older row is the beginning of a newer one.

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

from streamclust.schema.cells import Cells, Columns, plain_values, table_of
from streamclust.schema.names import MAX_NAME_LENGTH
from streamclust.schema.schema import Schema

__all__ = ["MAX_NAME_LENGTH", "Cells", "Columns", "Schema", "plain_values", "table_of"]
