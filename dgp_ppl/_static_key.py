"""Keys of static values: which of them give the same compiled program."""

from __future__ import annotations

import argparse
import array
import contextlib
import dataclasses
import dis
import functools
import hashlib
import importlib.util
import math
import os
import pickle
import sys
import types
import weakref
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Hashable, Iterator
from configparser import RawConfigParser
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from numpyro.infer import ELBO
from numpyro.infer.mcmc import MCMCKernel
from numpyro.primitives import Messenger

# What samplers find in their model.
_FOUND = (
    "potential", "_potential_fn_gen", "_postprocess_fn", "_inv_transforms", "_dynamic_support",
)  # fmt: skip
_FOLLOWED = (
    types.SimpleNamespace | argparse.Namespace | UserDict | UserList | ChainMap | ContextVar
    | RawConfigParser | types.MappingProxyType | functools.partial
)  # fmt: skip
_LAZY = functools.cached_property | functools.partialmethod
_CALLED = types.FunctionType | types.MethodType | functools.partial
_CONTAINERS = list | tuple | dict | set | deque
_READERS = {"get", "__getitem__", "keys", "values", "items", "index", "count", "copy"}
_LIBRARIES = ("builtins", "dgp_ppl", "equinox", "jax", "jaxlib", "numpy", "numpyro", "optax")
_MOST, _MANY = 100, 3000  # objects that are looked into: of those in attributes, and of all
# Methods that no model calls, but where it makes an object.
_UNUSED = {"__init__", "__new__", "__post_init__", "__repr__", "__str__", "__del__"}
_DIGESTS: ContextVar[dict[int, tuple[np.ndarray, bytes]]] = ContextVar("digests")
_MOST_BYTES = 10**7  # of an array of JAX that is compared by value, which a device may have to send
_SENT: dict[int, tuple[weakref.ref[jax.Array], Hashable]] = {}  # keys of JAX's arrays, by `id`


class _Seen(dict[Any, int]):
    """What has its key already, by its number, and what the code so far may call of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()  # that this code reads
        self.objects: dict[SameObject, int] = {}
        self.members: dict[SameObject, dict[str, list[types.FunctionType]]] = {}
        self.called: set[tuple[SameObject, str]] = set()  # members by Python or another class

    def add_members(self, cls: type, is_made: bool) -> None:
        """Add the user's methods and properties of a class; `is_made` if code names the class."""
        same = SameObject(cls)
        if same not in self.members or is_made:
            every, others = _members(cls)
            called = {n for n in every if n in others or n.startswith("__")}
            self.called |= {(same, n) for n in called - (set() if is_made else _UNUSED)}
            self.members.setdefault(same, every)

    def rest(self) -> Hashable:
        """Return the keys of all members that code names, which may name others in turn."""
        known: dict[tuple[int, str], Hashable] = {}
        while True:
            new = [
                (i, n, functions)
                for i, (same, every) in enumerate(self.members.items())
                for n, functions in every.items()
                if (i, n) not in known
                and (n in self.names or (same, n) in self.called or "getattr" in self.names)
            ]
            if not new:
                return tuple(known.items())
            for i, n, functions in new:
                known[i, n] = tuple(_function_key(f, self) for f in functions)


def static_key(value: Any, seen: _Seen | None = None) -> Hashable:
    """Return a key that is equal for values with which a program computes the same.

    Functions are equal if their code is, and the values in their closures, their defaults and the
    globals that their code names, also of modules. So a function that is defined again needs no new
    program. Arrays and containers are equal by value; samplers, handlers and objectives by their
    settings. Other objects are equal to themselves only, and as long as their attributes, those of
    their class, and the methods that some of this code names are the same. What changes inside of
    installed packages, or behind the first hundred objects in attributes, is not seen. `seen` has
    what has its key already, as each has it once: helpers that many functions call, and functions
    that call themselves.
    """
    if seen is None:
        try:
            key = static_key(value, seen := _Seen())
            key = (key, seen.rest()) if seen.members else key
            read = seen.names & os.environ.keys() if {"environ", "getenv"} & seen.names else set()
            return (key, *((n, os.environ[n]) for n in sorted(read))) if read else key
        except RecursionError:  # what holds itself, or a long chain: equal to itself only
            return SameObject(getattr(value, "__self__", value)), getattr(value, "__func__", None)
    if isinstance(value, _CONTAINERS):
        return _container_key(value, functools.partial(static_key, seen=seen), seen)
    if isinstance(value, ContextVar):
        return value, static_key(value.get(None), seen)
    if _is_reader(value):
        return value.__name__, static_key(value.__self__, seen)
    if isinstance(value, types.MappingProxyType):
        return types.MappingProxyType, static_key(dict(value), seen)
    if isinstance(value, functools.partial):
        return functools.partial, static_key((value.func, value.args, value.keywords), seen)
    if isinstance(value, types.MethodType):
        return types.MethodType, static_key((value.__func__, value.__self__), seen)
    is_objective = isinstance(value, ELBO) and type(value).__hash__ is object.__hash__
    if isinstance(value, Messenger | MCMCKernel) or is_objective:
        held = {n: a for n, a in vars(value).items() if not (n in _FOUND or n.startswith("__"))}
        return type(value), static_key(held, seen), _class_key(type(value), seen)
    if isinstance(value, types.FunctionType):
        return _function_key(value, seen)
    own = _own_key(value)
    if not _holds(value) or len(seen.objects) > _MANY:
        return own
    if dataclasses.is_dataclass(value) and type(value).__hash__ is None:
        own = type(value)  # equal by its fields
    same, cls = SameObject(value), value if isinstance(value, type) else type(value)
    if same in seen.objects:
        return own, seen.objects[same]
    seen.objects[same] = len(seen.objects)
    try:
        seen.add_members(cls, is_made=cls is value)
        held = _class_attributes(cls) | ({} if cls is value else _attributes(value))
    except Exception:  # users' objects may raise any
        return own, SameObject(value)
    return own, tuple((n, _held_key(a, seen)) for n, a in held.items())


def _is_reader(value: Any) -> bool:
    """Return whether a value is a method of a container or array that reads what it holds."""
    return isinstance(value, types.BuiltinMethodType) and (
        value.__name__ in _READERS or isinstance(value.__self__, np.ndarray)
    )


def _holds(value: Any) -> bool:
    """Return whether an object may hold what changes: it has no hash by its value, or a class."""
    if isinstance(value, types.ModuleType | np.ndarray):
        return False
    by_identity = type(value).__hash__ in (None, object.__hash__)  # None: a mutable dataclass, say
    return by_identity or dataclasses.is_dataclass(value) or _is_own(type(value))


def _is_own(of: Any) -> bool:
    """Return whether a class, function or module is the user's, and of no installed package."""
    name = of.__name__ if isinstance(of, types.ModuleType) else of.__module__
    return not isinstance(name, str) or _is_own_name(name)


@functools.lru_cache(maxsize=1024)
def _is_own_name(module: str) -> bool:
    path = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None) or ""
    return not (_in_library(module) or {"site-packages", "dist-packages"} & {*path.split(os.sep)})


def _in_library(module: str) -> bool:
    return module.partition(".")[0] in (*_LIBRARIES, *sys.stdlib_module_names)


def _held_key(value: Any, seen: _Seen) -> Hashable:
    try:
        if isinstance(value, _CONTAINERS):
            return _container_key(value, functools.partial(_held_key, seen=seen), seen)
        of = value if isinstance(value, type | _CALLED) else type(value)
        follows = isinstance(value, _FOLLOWED) or _is_reader(value)
        holds = isinstance(value, _CALLED) or _holds(value)
        # What an estimator of another package found changes in place when it is fitted again.
        is_near = hasattr(of, "get_params") or getattr(of, "__closure__", None) or _is_own(of)
        follows = follows or (holds and bool(is_near or dataclasses.is_dataclass(value)))
        if follows and len(seen.objects) < _MOST:
            return static_key(value, seen)
        held = _attributes(value).items() if holds else ()
        arrays = tuple((n, _own_key(a)) for n, a in held if isinstance(a, np.ndarray))
        return (_own_key(value), arrays) if arrays else _own_key(value)
    except RecursionError:
        raise
    except Exception:  # users' objects may raise any
        return SameObject(value)


@contextlib.contextmanager
def unchanged_arrays() -> Iterator[None]:
    """Hash each of NumPy's arrays once within the context, where none may change."""
    token = _DIGESTS.set({})
    try:
        yield
    finally:
        _DIGESTS.reset(token)


def _class_attributes(cls: type) -> dict[str, Any]:
    """Return the attributes of a class and its bases, without its methods and properties."""
    each = [item for c in reversed(cls.__mro__) for item in vars(c).items()]
    finds = lambda a: hasattr(type(a), "__get__") and not _is_own(type(a))  # noqa: E731
    return {n: a for n, a in each if not (n.startswith("__") or finds(a))}


def _class_key(cls: type, seen: _Seen) -> Hashable:
    """Return the key of what a user's class adds to one of Python or of NumPyro."""
    if not _is_own(cls):
        return ()
    seen.add_members(cls, is_made=False)
    return tuple((n, _held_key(a, seen)) for n, a in _class_attributes(cls).items())


def _attributes(value: Any) -> dict[str, Any]:
    """Return what an object holds in its dict and in slots, but those of libraries."""
    own = [c for c in type(value).__mro__ if not _in_library(c.__module__)]
    slots = [(c.__name__.lstrip("_"), vars(c).get("__slots__", ())) for c in own]
    each = [(c, n) for c, names in slots for n in ([names] if isinstance(names, str) else names)]
    private = lambda n: n.startswith("__") and not n.endswith("__")  # noqa: E731
    names = {f"_{c}{n}" if private(n) else n for c, n in each} - {"__dict__", "__weakref__"}
    held = {n: getattr(value, n) for n in sorted(names) if hasattr(value, n)}
    return getattr(value, "__dict__", {}) | held


def _members(cls: type) -> tuple[dict[str, list[types.FunctionType]], set[str]]:
    """Return the user's methods and properties of a class and its bases, and names of others."""
    every: dict[str, list[types.FunctionType]] = {}
    others: set[str] = set()  # names of classes that are not the user's, which call them
    for c in cls.__mro__:
        if not _is_own(c):
            others |= vars(c).keys()
            continue
        for name, a in vars(c).items():
            f: Any = a.__func__ if isinstance(a, staticmethod | classmethod) else a
            f = f.fget if isinstance(f, property) else f
            f = f.func if isinstance(f, _LAZY) else f
            one = isinstance(f, functools.singledispatchmethod)
            found = f.dispatcher.registry.values() if one else [f]
            if found := [f for f in found if isinstance(f, types.FunctionType)]:
                every.setdefault(name, []).extend(found)
    return every, others


def _container_key(
    value: Any, key: Callable[[Any], Hashable], seen: _Seen | None = None
) -> Hashable:
    own: Any = tuple((n, key(a)) for n, a in list(getattr(value, "__dict__", {}).items()))
    own = own if seen is None else (own, _class_key(type(value), seen))
    if isinstance(value, dict):
        return type(value), own, tuple((n, key(a)) for n, a in list(value.items()))
    keys = [key(a) for a in value]
    return type(value), own, frozenset(keys) if isinstance(value, set) else tuple(keys)


def _own_key(value: Any) -> Hashable:
    if isinstance(value, _CONTAINERS):
        return _container_key(value, _own_key)
    if isinstance(value, array.array | bytearray | memoryview):
        return type(value), getattr(value, "typecode", ""), bytes(value)
    if hasattr(type(value), "to_numpy") or hasattr(type(value), "to_dataframe"):  # they can change
        with contextlib.suppress(Exception):  # of a column of objects
            return type(value), hashlib.sha256(pickle.dumps(value)).digest()
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return type(value), value.dtype, _own_key(value.tolist())
    if isinstance(value, np.ndarray):  # it can change in place
        digests = _DIGESTS.get({})
        if id(value) not in digests:
            plain = type(value) is np.ndarray and value.nbytes
            flat = np.ascontiguousarray(value).reshape(-1) if plain else value
            raw: Any = flat.view(np.uint8) if plain else pickle.dumps(value)
            digests[id(value)] = value, hashlib.sha256(raw).digest()
        return type(value), value.dtype, value.shape, digests[id(value)][1]
    if isinstance(value, jax.Array):
        return _jax_key(value)
    try:
        hash(value)
    except Exception:  # of users' objects, any
        return SameObject(value)
    sign = math.copysign(1.0, value) if isinstance(value, float) else None
    return type(value), value, sign  # 1 == 1.0 == True and 0.0 == -0.0, and programs may differ


def _jax_key(value: jax.Array) -> Hashable:
    """Return the key of an array of JAX, which never changes: by its value, if it is small."""
    known, key = _SENT.get(id(value), (lambda: None, None))
    if known() is value:
        return key
    with contextlib.suppress(Exception):  # of a tracer, a random key, a deleted array
        if value.nbytes <= _MOST_BYTES:
            key = jax.Array, value.aval, hashlib.sha256(np.asarray(value).tobytes()).digest()
            gone = functools.partial(lambda number, _: _SENT.pop(number, None), id(value))
            _SENT[id(value)] = weakref.ref(value, gone), key
            return key
    return SameObject(value)


def _function_key(function: types.FunctionType, seen: _Seen) -> Hashable:
    if function in seen:
        return types.FunctionType, seen[function]
    seen[function] = len(seen)
    globals_, imported, names = _names(function.__code__)
    seen.names |= names

    def key(value: Any, is_held: bool = False) -> Hashable:
        if isinstance(value, types.ModuleType):
            read = names & vars(value).keys() if _is_own(value) else ()
            new = sorted(n for n in read if (value, n) not in seen)
            seen.update({(value, n): len(seen) for n in new})
            return value, tuple((n, key(vars(value)[n])) for n in new)
        if not isinstance(value, types.FunctionType):
            return static_key(value, seen)
        # Functions of packages do not change, and name others without end. Closures are made anew.
        is_near = is_held or value.__module__ == function.__module__ or _is_own(value)
        return static_key(value, seen) if is_near else value

    named = tuple((n, key(function.__globals__.get(n))) for n in sorted(globals_))
    package = function.__globals__.get("__package__")
    for level, name in sorted(imported):
        if level and isinstance(package, str):
            with contextlib.suppress(ImportError):  # beyond the top of a package
                name = importlib.util.resolve_name("." * level + name, package)
        named += ((name, key(sys.modules.get(name))),)
    cells: Any = [_content(cell) for cell in function.__closure__ or ()]
    if not _is_own(function):  # optax's schedules make floats of their integers when they run
        cells = [float(a) if type(a) is int and abs(a) < 2**53 else a for a in cells]
    held = [key(a, is_held=True) for a in cells]
    defaults = static_key((function.__defaults__, function.__kwdefaults__, vars(function)), seen)
    return function.__module__, function.__qualname__, function.__code__, (*held, defaults), named


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return None


@functools.lru_cache(maxsize=1024)
def _names(
    code: types.CodeType,
) -> tuple[frozenset[str], frozenset[tuple[int, str]], frozenset[str]]:
    """Return names of globals that a function's code reads, modules it imports, and all names.

    A module has the level of its import. Names of functions within the function are among them, and
    texts that may be names: of ``globals()[...]`` and ``getattr``.
    """
    steps = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    read = {i.argval for i in steps if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    imported = {
        (level.argval, i.argval)
        for level, _, i in zip(steps, steps[1:], steps[2:], strict=False)
        if i.opname == "IMPORT_NAME"
    }
    constants = [a for c in code.co_consts for a in (c if isinstance(c, tuple) else [c])]
    texts = {c for c in constants if isinstance(c, str) and c.isidentifier()}
    own = read | (texts if "globals" in read else set()), imported, texts | {*code.co_names}
    inner = [_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    names, modules, every = (frozenset().union(*each) for each in zip(own, *inner, strict=True))
    return names, modules, every


def shared(make: Any, *args: Any) -> Any:
    """Return what a cached function makes, anew if the model of an equal call has changed since."""
    made = make(*args)
    if made.partition.is_outdated():  # the first of equal models is the one that is traced
        make.cache_clear()
        made = make(*args)
    return made


class Keyed:
    """A value that equals values with the same `static_key`."""

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, static_key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class SameObject:
    """Compares a value without a hash by identity, and keeps it alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
