import sys
from types import ModuleType

import numpy as np
import scipy.sparse

from streamclust.utils.late import issparse


def test_nothing_is_sparse_while_another_thread_imports_the_module(monkeypatch):
    """As the refit of a group's leader does beside its loop: the module is there, and empty."""
    rows = np.eye(2)
    assert issparse(scipy.sparse.csr_array(rows))
    assert not issparse(rows)
    monkeypatch.setitem(sys.modules, "scipy.sparse", ModuleType("scipy.sparse"))
    assert not issparse(rows)
