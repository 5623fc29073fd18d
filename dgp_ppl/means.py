"""Mean functions of a layer. All are fixed: what a deep GP learns is the residual.

A mean is a function ``mean(x)``: [N, D] -> an array that broadcasts to [N, P]. Salimbeni &
Deisenroth (2017), section 3: the inner layers of a deep GP need one, or its draws turn degenerate
with depth; the last layer has the zero mean.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import Inputs, Outputs
from dgp_ppl.linalg import matmul

__all__ = ["Linear", "identity", "linear", "pad", "pca", "zero"]


def zero(x: Inputs) -> Float[Array, "N 1"]:
    """The mean 0."""
    return jnp.zeros((x.shape[0], 1), x.dtype)


def identity(x: Inputs) -> Inputs:
    """The mean x, for a layer as wide as its input."""
    return x


class Linear(eqx.Module):
    """The mean x W, with W [D, P] fixed."""

    weight: Float[Array, "D P"]

    def __call__(self, x: Inputs) -> Outputs:
        return matmul(x, jax.lax.stop_gradient(self.weight))


def linear(weight: ArrayLike) -> Linear:
    """The mean x W for a given W, [D, P]. W is never trained.

    Raises:
        ValueError: if `weight` is not a matrix.
    """
    weight = jnp.asarray(weight, float)
    if weight.ndim != 2:
        raise ValueError(f"means.linear: weight has shape {weight.shape}, wanted [D, P]")
    return Linear(weight)


def pad(dim: int, out: int) -> Linear:
    """The identity on the first inputs: new columns are zero, columns over are dropped."""
    return Linear(jnp.eye(dim, out))


def pca(x: Inputs, out: int) -> Linear:
    """The map onto the first `out` right singular vectors of x, [N, D] with D >= out.

    Not centred: the inputs are standardised. Salimbeni & Deisenroth (2017), section 5 (which says
    left eigenvectors; with data as rows they are the right ones).

    Raises:
        ValueError: if there are fewer than `out` columns or rows; use `pad` to widen.
    """
    if out > min(x.shape):
        raise ValueError(
            f"means.pca: x of shape {x.shape} has no {out} singular vectors; use means.pad to widen"
        )
    return Linear(jnp.linalg.svd(x, full_matrices=False)[2][:out].T)
