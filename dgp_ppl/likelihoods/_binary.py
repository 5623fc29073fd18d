"""Likelihoods of two classes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jax.scipy.special import log_ndtr, ndtr
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood


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
