"""The threads of OpenBLAS, which JAX's factorisations share with NumPy's products."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

_LOCK = threading.Lock()
_LIMITS: list[Any] = []  # one for each caller; the first restores what was there before


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep OpenBLAS to one thread in the whole process, until the last of several callers is done.

    On a CPU it factorises matrices of more than 128 rows on several threads. These spin for about
    15 ms after each call, and take cores away from XLA.
    """
    with _LOCK:
        _LIMITS.append(threadpool_limits(1, "blas"))
    try:
        yield
    finally:
        with _LOCK:
            # The last limit changed nothing, unless it is the only one.
            _LIMITS.pop().restore_original_limits()
