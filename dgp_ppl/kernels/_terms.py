"""Whether a kernel is a term of a sum of kernels."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dgp_ppl._checks import is_traced
from dgp_ppl.kernels._base import Columns, PerOutput, Separable


def check_term(what: str, kernel: Any, total: Any) -> None:
    """Raise a ValueError that begins with `what` unless a kernel is a term of the sum `total`."""
    terms = _terms(total)
    if not all(any(_may_equal(own, term) for term in terms) for own in _terms(kernel)):
        raise ValueError(f"{what}: kernel is {kernel!r}, wanted a term of the layer's: {terms}")


def _terms(kernel: Any) -> list[Any]:
    """Return the kernels whose sum this is, also within those of outputs, columns or a product."""
    is_sum = type(kernel).__name__ == "Sum"  # also tinygp's
    if is_sum or isinstance(kernel, Columns | PerOutput | Separable):
        return [term for part in vars(kernel).values() for term in _terms(part)]
    return [kernel]


def _may_equal(a: Any, b: Any) -> bool:
    """Return whether kernels have the same structure and, where these are known, values."""
    (own, structure), (other, wanted) = jax.tree.flatten(a), jax.tree.flatten(b)
    return structure == wanted and (is_traced(a, b) or all(map(np.array_equiv, own, other)))
