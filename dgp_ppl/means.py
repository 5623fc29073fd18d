"""Mean functions of a layer. They are all fixed: a deep GP learns the residual.

A mean function is any callable ``mean(x)`` from [N, D] to an array that broadcasts to [N, P]. The
inner layers of a deep GP need one, because draws from a composition of zero-mean GPs degenerate
with depth. The last layer has mean zero (Salimbeni & Deisenroth 2017, section 3).

>>> import jax.numpy as jnp
>>> from dgp_ppl import means
>>> x = jnp.ones((4, 3))
>>> means.zero(x).shape, means.identity(x).shape, means.pad(3, 5)(x).shape
((4, 1), (4, 3), (4, 5))
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._checks import as_array, check_count
from dgp_ppl._errors import one_line
from dgp_ppl._typing import Inputs, Outputs
from dgp_ppl.linalg._products import matmul

__all__ = ["Linear", "identity", "linear", "pad", "pca", "zero"]


def zero(x: Inputs) -> Float[Array, "N 1"]:
    """Return the mean 0, [N, 1], which broadcasts to any number of outputs.

    Args:
        x: inputs, [N, D].
    """
    return jnp.zeros((x.shape[0], 1), x.dtype)


def identity(x: Inputs) -> Inputs:
    """Return x itself, the mean of a layer with P = D outputs.

    Args:
        x: inputs, [N, D].
    """
    return x


class Linear(eqx.Module):
    """The mean function x W with a fixed W. Gradients with respect to W are zero.

    Args:
        weight: W, [D, P]; in units of the layer's outputs per unit of its inputs.
    """

    weight: Float[Array, "D P"]

    def __call__(self, x: Inputs) -> Outputs:
        """Return x W, [N, P]."""
        return matmul(x, jax.lax.stop_gradient(self.weight))


def linear(weight: ArrayLike) -> Linear:
    """Make the mean function x W for a given matrix W, which stays fixed.

    Args:
        weight: W, [D, P].

    Returns:
        A function from [N, D] to [N, P].

    Raises:
        ValueError: if `weight` is not a matrix.
    """
    weight = jnp.asarray(as_array("means.linear", "weight", weight), float)
    if weight.ndim != 2:
        raise ValueError(f"means.linear: weight has shape {weight.shape}, wanted [D, P]")
    return Linear(weight)


def pad(dim: int, out: int) -> Linear:
    """Make the mean function that copies inputs: it appends zeros to widen, and cuts to narrow.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import means
    >>> means.pad(2, 3)(jnp.array([[1.0, 2.0]]))
    Array([[1., 2., 0.]], dtype=float32)

    Args:
        dim: number of inputs D.
        out: number of outputs P.

    Returns:
        A function from [N, D] to [N, P].
    """
    check_count("means.pad", "dim", dim, 0)
    check_count("means.pad", "out", out)
    return Linear(jnp.eye(dim, out))


def pca(x: Inputs, out: int) -> Linear:
    """Make the mean function that projects onto the first principal directions of x.

    The directions are the first `out` right singular vectors of x. They are not centred, because
    the inputs of a layer are standardised.

    Args:
        x: inputs, [N, D], with D >= `out` and N >= `out`.
        out: number of outputs P.

    Returns:
        A function from [N, D] to [N, P].

    Raises:
        ValueError: if x has fewer than `out` columns or rows; use `pad` to widen.

    Source: Salimbeni & Deisenroth (2017), section 5. They write "left" singular vectors; for data
    in rows these are the right ones.
    """
    check_count("means.pca", "out", out)
    x = as_array("means.pca", "x", x)
    if x.ndim != 2 or out > min(x.shape):
        raise ValueError(
            f"means.pca: x of shape {x.shape} has no {out} singular vectors; use means.pad to widen"
        )
    return Linear(jnp.linalg.svd(x, full_matrices=False)[2][:out].T)


def check_mean(caller: str, mean: Any, rows: int, dim: int, out: int) -> None:
    """Raise a ValueError unless a mean function maps [N, D] to what broadcasts to [N, out]."""
    x, shape, why = jax.ShapeDtypeStruct((rows, dim), jnp.result_type(float)), None, None
    try:
        shape = jax.eval_shape(mean, x).shape
        has = f"gives shape {shape}"
    except Exception as error:  # users' code may raise any
        why, has = error, f"fails ({type(error).__name__}: {one_line(error)})"
    pairs = zip((shape or ())[::-1], (out, rows), strict=False)
    if not shape or len(shape) > 2 or any(size not in (1, most) for size, most in pairs):
        cure = f"means.pad({dim}, {out}), or means.pca(x, {out}) to narrow"
        if not callable(mean) or shape == ():
            cure = "lambda x: jnp.full((len(x), 1), m)"
        elif shape and len(shape) == 1:
            cure = "lambda x: m(x)[:, None]"
        raise ValueError(
            f"{caller}: mean {has} for inputs of shape {x.shape}, wanted {(rows, out)}, as out is "
            f"{out}; try {cure}"
        ) from why
