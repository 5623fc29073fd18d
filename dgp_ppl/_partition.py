"""A model's arguments, and their partition into arrays and what is static.

What is left without the arrays that `jax.jit` traces is hashable. Compiled programs are therefore
kept between calls that differ in their arrays only: the splits of a comparison compile once.
"""

import copy
import dataclasses
import inspect
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

__all__ = ["Call", "ComparedByArguments", "Holder", "Partition", "signature"]


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of one call of a model; ``args, kwargs = call`` unpacks them.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        given: values of latent sites that are drawn already, by name.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    given: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.args, self.kwargs))

    @property
    def inputs(self) -> Any:
        """The model's inputs: its first argument, or the one named x; None if there is neither."""
        return self.args[0] if self.args else self.kwargs.get("x")

    def at(self, given: dict[str, Any]) -> "Call":
        """The call at other values of the given latent sites."""
        return dataclasses.replace(self, given=given)

    def run(self, model: Any) -> Any:
        """Run a model with these arguments, at the latent values that are given."""
        return handlers.substitute(model, data=self.given)(*self.args, **self.kwargs)

    def without(self, *names: str) -> "Call":
        """The call without some of its keyword arguments."""
        kept = {n: a for n, a in self.kwargs.items() if n not in names}
        return dataclasses.replace(self, kwargs=kept)


class ComparedByArguments:
    """Base of programs that are equal if their constructors got equal arguments.

    Equal programs share what was compiled for one of them. Nothing has to be listed: an argument
    that a subclass adds is compared too. Arguments that have no hash (arrays, networks) are
    compared by identity, but for those named in `held`, which compare by structure, shapes and
    dtypes because their arrays are traced.
    """

    held: ClassVar[tuple[str, ...]] = ()
    """Names of the arguments whose arrays are passed to compiled programs."""

    _arguments: dict[str, Any] | None = None
    _changes: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed in place

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        try:
            bound = inspect.signature(cls.__init__).bind(self, *args, **kwargs)
        except TypeError:  # copies are made without arguments; __init__ reports other mistakes
            return self
        bound.apply_defaults()
        self._arguments = dict(list(bound.arguments.items())[1:])
        return self

    def changed(self, **attributes: Any) -> Self:
        """A copy with other values of some attributes, which count as arguments from then on."""
        other = copy.copy(self)
        vars(other).update(attributes, _changes={**self._changes, **attributes})
        return other

    def identity(self) -> Hashable:
        """All that two equal programs have in common; hashable."""
        named = {**(self._arguments or {}), **self._changes}
        return type(self), tuple(
            (n, signature(a) if n in self.held else _identity(a)) for n, a in sorted(named.items())
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self.identity() == other.identity())

    def __hash__(self) -> int:
        return hash(self.identity())


class _Same:
    """Compares a value without a hash by identity, and keeps it alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _identity(value: Any) -> Hashable:
    if isinstance(value, dict):
        return dict, tuple((n, _identity(a)) for n, a in value.items())
    if type(value) in (list, tuple):
        return type(value), tuple(map(_identity, value))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value  # 1 == 1.0 == True, and programs may differ


class Holder:
    """A program that holds arrays: what is compiled for one serves others with other arrays."""

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
