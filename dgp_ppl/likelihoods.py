"""Likelihoods p(y | f) that NumPyro lacks, for use with `observe`.

`observe` accepts any function from f to a NumPyro distribution, so most likelihoods need nothing
from here. The functions `bernoulli_probit`, `bernoulli_logit`, `robust_max` and `softmax` are ready
to pass: ``observe(f(x), likelihoods.robust_max)``. A subclass of `AnalyticLikelihood` computes its
expectations over a Gaussian f, and `observe` uses these instead of quadrature or Monte Carlo.
"""

import math
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
    "AnalyticLikelihood", "BernoulliProbit", "CensoredNormal", "RobustMax", "bernoulli_logit",
    "bernoulli_probit", "robust_max", "softmax",
]  # fmt: skip

_MIN_VARIANCE = 1e-24  # a class's f with a smaller variance counts as known
_LEGENDRE = np.polynomial.legendre.leggauss(6)  # nodes and weights of a panel
_FAR = 1e3  # standard deviations from the mean that stand for an infinite end of the range


class AnalyticLikelihood(dist.Distribution):
    """Base class of likelihoods p(y | f) that compute expectations over f ~ N(latent, diag(var)).

    `observe` calls the methods below if the likelihood function returns an instance whose `latent`
    is f itself. `BernoulliProbit` is a short example.

    Attributes:
        latent: f, of shape [..., N], or [..., N, P] for likelihoods of several outputs.
    """

    latent: Array

    def predictive(self, var: Array) -> dist.Distribution:
        """Return the distribution of y with f integrated out.

        Args:
            var: variance of f, of the shape of `latent`; its mean is `latent`.
        """
        raise NotImplementedError

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array | None:
        """Return E[log p(y | f)] in nats, or None to leave it to quadrature over a scalar f.

        Args:
            var: variance of f, of the shape of `latent`; its mean is `latent`.
            value: y, of the batch and event shape of the likelihood.
            num_nodes: number of quadrature nodes, for likelihoods that need them.
        """
        return None


class BernoulliProbit(AnalyticLikelihood):
    """Two classes with the probit link: y in {0, 1} with p(y = 1 | f) = Phi(f).

    Log probabilities and their gradients are stable in both tails.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import BernoulliProbit
    >>> BernoulliProbit(jnp.zeros(2)).probs.tolist()
    [0.5, 0.5]

    Args:
        latent: f, of any shape.
    """

    arg_constraints = {"latent": constraints.real}  # noqa: RUF012 - NumPyro's declaration
    support: Any = constraints.boolean

    def __init__(self, latent: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.latent = jnp.asarray(latent)
        super().__init__(self.latent.shape, validate_args=validate_args)

    @property
    def probs(self) -> Array:
        """p(y = 1 | f), of the shape of f."""
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
        """Return the distribution with p(y = 1) = E[Phi(f)] = Phi(mu / sqrt(1 + v))."""
        return BernoulliProbit(self.latent / jnp.sqrt(1 + var))


class RobustMax(AnalyticLikelihood):
    """C classes: y is the class with the largest f, except with probability epsilon.

    p(y | f) = 1 - epsilon if y = argmax_c f_c, else epsilon / (C - 1). The expectations over a
    Gaussian f need only P(y = argmax f), a one-dimensional integral. Use `softmax` for classes that
    overlap: this likelihood explains overlap by rare errors only, so its predictions would be
    overconfident.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import RobustMax
    >>> y = RobustMax(jnp.array([[0.0, 2.0, 1.0]]), epsilon=0.1)
    >>> [round(p, 2) for p in y.probs[0].tolist()]
    [0.05, 0.9, 0.05]

    Args:
        latent: f, [..., C] with C >= 2.
        epsilon: probability of an error, in (0, 1).

    Raises:
        ValueError: if there are fewer than two classes.

    Source: Hernández-Lobato, Hernández-Lobato & Dupont (2011), "Robust multi-class Gaussian process
    classification"; Matthews (2017), "Scalable Gaussian process inference using variational
    methods".
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
        """The number of classes C."""
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
        return jnp.where(hit, *self._log_probs())

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = sample_shape + self.batch_shape
        return random.categorical(key, jnp.log(self.probs), shape=shape)

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array:
        """Return P log(1 - epsilon) + (1 - P) log(epsilon / (C - 1)) with P = P(argmax f = y).

        P is exact to 1e-4 for any means and variances, whatever `num_nodes`.
        """
        hit = self._largest_probability(var, jnp.asarray(value, jnp.int32))
        log_hit, log_miss = self._log_probs()
        return hit * log_hit + (1 - hit) * log_miss

    def predictive(self, var: Array) -> dist.Distribution:
        """Return classes with p(y = c) = P_c (1 - epsilon) + (1 - P_c) epsilon / (C - 1)."""
        classes = jnp.arange(self.num_classes)
        in_class = lambda c: self._largest_probability(var, jnp.full(self.batch_shape, c))  # noqa: E731
        hits = jnp.moveaxis(lax.map(in_class, classes), 0, -1)
        hits = hits / jnp.sum(hits, axis=-1, keepdims=True)  # removes the quadrature's error
        predictive: Any = dist.Categorical(probs=self._with_errors(hits))
        return predictive

    def _largest_probability(self, var: Array, y: Array) -> Array:
        """Return P(argmax f = y), the integral of p(f_y) prod_c P(f_c < f_y) over f_y.

        Each factor is a step, of any width. Gauss-Legendre panels begin and end where the steps do.

        Args:
            var: variance of f, [..., C].
            y: classes, [...].
        """
        sd = jnp.sqrt(jnp.maximum(var, _MIN_VARIANCE))
        at_y = lambda a: jnp.take_along_axis(a, y[..., None], axis=-1)  # noqa: E731
        others = jnp.arange(self.num_classes) != y[..., None]
        shift, ratio = (at_y(self.latent) - self.latent) / sd, at_y(sd) / sd
        nodes, widths = lax.stop_gradient(_step_panels(shift, ratio, others))

        def add(total: Array, panel: tuple[Array, Array]) -> tuple[Array, None]:
            node, width = panel  # [...]
            for offset, weight in zip(*_LEGENDRE, strict=True):
                t = node + offset * width
                below = jnp.where(others, ndtr(shift + ratio * t[..., None]), 1.0)
                total = total + weight * width * _normal_density(t) * jnp.prod(below, axis=-1)
            return total, None

        # One panel at a time, because panels x classes x rows need much memory.
        total, _ = lax.scan(jax.checkpoint(add), jnp.zeros_like(shift[..., 0]), (nodes, widths))
        return jnp.clip(total, 0.0, 1.0)

    def _with_errors(self, hits: Array) -> Array:
        """Return p(y = c) from the probabilities that f_c is the largest."""
        return hits * (1 - self.epsilon) + (1 - hits) * self.epsilon / (self.num_classes - 1)

    def _log_probs(self) -> tuple[Array, Array]:
        """Return the log probabilities of the class with the largest f and of any other class."""
        return jnp.log1p(-self.epsilon), jnp.log(self.epsilon / (self.num_classes - 1))


def _step_panels(shift: Array, ratio: Array, others: Array) -> tuple[Array, Array]:
    """Return centres and half-widths of panels that resolve the steps Phi(shift + ratio t).

    Steps lie within three widths of their middles, and the density within six deviations.

    Args:
        shift: [..., C].
        ratio: reciprocal widths of the steps, [..., C].
        others: False for entries that are not steps, [..., C].
    """
    middle, width = -shift / ratio, 3.0 / ratio
    ends = jnp.concatenate([middle - width, middle + width], axis=-1)
    ends = jnp.where(jnp.concatenate([others, others], axis=-1), ends, 0.0)
    fixed = jnp.broadcast_to(
        jnp.array([-6.0, -2.0, 0.0, 2.0, 6.0], ends.dtype), (*ends.shape[:-1], 5)
    )
    ends = jnp.sort(jnp.clip(jnp.concatenate([ends, fixed], axis=-1), -6.0, 6.0), axis=-1)
    ends = jnp.moveaxis(ends, -1, 0)
    return 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])


class CensoredNormal(dist.Distribution):
    """A normal read by an instrument with a finite range: y = clip(N(loc, scale), low, high).

    A reading at an end of the range stands for all values beyond it. Its log probability is stable
    however far the mean lies outside the range. For survival times, with a censoring time for each
    row, use NumPyro's `RightCensoredDistribution`.

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
        self.loc, self.scale, self.low, self.high = jnp.broadcast_arrays(
            *(jnp.asarray(a, float) for a in (loc, scale, low, high))
        )
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _ends(self, origin: Array) -> tuple[Array, Array]:
        """Return both ends in units of scale from an origin; infinite ones as ±_FAR."""

        def end(a: Array, far: float) -> Array:
            known = jnp.nan_to_num(a, posinf=0.0, neginf=0.0)  # keeps gradients finite
            return jnp.where(jnp.isfinite(a), (known - origin) / self.scale, far)

        return end(self.low, -_FAR), end(self.high, _FAR)

    def log_prob(self, value: Array) -> Array:
        low, high = self._ends(self.loc)
        inside = dist.Normal(self.loc, self.scale).log_prob(jnp.clip(value, self.low, self.high))
        terms = jnp.where(value <= self.low, log_ndtr(low), inside)
        return jnp.where(value >= self.high, log_ndtr(-high), terms)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = random.normal(key, sample_shape + self.batch_shape, self.loc.dtype)
        return jnp.clip(self.loc + self.scale * noise, self.low, self.high)

    def cdf(self, value: Array) -> Array:
        inside = ndtr((value - self.loc) / self.scale)
        return jnp.where(value < self.low, 0.0, jnp.where(value >= self.high, 1.0, inside))

    def _moments(self) -> tuple[Array, Array, Array]:
        """Return c, loc clipped to the range, and E[t] and E[t²] of t = (y - c) / scale.

        About c neither cancels. In a range narrower than the scale the closed form would.
        """
        c = jnp.clip(self.loc, self.low, self.high)
        (low, high), (t_low, t_high) = self._ends(self.loc), self._ends(c)
        m = (self.loc - c) / self.scale
        below, above, at_low, at_high = ndtr(low), ndtr(-high), *map(_normal_density, (low, high))
        tail = jnp.where(high < 0, ndtr(high) - below, ndtr(-low) - above)
        p = jnp.where((high < 0) | (low > 0), tail, 1 - below - above)
        first = m * p + at_low - at_high
        second = (1 + m**2) * p + (t_low + m) * at_low - (t_high + m) * at_high
        x, w = (jnp.asarray(a, c.dtype) for a in _LEGENDRE)
        half = 0.5 * jnp.minimum(high - low, 2.0)
        t = (t_low + half)[..., None] + half[..., None] * x
        density = half[..., None] * w * _normal_density(t - m[..., None])
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


def _normal_density(x: Array) -> Array:
    return jnp.exp(-0.5 * jnp.square(x)) / math.sqrt(2 * math.pi)


def bernoulli_probit(f: Array) -> dist.Distribution:
    """Two classes with the probit link: y in {0, 1} with p(y = 1) = Phi(f).

    Args:
        f: [N], from a last layer with ``out=1``.

    Returns:
        A `BernoulliProbit` distribution with batch shape [N].
    """
    return BernoulliProbit(f)


def bernoulli_logit(f: Array) -> dist.Distribution:
    """Two classes with the logit link: y in {0, 1} with p(y = 1) = 1 / (1 + exp(-f)).

    Args:
        f: [N], from a last layer with ``out=1``.

    Returns:
        A NumPyro `Bernoulli` distribution with batch shape [N].
    """
    bernoulli: Any = dist.Bernoulli(logits=f)
    return bernoulli


def robust_max(f: Array) -> dist.Distribution:
    """C classes: the largest f, with errors of probability 0.001. See `RobustMax`.

    Args:
        f: [N, C], from a last layer with ``out=C``.

    Returns:
        A `RobustMax` distribution with batch shape [N].
    """
    return RobustMax(f)


def softmax(f: Array) -> dist.Distribution:
    """C classes with probabilities proportional to exp(f).

    Args:
        f: [N, C], from a last layer with ``out=C``.

    Returns:
        A NumPyro `Categorical` distribution with batch shape [N].
    """
    categorical: Any = dist.Categorical(logits=f)
    return categorical
