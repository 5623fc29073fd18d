"""A model's arguments, their partition into arrays and static values, and programs made from it.

`jax.jit` traces the arrays. The rest is hashable, so calls that differ only in arrays share
compiled programs: a model and its guide compile once for all data of the same shapes.

NumPyro's stack of handlers belongs to the process, so only the thread that holds `TRACING` may run
a model. Programs compile and run without the lock, side by side.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpyro import handlers, primitives

from dgp_ppl._static_key import static_key, unchanged_arrays
from dgp_ppl._waiting import Waiting

if jax.__version_info__ < (0, 11):  # later versions of XLA have one generator of code
    from jax._src.core import trace_state_clean as _nothing_is_traced  # no public name for it
else:
    _nothing_is_traced = lambda: False  # noqa: E731

_MOST_LETTERS = 60  # of an argument in a description

TRACING: Any = threading.RLock()
"""The lock of the thread that runs a model, or anything else under NumPyro's handlers."""
if hasattr(os, "register_at_fork"):  # not on Windows; a fork waits until no thread runs a model
    _free = {"after_in_parent": TRACING.release, "after_in_child": TRACING.release}
    os.register_at_fork(before=TRACING.acquire, **_free)


class alone(handlers.block):  # noqa: N801 - a handler, named as NumPyro's are
    """NumPyro's `handlers.block` for a thread that runs a model; other threads wait."""

    def __enter__(self) -> None:
        TRACING.acquire()
        super().__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            TRACING.release()


class compiled:  # noqa: N801 - a function like `jax.jit`
    """`jax.jit` of a function that runs a model: one thread traces, many compile and run.

    JAX lets threads wait for one that traces the same program. So a thread that holds the lock has
    its own program: else it could wait for one that waits for the lock.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        @functools.wraps(function)
        def in_turn(*args: Any, **kwargs: Any) -> Any:
            with TRACING:
                return function(*args, **kwargs)

        functools.update_wrapper(self, function)
        self._in_turn, self._within = jax.jit(in_turn, **options), jax.jit(function, **options)
        self._function, self._options = in_turn, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with Waiting():
            return self._program()(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Return the traced program, which a call with such arguments shares."""
        return self._program().trace(*args, **kwargs)

    def _program(self) -> Any:
        if TRACING._is_owned():
            return self._within
        return self._outermost if _nothing_is_traced() else self._in_turn

    @functools.cached_property
    def _outermost(self) -> Any:
        """The program outside of transformations, for which JAX takes options of the compiler."""
        if jax.default_backend() != "cpu":
            return self._in_turn
        # The older of two generators of code compiles in 3/5 of the time. Steps take 1.05 times as
        # long, which is less for all but long fits.
        quickly: Any = {"xla_cpu_use_fusion_emitters": False}
        return jax.jit(self._function, **{"compiler_options": quickly} | self._options)


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of one call of a model; ``args, kwargs = call`` unpacks them.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        given: values of latent sites that have been drawn already, by name.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    given: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.args, self.kwargs))

    @property
    def inputs(self) -> Any:
        """The model's inputs: its first argument, or the one named x, or None."""
        return self.args[0] if self.args else self.kwargs.get("x")

    def at(self, given: dict[str, Any]) -> Call:
        """Return the call with other values of the given latent sites."""
        return dataclasses.replace(self, given=given)

    def run(self, model: Any) -> Any:
        """Run a model with these arguments and the given latent values."""
        return handlers.substitute(model, data=self.given)(*self.args, **self.kwargs)

    def without(self, *names: str) -> Call:
        """Return the call without some of its keyword arguments."""
        kept = {n: a for n, a in self.kwargs.items() if n not in names}
        return dataclasses.replace(self, kwargs=kept)


def call_signature(model: Any) -> inspect.Signature:
    """Return the signature of a model, or of the model within handlers; of any if it has none."""
    while not inspect.isfunction(model) and getattr(model, "fn", None) is not None:
        model = model.fn
    try:
        return inspect.signature(model)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def named_arrays(model: Any, call: Call) -> Iterator[tuple[str, Any]]:
    """Yield the arrays among a model's arguments, with names; of streamed ones the rows at hand."""
    try:
        bound = call_signature(model).bind(*call.args, **call.kwargs).arguments
    except TypeError:
        bound = {f"argument {i}": a for i, a in enumerate(call.args)} | call.kwargs
    is_leaf = lambda a: isinstance(a, Streamed)  # noqa: E731
    for path, leaf in jax.tree_util.tree_leaves_with_path(bound, is_leaf=is_leaf):
        leaf = leaf.rows if isinstance(leaf, Streamed) else leaf
        if not isinstance(leaf, jax.Array | np.ndarray) or isinstance(leaf, Tracer):
            continue
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name, *rest = path
            yield name.key + jax.tree_util.keystr(tuple(rest)), leaf


_OF_NUMPYRO = ("prototype_trace", "_prototype_frames", "_prototype_frame_full_sizes")
_FOUND = {"found", "row_sites", *_OF_NUMPYRO}


class ComparedByFields:
    """Base of guides and objectives that are equal if their attributes are: see `static_key`.

    Equal objects share compiled programs. These do not count: attributes named in `array_fields`,
    what a guide finds at its first call (`found`), and values of cached properties.
    """

    array_fields: ClassVar[tuple[str, ...]] = ()
    """Attributes whose arrays are arguments of compiled programs, not constants in them."""

    found: Any = None
    """What the object finds at its first call."""

    @property
    def arrays(self) -> dict[str, Any]:
        """The attributes named in `array_fields`."""
        return {n: getattr(self, n) for n in self.array_fields}

    def with_arrays(self, arrays: dict[str, Any]) -> Self:
        """Return the same object with other arrays."""
        return self.replace(**arrays) if arrays else self

    def replace(self, **attributes: Any) -> Self:
        """Return a copy with other values of some attributes."""
        other = copy.copy(self)
        vars(other).update(attributes)
        for name in [n for n in vars(other) if self._is_cached(n)]:
            del vars(other)[name]
        return other

    def _is_cached(self, name: str) -> bool:
        return isinstance(getattr(type(self), name, None), functools.cached_property)

    def _key(self) -> Hashable:
        left_out = {*self.array_fields, *_FOUND}
        named = {n: a for n, a in vars(self).items() if not (n in left_out or self._is_cached(n))}
        return type(self), static_key(dict(sorted(named.items())))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, ComparedByFields):
            return self is other
        return self.found == other.found and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the call that makes the object, without defaults, with shapes for arrays."""
        shown = []
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            value = vars(self).get(name, parameter.default)
            if parameter.default is parameter.empty and value is not parameter.empty:
                shown.append(_brief(value))
            elif not _is_same(value, parameter.default):
                shown.append(f"{name}={_brief(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    if hasattr(value, "shape"):
        return f"array{list(value.shape)}"
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= _MOST_LETTERS else f"<{type(value).__name__}>"


def _is_same(value: Any, default: Any) -> bool:
    try:
        return value is default or bool(value == default)
    except (TypeError, ValueError):  # arrays
        return False


def on_device(value: Any) -> Any:
    """Return a copy of NumPy's array in JAX, and others as they are.

    `jnp.asarray` compiles a program for each shape. `jax.device_put` does not, but shares memory.
    """
    return jax.device_put(np.array(value)) if isinstance(value, np.ndarray) else value


def default_floats(a: Any) -> Array:
    """Return an array in JAX's default float dtype. NumPy's is converted without a program."""
    is_numpy = isinstance(a, np.ndarray)
    return jax.device_put(a.astype(jnp.result_type(float))) if is_numpy else jnp.asarray(a, float)


def signature(tree: Any) -> Any:
    """Return the structure, shapes and dtypes of a tree of arrays; hashable."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple((jnp.shape(a), str(jnp.result_type(a))) for a in leaves)


class CallArrays(NamedTuple):
    """The arrays of a call and of the attributes of its guide, with None for each static value."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    guide: dict[str, Any]
    num_rows: Any = None  # that are not padding; None if there is no padding


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """A model, its guide and the static values of their arguments: what a program is made from.

    It is hashable, so it can be a static argument of a compiled program, beside the `CallArrays`.
    Partitions are equal if their programs compute the same: see `static_key`.
    """

    model: Any
    guide: Any
    static: CallArrays  # with None for each array

    def __post_init__(self) -> None:
        # Handlers around the call change what the program computes, so it is not shared.
        with TRACING:
            token = object() if primitives._PYRO_STACK else None
        with unchanged_arrays():
            key = self._static_key(), token
            vars(self).update(_key=key, _hash=hash(key))

    def _static_key(self) -> Hashable:
        leaves, treedef = jax.tree.flatten(self.static)
        return treedef, static_key((self.model, self.guide, leaves))

    def is_outdated(self) -> bool:
        """Return whether the model or a static value has changed since the partition was made."""
        with unchanged_arrays():
            return self._static_key() != vars(self)["_key"][0]

    @staticmethod
    def split(model: Any, call: Call, guide: Any = None) -> tuple[Partition, CallArrays]:
        """Return the static part of a call, and the arrays to join with it."""
        held = guide.arrays if isinstance(guide, ComparedByFields) else {}
        is_array = lambda a: isinstance(a, jax.Array | np.ndarray)  # noqa: E731
        arrays, static = eqx.partition(CallArrays(call.args, call.kwargs, held), is_array)
        return Partition(model, guide, static), jax.tree.map(on_device, arrays)

    def join(self, arrays: CallArrays) -> Call:
        return Call(*eqx.combine(arrays, self.static)[:2])

    def guide_with(self, arrays: CallArrays) -> Any:
        if not isinstance(self.guide, ComparedByFields):
            return self.guide
        return self.guide.with_arrays(eqx.combine(arrays, self.static).guide)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and vars(self)["_key"] == vars(other)["_key"]

    def __hash__(self) -> int:
        return vars(self)["_hash"]

    def __reduce__(self) -> Any:
        return Partition, (self.model, self.guide, self.static)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Streamed:
    """An array [N, ...] that a model gets from a source of rows; only a minibatch of it is here.

    It has the shape of the whole array. `dgp_ppl.minibatch` takes its rows, and nothing else can.
    """

    rows: Array  # of the minibatch, [B, ...]
    numbers: Array  # of these rows in the source, [B]
    size: int = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array, (N, ...)."""
        return (self.size, *self.rows.shape[1:])

    @property
    def ndim(self) -> int:
        return self.rows.ndim

    @property
    def dtype(self) -> Any:
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
