"""Results that can be pickled, with arrays on the host, and read in another process."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

__all__ = ["Portable"]


class _HostArray:
    """A JAX array as NumPy's, or a random key as its numbers: files that no version of JAX owns."""

    def __init__(self, array: Any) -> None:
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        self.key_type = str(random.key_impl(array)) if is_key else None
        self.value = np.asarray(random.key_data(array) if is_key else array)

    def restore(self) -> Any:
        value = jnp.asarray(self.value)
        return value if self.key_type is None else random.wrap_key_data(value, impl=self.key_type)


class Portable:
    """Base of dataclasses that pickle with arrays on the host.

    Attributes named in `if_possible` are None after loading if they could not be pickled.
    """

    if_possible: ClassVar[tuple[str, ...]] = ()
    """Attributes that may be lost: functions of other libraries."""

    left_out: ClassVar[tuple[str, ...]] = ()
    """Attributes that are left out: dicts, empty after loading."""

    def __getstate__(self) -> dict[str, Any]:
        kept = {n: a for n, a in vars(self).items() if n not in self.left_out}
        found = {n: a for n, a in kept.items() if n in self.if_possible}
        arrays = {n: _to_host(a) for n, a in kept.items() if n not in found}
        return arrays | {n: a if _can_be_pickled(a) else None for n, a in found.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_host = lambda a: isinstance(a, _HostArray)  # noqa: E731
        restore = lambda a: a.restore() if is_host(a) else a  # noqa: E731
        for name, value in state.items():
            # The dataclasses are frozen.
            if name not in self.if_possible:
                value = jax.tree.map(restore, value, is_leaf=is_host)
            object.__setattr__(self, name, value)
        for name in self.left_out:
            object.__setattr__(self, name, {})

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other


def _to_host(tree: Any) -> Any:
    return jax.tree.map(lambda a: _HostArray(a) if isinstance(a, jax.Array) else a, tree)


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True
