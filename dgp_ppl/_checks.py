"""Checks of arguments that many functions share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from numpyro.primitives import Messenger
from numpyro.util import is_prng_key

from dgp_ppl._errors import DataError
from dgp_ppl._typing import Fitted, Params

__all__ = [
    "GivenParams",
    "bad_rows",
    "check_count",
    "check_finite_params",
    "check_inputs",
    "check_key",
    "check_shapes",
    "is_traced",
    "missing_params",
    "params_of",
    "short_list",
    "unknown_params",
    "warn_of_nan",
]

_MOST_ROWS = 5


def check_count(caller: str, name: str, value: object, minimum: int = 1) -> None:
    """Raise unless an argument is an integer of at least `minimum`; 2.0 is not an integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"{caller}: {name} is {value!r}, wanted an integer of at least {minimum}, such as "
            f"{name}={max(minimum, 8)}"
        )
    if value < minimum:
        raise DataError(f"{caller}: {name} is {value}, wanted at least {minimum}")


def check_key(caller: str, key: Any) -> None:
    """Raise unless an argument is a single random key. Integer seeds are not accepted."""
    if not is_prng_key(key):
        what = f"an array of shape {key.shape}" if hasattr(key, "shape") else repr(key)
        raise TypeError(
            f"{caller}: key is {what}, wanted one random key, such as jax.random.key(0)"
        )


def check_inputs(caller: str, x: Any, name: str = "x", numbers: np.ndarray | None = None) -> None:
    """Raise unless inputs are finite numbers. Traced ones are not checked.

    `numbers` are the rows' numbers, [N], if they are not 0 ... N - 1.
    """
    if is_traced(x):
        return
    values = np.asarray(x)
    if values.dtype.kind not in "fiub":
        raise TypeError(
            f"{caller}: {name} holds {_kind(values)}, wanted numbers; "
            "dgp_ppl.datasets.Preprocessor turns the columns of a table into inputs"
        )
    if values.dtype.kind == "f" and values.ndim and (bad := ~np.isfinite(values)).any():
        raise DataError(
            f"{caller}: {name} is NaN or infinite in {bad_rows(bad, numbers)}; fill in these "
            "values (dgp_ppl.datasets.Preprocessor does), or leave out these rows"
        )


def _kind(values: np.ndarray) -> str:
    if values.dtype.kind == "O" and values.size:
        return f"objects (such as {type(values.ravel()[0]).__name__})"
    return f"values of type {values.dtype}"


def bad_rows(bad: np.ndarray, numbers: np.ndarray | None = None) -> str:
    """Return the number of rows with a bad entry, [N, ...], and the first of them."""
    if not bad.ndim:
        return "its only value"
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    named = rows if numbers is None else numbers[rows]
    shown = ", ".join(map(str, named[:_MOST_ROWS])) + ", ..." * (len(rows) > _MOST_ROWS)
    return f"{len(rows)} of {len(bad)} rows [{shown}]"


def warn_of_nan(caller: str, found: Mapping[str, Any]) -> None:
    """Warn if an array of results on the host is NaN, by name: a site, or an array of a layer."""
    bad = {
        n: np.isnan(a)
        for n, a in found.items()
        if isinstance(a, np.ndarray) and a.dtype.kind == "f"
    }
    if names := [n for n, a in bad.items() if a.any()]:
        warnings.warn(
            f"{caller}: NaN in {short_list(names)}, of {names[0]!r} in {bad_rows(bad[names[0]])}; "
            "look for params out of their range, such as a negative scale, or a covariance that "
            "float32 cannot factorise (jax_enable_x64)",
            UserWarning,
            stacklevel=4,
        )


def check_finite_params(caller: str, params: Params) -> None:
    """Raise if a param is NaN or infinite. Traced ones are not checked."""

    def is_finite(value: Any) -> bool:
        leaves = [a for a in jax.tree.leaves(value) if hasattr(a, "dtype") or type(a) is float]
        return all(np.isfinite(a).all() for a in map(np.asarray, leaves) if a.dtype.kind == "f")

    bad = [n for n, a in params.items() if not is_traced(a) and not is_finite(a)]
    if bad:
        raise ValueError(
            f"{caller}: params {short_list(bad)} are NaN or infinite, wanted finite values; a fit "
            "that fails raises NonFiniteLossError, whose result has the last finite params"
        )


def params_of(caller: str, params: Params | Fitted, name: str = "params") -> Params:
    """Return params by name, from a dict or from a result such as a `FitResult`."""
    found = params if isinstance(params, Mapping) else getattr(params, "params", None)
    if not isinstance(found, Mapping):
        raise TypeError(
            f"{caller}: {name} is a {type(params).__name__}, wanted a fit's result, or its params: "
            "a dict of arrays by name"
        )
    return dict(found)


def check_shapes(caller: str, name: str, value: Any, declared: Any, *, shared: bool = True) -> None:
    """Raise unless a param's value has the shape with which the program declares it.

    Values may be trees of arrays, such as networks. A `shared` value may lack the leading axis:
    params of a shared kernel serve kernels per output.
    """
    got, wanted = _shapes(value), _shapes(declared)
    if got == wanted:
        return
    if len(got) == len(wanted) == 1:
        if shared and got[0] in ((), wanted[0][1:]):
            return
        what = f"shape {got[0]}, wanted {wanted[0]}"
    else:
        what = f"arrays of shapes {short_list(got)}, wanted {short_list(wanted)}"
    raise ValueError(
        f"{caller}: params[{name!r}] has {what}, which the program declares at these arguments; "
        "pass the params of a fit of the same model and guide, and the arguments of that "
        "fit, such as z"
    )


class GivenParams(Messenger):
    """Handler that sets params to given values, and refuses other shapes than declared.

    `missing` says whether the param of a name keeps its initial value without a given one. By
    default none does: it is an error, which names the `caller` that received the params.
    """

    def __init__(
        self,
        fn: Any,
        params: Params,
        caller: str,
        *,
        missing: Callable[[str], bool] = lambda name: False,
    ) -> None:
        super().__init__(fn)
        self.params, self.caller, self.missing = params, caller, missing

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "param" or msg["value"] is not None:
            return
        name, declared = msg["name"], (*msg["args"], None)[0]
        if name in self.params:
            if declared is not None:
                check_shapes(self.caller, name, self.params[name], declared)
            msg["value"] = self.params[name]
        elif not self.missing(name) and not (msg["args"] and declared is None):
            msg["fn"] = self._raise(name)  # outer handlers may still set or lift the param

    def _raise(self, name: str) -> Any:
        def no_value(*args: Any, **kwargs: Any) -> None:
            raise missing_params(self.caller, [name], self.params)

        return no_value


def missing_params(caller: str, missing: Iterable[str], params: Iterable[str]) -> ValueError:
    """Return the error for params that are not given."""
    first, *others = missing
    more = f" and {len(others)} more ({short_list(others)})" if others else ""
    return ValueError(
        f"{caller}: params has no {first!r}{more}; it has {short_list(sorted(params))}, wanted all "
        "params of the model and the guide; pass the result of their fit, or its params"
    )


def unknown_params(
    caller: str, unknown: Iterable[str], guide: str, declared: Iterable[str]
) -> ValueError:
    """Return the error for params that neither the model nor the guide of this name declares."""
    return ValueError(
        f"{caller}: params has {short_list(unknown)}, which neither the model nor {guide} has; "
        f"they have {short_list(sorted(declared))}; pass the params of a fit of this model and "
        "guide, or leave these out if they are meant to be unused"
    )


def short_list(names: Iterable[Any], most: int = 6) -> str:
    """Return the first entries of a list, and the number of all, in brackets."""
    entries = list(names)
    shown = ", ".join(map(repr, entries[:most]))
    more = f", ... ({len(entries)} in all)" if len(entries) > most else ""
    return f"[{shown}{more}]"


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    """Return the shapes of a tree's arrays and numbers; functions of a network have none."""
    leaves = jax.tree.leaves(tree)
    return [
        tuple(getattr(a, "shape", ()))
        for a in leaves
        if hasattr(a, "shape") or isinstance(a, int | float)
    ]


def is_traced(*trees: Any) -> bool:
    """Return whether an array in these trees is traced by `jax.jit`, `jax.vmap` or `jax.grad`."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))
