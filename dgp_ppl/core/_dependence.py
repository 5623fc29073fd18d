"""Which arguments a function computes its results from: the one place that reads jaxprs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr


def dependence(function: Callable[..., Any], *args: Any) -> list[list[bool]]:
    """Return which leaves of the arguments each leaf of a result depends on; it is traced alone."""
    program = jax.make_jaxpr(function)(*args).jaxpr
    num = len(program.outvars)
    # What is left of the program if only one result is wanted reads only what that result needs.
    return [dce_jaxpr(program, [i == j for j in range(num)])[1] for i in range(num)]
