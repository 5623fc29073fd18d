"""Gaussian marginals of layers, and their sums."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl.linalg._products import as_float


class Marginals(eqx.Module):
    """Gaussian marginals of a function at N inputs, independent over points and outputs.

    They add to arrays and to other layers' marginals, and scale by numbers and arrays. The result
    is exact, because layers are independent: given draws of v, and under a guide's q(v).

    >>> import jax.numpy as jnp
    >>> import dgp_ppl as dgp
    >>> f = dgp.Marginals(mean=jnp.zeros((3, 1)), var=jnp.ones((3, 1)), layers=("f.v",))
    >>> g = dgp.Marginals(mean=jnp.ones((3, 1)), var=jnp.ones((3, 1)), layers=("g.v",))
    >>> y = f - 2 * g + jnp.array([0.0, 1.0, 2.0])
    >>> y.mean.ravel().tolist(), y.var.ravel().tolist()
    ([-2.0, -1.0, 0.0], [5.0, 5.0, 5.0])

    An array is one number, one number per row, [N], or [N, P], with 1 instead of N or P. Layers
    have the same number of rows and of outputs.

    Attributes:
        mean: [N, P].
        var: [N, P].
        guided: whether they come from a guide's q(v). `observe` then gives the expected
            log-likelihood of the bound; otherwise the log of the expected likelihood.
        layers: names of the sites of the layers that they are made of.
    """

    __array_ufunc__ = None  # NumPy arrays leave ``array + f(x)`` to this class

    mean: Float[Array, "N P"]
    var: Float[Array, "N P"]
    guided: bool = eqx.field(default=False, static=True)
    layers: tuple[str, ...] = eqx.field(default=(), static=True)

    def __add__(self, other: Marginals | ArrayLike) -> Marginals:
        if not isinstance(other, Marginals):
            return self._with(self.mean + self._array("+", other), self.var)
        if twice := sorted({s.removesuffix(".v") for s in {*self.layers} & {*other.layers}}):
            raise ValueError(
                f"a sum has the layer {twice[0]!r} in two of its terms, wanted independent terms: "
                "scale its values at the same inputs, 2 * f(x); values at other inputs depend on "
                "these, so draw both: f.sample(jnp.concatenate([x1, x2]), joint=True)"
            )
        if self.mean.shape != other.mean.shape:
            raise ValueError(
                f"a sum of layers has terms of shapes {self.mean.shape} and {other.mean.shape}, "
                "wanted the same [N, P]; outputs that share a term would depend on each other"
            )
        return Marginals(
            self.mean + other.mean,
            self.var + other.var,
            self.guided or other.guided,
            self.layers + other.layers,
        )

    def __mul__(self, other: ArrayLike) -> Marginals:
        factor = self._array("*", other)
        return self._with(self.mean * factor, self.var * jnp.square(factor))

    def __truediv__(self, other: ArrayLike) -> Marginals:
        return self * (1 / self._array("/", other))

    def __neg__(self) -> Marginals:
        return self._with(-self.mean, self.var)

    def __pos__(self) -> Marginals:
        return self

    def __sub__(self, other: Marginals | ArrayLike) -> Marginals:
        negative: Any = -other if isinstance(other, Marginals) else -self._array("-", other)
        return self + negative

    def __rsub__(self, other: ArrayLike) -> Marginals:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def _with(self, mean: Array, var: Array) -> Marginals:
        return Marginals(mean, var, self.guided, self.layers)

    def _array(self, operator: str, other: Any) -> Array:
        """Return an array that broadcasts with the mean, such as from one number for each row."""
        if isinstance(other, Marginals):
            kind = {"*": "product", "/": "quotient"}[operator]
            raise TypeError(
                f"the {kind} of two layers is not Gaussian, wanted a number or an array beside the "
                f"{operator}; take draws instead, f.sample(x) {operator} g.sample(x)"
            )
        N, P = self.mean.shape
        try:
            array = as_float(other)
        except (TypeError, ValueError):
            raise TypeError(
                f"f(x) {operator} ...: got a {type(other).__name__}, wanted a number, an array of "
                f"shape {(N,)} or {(N, P)}, or another layer's f(x)"
            ) from None
        if array.ndim == 1 and array.shape != (1,):
            array = array[:, None]
        if not all(a in (1, b) for a, b in zip(array.shape[::-1], (P, N), strict=False)) or (
            array.ndim > 2
        ):
            raise ValueError(
                f"f(x) {operator} array: the array has shape {jnp.shape(other)}, wanted a number, "
                f"{(N,)} or {(N, P)}; one number for each output is [None, :]"
            )
        return array
