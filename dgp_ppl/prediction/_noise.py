"""Noise of the passes of a prediction that covers its range evenly."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import random
from jax.scipy.special import ndtri
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.primitives import Messenger

from dgp_ppl._typing import PRNGKey

_MOST = 64  # numbers of a row's noise at a site; more are random, because orders take time


class SpreadNoise(Messenger):
    """Gives the hidden layers' unit noise, spread evenly over S passes: a Latin hypercube.

    Each number of a row's noise takes each of S intervals of equal probability in one pass, in a
    random order of its own. So each pass has the distribution of random noise, rows and numbers are
    independent, and means over passes lose the error of all that is a sum of functions of one
    number. Source: McKay, Beckman and Conover (1979); Stein (1987), for the error.

    Args:
        fn: a model.
        key: the same in all passes.
        strata: the lower ends of the intervals, 0 ... 1 - 1/S, [S].
        number: of the pass, 0 ... S - 1.
    """

    def __init__(self, fn: Any, key: PRNGKey, strata: Array, number: ArrayLike) -> None:
        super().__init__(fn)
        self.key, self.strata, self.number = key, strata, number

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "unit_noise":
            return
        shape, of_rows, dtype = msg["args"]
        rows, num = (shape[0], math.prod(shape[1:])) if of_rows else (1, math.prod(shape))
        if num > _MOST:
            return
        self.key, key_order, key_shift = random.split(self.key, 3)
        size = len(self.strata)
        order = jnp.argsort(random.uniform(key_order, (rows, num, size)), axis=-1)
        shift = random.uniform(key_shift, (rows, num), dtype)
        u = self.strata.astype(dtype)[order[..., self.number]] + shift / size
        eps = float(jnp.finfo(dtype).eps) / 2
        msg["value"] = ndtri(jnp.clip(u, eps, 1 - eps)).reshape(shape)
