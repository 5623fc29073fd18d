"""Checks of random keys."""

from typing import Any

from numpyro.util import is_prng_key

__all__ = ["check_key"]


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
