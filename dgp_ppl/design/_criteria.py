"""Criteria of the next run: functions of a prediction that is a Gaussian mixture over passes.

S is the number of passes, each of weight 1/S, and N the number of inputs. All can be traced. They
are in the units of the prediction, and f is what is minimised.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jax.typing import ArrayLike
from jaxtyping import Array

_TAIL = -4.0  # below it a continued fraction is exact, and above it a sum loses few digits
_TERMS = 15


def expected_improvement(means: ArrayLike, variances: ArrayLike, best: ArrayLike) -> Array:
    """Return E[max(best - f, 0)], [N].

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.design import expected_improvement
    >>> expected_improvement(jnp.zeros((1, 2)), jnp.array([[1.0, 4.0]]), 0.0).round(3).tolist()
    [0.399..., 0.798...]

    Args:
        means: mean of f in each pass, [S, N].
        variances: variance of f in each pass, [S, N].
        best: lowest value so far.

    Source: Jones, Schonlau & Welch (1998), eq. 15.
    """
    return jnp.exp(log_expected_improvement(means, variances, best))


def log_expected_improvement(means: ArrayLike, variances: ArrayLike, best: ArrayLike) -> Array:
    """Return log E[max(best - f, 0)], [N], exact where the improvement itself would be 0.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.design import log_expected_improvement
    >>> log_expected_improvement(jnp.full((1, 1), 100.0), jnp.ones((1, 1)), 0.0).round().tolist()
    [-5010.0]

    Args:
        means: mean of f in each pass, [S, N].
        variances: variance of f in each pass, [S, N].
        best: lowest value so far.

    Source: Ament, Daulton, Eriksson, Balandat & Bakshy (2023), by a continued fraction.
    """
    means, sd = jnp.asarray(means, float), _sd(variances)
    return _log_mean(jnp.log(sd) + _log_gain((best - means) / sd))


def contour_entropy(means: ArrayLike, variances: ArrayLike, level: ArrayLike) -> Array:
    """Return the entropy of whether f is above a level, in nats, [N]; at most log 2.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.design import contour_entropy
    >>> contour_entropy(jnp.array([[0.0, 9.0]]), jnp.ones((1, 2)), 0.0).round(3).tolist()
    [0.693..., 0.0]

    Args:
        means: mean of f in each pass, [S, N].
        variances: variance of f in each pass, [S, N].
        level: the level.

    Source: Cole, Gramacy, Warner, Bomarito, Leser & Leser (2023).
    """
    z = (jnp.asarray(means, float) - level) / _sd(variances)
    logs = _log_mean(log_ndtr(jnp.stack([z, -z])), axis=1)
    return -jnp.sum(jnp.exp(logs) * logs, axis=0)


def global_improvement(means: ArrayLike, variances: ArrayLike, nearest: ArrayLike) -> Array:
    """Return Var[(f - f_n)²], [N], where f_n is the value of the nearest run (VIGF).

    It is large where f is uncertain, or differs from the nearest run, as at jumps.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.design import global_improvement
    >>> global_improvement(jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.zeros(1)).tolist()
    [6.0]

    Args:
        means: mean of f in each pass, [S, N].
        variances: variance of f in each pass, [S, N].
        nearest: value of the run nearest to each input, [N].

    Source: Mohammadi & Challenor (2022).
    """
    off, var = jnp.asarray(means, float) - nearest, jnp.asarray(variances, float)
    second = jnp.square(off) + var
    # Of a normal d: Var[d²] = 4 E[d]² Var[d] + 2 Var[d]².
    within = 4 * jnp.square(off) * var + 2 * jnp.square(var)
    return within.mean(axis=0) + second.var(axis=0)


def variance_reduction(draws: ArrayLike, reference: ArrayLike, noise: float = 0.0) -> Array:
    """Return the mean variance at reference inputs that a run at each input would take away, [N].

    The covariances are of joint draws of functions, as `Prediction.function_draws` makes them. The
    result is exact for a Gaussian process, but for the error of the draws.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.design import variance_reduction
    >>> f = jnp.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> variance_reduction(f[:, :1], f).tolist()
    [0.5]

    Args:
        draws: values of K functions at the inputs, [K, N].
        reference: values of the same functions at R reference inputs, [K, R].
        noise: variance of the noise of the run.

    Source: Cohn (1996).
    """
    draws, reference = jnp.asarray(draws, float), jnp.asarray(reference, float)
    draws, reference = draws - draws.mean(axis=0), reference - reference.mean(axis=0)
    var = jnp.square(draws).mean(axis=0)
    covariance = draws.T @ reference / len(draws)
    return jnp.square(covariance).mean(axis=1) / (var + noise + _least(var))


def _least(a: Array) -> Array:
    return jnp.sqrt(jnp.finfo(a.dtype).tiny)


def _sd(variances: ArrayLike) -> Array:
    var = jnp.asarray(variances, float)
    return jnp.sqrt(jnp.maximum(var, _least(var)))


def _log_mean(logs: Array, axis: int = 0) -> Array:
    return logsumexp(logs, axis=axis) - jnp.log(logs.shape[axis])


@jax.custom_jvp
def _log_gain(z: Array) -> Array:
    """Return log(φ(z) + z Φ(z))."""
    t, c = _fraction(z)
    near = jnp.maximum(z, _TAIL)
    direct = jnp.log(jnp.exp(_log_normal(near)) + near * ndtr(near))
    return jnp.where(z > _TAIL, direct, _log_normal(t) + jnp.log(c) - jnp.log(t + c))


@_log_gain.defjvp
def _slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    value = _log_gain(z)
    near = jnp.maximum(z, _TAIL)
    direct = ndtr(near) / (jnp.exp(_log_normal(near)) + near * ndtr(near))
    return value, jnp.where(z > _TAIL, direct, 1 / _fraction(z)[1]) * dz


def _fraction(z: Array) -> tuple[Array, Array]:
    """Return t = -z, and c with Φ(z) / φ(z) = 1 / (t + c), so that no difference is taken."""
    t = jnp.maximum(-z, -_TAIL)
    above, below = jnp.zeros_like(t), jnp.ones_like(t)
    for i in range(_TERMS, 0, -1):  # c = i / (t + c), as a quotient: XLA chokes on chains of them
        scale = 1 / (t + i**0.5)
        above, below = i * below * scale, (t * below + above) * scale
    return t, above / below


def _log_normal(z: Array) -> Array:
    return -0.5 * jnp.square(z) - 0.5 * jnp.log(2 * jnp.pi)


def _log_ei(means: Array, variances: Array, about: dict[str, Array]) -> Array:
    known = jnp.isfinite(about["best"])  # whether a run is feasible
    found = log_expected_improvement(means, variances, jnp.where(known, about["best"], 0.0))
    return jnp.where(known, found, 0.0)


def _log_variance(means: Array, variances: Array, about: dict[str, Array]) -> Array:
    return log(variances.mean(axis=0) + means.var(axis=0))


def _log_contour(means: Array, variances: Array, about: dict[str, Array]) -> Array:
    # The entropy alone is log 2 on all of the predicted contour, however well it is known.
    entropy = contour_entropy(means, variances, about["level"])
    return log(entropy) + 0.5 * _log_variance(means, variances, about)


def _log_vigf(means: Array, variances: Array, about: dict[str, Array]) -> Array:
    return log(global_improvement(means, variances, about["nearest"]))


def log(a: Array) -> Array:
    """Return log a, which is finite at 0: minus infinity stands for what may not be chosen."""
    return jnp.log(jnp.maximum(a, jnp.finfo(a.dtype).tiny))


CRITERIA: dict[str, Callable[[Array, Array, dict[str, Array]], Array]] = {
    "log_ei": _log_ei, "variance": _log_variance, "contour": _log_contour, "vigf": _log_vigf,
}  # fmt: skip
"""Logarithms of criteria of f at each input, given means, variances and what a study knows."""

OF_DRAWS = ("integrated_variance", "thompson")
"""Criteria of draws of whole functions."""
