"""Several inputs at once: each is chosen given draws of what the others will find."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array

from dgp_ppl.design._criteria import CRITERIA, variance_reduction


def greedy(
    criterion: str,
    num: int,
    draws: np.ndarray,
    mean: np.ndarray,
    given: int,
    about: dict[str, Any],
    weights: np.ndarray,
) -> list[int]:
    """Return the places of `num` inputs, one after another.

    Each draw of f is a fantasy: runs under way, and at inputs that were chosen, find its values.
    Given these, f elsewhere has the mean and the variance of a regression over the draws: exact for
    a Gaussian process, but for the error of the draws. The criterion is averaged over fantasies.

    Args:
        criterion: a name of `CRITERIA` or `OF_DRAWS`.
        num: number of inputs.
        draws: joint draws of f, which is to be low, [K, N].
        mean: mean of f, [N].
        given: number of runs under way: the first inputs.
        about: what the criterion knows.
        weights: logarithms to add to the scores, [N]; minus infinity where nothing is chosen.

    Source: Ginsbourger, Le Riche & Carraro (2010), with draws for the liar's values.
    """
    draws, rest, left = np.array(draws), draws - mean, weights.copy()
    best, chosen = np.full(len(draws), about["best"]), []

    def condition(place: int) -> None:
        off = rest[:, place].copy()
        if (size := off @ off) > 0:
            rest[...] -= np.outer(off, off @ rest / size)
        np.minimum(best, draws[:, place], out=best)

    for place in range(given):
        condition(place)
    for i in range(num):
        if criterion == "thompson":
            scores = -draws[i % len(draws)]
        elif criterion == "integrated_variance":
            scores = _log_reduction(rest, rest * np.isfinite(weights))
        else:
            scores = _mean_score(criterion, draws - rest, rest, about | {"best": best})
        place = int(np.argmax(np.asarray(scores) + left))
        chosen.append(place)
        left[place] = -np.inf
        condition(place)
    return chosen


@jax.jit
def _log_reduction(draws: Array, reference: Array) -> Array:
    return jnp.log(variance_reduction(draws, reference))


@partial(jax.jit, static_argnums=0)
def _mean_score(criterion: str, means: Array, rest: Array, about: dict[str, Array]) -> Array:
    """Return the logarithm of the mean criterion over fantasies, [N]."""
    var = jnp.square(rest).mean(axis=0)

    def one(mean: Array, best: Array) -> Array:
        return CRITERIA[criterion](mean[None], var[None], about | {"best": best})

    return logsumexp(jax.vmap(one)(means, about["best"]), axis=0) - jnp.log(len(means))
