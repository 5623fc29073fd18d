"""Checks of arguments that count something."""

import numpy as np

__all__ = ["check_count"]


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
