"""Python values as JSON and arrays, without pickles.

Plain values are JSON's own. Every other value is an object of JSON with a ``kind``:

========= =========================================================================================
tuple     its items; also named tuples, with their class
dict      pairs of keys and values
float     an infinity, or NaN
array     the name of a member of the archive, and the container: NumPy's, JAX's or a random key
import    a function, class or constant, by the module and the name that it is imported from
method    a method of a class or of an object
partial   a function and arguments
object    a class and the fields of a dataclass, an equinox module, or an object of NumPyro
arguments a class and constructor arguments, of guides and objectives
========= =========================================================================================

Decoding imports the named modules, which runs their statements, and constructs guides and
objectives. It calls nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import weakref
from collections.abc import Callable
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

from dgp_ppl._errors import DataError
from dgp_ppl._partition import ComparedByArguments
from dgp_ppl._storage._archive import ArchiveReader, array_bytes, read_array
from dgp_ppl._storage._names import UnnamedError, import_name, import_path

__all__ = ["Decoder", "Encoder"]

_OF_NUMPYRO = (Distribution, Transform, constraints.Constraint, Messenger, Reparam)
_BY_ARGUMENTS = (ComparedByArguments, AutoGuide)


class Encoder:
    """Turns values into JSON, and collects their arrays.

    Args:
        caller: name of the public function, for errors.

    Attributes:
        members: the arrays in NumPy's format, by the name of the archive's member.
    """

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.members: dict[str, bytes] = {}
        self._seen: dict[int, tuple[Any, Any]] = {}

    def encode(self, value: Any, name: str) -> Any:
        """Return a value as JSON.

        Args:
            value: the value.
            name: what errors call it, such as ``kernel[1]``.

        Raises:
            TypeError: if a file cannot hold the value, or a part of it.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"kind": "float", "value": repr(value)}
        if type(value) is list:
            return self._items(value, name)
        if isinstance(value, tuple):
            cls = None if type(value) is tuple else self._path(type(value), f"the class of {name}")
            return {"kind": "tuple", "class": cls, "items": self._items(value, name)}
        if type(value) is dict:
            return {"kind": "dict", "items": self._pairs(value, name)}
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self._array(value, name)
        if isinstance(value, functools.partial):
            return {
                "kind": "partial",
                "tree": isinstance(value, Partial),
                "function": self.encode(value.func, f"{name}.func"),
                "args": self._items(value.args, f"{name}.args"),
                "keywords": self._pairs(value.keywords, f"{name}.keywords"),
            }
        if inspect.ismethod(value):
            owner = self.encode(value.__self__, f"{name}.__self__")
            return {"kind": "method", "of": owner, "name": value.__func__.__name__}
        try:
            return {"kind": "import", "path": import_path(value)}
        except UnnamedError as error:
            if isinstance(value, type) or not (fields := self._fields(value, name)):
                raise self._unsuitable(name, error) from None
            kind, content = fields
        cls = self._path(type(value), f"the class of {name}")
        return {"kind": kind, "class": cls} | {
            n: self._pairs(items, name, dots=True) for n, items in content.items()
        }

    def _fields(self, value: Any, name: str) -> tuple[str, dict[str, dict[str, Any]]] | None:
        """Return how to make an object anew, or None if it is of no known class."""
        if isinstance(value, _BY_ARGUMENTS):
            return "arguments", self._arguments(value, name)
        if dataclasses.is_dataclass(value):  # equinox modules too
            names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
            return "object", {"fields": {n: getattr(value, n) for n in names}}
        if isinstance(value, _OF_NUMPYRO):
            # Handlers have the dunders of the function that they wrap. Transforms may refer weakly
            # to their inverses, which they make when needed.
            held = {n: v for n, v in vars(value).items() if not isinstance(v, weakref.ref)}
            return "object", {"fields": {n: v for n, v in held.items() if n[:2] != "__"}}
        return None

    def _arguments(self, value: Any, name: str) -> dict[str, dict[str, Any]]:
        """Return the constructor arguments of a guide or an objective, and later changes."""
        if isinstance(value, ComparedByArguments):
            given = value.constructor_arguments
            if given is None:
                raise TypeError(
                    f"{self.caller}: {name} is a {type(value).__name__}, whose __new__ hides the "
                    "constructor's arguments; call super().__new__ with them"
                )
            return {"arguments": given[0], "changes": given[1]}
        # NumPyro's guides keep their arguments as attributes.
        parameters = list(inspect.signature(type(value).__init__).parameters.values())[1:]
        found: dict[str, Any] = {}
        for p in parameters:
            held = [n for n in (p.name, f"_{p.name}") if n in vars(value)]
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or not held:
                raise TypeError(
                    f"{self.caller}: {name} is a {type(value).__name__}, which does not keep its "
                    f"argument {p.name}; wanted a guide of dgp_ppl, or a function of a module"
                )
            found[p.name] = vars(value)[held[0]]
        return {"arguments": found, "changes": {}}

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.encode(v, f"{name}[{i}]") for i, v in enumerate(values)]

    def _pairs(self, values: Any, name: str, dots: bool = False) -> list[list[Any]]:
        part = "{}.{}" if dots else "{}[{!r}]"
        return [
            [self.encode(n, f"a key of {name}"), self.encode(v, part.format(name, n))]
            for n, v in values.items()
        ]

    def _array(self, value: Any, name: str) -> dict[str, Any]:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        node: dict[str, Any] = {"kind": "array", "in": "jax"}
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            node |= {"in": "key", "implementation": str(random.key_impl(value))}
            array = np.asarray(random.key_data(value))
        else:
            array = np.asarray(value)
        if isinstance(value, np.ndarray | np.generic):
            node["in"] = "numpy" if isinstance(value, np.ndarray) else "scalar"
        if array.dtype.hasobject:
            raise TypeError(
                f"{self.caller}: {name} is an array of Python objects, wanted numbers; convert it, "
                "for example by np.asarray(..., float)"
            )
        node |= {"dtype": array.dtype.name, "member": f"arrays/{len(self.members)}.npy"}
        if array.dtype.kind in "SU":
            del node["dtype"]
        self.members[node["member"]] = array_bytes(array)
        self._seen[id(value)] = value, node
        return node

    def _path(self, value: type, name: str) -> str:
        try:
            return import_path(value)
        except UnnamedError as error:
            raise self._unsuitable(name, error) from None

    def _unsuitable(self, name: str, error: UnnamedError) -> TypeError:
        return TypeError(
            f"{self.caller}: {name} is {error}; a new process imports functions and classes by "
            "name, so define it at the top of a module, such as my_models.py, import it from there "
            "and pass that (a fit with the same params needs no repetition); objects must be "
            "dataclasses or equinox modules"
        )


class Decoder:
    """Turns the JSON of `Encoder` into values.

    Args:
        archive: the archive that holds the arrays.
        caller: name of the public function, for errors.
    """

    def __init__(self, archive: ArchiveReader, caller: str) -> None:
        self.archive, self.caller = archive, caller
        self._arrays: dict[str, Any] = {}
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "tuple": self._tuple,
            "dict": lambda node: self._pairs(node["items"]),
            "float": lambda node: float(node["value"]),
            "array": self._array,
            "import": lambda node: self._named(node["path"]),
            "method": lambda node: getattr(self.decode(node["of"]), node["name"]),
            "partial": self._partial,
            "object": self._object,
            "arguments": self._by_arguments,
        }

    def decode(self, node: Any) -> Any:
        """Return the value of a node.

        Raises:
            DataError: if the node needs something that cannot be imported, that has changed, or
                that this process cannot represent.
        """
        if isinstance(node, list):
            return [self.decode(v) for v in node]
        if not isinstance(node, dict):
            return node
        return self._kinds[node["kind"]](node)

    def _tuple(self, node: Any) -> Any:
        items = self.decode(node["items"])
        if node["class"] is None:
            return tuple(items)
        cls = self._named(node["class"])
        if not (issubclass(cls, tuple) and len(getattr(cls, "_fields", ())) == len(items)):
            raise self._changed(node["class"], f"wanted a named tuple of {len(items)} entries")
        return tuple.__new__(cls, items)

    def _pairs(self, items: Any) -> dict[Any, Any]:
        return {self.decode(n): self.decode(v) for n, v in items}

    def _array(self, node: Any) -> Any:
        name = node["member"]
        if name not in self._arrays:
            self._arrays[name] = self._read(node)
        return self._arrays[name]

    def _read(self, node: Any) -> Any:
        array = read_array(self.archive.member(node["member"]))
        if node.get("dtype", array.dtype.name) != array.dtype.name:
            array = array.view(jnp.dtype(node["dtype"]))  # NumPy's format has no bfloat16
        if node["in"] == "numpy":
            return array
        if node["in"] == "scalar":
            return array[()]
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise DataError(
                f"{self.archive.path} holds arrays of JAX in {array.dtype.name}, and this process "
                "has JAX's 32-bit default; call jax.config.update('jax_enable_x64', True) first, "
                "as in the process that saved them"
            )
        found = jnp.asarray(array)
        return (
            random.wrap_key_data(found, impl=node["implementation"])
            if node["in"] == "key"
            else found
        )

    def _partial(self, node: Any) -> Any:
        make = Partial if node["tree"] else functools.partial
        args, keywords = self.decode(node["args"]), self._pairs(node["keywords"])
        return make(self.decode(node["function"]), *args, **keywords)

    def _object(self, node: Any) -> Any:
        cls, fields = self._named(node["class"]), self._pairs(node["fields"])
        is_data = dataclasses.is_dataclass(cls)
        if not (isinstance(cls, type) and (is_data or issubclass(cls, _OF_NUMPYRO))):
            raise self._changed(node["class"], "wanted a dataclass, or a class of NumPyro")
        if is_data:
            known = {f.name: f for f in dataclasses.fields(cls)}
            if unknown := [n for n in fields if n not in known]:
                raise self._changed(node["class"], f"it has no field {', '.join(unknown)}")
            for name, field in known.items():  # fields that later releases add
                if name not in fields and field.default is not dataclasses.MISSING:
                    fields[name] = field.default
                elif name not in fields and field.default_factory is not dataclasses.MISSING:
                    fields[name] = field.default_factory()
        value = object.__new__(cls)
        for name, content in fields.items():
            object.__setattr__(value, name, content)
        if isinstance(value, Messenger) and value.fn is not None:
            functools.update_wrapper(value, value.fn, updated=())
        return value

    def _by_arguments(self, node: Any) -> Any:
        cls = self._named(node["class"])
        if not (isinstance(cls, type) and issubclass(cls, _BY_ARGUMENTS)):
            raise self._changed(node["class"], "wanted a guide or an objective")
        args, kwargs, arguments = [], {}, self._pairs(node["arguments"])
        parameters = list(inspect.signature(cls.__init__).parameters.values())
        by_name = {p.name: p for p in parameters}
        if unknown := [n for n in arguments if n not in by_name]:
            raise self._changed(node["class"], f"it takes no argument {', '.join(unknown)}")
        for p in [by_name[n] for n in by_name if n in arguments]:
            if p.kind is p.VAR_POSITIONAL:
                args.extend(arguments[p.name])
            elif p.kind is p.VAR_KEYWORD:
                kwargs |= arguments[p.name]
            elif p.kind is p.KEYWORD_ONLY or len(args) < parameters.index(p) - 1:
                kwargs[p.name] = arguments[p.name]
            else:
                args.append(arguments[p.name])
        value: Any = cls(*args, **kwargs)
        changes = self._pairs(node["changes"])
        return value.changed(**changes) if changes else value

    def _named(self, path: str) -> Any:
        module, _, name = path.partition(":")
        try:
            return import_name(path)
        except ImportError as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{self.archive.path} needs {name} of the module {module}, which cannot be "
                f"imported ({reason}); install it, or put its folder on Python's path (PYTHONPATH)"
            ) from error
        except AttributeError as error:
            raise self._changed(path, f"the module {module} has no {name}") from error

    def _changed(self, path: str, reason: str) -> DataError:
        return DataError(
            f"{self.archive.path} was saved with another version of {path.replace(':', '.')}: "
            f"{reason}; take the version of the file's record, or save the fit again"
        )
