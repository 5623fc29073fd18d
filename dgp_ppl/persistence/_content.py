"""The parts of a fit as JSON and arrays, without pickles.

Functions, classes and constants are their import paths, guides and objectives the arguments of
their constructors, dataclasses, equinox modules and objects of NumPyro their fields, and arrays
members of the archive. In JSON each is an object with a ``kind``; numbers and texts are JSON's own.

Reading imports the named modules, which runs their statements, and constructs guides and
objectives. It calls nothing else. `_trust` says which names it may import.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import math
import sys
import weakref
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.tree_util import Partial
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import Transform
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.reparam import Reparam
from numpyro.primitives import Messenger

from dgp_ppl._errors import DataError, one_line
from dgp_ppl._partition import ComparedByFields
from dgp_ppl.persistence._archive import ArchiveReader, array_bytes, read_array
from dgp_ppl.persistence._trust import check_origin, is_of_python, names_in

_MOST_BITS = 10_000  # Python refuses to write many more digits
_BY_ARGUMENTS = (ComparedByFields, AutoGuide)
_CURE = "take the version of the file's record, or save the fit again"
_BY_FIELDS = (Distribution, Transform, constraints.Constraint, Messenger, Reparam)


class Encoder:
    """Turns values into JSON, and collects their arrays as `members` of an archive."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self._seen: dict[int, tuple[Any, Any]] = {}  # by id; the value stays alive

    def encode(self, value: Any, name: str) -> Any:
        """Return a value as JSON; errors call it by `name`, such as ``kernel[1]``."""
        if type(value) is int and value.bit_length() > _MOST_BITS:
            raise TypeError(f"save: {name} is an integer of over {_MOST_BITS} bits, wanted a float")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"kind": "float", "value": repr(value)}
        if type(value) is list:
            return self._items(value, name)
        if isinstance(value, tuple):
            named = {"class": None if type(value) is tuple else _class_path(value, name)}
            return {"kind": "tuple", **named, "items": self._items(value, name)}
        if type(value) is dict:
            return {"kind": "dict", "items": self._pairs(value, name)}
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            if id(value) not in self._seen:
                self._seen[id(value)] = value, self._array(value, name)
            return self._seen[id(value)][1]
        if isinstance(value, functools.partial):
            return {
                "kind": "partial",
                "tree": isinstance(value, Partial),
                "function": self.encode(value.func, f"{name}.func"),
                "args": self._items(value.args, f"{name}.args"),
                "keywords": self._pairs(value.keywords, f"{name}.keywords"),
            }
        try:
            return {"kind": "import", "path": import_path(value)}
        except ValueError as error:
            if not (parts := _parts(value, name)):
                raise _unsuitable(name, error) from None
        node: dict[str, Any] = {"kind": "object" if "fields" in parts else "arguments"}
        for part, content in parts.items():
            node[part] = [[n, self.encode(v, f"{name}.{n}")] for n, v in content.items()]
        return node | {"class": _class_path(value, name)}

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.encode(v, f"{name}[{i}]") for i, v in enumerate(values)]

    def _pairs(self, values: Any, name: str) -> list[list[Any]]:
        return [
            [self.encode(n, f"a key of {name}"), self.encode(v, f"{name}[{n!r}]")]
            for n, v in values.items()
        ]

    def _array(self, value: Any, name: str) -> dict[str, Any]:
        member = f"arrays/{len(self.members)}.npy"
        node: dict[str, Any] = {"kind": "array", "in": "jax", "member": member}
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            node |= {"in": "key", "implementation": str(random.key_impl(value))}
            value = random.key_data(value)
        elif not isinstance(value, jax.Array):
            node["in"] = "numpy" if isinstance(value, np.ndarray) else "scalar"
        array = np.asarray(value)
        if array.dtype.hasobject or isinstance(value, np.ma.MaskedArray):
            what = "of Python objects" if array.dtype.hasobject else "with a mask"
            raise TypeError(
                f"save: {name} is an array {what}, wanted numbers; convert it, for example by "
                "np.asarray(..., float) or its filled(nan)"
            )
        if array.dtype.kind not in "SU":
            node["dtype"] = array.dtype.name
        self.members[member] = array_bytes(array)
        return node


def _class_path(value: Any, name: str) -> str:
    try:
        return import_path(type(value))
    except ValueError as error:
        raise _unsuitable(f"the class of {name}", error) from None


def _unsuitable(name: str, error: ValueError) -> TypeError:
    return TypeError(
        f"save: {name} is {error}; a new process imports functions and classes by name, so define "
        "it at the top of a module, such as my_models.py, import it from there and pass that (a "
        "fit with the same params needs no repetition); objects must be dataclasses or equinox "
        "modules"
    )


def _parts(value: Any, name: str) -> dict[str, dict[str, Any]]:
    """Return the arguments or the fields that an object is made of; empty for other values."""
    if isinstance(value, type):
        return {}
    if isinstance(value, _BY_ARGUMENTS):
        return {"arguments": _arguments(value, name)}
    if dataclasses.is_dataclass(value):  # equinox modules too
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return {"fields": {n: getattr(value, n) for n in names}}
    if isinstance(value, _BY_FIELDS):
        # Handlers have the dunders of the function that they wrap. Transforms may refer weakly to
        # their inverses, which they make when needed.
        held = {n: v for n, v in vars(value).items() if not isinstance(v, weakref.ref)}
        return {"fields": {n: v for n, v in held.items() if n[:2] != "__"}}
    return {}


def _arguments(value: Any, name: str) -> dict[str, Any]:
    """Return the arguments of a guide's or an objective's constructor, from its attributes."""
    makers = [c.__init__ for c in type(value).__mro__ if "__init__" in vars(c)]
    found: dict[str, Any] = {}
    for p in list(inspect.signature(makers[0]).parameters.values())[1:]:
        held = [n for n in (p.name, f"_{p.name}") if n in vars(value)]
        if p.kind is p.VAR_KEYWORD:  # passed on to the next class's constructor
            passed_on = inspect.signature(makers[1]).parameters.keys() - found.keys()
            found[p.name] = {n: vars(value)[n] for n in sorted(passed_on) if n in vars(value)}
        elif p.kind is p.VAR_POSITIONAL or not held:
            raise TypeError(
                f"save: {name} is a {type(value).__name__}, which does not keep its argument "
                f"{p.name}; keep it in an attribute of this name"
            )
        else:
            found[p.name] = vars(value)[held[0]]
    return found


def decode(archive: ArchiveReader, node: Any) -> Any:
    """Return the value of what `Encoder.encode` returned."""
    read = functools.partial(decode, archive)
    if isinstance(node, list):
        return [read(v) for v in node]
    if not isinstance(node, dict):
        return node

    def pairs(name: str) -> dict[Any, Any]:
        return {read(n): read(v) for n, v in node[name]}

    kind = node["kind"]
    if kind == "tuple":
        cls = tuple if node["class"] is None else _named(archive, node["class"])
        return tuple.__new__(cls, read(node["items"]))
    if kind == "dict":
        return pairs("items")
    if kind == "float":
        return float(node["value"])
    if kind == "array":
        return _read_array(archive, node)
    if kind in ("import", "method"):
        return _named(archive, names_in(node)[0])
    if kind == "partial":  # data: its function is a name of the file as any other
        make = Partial if node["tree"] else functools.partial
        return make(read(node["function"]), *read(node["args"]), **pairs("keywords"))
    cls: Any = _named(archive, node["class"])
    if kind == "arguments" and isinstance(cls, type) and issubclass(cls, _BY_ARGUMENTS):
        signature, given = inspect.signature(cls.__init__), pairs("arguments")
        _check_names(archive, cls, given, signature.parameters)
        # The first parameter is self, or the ``*args`` of a wrapper, which hold it.
        first = next(iter(signature.parameters))
        given[first] = (None, *given[first]) if first in given else None
        bound = inspect.BoundArguments(signature, given)  # pyright: ignore[reportArgumentType]
        value: Any = cls(*bound.args[1:], **bound.kwargs)
        changes = pairs("changes") if "changes" in node else {}  # in files of version 0.2
        return value.replace(**changes) if changes else value
    if kind == "object" and (dataclasses.is_dataclass(cls) or issubclass(cls, _BY_FIELDS)):
        given = pairs("fields")
        fields = [n for n in given if n[:2] != "__"]
        # Fields that a later release added have defaults.
        is_dataclass = dataclasses.is_dataclass(cls)
        _check_names(archive, cls, given, cls.__dataclass_fields__ if is_dataclass else fields)
        value = object.__new__(cls)  # pyright: ignore[reportArgumentType] - it is a class
        for name, content in given.items():
            object.__setattr__(value, name, content)  # dataclasses may be frozen
        if isinstance(value, Messenger) and value.fn is not None:
            functools.update_wrapper(value, value.fn, updated=())
        return value
    raise DataError(
        f"{archive.path} was saved with another version of {node['class'].replace(':', '.')}: "
        f"wanted a guide, a dataclass or a class of NumPyro; {_CURE}"
    )


def _check_names(
    archive: ArchiveReader, cls: Any, given: Iterable[str], known: Iterable[str]
) -> None:
    if unknown := set(given) - set(known):
        raise DataError(
            f"{archive.path} was saved with another version of {cls.__module__}.{cls.__name__}: "
            f"it has no {', '.join(sorted(unknown))}; {_CURE}"
        )


def _read_array(archive: ArchiveReader, node: dict[str, Any]) -> Any:
    array = read_array(archive.member(node["member"]))
    if node.get("dtype", array.dtype.name) != array.dtype.name:
        array = array.view(jnp.dtype(node["dtype"]))  # NumPy's format has no bfloat16
    if node["in"] in ("numpy", "scalar"):
        return array if node["in"] == "numpy" else array[()]
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise DataError(
            f"{archive.path} holds arrays of JAX in {array.dtype.name}, and this process has "
            "JAX's 32-bit default; call jax.config.update('jax_enable_x64', True) first, as in the "
            "process that saved them"
        )
    found = jnp.asarray(array)
    if node["in"] == "key":
        return random.wrap_key_data(found, impl=node["implementation"])
    return found


def _named(archive: ArchiveReader, path: str) -> Any:
    """Import what a file names. All that a file imports comes through here."""
    module, _, name = path.partition(":")
    try:
        found = import_name(path)
        check_origin(path, found)
        return found
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"{archive.path} needs {name} of the module {module}, which cannot be imported "
            f"({one_line(error)}); install it, or put its folder on Python's path (PYTHONPATH); if "
            f"it is installed in another version, {_CURE}"
        ) from error


def import_path(value: Any) -> str:
    """Return the path from which a new process can import a function, a class or a constant.

    Public paths come first, because private ones change between releases. If there is none, a
    ValueError says why, as the end of "it is ...".

    >>> import jax
    >>> from dgp_ppl import models
    >>> import_path(models.deep_gp), import_path(jax.nn.relu)
    ('dgp_ppl.models:deep_gp', 'jax.nn:relu')
    """
    if inspect.ismethod(value) and isinstance(value.__self__, type):  # a classmethod
        return f"{import_path(value.__self__)}.{value.__name__}"
    module = str(getattr(value, "__module__", None))
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(value, enum.Enum):
        name = f"{type(value).__qualname__}.{value.name}"
    elif not isinstance(name, str) or "<lambda>" in name:
        variables = vars(sys.modules.get(module, enum)).items()
        names = [n for n, held in variables if held is value]
        if not names:
            what = f"an object of the class {type(value).__qualname__}"
            raise ValueError("a lambda" if isinstance(name, str) else what)
        name = min(names, key=lambda n: (n.startswith("_"), n))
    if "<locals>" in name:
        raise ValueError(f"{name.rpartition('.')[2]}, which is defined inside a function")
    if module == "__main__":
        raise ValueError(f"{name} of __main__, the program that runs now")
    if is_of_python(f"{module}:{name}"):
        raise ValueError(f"{name} of Python's own {module}, which no file may name")
    try:
        found = import_name(f"{module}:{name}")
    except (ImportError, AttributeError):
        raise ValueError(f"{name}, which cannot be imported from {module}") from None
    if found is not value:
        raise ValueError(f"not what {module}.{name} is now")
    return f"{_public_module(module, name, value)}:{name}"


def import_name(path: str) -> Any:
    """Import what a path names, or raise ImportError or AttributeError."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        raise
    except Exception as error:  # whatever a module's own statements raise
        raise ImportError(f"{module}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if found is not sys.modules[module] and not isinstance(found, type):
            raise AttributeError(f"{path} is no name in a module or a class")
        found = getattr(found, part)
    return found


def _public_module(module: str, name: str, value: Any) -> str:
    """Return the shortest public module of the same package that has the value by this name."""

    def is_private(module: str) -> bool:
        return any(part.startswith("_") for part in module.split("."))

    if not is_private(module) or "." in name:
        return module
    package = module.split(".")[0]
    found = [
        m for m, loaded in list(sys.modules.items())
        if m.split(".")[0] == package and not is_private(m)
        and getattr(loaded, "__dict__", {}).get(name) is value
    ]  # fmt: skip
    return min(found, key=lambda m: (m.count("."), m), default=module)
