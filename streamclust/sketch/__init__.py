"""Sketches: wide events, such as embeddings, taken to a few directions in which clusters are found.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> events = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 200)) + 0.01 * rng.normal(size=(500, 200))
>>> sketch = learn_sketch(events)
>>> sketch
Sketch(200 features in 16 directions)
>>> bool(np.abs(sketch.expand(sketch.project(events)) - events).max() < 0.1)
True
"""

from streamclust.sketch.compression import Compression, Rows
from streamclust.sketch.coordinate_map import CoordinateMap
from streamclust.sketch.learning import MAX_DIRECTIONS, learn_sketch, relearn_sketch
from streamclust.sketch.sketch import Sketch, check_lengths, check_sketch, identity
from streamclust.sketch.transform import Transform, TransformChange

__all__ = [
    "MAX_DIRECTIONS",
    "Compression",
    "CoordinateMap",
    "Rows",
    "Sketch",
    "Transform",
    "TransformChange",
    "check_lengths",
    "check_sketch",
    "identity",
    "learn_sketch",
    "relearn_sketch",
]
