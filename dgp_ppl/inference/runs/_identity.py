"""What a run is known by: its settings, the arrays of its arguments, and its traced program."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dgp_ppl._files import versions as package_versions
from dgp_ppl._static_key import SameObject, static_key

ROUNDINGS = (0.0, 1.0, -1.0)

_PROGRAM_PACKAGES = ("jax", "jaxlib", "numpyro", "optax", "dgp_ppl")
_COUNTED = (bool, int, float, str, type(None), ClosedJaxpr)


class Identity:
    """What tells a run from others: settings, arguments, the first state and the traced program.

    `program` traces its steps, and counts with the `start` where versions and machine are the same.
    Where they differ, a sketch of the first state counts, and the norms of `results`, which the
    program makes `with_noise` of a rounding.
    """

    def __init__(
        self, program: Callable[[], Any], results: Callable[[float], Any], first: Any,
        arguments: Any, versions: Mapping[str, Any] = types.MappingProxyType({}), **settings: Any,
    ) -> None:  # fmt: skip
        self.program, self.results = program, results
        plain = {n: a.item() if hasattr(a, "item") else a for n, a in settings.items()}
        self.start, self.sketch = digest(first), sketch(first)
        self.settings = plain | {"arguments": digest(arguments)}
        self.versions = {n: v for n, v in package_versions().items() if n in _PROGRAM_PACKAGES}
        self.versions |= {n: str(v) for n, v in versions.items()}
        self.versions["platform"] = f"{jax.default_backend()} {_processor()}".strip()

    def numbers(self) -> tuple[list[float], list[float]]:
        """Return norms of results, and how far they may be off under other versions.

        That is 1e-5, and 20 times what a change of the inputs by their rounding error makes:
        between compilers, numbers of ill-conditioned programs were up to 6 times as far off.
        """
        value, *others = (np.asarray(norms(self.results(rounding))) for rounding in ROUNDINGS)
        with np.errstate(invalid="ignore"):
            spread = np.max([np.abs(a - value) for a in others], axis=0)
        return value.tolist(), (1e-5 * value + 20 * spread).tolist()


@functools.cache
def _processor() -> str:
    """Return the kind of this machine's processor, for which XLA compiles."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(a for a in lines if a.startswith("model name")).partition(":")[2].strip()
    return platform.processor()


def norms(tree: Any) -> list[float]:
    """Return the norm of each array that has no integers."""
    arrays = [np.asarray(a) for a in map(raw, jax.tree.leaves(tree))]
    return [float(np.linalg.norm(a.astype(float))) for a in arrays if a.dtype.kind not in "iub"]


def sketch(tree: Any) -> list[float]:
    """Return norms that change with the sign and the order of numbers, and little with rounding."""
    rng = np.random.default_rng(0)

    def moved(a: np.ndarray) -> np.ndarray:
        size = np.sqrt(np.mean(np.square(a))) if a.size else 0.0
        return a + size * rng.standard_normal(a.shape)

    arrays = [np.asarray(a) for a in map(raw, jax.tree.leaves(tree))]
    return norms([moved(a.astype(float)) for a in arrays if a.dtype.kind not in "iubc"])


def with_noise(tree: Any, noise: float, rounding: float) -> Any:
    """Return arrays with normal noise of this sd, and relative noise of so many rounding errors."""
    rng = np.random.default_rng(0)

    def one(a: Any) -> Any:
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return a
        added, relative = rng.standard_normal((2, *a.shape))
        relative *= rounding * float(jnp.finfo(a.dtype).eps)
        return jnp.asarray((np.asarray(a, float) + noise * added) * (1 + relative), a.dtype)

    return jax.tree.map(one, tree)


def raw(leaf: Any) -> Any:
    """Return the numbers of a random key; other leaves are unchanged."""
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return random.key_data(leaf) if is_key else leaf


def digest(value: Any) -> str:
    """Return a hash, equal in all processes, of a traced program or of a tree of arguments.

    Arrays and numbers count by value. Functions among arguments count in the program that they make
    and not here, as the same program can be written in other words.
    """
    leaves, treedef = jax.tree.flatten(value)
    plain = [a if isinstance(a, _COUNTED) or _is_array(a) else type(a) for a in leaves]
    return _hash(_text((treedef, plain), {}))


def _hash(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "dtype") and not isinstance(value, type)


def _text(value: Any, seen: dict[int, tuple[Any, str]]) -> str:
    """Return a text that is equal for parts of a program with the same meaning.

    `seen` has the inner programs by their ids, each with its hash: a program has few, many times.
    """
    if isinstance(value, ClosedJaxpr | Jaxpr):  # one class since JAX 0.12
        if id(value) not in seen:
            constants = _text(getattr(value, "consts", ()), seen)
            inner: Any = getattr(value, "jaxpr", value)
            seen[id(value)] = value, _hash("\n".join([*_lines(inner, seen), constants]))
        return seen[id(value)][1]
    if _is_array(value):
        array = np.asarray(raw(value))
        return f"{value.dtype}{array.shape}{_hash(array.tobytes())}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({','.join(_text(a, seen) for a in value)})"
    if isinstance(value, set | frozenset):
        return f"set({','.join(sorted(_text(a, seen) for a in value))})"
    if isinstance(value, dict):
        return _text(sorted((str(n), _text(a, seen)) for n, a in value.items()), seen)
    if isinstance(value, types.CodeType):
        return _text((value.co_code.hex(), value.co_names, value.co_consts), seen)
    if isinstance(value, SameObject):
        return _text(value.value, seen)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _lines(jaxpr: Jaxpr, seen: dict[int, tuple[Any, str]]) -> list[str]:
    """Return a line for each operation of a program. Variables are known by their numbers."""
    numbers: dict[Any, int] = {}

    def text(variable: Any) -> str:
        if isinstance(variable, Literal):
            return f"{variable.aval} {_text(variable.val, seen)}"
        return f"{numbers.setdefault(variable, len(numbers))}:{variable.aval}"

    def line(name: str, variables: Any, params: Any = "") -> str:
        return f"{name} {' '.join(map(text, variables))} {params}"

    lines = [line("given", [*jaxpr.constvars, *jaxpr.invars])]
    for eqn in jaxpr.eqns:
        # A function that the host calls is no part of the program: it counts by its own parts.
        own = {
            n: static_key(getattr(a, "callback_func", a)) if n == "callback" else a
            for n, a in eqn.params.items()
        }
        lines.append(line(eqn.primitive.name, [*eqn.invars, *eqn.outvars], _text(own, seen)))
    return [*lines, line("returned", jaxpr.outvars)]
