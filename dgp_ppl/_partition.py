"""A model's arguments, and their partition into arrays and what is static.

What is left without the arrays that `jax.jit` traces is hashable. Compiled programs are therefore
kept between calls that differ in their arrays only: the splits of a comparison compile once.
"""

import copy
import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Call", "Holder", "Partition", "signature"]


class Call(NamedTuple):
    """The arguments of one call of a model.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed in place

    def without(self, *names: str) -> "Call":
        """The call without some of its keyword arguments."""
        return Call(self.args, {n: a for n, a in self.kwargs.items() if n not in names})


class Holder:
    """A program that holds arrays: what is compiled for one serves others with other arrays.

    Two are equal if they differ in the values of these arrays alone.
    """

    @property
    def arrays(self) -> dict[str, Any]:
        """Attributes that are arrays, or trees of them, by name."""
        return {}

    def holding(self, arrays: dict[str, Any]) -> Self:
        """The same program with these arrays."""
        if not arrays:
            return self
        other = copy.copy(self)
        vars(other).update(arrays)
        return other


def signature(tree: Any) -> Any:
    """The structure, shapes and dtypes of a tree of arrays, hashable."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple((jnp.shape(a), str(jnp.result_type(a))) for a in leaves)


@dataclasses.dataclass(frozen=True)
class Partition:
    """The static part of a call and of a guide's arrays; hashable.

    Attributes:
        treedef: structure of (args, kwargs, the guide's arrays).
        static: each leaf with its type; None in place of arrays.
        token: None where programs may be shared; otherwise an object that equals itself only.
    """

    treedef: Any
    static: tuple[tuple[type, Any] | None, ...]
    token: object = None

    @staticmethod
    def split(model: Any, call: Call, guide: Any = None) -> "tuple[Partition, list[Any]]":
        """The static part, and the arrays to be joined with it, in order.

        Programs are shared for this library's own models, if the functions among their arguments
        are its own too. A user's function may read what changes between calls (a notebook's
        globals, say), and is compiled anew each time.
        """
        held = guide.arrays if isinstance(guide, Holder) else {}
        leaves, treedef = jax.tree.flatten((call.args, call.kwargs, held))
        arrays = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
        static = tuple(
            None if a else (type(leaf), leaf) for a, leaf in zip(arrays, leaves, strict=True)
        )
        data = [jnp.asarray(leaf) for a, leaf in zip(arrays, leaves, strict=True) if a]
        functions = [model, *(s[1] for s in static if s is not None and callable(s[1]))]
        own = all(str(getattr(f, "__module__", "")).startswith("dgp_ppl.") for f in functions)
        return Partition(treedef, static, None if own else object()), data

    def join(self, data: list[Any]) -> Call:
        """The call with these arrays."""
        return Call(*self._whole(data)[:2])

    def guide(self, guide: Any, data: list[Any]) -> Any:
        """The guide with these arrays."""
        return guide.holding(self._whole(data)[2]) if isinstance(guide, Holder) else guide

    def _whole(self, data: list[Any]) -> Any:
        rest = iter(data)
        leaves = [next(rest) if s is None else s[1] for s in self.static]
        return jax.tree.unflatten(self.treedef, leaves)
