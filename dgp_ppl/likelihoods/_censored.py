"""The likelihood of an instrument with a finite range."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.scipy.special import log_ndtr, ndtr
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._checks import as_array, is_traced
from dgp_ppl._errors import one_line
from dgp_ppl._typing import PRNGKey

_LEGENDRE = np.polynomial.legendre.leggauss(6)  # nodes and weights of a panel
_FAR = 1e3  # standard deviations from the mean that stand for an infinite end of the range


class CensoredNormal(dist.Distribution):
    """A normal read by an instrument with a finite range: y = clip(N(loc, scale), low, high).

    A reading at an end of the range, or beyond it, stands for all values beyond the end: pass ends
    in the units of y. Its log probability is stable however far the mean lies outside the range.
    For survival times, with a censoring time for each row, use `RightCensored`.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.CensoredNormal(jnp.array([0.0, 5.0]), 1.0, high=1.0)
    >>> y.cdf(jnp.ones(2)).tolist()
    [1.0, 1.0]

    Args:
        loc: mean of the quantity measured, usually f, in the units of y.
        scale: its standard deviation.
        low: lower end of the range; -inf for none.
        high: upper end of the range, above `low`; inf for none.

    Raises:
        ValueError: if an end is NaN, or `low` is not below `high`.

    Source: Tobin (1958), "Estimation of relationships for limited dependent variables".
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.real, "scale": constraints.positive,
        "low": constraints.dependent, "high": constraints.dependent,  # may be infinite
    }  # fmt: skip
    support: Any = constraints.real

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike,
        low: ArrayLike = -jnp.inf,
        high: ArrayLike = jnp.inf,
        *,
        validate_args: bool | None = None,
    ) -> None:
        given = {"loc": loc, "scale": scale, "low": low, "high": high}
        arrays = [jnp.asarray(as_array("CensoredNormal", n, a), float) for n, a in given.items()]
        if not is_traced(low, high) and not np.less(low, high).all():
            raise ValueError(
                f"CensoredNormal: low is {one_line(low)} and high {one_line(high)}, wanted numbers "
                "with low below high"
            )
        shapes = [a.shape for a in arrays]
        try:
            self.loc, self.scale, self.low, self.high = jnp.broadcast_arrays(*arrays)
        except ValueError:
            raise ValueError(
                f"CensoredNormal: loc, scale, low and high have shapes {shapes}, wanted the same "
                "shape, or ones that broadcast"
            ) from None
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _ends(self, origin: Array) -> tuple[Array, Array]:
        """Return both ends in units of scale from an origin; infinite ones as ±_FAR."""

        def end(a: Array, far: float) -> Array:
            known = jnp.nan_to_num(a, posinf=0.0, neginf=0.0)  # keeps gradients finite
            return jnp.where(jnp.isfinite(a), (known - origin) / self.scale, far)

        return end(self.low, -_FAR), end(self.high, _FAR)

    def log_prob(self, value: ArrayLike) -> Array:
        low, high = self._ends(self.loc)
        inside = dist.Normal(self.loc, self.scale).log_prob(jnp.clip(value, self.low, self.high))
        terms = jnp.where(value <= self.low, log_ndtr(low), inside)
        return jnp.where(value >= self.high, log_ndtr(-high), terms)

    def is_density(self, value: ArrayLike) -> Array:
        shape = jnp.broadcast_shapes(jnp.shape(value), self.low.shape)
        y, low, high = (jnp.broadcast_to(a, shape) for a in (value, self.low, self.high))
        return (y > low) & (y < high)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = random.normal(key, sample_shape + self.batch_shape, self.loc.dtype)
        return jnp.clip(self.loc + self.scale * noise, self.low, self.high)

    def cdf(self, value: ArrayLike) -> Array:
        inside = ndtr((value - self.loc) / self.scale)
        return jnp.where(value < self.low, 0.0, jnp.where(value >= self.high, 1.0, inside))

    def _moments(self) -> tuple[Array, Array, Array]:
        """Return c, loc clipped to the range, and E[t] and E[t²] of t = (y - c) / scale."""
        # About c neither cancels. In a range narrower than the scale the closed form would.
        c = jnp.clip(self.loc, self.low, self.high)
        (low, high), (t_low, t_high) = self._ends(self.loc), self._ends(c)
        m = (self.loc - c) / self.scale
        below, above, at_low, at_high = ndtr(low), ndtr(-high), *map(norm.pdf, (low, high))
        tail = jnp.where(high < 0, ndtr(high) - below, ndtr(-low) - above)
        p = jnp.where((high < 0) | (low > 0), tail, 1 - below - above)
        first = m * p + at_low - at_high
        second = (1 + m**2) * p + (t_low + m) * at_low - (t_high + m) * at_high
        x, w = (jnp.asarray(a, c.dtype) for a in _LEGENDRE)
        half = 0.5 * jnp.minimum(high - low, 2.0)
        t = (t_low + half)[..., None] + half[..., None] * x
        density = half[..., None] * w * norm.pdf(t - m[..., None])
        narrow = high - low < 2.0
        first = jnp.where(narrow, jnp.sum(density * t, axis=-1), first)
        second = jnp.where(narrow, jnp.sum(density * t**2, axis=-1), second)
        first = first + t_low * below + t_high * above
        return c, first, second + t_low**2 * below + t_high**2 * above

    @property
    def mean(self) -> Array:
        c, first, _ = self._moments()
        return c + self.scale * first

    @property
    def variance(self) -> Array:
        _, first, second = self._moments()
        return jnp.square(self.scale) * jnp.maximum(second - first**2, 0.0)


def as_flags(name: str, value: ArrayLike, distribution: Any) -> Array:
    """Return flags as booleans; raise if one is neither True, False, 1 nor 0: NaN would be True."""
    if any(jnp.iscomplexobj(a) for a in jax.tree.leaves(distribution)):
        raise TypeError("censored: the distribution holds complex numbers, wanted real ones")
    value = value if is_traced(value) else as_array("censored", name, value)
    shape, batch = np.shape(value), distribution.batch_shape
    ends = zip(shape[::-1], batch[::-1], strict=False)
    if not all(1 in pair or len({*pair}) == 1 for pair in ends):
        raise ValueError(
            f"censored: {name} has shape {shape} and the distribution batch shape {batch}, wanted "
            "a flag for each row"
        )
    if not (is_traced(value) or np.isin(value, (0, 1)).all()):
        raise ValueError(f"censored: {name} is {one_line(value)}, wanted True or False, or 1 or 0")
    return jnp.asarray(value, bool)
