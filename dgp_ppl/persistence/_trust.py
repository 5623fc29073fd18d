"""Which names of a file are imported: other people's code runs only where the user says so.

Importing a module runs its statements, and predictions call the functions of the file. So a file
may name, by itself, functions and classes of the libraries below that compute and touch no files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError

_LIBRARIES = ("dgp_ppl", "equinox", "jax", "numpy", "numpyro", "optax")
_WHOLE = (
    "dgp_ppl._checks", "dgp_ppl._partition", "dgp_ppl.comparison._kernels",
    "dgp_ppl.comparison.methods", "dgp_ppl.core", "dgp_ppl.inference", "dgp_ppl.kernels",
    "dgp_ppl.likelihoods", "dgp_ppl.linalg", "dgp_ppl.means", "dgp_ppl.models",
    "dgp_ppl.standardize", "equinox.nn", "equinox:Partial", "jax.lax", "jax.nn", "jax.numpy",
    "jax.random", "jax.scipy", "numpyro.distributions", "numpyro.handlers",
    "numpyro.infer.autoguide", "numpyro.infer.initialization", "numpyro.infer.reparam",
    "numpyro.primitives", "optax",
)  # fmt: skip
"""What is trusted with the modules in it; so are `dgp_ppl`, and NumPy's ufuncs and types."""

_OUT = "dgp_ppl.inference.runs"

_NEVER = (
    "Rows", "RunFolder", "SharedFolder", "apply_along_axis", "compare", "enable_validation",
    "export", "fit", "fit_many", "fit_mcem", "folder_of", "fromfile", "fromfunction", "load",
    "printoptions", "replacing", "run_mcmc", "save", "savez", "set_printoptions",
)  # fmt: skip
"""What reads or writes files, calls any function, or changes settings, with what is in it."""

_PLAIN = ("builtins:bool", "builtins:float", "builtins:int")


def nodes_of(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file's JSON, from the outside in."""
    if isinstance(content, dict):
        yield content
        content = list(content.values())
    for inner in content if isinstance(content, list) else ():
        yield from nodes_of(inner)


def names_in(node: dict[str, Any]) -> list[str]:
    """Return the import paths in an object, ``module:name``: what it names comes first."""
    if node.get("kind") == "method":  # of a class, in files of version 0.2
        return [f"{node['of']['path']}.{node['name']}"]
    return [node[name] for name in ("path", "class") if node.get(name) is not None]


def is_of_python(path: str) -> bool:
    """Return whether a path is in Python's own library, by which a file could run any code."""
    return _package(path) in sys.stdlib_module_names and path not in _PLAIN


def _package(path: str) -> str:
    return path.replace(":", ".").partition(".")[0]


def check_origin(path: str, found: Any) -> None:
    """Raise ImportError if a path leads to what another package defines, such as to ``os``."""
    home = getattr(found, "__module__", "os")  # modules have none
    strange = _package(path) in _LIBRARIES and _package(home) not in _LIBRARIES
    if path not in _PLAIN and (strange or is_of_python(home)):
        raise ImportError(f"{path} is of {home}")


def check_trust(file: Any, content: Any, trusted: Sequence[str]) -> None:
    """Raise `DataError` if a file names what the user does not trust. It imports nothing."""
    refused: dict[str, None] = {}
    for path in [path for node in nodes_of(content) for path in names_in(node)]:
        module, _, name = path.partition(":")
        parts, names = module.split("."), name.split(".")
        homes = {path, *(".".join(parts[: i + 1]) for i in range(len(parts)))}
        odd = [n for n in parts + names if n.startswith("__") or not n.isidentifier()]
        if odd or is_of_python(path):
            raise DataError(
                f"{file} names {path.replace(':', '.')}, which can run any code and belongs to no "
                "fit; do not use this file"
            )
        known = path in _PLAIN or module == "dgp_ppl" or homes.intersection(_WHOLE)
        of_numpy = getattr(np, name, None) if module == "numpy" else None
        known = known or isinstance(of_numpy, np.ufunc)
        known = known or (isinstance(of_numpy, type) and issubclass(of_numpy, np.generic))
        inner = [n for n in names[1:] if n.startswith("_")]
        shut = _OUT in homes or inner or {*names}.intersection(_NEVER)
        if (shut or not known) and not homes.intersection(trusted):
            refused[module if parts[0] in _LIBRARIES else parts[0]] = None
    if refused:
        raise DataError(
            f"{file} names code of {', '.join(refused)}, which loading would run; if you trust its "
            f"author: dgp.load({str(file)!r}, trusted={list(refused)}), or --trusted "
            f"{','.join(refused)}"
        )
