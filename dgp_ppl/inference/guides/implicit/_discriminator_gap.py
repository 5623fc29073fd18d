"""A diagnostic of implicit posteriors: the discriminator's KL against bounds on the true one."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import numpy as np
from jax import random
from jaxtyping import Array

from dgp_ppl._checks import check_count, check_key, params_of
from dgp_ppl._typing import Fitted, Params, PRNGKey
from dgp_ppl.inference.guides.implicit._elbo import AdversarialGuide, check_adversarial
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair

__all__ = ["DiscriminatorGap", "discriminator_gap"]


@dataclasses.dataclass(frozen=True)
class DiscriminatorGap:
    """The discriminator's estimate of KL[q || p], and bounds on it, in nats.

    Attributes:
        estimate: E_q T, the term of the loss that stands for the KL.
        estimate_se: standard error of `estimate`.
        lower: a lower bound on the KL in expectation; the KL itself for a Gaussian generator.
        lower_se: standard error of `lower`.
        upper: an upper bound on the KL in expectation; the KL itself for a Gaussian generator.
        upper_se: standard error of `upper`.
    """

    estimate: float
    estimate_se: float
    lower: float
    lower_se: float
    upper: float
    upper_se: float

    @property
    def gap(self) -> float:
        """Distance in nats of the estimate from the interval [lower, upper].

        Positive: the estimate is below `lower`, so the bound that a fit reports is too high by at
        least this much. Negative: the estimate is above `upper`, and the reported bound is too low.
        """
        return max(self.lower - self.estimate, 0.0) + min(self.upper - self.estimate, 0.0)

    @property
    def lags(self) -> bool:
        """Whether the gap exceeds three standard errors, 5 % of the KL, and half a nat."""
        error = math.hypot(self.estimate_se, max(self.lower_se, self.upper_se))
        return abs(self.gap) > max(3 * error, 0.05 * abs(self.lower), 0.5)


def discriminator_gap(
    key: PRNGKey,
    guide: AdversarialGuide,
    params: Params | Fitted,
    *,
    num_draws: int = 2000,
    num_others: int = 2000,
) -> DiscriminatorGap:
    """Check whether the discriminator keeps up with the generator.

    Compares the discriminator's estimate of the KL with bounds that do not use the discriminator.
    The KL has a closed form for a Gaussian generator (``Implicit(model, generator=None)``). For
    other generators q is a mixture of Gaussians over the shared noise, and finite mixtures give a
    bound on either side::

        result = dgp.fit(key, model, guide, x, y)
        gap = discriminator_gap(key, guide, result.params)
        if gap.lags:
            print(f"the reported bound is off by {gap.gap:.1f} nats or more")

    Args:
        key: random key.
        guide: an `Implicit` guide that has been run.
        params: the params of a fit, or its result.
        num_draws: number of draws of the features, at least 4. Use hundreds.
        num_others: number of draws of the shared noise in the mixture. More draws tighten the
            bounds.

    Raises:
        TypeError: for a guide without a discriminator, or a number that is not an integer.
        ValueError: for too few draws, or a guide that has not been run.

    Source:
        Molchanov et al. 2019, "Doubly semi-implicit variational inference", section 3.
    """
    check_key("discriminator_gap", key)
    for name, value, least in (("num_draws", num_draws, 4), ("num_others", num_others, 1)):
        check_count("discriminator_gap", name, value, least)
    params = params_of("discriminator_gap", params)
    pair = check_adversarial("discriminator_gap", guide).adversarial_pair(params)
    terms = _terms(pair, key, 2 * -(-num_draws // 2), num_others)
    estimate, lower, upper = (_summary(a) for a in terms)
    return DiscriminatorGap(*estimate, *lower, *upper)


@eqx.filter_jit
def _terms(
    pair: AdversarialPair, key: PRNGKey, num: int, others: int
) -> tuple[Array, Array, Array]:
    key_s, key_e, key_others = random.split(key, 3)
    h = pair.features(key_s, num)
    estimate = pair.log_ratio(h, pair.discriminator_inputs(key_e, h))
    return estimate, *pair.kl_bounds(key_e, h, pair.features(key_others, 2 * others)[::2])


def _summary(terms: Array) -> tuple[float, float]:
    """Return mean and standard error. Antithetic pairs count as one draw."""
    pairs = np.asarray(terms, np.float64).reshape(-1, 2).mean(axis=1)
    return float(pairs.mean()), float(pairs.std(ddof=1) / math.sqrt(len(pairs)))
