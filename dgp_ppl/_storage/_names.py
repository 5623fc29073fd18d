"""Import paths of functions, classes and constants: ``module:name``."""

from __future__ import annotations

import enum
import importlib
import sys
from typing import Any

__all__ = ["UnnamedError", "import_name", "import_path"]


class UnnamedError(ValueError):
    """A value has no import path. The message says why, as the end of "it is ..."."""


def import_path(value: Any) -> str:
    """Return the path from which a new process can import a function, a class or a constant.

    Public paths come first, because private ones change between releases.

    >>> import jax
    >>> from dgp_ppl import models
    >>> import_path(models.deep_gp), import_path(jax.nn.relu)
    ('dgp_ppl.models:deep_gp', 'jax.nn:relu')

    Raises:
        UnnamedError: if there is none.
    """
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = str(getattr(value, "__module__", None))
    if isinstance(value, enum.Enum):
        module, name = type(value).__module__, f"{type(value).__qualname__}.{value.name}"
    elif not isinstance(name, str):
        module = type(value).__module__
        name = _variable(module, value, f"an object of the class {type(value).__qualname__}")
    elif "<lambda>" in name:
        name = _variable(module, value, "a lambda")
    if "<locals>" in name:
        raise UnnamedError(f"{name.rpartition('.')[2]}, which is defined inside a function")
    if module == "__main__":
        raise UnnamedError(f"{name} of __main__, the program that runs now")
    try:
        found = import_name(f"{module}:{name}")
    except (ImportError, AttributeError):
        raise UnnamedError(f"{name}, which cannot be imported from {module}") from None
    if found is not value:
        raise UnnamedError(f"not what {module}.{name} is now")
    return f"{_public_module(module, name, value)}:{name}"


def import_name(path: str) -> Any:
    """Import what a path names.

    Raises:
        ImportError: if the module cannot be imported.
        AttributeError: if it lacks the name.
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError:
        raise
    except Exception as error:  # whatever a module's own statements raise
        raise ImportError(f"{module}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _variable(module: str, value: Any, otherwise: str) -> str:
    """Return the name of a module's variable that holds a value."""
    loaded = sys.modules.get(module)
    names = [n for n, v in vars(loaded).items() if v is value] if loaded else []
    if not names:
        raise UnnamedError(otherwise)
    return min(names, key=lambda n: (n.startswith("_"), n))


def _public_module(module: str, name: str, value: Any) -> str:
    """Return the shortest public module of the same package that has the value by this name."""
    if not _is_private(module) or "." in name:
        return module
    package = module.split(".")[0]
    found = [
        m for m, loaded in list(sys.modules.items())
        if m.split(".")[0] == package and not _is_private(m)
        and getattr(loaded, "__dict__", {}).get(name) is value
    ]  # fmt: skip
    return min(found, key=lambda m: (m.count("."), m), default=module)


def _is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))
