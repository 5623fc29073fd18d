"""A model's arguments, with the arrays that `jax.jit` traces apart from all else.

What is left is hashable, so compiled programs are kept between calls that differ in their arrays
only: the splits of a comparison, say, compile once.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Skeleton"]


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """Arguments without their arrays.

    Attributes:
        treedef: the structure of (args, kwargs).
        static: each leaf with its type, None in place of arrays.
        token: None where a program may be shared; else an object that equals itself only.
    """

    treedef: Any
    static: tuple[tuple[type, Any] | None, ...]
    token: object = None

    @staticmethod
    def split(
        model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple["Skeleton", list[Any]]:
        """The skeleton, and the arrays that go back in its places, in order.

        Programs are shared for this library's own models, with arguments that are no functions but
        its own. A user's function may read what changes between calls (a notebook's globals, say),
        and is compiled anew each time.
        """
        leaves, treedef = jax.tree.flatten((args, kwargs))
        arrays = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
        static = tuple(
            None if a else (type(leaf), leaf) for a, leaf in zip(arrays, leaves, strict=True)
        )
        data = [jnp.asarray(leaf) for a, leaf in zip(arrays, leaves, strict=True) if a]
        functions = [model, *(s[1] for s in static if s is not None and callable(s[1]))]
        own = all(str(getattr(f, "__module__", "")).startswith("dgp_ppl.") for f in functions)
        return Skeleton(treedef, static, None if own else object()), data

    def join(self, data: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The args and kwargs with these arrays."""
        rest = iter(data)
        leaves = [next(rest) if s is None else s[1] for s in self.static]
        return jax.tree.unflatten(self.treedef, leaves)
