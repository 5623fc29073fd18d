"""Noise of the passes of a prediction that covers its space evenly."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.scipy.special import ndtri
from jaxtyping import Array
from numpyro.primitives import Messenger

from dgp_ppl._typing import PRNGKey

_MOST = 64  # numbers of a row's noise that are spread; others are random


class SpreadNoise(Messenger):
    """Gives the hidden layers' unit noise from a point of a sequence that fills the unit cube.

    `key` is the same in all passes: it shifts the sequence of each row at random, modulo 1. So each
    pass has the distribution of random noise, and means over passes have less error.
    Source: Cranley and Patterson 1976, "Randomization of number theoretic methods".
    """

    def __init__(self, fn: Any, key: PRNGKey, point: Array) -> None:
        super().__init__(fn)
        self.key, self.point, self.used = key, point, 0

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "unit_noise":
            return
        shape, of_rows, dtype = msg["args"]
        rows, num = (shape[0], math.prod(shape[1:])) if of_rows else (1, math.prod(shape))
        first, self.used = self.used, self.used + num
        if self.used <= _MOST:
            shift = random.uniform(random.fold_in(self.key, first), (rows, num), dtype)
            u = (self.point[None, first : self.used] + shift) % 1
            eps = float(jnp.finfo(dtype).eps) / 2
            msg["value"] = ndtri(jnp.clip(u, eps, 1 - eps)).reshape(shape)


@cache
def spread_points(num: int) -> np.ndarray:
    """Return `num` points of the sequence in the unit cube, [num, dimensions].

    Coordinates are multiples of square roots of primes, modulo 1 (Richtmyer's sequence).
    """
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, math.isqrt(n) + 1))]
    return np.arange(1, num + 1)[:, None] * np.sqrt(primes[:_MOST]) % 1
