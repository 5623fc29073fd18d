"""A model's arguments, with the arrays that `jax.jit` traces apart from all else.

What is left is hashable, so compiled programs are kept between calls that differ in their arrays
only: the splits of a comparison, say, compile once.
"""

import copy
import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Holder", "Skeleton", "signature"]


class Holder:
    """A program with arrays of its own: what is compiled for one serves others with other arrays.

    Two are equal if they differ in these arrays' values alone.
    """

    @property
    def arrays(self) -> dict[str, Any]:
        """Attributes that are arrays, or trees of them, by name."""
        return {}

    def holding(self, arrays: dict[str, Any]) -> Self:
        """The same with these arrays."""
        if not arrays:
            return self
        other = copy.copy(self)
        vars(other).update(arrays)
        return other


def signature(tree: Any) -> Any:
    """What a tree of arrays is without their values, hashable."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple((jnp.shape(a), str(jnp.result_type(a))) for a in leaves)


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """Arguments without their arrays.

    Attributes:
        treedef: the structure of (args, kwargs, the guide's arrays).
        static: each leaf with its type, None in place of arrays.
        token: None where a program may be shared; else an object that equals itself only.
    """

    treedef: Any
    static: tuple[tuple[type, Any] | None, ...]
    token: object = None

    @staticmethod
    def split(
        model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], guide: Any = None
    ) -> tuple["Skeleton", list[Any]]:
        """The skeleton, and the arrays that go back in its places, in order.

        Programs are shared for this library's own models, with arguments that are no functions but
        its own. A user's function may read what changes between calls (a notebook's globals, say),
        and is compiled anew each time.
        """
        held = guide.arrays if isinstance(guide, Holder) else {}
        leaves, treedef = jax.tree.flatten((args, kwargs, held))
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
        return self._whole(data)[:2]

    def guide(self, guide: Any, data: list[Any]) -> Any:
        """The guide with these arrays."""
        return guide.holding(self._whole(data)[2]) if isinstance(guide, Holder) else guide

    def _whole(self, data: list[Any]) -> Any:
        rest = iter(data)
        leaves = [next(rest) if s is None else s[1] for s in self.static]
        return jax.tree.unflatten(self.treedef, leaves)
