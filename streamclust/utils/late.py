"""Functions of SciPy that are imported when they are first called: they are a third of the time of a start.

>>> float(gammaln(5.0)), issparse([1.0])
(3.1780538303479458, False)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeGuard


def late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module, which is imported at the first call."""
    found: Callable[..., Any] | None = None

    def call(*arguments: Any, **options: Any) -> object:
        nonlocal found
        if found is None:
            found = getattr(import_module(module), name)
        return found(*arguments, **options)

    return call


def issparse(x: object) -> TypeGuard[Any]:
    """Whether x is a sparse table of SciPy; without its module nobody can have made one."""
    known = getattr(sys.modules.get("scipy.sparse"), "issparse", None)  # nor while another thread imports it
    return known is not None and bool(known(x))


betaincinv = late("scipy.special", "betaincinv")
betaln = late("scipy.special", "betaln")
chdtrc = late("scipy.special", "chdtrc")
fdtrc = late("scipy.special", "fdtrc")
digamma = late("scipy.special", "digamma")
gammaincinv = late("scipy.special", "gammaincinv")
gammaln = late("scipy.special", "gammaln")
log_ndtr = late("scipy.special", "log_ndtr")
logsumexp = late("scipy.special", "logsumexp")
ndtr = late("scipy.special", "ndtr")
polygamma = late("scipy.special", "polygamma")
xlogy = late("scipy.special", "xlogy")

eigh = late("scipy.linalg", "eigh")
eigh_tridiagonal = late("scipy.linalg", "eigh_tridiagonal")
eigvalsh_tridiagonal = late("scipy.linalg", "eigvalsh_tridiagonal")
dormqr = late("scipy.linalg.lapack", "dormqr")
dsytrd = late("scipy.linalg.lapack", "dsytrd")

threadpool_limits = late("threadpoolctl", "threadpool_limits")

csr_array = late("scipy.sparse", "csr_array")
diags_array = late("scipy.sparse", "diags_array")
vstack = late("scipy.sparse", "vstack")
connected_components = late("scipy.sparse.csgraph", "connected_components")
