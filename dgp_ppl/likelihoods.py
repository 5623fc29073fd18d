"""Distributions of y given a latent f that NumPyro lacks, for `observe`.

Those of classes are likelihoods as they stand: ``observe(f(x), likelihoods.robust_max)``. Any other
NumPyro distribution of f will do as well; those with a `Latent` base know their own averages over
a Gaussian f, which `observe` takes in place of quadrature or Monte Carlo.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import log_ndtr, ndtr
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey

__all__ = [
    "BernoulliProbit", "CensoredNormal", "Latent", "RobustMax", "bernoulli_logit",
    "bernoulli_probit", "robust_max", "softmax",
]  # fmt: skip

_TINY_VARIANCE = 1e-10  # of a class's f, below which it is known
_REACH = 5.0  # standard deviations that predictions integrate over
_PREDICTIVE_NODES = 64
_FAR = 1e3  # standard deviations: where an end is that is none


class Latent(dist.Distribution):
    """A distribution of y given f that knows its averages over f ~ N(latent, diag(var)).

    Attributes:
        latent: f.
    """

    latent: Array

    def predictive(self, var: Array) -> dist.Distribution:
        """The law of y with f integrated out."""
        raise NotImplementedError

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array | None:
        """E[log p(y | f)]; None where quadrature over a scalar f is to find it."""
        return None


class BernoulliProbit(Latent):
    """y in {0, 1} with p(y = 1 | f) = Phi(f), stable in both tails.

    Args:
        latent: f, any shape.
    """

    arg_constraints = {"latent": constraints.real}  # noqa: RUF012 - NumPyro's declaration
    support: Any = constraints.boolean

    def __init__(self, latent: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.latent = jnp.asarray(latent)
        super().__init__(self.latent.shape, validate_args=validate_args)

    @property
    def probs(self) -> Array:
        return ndtr(self.latent)

    @property
    def mean(self) -> Array:
        return self.probs

    @property
    def variance(self) -> Array:
        return self.probs * ndtr(-self.latent)

    def log_prob(self, value: Array) -> Array:
        return log_ndtr(jnp.where(value > 0, self.latent, -self.latent))

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = sample_shape + self.batch_shape
        return random.bernoulli(key, self.probs, shape).astype(jnp.int32)

    def predictive(self, var: Array) -> "BernoulliProbit":
        """E Phi(f) = Phi(mu / sqrt(1 + v))."""
        return BernoulliProbit(self.latent / jnp.sqrt(1 + var))


class RobustMax(Latent):
    """y is the class with the largest f, but for an error of probability epsilon.

    p(y | f) = 1 - epsilon if y = argmax_c f_c, else epsilon / (C - 1) (Hernández-Lobato,
    Hernández-Lobato and Dupont 2011; Matthews 2017). Its averages over a Gaussian f need
    P(y = argmax f) alone, a one-dimensional integral. Classes that overlap want `softmax`: here
    nothing but rare errors can explain them, and predictions are too sure of themselves.

    Args:
        latent: f, [..., C] with C >= 2.
        epsilon: the probability of an error, in (0, 1).

    Raises:
        ValueError: if there are fewer than two classes.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "latent": constraints.real_vector, "epsilon": constraints.unit_interval,
    }  # fmt: skip

    def __init__(
        self, latent: ArrayLike, epsilon: ArrayLike = 1e-3, *, validate_args: bool | None = None
    ) -> None:
        self.latent, self.epsilon = jnp.asarray(latent), jnp.asarray(epsilon, float)
        if not self.latent.ndim or self.latent.shape[-1] < 2:
            raise ValueError(
                f"RobustMax: latent has shape {self.latent.shape}, wanted [..., C] with C >= 2 "
                "classes: give the last layer out=C; for two classes BernoulliProbit takes one f"
            )
        super().__init__(self.latent.shape[:-1], validate_args=validate_args)

    @property
    def num_classes(self) -> int:
        """C."""
        return self.latent.shape[-1]

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.num_classes - 1)

    @property
    def probs(self) -> Array:
        """p(y = c | f), [..., C]."""
        largest = jnp.arange(self.num_classes) == jnp.argmax(self.latent, axis=-1)[..., None]
        return self._with_errors(largest.astype(self.latent.dtype))

    def log_prob(self, value: Array) -> Array:
        hit = value == jnp.argmax(self.latent, axis=-1)
        return jnp.where(hit, *self._logs())

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = sample_shape + self.batch_shape
        return random.categorical(key, jnp.log(self.probs), shape=shape)

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array:
        """P log(1 - epsilon) + (1 - P) log(epsilon / (C - 1)), P(argmax f = y) by quadrature."""
        x, w = np.polynomial.hermite_e.hermegauss(num_nodes)
        weights = jnp.asarray(w / w.sum(), self.latent.dtype)
        of_class = self._probability_of(var, jnp.asarray(x, self.latent.dtype), weights)
        hit = of_class(jnp.asarray(value, jnp.int32))
        at_hit, at_miss = self._logs()
        return hit * at_hit + (1 - hit) * at_miss

    def predictive(self, var: Array) -> dist.Distribution:
        """Classes with p(y = c) = P_c (1 - epsilon) + (1 - P_c) epsilon / (C - 1)."""
        x = np.linspace(-_REACH, _REACH, _PREDICTIVE_NODES)
        w = np.exp(-0.5 * x**2)
        weights = jnp.asarray(w / w.sum(), self.latent.dtype)
        of_class = self._probability_of(var, jnp.asarray(x, self.latent.dtype), weights)
        classes = jnp.arange(self.num_classes)
        hits = jax.vmap(lambda c: of_class(jnp.full(self.batch_shape, c)))(classes)
        hits = jnp.moveaxis(hits, 0, -1)
        hits = hits / jnp.sum(hits, axis=-1, keepdims=True)  # of which quadrature leaves 1e-4
        law: Any = dist.Categorical(probs=self._with_errors(hits))
        return law

    def _probability_of(self, var: Array, x: Array, weights: Array) -> Any:
        """P(argmax f = y) for classes y [...], by nodes x [Q] on f_y's own scale."""
        sd = jnp.sqrt(jnp.maximum(var, _TINY_VARIANCE))

        def of_class(y: Array) -> Array:
            own = lambda a: jnp.take_along_axis(a, y[..., None], axis=-1)  # noqa: E731
            others = jnp.arange(self.num_classes) != y[..., None]
            shift, ratio = (own(self.latent) - self.latent) / sd, own(sd) / sd

            def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
                below = log_ndtr(shift + ratio * node[0])
                return total + node[1] * jnp.exp(jnp.sum(below * others, axis=-1)), None

            # One node at a time: all of them for all classes of all rows are many.
            return lax.scan(jax.checkpoint(add), jnp.zeros_like(shift[..., 0]), (x, weights))[0]

        return of_class

    def _with_errors(self, hits: Array) -> Array:
        return hits * (1 - self.epsilon) + (1 - hits) * self.epsilon / (self.num_classes - 1)

    def _logs(self) -> tuple[Array, Array]:
        """The log probability of the class of the largest f, and of another."""
        return jnp.log1p(-self.epsilon), jnp.log(self.epsilon / (self.num_classes - 1))


class CensoredNormal(dist.Distribution):
    """What an instrument of finite range reads of a normal: y = clip(N(loc, scale), low, high).

    Readings at an end stand for all that lies beyond (Tobin 1958); stable however far beyond. For
    times at which nothing has happened yet, each with an end of its own, see NumPyro's
    `RightCensoredDistribution`.

    Args:
        loc: mean of what is measured, f.
        scale: its standard deviation.
        low: the lower end; -inf for none.
        high: the upper end, above it; inf for none.
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
        self.loc, self.scale, self.low, self.high = jnp.broadcast_arrays(
            *(jnp.asarray(a, float) for a in (loc, scale, low, high))
        )
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _ends(self) -> tuple[Array, Array]:
        """The ends in standard deviations from the mean; far for those that are none."""

        def end(a: Array, far: float) -> Array:
            known = jnp.isfinite(a)
            return jnp.where(known, (jnp.where(known, a, 0.0) - self.loc) / self.scale, far)

        return end(self.low, -_FAR), end(self.high, _FAR)

    def log_prob(self, value: Array) -> Array:
        low, high = self._ends()
        inside = dist.Normal(self.loc, self.scale).log_prob(jnp.clip(value, self.low, self.high))
        terms = jnp.where(value <= self.low, log_ndtr(low), inside)
        return jnp.where(value >= self.high, log_ndtr(-high), terms)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = random.normal(key, sample_shape + self.batch_shape, self.loc.dtype)
        return jnp.clip(self.loc + self.scale * noise, self.low, self.high)

    def cdf(self, value: Array) -> Array:
        inside = ndtr((value - self.loc) / self.scale)
        return jnp.where(value < self.low, 0.0, jnp.where(value >= self.high, 1.0, inside))

    def _moments(self) -> tuple[Array, Array]:
        """Mean and mean square in standard deviations from the mean of what is measured."""
        low, high = self._ends()
        at_low, at_high = (jnp.exp(-0.5 * a**2) / jnp.sqrt(2 * jnp.pi) for a in (low, high))
        below, above = ndtr(low), ndtr(-high)
        first = low * below + high * above + at_low - at_high
        inside = 1 - below - above + low * at_low - high * at_high
        return first, low**2 * below + high**2 * above + inside

    @property
    def mean(self) -> Array:
        return self.loc + self.scale * self._moments()[0]

    @property
    def variance(self) -> Array:
        first, second = self._moments()
        return jnp.square(self.scale) * jnp.maximum(second - first**2, 0.0)


def bernoulli_probit(f: Array) -> dist.Distribution:
    """Two classes: y in {0, 1} with probability Phi(f); f from a last layer with out=1."""
    return BernoulliProbit(f)


def bernoulli_logit(f: Array) -> dist.Distribution:
    """Two classes: y in {0, 1} with probability 1 / (1 + exp(-f)); f from out=1."""
    law: Any = dist.Bernoulli(logits=f)
    return law


def robust_max(f: Array) -> dist.Distribution:
    """C classes by the largest f, [..., C] from out=C, with errors of probability 0.001."""
    return RobustMax(f)


def softmax(f: Array) -> dist.Distribution:
    """C classes with probabilities proportional to exp(f), [..., C] from out=C."""
    law: Any = dist.Categorical(logits=f)
    return law
