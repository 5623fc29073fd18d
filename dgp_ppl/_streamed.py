"""`Streamed`: an array of which only the rows of one minibatch are in memory."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["Streamed", "is_streamed", "rows_of", "shape_of"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Streamed:
    """An array [N, ...] that a model gets from a source of rows; only a minibatch of it is here.

    It has the shape of the whole array. `dgp_ppl.minibatch` takes its rows, and nothing else can.

    Attributes:
        rows: the rows of the minibatch, [B, ...].
        numbers: their numbers in the source, [B].
        size: number of all rows N.
    """

    rows: Array
    numbers: Array
    size: int = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array, (N, ...)."""
        return (self.size, *self.rows.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.rows.ndim

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.rows.dtype

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> NoReturn:
        raise self._not_here()

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(jax.Array, name):
            raise AttributeError(f"{name} of an array: {self._not_here()}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._not_here()

    def __jax_array__(self) -> NoReturn:
        raise self._not_here()

    def _not_here(self) -> TypeError:
        return TypeError(
            f"the model takes entries of an argument of shape {list(self.shape)}, of which only "
            f"{self.rows.shape[0]} rows at a time are read from a source (dgp_ppl.Rows); take them "
            "in the plate: with dgp_ppl.minibatch(x, y, batch_size=batch_size) as (x, y)"
        )


_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or",
    "xor", "lshift", "rshift",
)  # fmt: skip
_OTHERS = (
    "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "round", "bool", "int",
    "float", "complex", "index", "setitem",
)  # fmt: skip


def _refuse(self: Streamed, *_: Any) -> NoReturn:
    raise self._not_here()


# Python looks operators up in the class. Without them `y == 1` would be False for all rows.
for _name in (*_BINARY, *(f"r{n}" for n in _BINARY), *_OTHERS):
    setattr(Streamed, f"__{_name}__", _refuse)


def is_streamed(tree: Any) -> bool:
    """Return whether an argument, or one in a tree of arguments, is streamed."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda a: isinstance(a, Streamed))
    return any(isinstance(a, Streamed) for a in leaves)


def shape_of(array: Any) -> tuple[int, ...]:
    """Return the shape of an argument, which may be streamed."""
    return array.shape if isinstance(array, Streamed) else jnp.shape(array)


def rows_of(array: Any) -> Array:
    """Return the rows of an argument: of a streamed one those at hand."""
    return array.rows if isinstance(array, Streamed) else jnp.asarray(array)
