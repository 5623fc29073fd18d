"""Random generators of NumPy from a random key: one for each use, so that draws are independent."""

from __future__ import annotations

import numpy as np
from jax import random

from dgp_ppl._checks import check_key
from dgp_ppl._typing import PRNGKey

__all__ = ["generator", "seed_of"]

_USES = ("pass", "shuffle", "sample", "hold out", "minibatches")


def seed_of(key: PRNGKey) -> tuple[int, ...]:
    """Return the numbers of a random key, as a seed of NumPy's generators."""
    check_key("seed_of", key)
    data = key if not hasattr(key, "dtype") or key.dtype == np.uint32 else random.key_data(key)
    return tuple(int(word) for word in np.asarray(data).ravel())


def generator(seed: tuple[int, ...], use: str, *numbers: int) -> np.random.Generator:
    """Return the generator of a use of a seed, such as the shuffle of window `numbers`.

    Zeros at the end of a seed do not count for NumPy, so the use cannot stand there.
    """
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(_USES.index(use), *numbers))
    )
