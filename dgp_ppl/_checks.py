"""Checks of arguments that many functions share."""

from typing import Any

import numpy as np
from numpyro.util import is_prng_key

__all__ = ["check_count", "check_key"]


def check_count(caller: str, name: str, value: object, minimum: int = 1) -> None:
    """Raise unless an argument is an integer that is large enough.

    Args:
        caller: name of the function that received the argument.
        name: name of the argument.
        value: value of the argument.
        minimum: smallest value allowed.

    Raises:
        TypeError: if the value is not an integer. Floats such as 2.0 are not integers.
        ValueError: if the value is below the minimum.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"{caller}: {name} is {value!r}, wanted an integer of at least {minimum}, such as "
            f"{name}={max(minimum, 8)}"
        )
    if value < minimum:
        raise ValueError(f"{caller}: {name} is {value}, wanted at least {minimum}")


def check_key(caller: str, key: Any) -> None:
    """Raise unless an argument is a single random key. Integer seeds are not accepted.

    Args:
        caller: name of the function that received the key.
        key: value of the argument.

    Raises:
        TypeError: if the value is not a key, or is an array of keys.
    """
    if not is_prng_key(key):
        what = f"an array of shape {key.shape}" if hasattr(key, "shape") else repr(key)
        raise TypeError(
            f"{caller}: key is {what}, wanted one random key, such as jax.random.key(0)"
        )
