"""The bias that few passes over the hidden layers' noise give LOO: estimate, storage and warning.

The log-likelihood of a row is the log of a mean of p over passes. To first order, its bias in LOO
is a constant for each row. `to_inferencedata` adds this correction to the log-likelihood, and
stores it in ``constant_data``. The bias left is the attribute ``loo_bias`` of the log-likelihood.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array

_MAX_SHARE = 0.1  # of the standard error, that the bias left may have


class PassSums(NamedTuple):
    """The log sums of p and of its square over even and over odd passes, [..., 2] each."""

    first: Array
    second: Array

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> PassSums:
        nothing = jnp.full((*shape, 2), -jnp.inf, dtype)
        return PassSums(nothing, nothing)

    def add(self, terms: Array, index: Array, passes: Array) -> PassSums:
        """Add log p [B, ...] of a block of passes by their numbers [B], of which K count."""
        half = jnp.stack([index % 2 == 0, index % 2 == 1], axis=-1) & (index < passes)[:, None]
        counted = half.reshape(len(index), *(1,) * (terms.ndim - 1), 2)
        log_p = jnp.where(counted, terms[..., None], -jnp.inf)
        return PassSums(
            jnp.logaddexp(self.first, logsumexp(log_p, axis=0)),
            jnp.logaddexp(self.second, logsumexp(2 * log_p, axis=0)),
        )

    def log_mean(self, passes: Array) -> tuple[Array, Array]:
        """Return the log of the mean of p over all passes, and its squared error, [...]."""
        return _log_mean(logsumexp(self.first, axis=-1), logsumexp(self.second, axis=-1), passes)

    def log_means_of_halves(self, passes: Array) -> tuple[Array, Array]:
        """Return what `log_mean` does, of the even and of the odd passes, [..., 2]."""
        counts = jnp.stack([(passes + 1) // 2, passes // 2])
        return _log_mean(self.first, self.second, counts)


def _log_mean(first: Array, second: Array, count: Array) -> tuple[Array, Array]:
    """Return the log of a mean, and the variance of the mean over its square (0 for one term)."""
    count = jnp.asarray(count, first.dtype)
    ratio = jnp.where(jnp.isfinite(first), count * jnp.exp(second - 2 * first), 1.0)
    error = jnp.maximum(ratio - 1, 0.0) / jnp.maximum(count - 1, 1)
    return first - jnp.log(count), jnp.where(count > 1, error, 0.0)


@dataclasses.dataclass(frozen=True)
class LooBias:
    """Leave-one-out cross-validation of each row, and its bias because of few passes, in nats."""

    elpd: np.ndarray  # log density of each row given all other rows, [N], corrected
    correction: np.ndarray  # [N]; log p plus it gives a corrected LOO
    left: np.ndarray  # estimate of the bias after the correction, [N]; NaN for a single pass
    seen: np.ndarray  # whether a row counts, [N]

    @property
    def wanted_factor(self) -> int:
        """How many times as many passes it takes to make the bias small."""
        return _passes_factor(self.total, self.se)

    @property
    def total(self) -> float:
        """Bias left in the sum over rows, in nats."""
        return float(self.left[self.seen].sum(dtype=np.float64))

    @property
    def se(self) -> float:
        """Standard error of the sum over rows, in nats."""
        elpd = self.elpd[self.seen]
        return float(np.sqrt(elpd.size * elpd.var(dtype=np.float64))) if elpd.size else 0.0


def _passes_factor(bias: float, se: float) -> int:
    """Return how many times as many passes make the bias small: 2, 4, ...; 1 for no more."""
    # The bias left falls between 1 / K and 1 / K squared. The power 1.5 fits measurements.
    ratio = abs(bias) / (_MAX_SHARE * se) if se else 0.0
    return 2 ** max(1, math.ceil(math.log2(ratio) / 1.5)) if ratio > 1 else 1


def loo_bias(sums: PassSums, passes: Array) -> tuple[Array, Array, Array]:
    """Return LOO of each row, its correction and the bias left, [...], from sums at S draws.

    Source: Vehtari, Gelman and Gabry 2017, "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC", for the harmonic mean; the bias is its delta method.
    """
    # LOO needs the mean of 1/p over draws. The mean q of p over K passes is unbiased, but 1/q is
    # not: to first order in 1 / K, E[1/q] = (1 + e) / p, where e is the squared relative error of
    # q. So LOO of a row is too low by the mean of e over draws, weighted by 1/q: the correction.
    elpd, correction = _leave_one_out(*sums.log_mean(passes))
    # The bias left is estimated by what doubling the passes from K / 2 to K has changed: its size
    # if the bias falls as 1 / K, three times its size if it falls as 1 / K squared.
    of_halves = sum(_leave_one_out(*sums.log_means_of_halves(passes)))
    left = elpd + correction - jnp.mean(of_halves, axis=-1)
    # Where p is 0 in all passes at a draw, LOO and its bias are NaN. Other draws stay as they are.
    return elpd + correction, jnp.where(jnp.isfinite(correction), correction, 0.0), left


def _leave_one_out(log_p: Array, error: Array) -> tuple[Array, Array]:
    """Return the log density of rows given other rows, and the weighted mean of squared errors.

    The importance weights 1/p are truncated at sqrt(S) times their mean (Ionides 2008, "Truncated
    Importance Sampling").
    """
    size = len(log_p)
    log_weight = -log_p
    most = logsumexp(log_weight, axis=0) - 0.5 * math.log(size)
    log_weight = jnp.minimum(log_weight, most)
    log_weight = log_weight - logsumexp(log_weight, axis=0)
    return logsumexp(log_weight + log_p, axis=0), jnp.sum(jnp.exp(log_weight) * error, axis=0)


def correction_variable(name: str) -> str:
    """Return the variable of ``constant_data`` that holds the correction of a site."""
    return f"{name}_loo_correction"


def stored_correction(tree: Any, name: str) -> np.ndarray:
    """Return the correction that a site's log-likelihood contains, in nats, [N]; 0 for none."""
    found = tree.children.get("constant_data")
    variable = correction_variable(name)
    return found[variable].values if found is not None and variable in found else np.zeros(())


def warn_about_bias(tree: Any, name: str, se: float) -> None:
    """Warn where the passes over hidden noise are too few for LOO, whose standard error is `se`."""
    attributes = tree["log_likelihood"].attrs
    integrated = (attributes.get("hidden_noise"), attributes.get("latent_rows"))
    if "integrated" not in integrated:
        return
    passes = attributes.get("passes", 1)
    bias = float(tree["log_likelihood"][name].attrs.get("loo_bias", math.nan))
    what = "hidden layers' noise" if integrated[0] == "integrated" else "latent inputs"
    if math.isnan(bias):  # of a single pass, or where p is 0 in all passes
        size, wanted = "an unknown bias", f"passes={10 * passes} or more in to_inferencedata"
    elif (factor := _passes_factor(bias, se)) > 1:
        size = f"an estimated bias of {-bias:.2g} nats, more than a tenth of the error {se:.2g}"
        wanted = f"passes={factor * passes} in to_inferencedata"
    else:
        return
    warnings.warn(
        f"the log-likelihood integrates over {what} by passes={passes}, which gives LOO {size}; "
        f"set {wanted}",
        stacklevel=3,
    )
