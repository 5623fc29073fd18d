"""Several inputs at once: each is chosen given draws of what the others will find."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array

from dgp_ppl.design._criteria import CRITERIA, log, variance_reduction


def greedy(
    criterion: str,
    num: int,
    draws: Sequence[np.ndarray],
    mean: Sequence[np.ndarray],
    given: int,
    about: dict[str, Any],
    weights: np.ndarray,
) -> list[int]:
    """Return the places of `num` inputs, one after another.

    Each draw of f is a fantasy: runs under way, and at inputs that were chosen, find its values.
    Given these, f elsewhere has the mean and the variance of a regression over the draws: exact for
    a Gaussian process, but for the error of the draws. The criterion is averaged over fantasies.

    Args:
        criterion: a name of `CRITERIA`, or "integrated_variance".
        num: number of inputs.
        draws: joint draws of f, which is to be low, [K, N], of each output.
        mean: mean of f, [N], of each output.
        given: number of runs under way: the first inputs.
        about: what the criterion knows.
        weights: logarithms to add to the scores, [N]; minus infinity where nothing is chosen.

    Source: Ginsbourger, Le Riche & Carraro (2010), with draws for the liar's values.
    """
    values, left = np.array(draws), weights.copy()
    rest = values - np.array(mean)[:, None]
    best, chosen = np.full(values.shape[1], about["best"]), []

    def condition(place: int) -> None:
        for f in rest:
            off = f[:, place].copy()
            if (size := off @ off) > 0:
                f[...] -= np.outer(off, off @ f / size)
        np.minimum(best, values[0, :, place], out=best)

    for place in range(given):
        condition(place)
    for _ in range(num):
        if criterion == "integrated_variance":
            scores = _log_reduction(rest, rest * np.isfinite(weights))
        else:
            scores = _mean_score(criterion, values - rest, rest, about | {"best": best})
        place = int(np.argmax(np.asarray(scores) + left))
        chosen.append(place)
        left[place] = -np.inf
        condition(place)
    return chosen


@jax.jit
def _log_reduction(draws: Array, reference: Array) -> Array:
    return logsumexp(log(jax.vmap(variance_reduction)(draws, reference)), axis=0)


@partial(jax.jit, static_argnums=0)
def _mean_score(criterion: str, means: Array, rest: Array, about: dict[str, Array]) -> Array:
    """Return the logarithm of the sum over outputs of the mean criterion over fantasies, [N]."""

    def of_output(means: Array, rest: Array, nearest: Array) -> Array:
        var, known = jnp.square(rest).mean(axis=0), about | {"nearest": nearest}

        def one(mean: Array, best: Array) -> Array:
            return CRITERIA[criterion](mean[None], var[None], known | {"best": best})

        return logsumexp(jax.vmap(one)(means, about["best"]), axis=0) - jnp.log(len(means))

    return logsumexp(jax.vmap(of_output)(means, rest, about["nearest"]), axis=0)
