"""A prediction as a pure function of one row of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dgp_ppl.prediction import _functionals as functionals
from dgp_ppl.prediction._pool import PooledPrediction
from dgp_ppl.prediction._prediction import Prediction


def row_function(
    prediction: Prediction, levels: Sequence[float]
) -> Callable[..., dict[str, Array]]:
    """Return the prediction as a function of one row, which `jax.jit` and `jax.vmap` accept.

    >>> import jax, jax.numpy as jnp, dgp_ppl as dgp
    >>> z = jnp.zeros((1, 2))
    >>> p = dgp.predict(jax.random.key(0), dgp.models.svgp, None, {}, z, z=z)
    >>> sorted(jax.vmap(row_function(p, [0.5]))(jnp.zeros((3, 2))))
    ['mean', 'quantiles', 'var']

    The function takes x [D], and a row of each argument that has one row per row of x. Its result
    is a dict of ``mean`` and ``var`` of y [], and ``quantiles`` [Q] if there are levels; for
    classes also ``probabilities`` [C], and no moments or quantiles if the distribution has none.
    They are in the units of the data, and equal the same prediction at this row alone. It raises a
    ValueError if the distribution of y lacks moments, or quantiles.
    """

    def at_row(p: Prediction, x: Array, others: tuple[Array, ...]) -> Prediction:
        if isinstance(p, PooledPrediction):
            return dataclasses.replace(p, members=tuple(at_row(m, x, others) for m in p.members))
        rest = iter(others)
        row = lambda a, own: next(rest)[None] if own else a  # noqa: E731
        data = jax.tree.map(row, p.data, p.by_row)
        return dataclasses.replace(p, x=x[None], data=data, chunk_size=1, _cache={})

    def one_row(x: Array, *others: Array) -> dict[str, Array]:
        loc, spread = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
        if (scale := prediction.standardizer) is not None:
            x = (x - jnp.asarray(scale.x_loc, x.dtype)) / jnp.asarray(scale.x_scale, x.dtype)
            loc, spread = (jnp.asarray(a, x.dtype) for a in (scale.y_loc, scale.y_scale))
        mixtures = next(at_row(prediction, x, others).components())[1]
        found: dict[str, Array] = {}
        classes = functionals.num_classes(mixtures)
        if classes is not None:
            values = functionals.probabilities(mixtures, classes)[0]
            found["probabilities"] = values / values.sum(axis=-1, keepdims=True)
        try:
            mean, var = functionals.moments(mixtures)[0][:2]
            found |= {"mean": mean * spread + loc, "var": var * jnp.square(spread)}
            if len(levels):
                at = functionals.quantiles(mixtures, np.asarray(levels, np.float64))[0]
                found["quantiles"] = at * spread + loc
        except NotImplementedError as error:
            if classes is None:
                lacking: Any = "quantiles; leave them out" if found else "mean and variance"
                raise ValueError(f"the distribution of y has no {lacking} ({error!r})") from error
        return found

    return one_row
