"""Checks of arguments that many functions take."""

from typing import Any

import numpy as np
from numpyro.util import is_prng_key

__all__ = ["check_count", "check_key"]


def check_count(caller: str, name: str, value: object, least: int = 1) -> None:
    """Raise unless the argument is an integer of at least so much.

    Args:
        caller: what it was given to.
        name: of the argument.
        value: of the argument.
        least: what it may be.

    Raises:
        TypeError: if it is no integer (2.0 is none).
        ValueError: if it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"{caller}: {name} is {value!r}, wanted an integer of at least {least}, such as "
            f"{name}={max(least, 8)}"
        )
    if value < least:
        raise ValueError(f"{caller}: {name} is {value}, wanted at least {least}")


def check_key(caller: str, key: Any) -> None:
    """Raise unless this is one random key: seeds, and arrays of keys, are none.

    Raises:
        TypeError: if it is no key.
    """
    if not is_prng_key(key):
        what = f"an array of shape {key.shape}" if hasattr(key, "shape") else repr(key)
        raise TypeError(
            f"{caller}: key is {what}, wanted one random key, such as jax.random.key(0)"
        )
