"""Likelihoods of counts whose log rate is f.

NumPyro takes the rate itself. In float32 exp(f) is 0 below f = -87, where its log has no gradient.
"""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

__all__ = ["NegativeBinomialLog", "PoissonLog"]


class PoissonLog(dist.Poisson):
    """Counts with a log rate: y ~ Poisson(exp(log_rate)).

    It is NumPyro's `Poisson` with gradients that are finite for any f below 88 in float32, and
    below 709 in float64, where exp(f) overflows.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.PoissonLog(jnp.array([-100.0, 0.0]))
    >>> [round(p, 2) for p in y.log_prob(jnp.array([1, 0])).tolist()]
    [-100.0, -1.0]

    Args:
        log_rate: log of the expected count: f, or f plus the log of an exposure.
    """

    arg_constraints = {"log_rate": constraints.real}  # noqa: RUF012 - NumPyro's declaration

    def __init__(self, log_rate: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.log_rate = jnp.asarray(log_rate, float)
        super().__init__(jnp.exp(self.log_rate), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        count = jnp.asarray(value, self.log_rate.dtype)
        return count * self.log_rate - jnp.exp(self.log_rate) - gammaln(count + 1)


class NegativeBinomialLog(dist.NegativeBinomialLogits):
    """Counts that vary more than Poisson ones, with a log mean.

    It is NumPyro's `NegativeBinomial2` with gradients that are finite for any f. The mean is
    exp(log_mean), and the variance is mean + mean² / concentration.

    >>> import jax
    >>> from dgp_ppl import likelihoods
    >>> jax.grad(lambda f: likelihoods.NegativeBinomialLog(f, 3.0).log_prob(2))(-50.0).tolist()
    2.0

    Args:
        log_mean: log of the expected count: f, or f plus the log of an exposure.
        concentration: positive; the Poisson distribution is the limit of large values.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "log_mean": constraints.real, "concentration": constraints.positive,
    }  # fmt: skip

    def __init__(
        self, log_mean: ArrayLike, concentration: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        self.log_mean, total = jnp.broadcast_arrays(
            jnp.asarray(log_mean, float), jnp.asarray(concentration, float)
        )
        logits: Any = self.log_mean - jnp.log(total)
        super().__init__(total, logits, validate_args=validate_args)
