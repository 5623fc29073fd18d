"""Likelihoods of two classes, with one f, and of several, with one f each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import log_ndtr, ndtr
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood

_MIN_VARIANCE = 1e-24  # a class's f with a smaller variance counts as known
_LEGENDRE = np.polynomial.legendre.leggauss(6)  # nodes and weights of a panel


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
        log_p = log_ndtr(jnp.where(value > 0, self.latent, -self.latent))
        return jnp.where(self.support(value), log_p, -jnp.inf)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = sample_shape + self.batch_shape
        return random.bernoulli(key, self.probs, shape).astype(jnp.int32)

    def predictive(self, var: Array) -> BernoulliProbit:
        """Return the distribution with p(y = 1) = E[Phi(f)] = Phi(mu / sqrt(1 + v))."""
        return BernoulliProbit(self.latent / jnp.sqrt(1 + var))


bernoulli_probit = BernoulliProbit  # `observe` takes the class as a function of f


def bernoulli_logit(f: Array) -> dist.Distribution:
    """Two classes with the logit link: y in {0, 1} with p(y = 1) = 1 / (1 + exp(-f)).

    Args:
        f: [N], from a last layer with ``out=1``.

    Returns:
        A NumPyro `Bernoulli` distribution with batch shape [N].
    """
    bernoulli: Any = dist.Bernoulli(logits=f)
    return bernoulli


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
        epsilon: probability of an error, in (0, 1), a number or [...].

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
        shape: Any = jnp.broadcast_shapes(self.latent.shape[:-1], self.epsilon.shape)
        super().__init__(shape, validate_args=validate_args)

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
        return jnp.where(self.support(value), jnp.where(hit, *self._log_probs()), -jnp.inf)

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
        """Return P(argmax f = y), the integral of p(f_y) prod_c P(f_c < f_y) over f_y, [...]."""
        # Each factor is a step, of any width. Gauss-Legendre panels begin and end where steps do.
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
                total = total + weight * width * norm.pdf(t) * jnp.prod(below, axis=-1)
            return total, None

        # One panel at a time, because panels x classes x rows need much memory.
        total, _ = lax.scan(jax.checkpoint(add), jnp.zeros_like(shift[..., 0]), (nodes, widths))
        return jnp.clip(total, 0.0, 1.0)

    def _with_errors(self, hits: Array) -> Array:
        """Return p(y = c) from the probabilities that f_c is the largest."""
        epsilon = self.epsilon[..., None]
        return hits * (1 - epsilon) + (1 - hits) * epsilon / (self.num_classes - 1)

    def _log_probs(self) -> tuple[Array, Array]:
        """Return the log probabilities of the class with the largest f and of any other class."""
        return jnp.log1p(-self.epsilon), jnp.log(self.epsilon / (self.num_classes - 1))


def _step_panels(shift: Array, ratio: Array, others: Array) -> tuple[Array, Array]:
    """Return centres and half-widths of panels at the steps Phi(shift + ratio t), `others`."""
    # Steps lie within three widths of their middles, and the density within six deviations.
    middle, width = -shift / ratio, 3.0 / ratio
    ends = jnp.concatenate([middle - width, middle + width], axis=-1)
    ends = jnp.where(jnp.concatenate([others, others], axis=-1), ends, 0.0)
    fixed = jnp.broadcast_to(jnp.array([-6.0, -2, 0, 2, 6], ends.dtype), (*ends.shape[:-1], 5))
    ends = jnp.sort(jnp.clip(jnp.concatenate([ends, fixed], axis=-1), -6.0, 6.0), axis=-1)
    ends = jnp.moveaxis(ends, -1, 0)
    return 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])


robust_max = RobustMax  # `observe` takes the class as a function of f


def softmax(f: Array) -> dist.Distribution:
    """C classes with probabilities proportional to exp(f).

    Args:
        f: [N, C], from a last layer with ``out=C``.

    Returns:
        A NumPyro `Categorical` distribution with batch shape [N].
    """
    categorical: Any = dist.Categorical(logits=f)
    return categorical
