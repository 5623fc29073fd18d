"""Noise with heavy tails."""

from __future__ import annotations

from typing import Any

import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

__all__ = ["student_t"]


def student_t(f: Float[Array, "... N"]) -> dist.Distribution:
    """Student t noise, for targets with outliers: y ~ f + scale · t(df).

    In a model its scale is the param ``noise``, which starts at 0.3, and its degrees of freedom are
    the param ``df``, which starts at 5 and stays above 2, where y has a variance. Gaussian noise is
    the limit of large `df`.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.student_t(jnp.zeros(3))
    >>> round(float(y.variance[0]), 2)  # 0.3² · 5 / (5 - 2)
    0.15

    Args:
        f: [..., N], from a last layer with one output.

    Returns:
        A `StudentT` distribution with batch shape [..., N].
    """
    scale: Any = numpyro.param("noise", 0.3, constraint=constraints.positive)
    df: Any = numpyro.param("df", 5.0, constraint=constraints.greater_than(2.0))
    return dist.StudentT(df, f, scale)
