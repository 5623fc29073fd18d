"""Checks of arguments that many functions share."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger
from numpyro.util import is_prng_key

from dgp_ppl._errors import DataError, listed, one_line
from dgp_ppl._partition import Call, call_signature
from dgp_ppl._typing import Fitted, Params

# Rounding of a column of inputs, in its standard deviations: may merge values, and does.
_LEAST_ROUNDING, _MOST_ROUNDING = 1e-6, 1e-3
_MOST_ROWS = 5
_SOME = 200_000  # entries whose mean and standard deviation say whether inputs may be blurred
_FEW = 2_000  # rows whose gaps say whether they are; random ones of more rows lie closer together


def check_count(caller: str, name: str, value: Any, minimum: int = 1) -> None:
    """Raise unless an argument is an integer of at least `minimum`; 2.0 is not an integer."""
    what = f"an integer of at least {minimum}, such as {name}={max(minimum, 8)}"
    check_kind(caller, name, value, () if isinstance(value, bool) else int | np.integer, what)
    if not minimum <= value < (2**31 if minimum else np.inf):  # seeds may be larger
        limit = ", below 2**31" if value >= minimum else ""
        raise DataError(f"{caller}: {name} is {value}, wanted at least {minimum}{limit}")


def check_counts(caller: str, /, **counts: object) -> None:
    """Raise unless arguments are positive integers."""
    for name, value in counts.items():
        check_count(caller, name, value)


def check_flags(caller: str, /, **flags: object) -> None:
    """Raise unless arguments are True or False."""
    for name, value in flags.items():
        check_kind(caller, name, value, bool | np.bool_, "True or False")


def check_key(caller: str, key: Any) -> None:
    """Raise unless an argument is a single random key. Integer seeds are not accepted."""
    if not is_prng_key(key):
        what = f"an array of shape {key.shape}" if hasattr(key, "shape") else _brief(key)
        raise TypeError(f"{caller}: key is {what}, wanted one random key: jax.random.key(0)")


def check_positive(caller: str, name: str, value: Any, most: float = np.inf) -> None:
    """Raise unless an argument is a positive finite number, of at most `most`."""
    array = _on_host(value)
    if array.ndim or array.dtype.kind in "bcOUSMm" or not 0 < float(array) < np.inf or array > most:
        wanted = "a positive number" + f", at most {most}" * (most < np.inf)
        raise ValueError(f"{caller}: {name} is {_brief(value)}, wanted {wanted}")


def check_choice(caller: str, name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise unless an argument is one of these texts."""
    if not isinstance(value, str | None) or value not in choices:
        wanted = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{caller}: {name} is {_brief(value)}, wanted {wanted}")


def check_kind(caller: str, name: str, value: Any, kinds: Any, wanted: str) -> None:
    """Raise unless an argument is of one of these types."""
    if not isinstance(value, kinds):
        raise TypeError(f"{caller}: {name} is {_brief(value)}, wanted {wanted}")


def check_program(caller: str, name: str, program: Any) -> None:
    """Raise unless an argument can be called as a model or a guide."""
    is_other = inspect.isclass(program) or isinstance(program, Distribution)
    if is_other or not callable(program):
        what = f"the class {program.__name__}" if inspect.isclass(program) else _brief(program)
        how = "a guide, such as dgp_ppl.MeanField(model)"
        how = how if name == "guide" else "a NumPyro model, such as dgp_ppl.models.svgp"
        raise TypeError(f"{caller}: {name} is {what}, wanted {how}")


def checked_call(
    caller: str, model: Any, guide: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call:
    """Return a model's arguments, as arrays, after all checks that need no run of the model."""
    check_program(caller, "model", model)
    if guide is not None:
        check_program(caller, "guide", guide)
    found = call_signature(model).parameters.values()
    names = [p.name for p in found if p.kind <= p.POSITIONAL_OR_KEYWORD]
    names += map(str, range(len(names), len(args)))
    # A source of rows stands for several arguments.
    streamed = any(type(a).__module__.startswith("dgp_ppl.datasets") for a in args)
    programs: Any = () if streamed else (model, getattr(guide, "model", None))
    for program in programs:
        plain = program.func if isinstance(program, partial) else program
        if inspect.isfunction(plain) and not hasattr(plain, "__wrapped__"):
            signature = inspect.signature(program)
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(
                    f"{caller}: {plain.__name__}: {error}; its arguments are "
                    f"{short_list(signature.parameters, 20)}"
                ) from None

    def checked(name: str, value: Any) -> Any:
        leaves, treedef = jax.tree.flatten(value)
        if name in (*names[:1], "y") and leaves and all(isinstance(a, int | float) for a in leaves):
            return as_array(caller, f"argument {name!r}", value)
        what = f"argument {name!r}"
        given = [held_by_jax(caller, what, a) if _is_data(a) else a for a in leaves]
        same = all(a is b for a, b in zip(leaves, given, strict=True))
        return value if same else treedef.unflatten(given)

    named = {n: checked(n, a) for n, a in kwargs.items()}
    return Call(tuple(map(checked, names, args)), named)


def _is_data(value: Any) -> bool:
    """Return whether an argument is an array, a frame, a series, or the like."""
    ours = isinstance(value, np.generic) or type(value).__module__.startswith("dgp_ppl.")
    names = ("__array__", "to_numpy", "toarray", "collect")
    return not ours and any(hasattr(value, name) for name in names)


def as_array(caller: str, name: str, value: Any) -> Any:
    """Return real numbers as an array: JAX's arrays as they are, others as NumPy's."""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, np.complexfloating):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise TypeError(f"{caller}: {name} is a random key, wanted numbers")
        return value
    columns = getattr(value, "column_names", getattr(value, "columns", None))
    if columns is not None and _is_data(value):
        frame = name.split()[-1].strip("'") + ".to_pandas()" * hasattr(value, "column_names")
        frame += ".collect()" * hasattr(value, "collect")  # polars' lazy frame
        raise TypeError(
            f"{caller}: {name} is {_brief(value)}, whose columns would be taken by their order, "
            f"not by name, wanted an array: {frame}[{short_list(columns)}].to_numpy()"
        )
    if hasattr(value, "toarray"):
        raise TypeError(f"{caller}: {name} is {_brief(value)}, wanted an array: call its toarray()")
    try:
        array = np.asanyarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{caller}: {name} is no array ({one_line(error)})") from None
    if np.ma.is_masked(array):
        raise TypeError(
            f"{caller}: {name} is masked in {bad_rows(np.ma.getmaskarray(array))}, wanted an array "
            "without NumPy's mask, which would be lost: leave out these rows; for missing targets "
            "fill in NaN, and pass the mask to dgp_ppl.observe"
        )
    array = np.asarray(array, array.dtype.newbyteorder("="))
    if array.dtype.kind == "c":
        raise TypeError(f"{caller}: {name} holds complex numbers, wanted real ones")
    if array.dtype.kind in "OUSMm" or array.dtype.names:
        raise TypeError(
            f"{caller}: {name} holds {_kind(array)}, wanted numbers; "
            "dgp_ppl.datasets.Preprocessor turns the columns of a table into inputs"
        )
    return array


def held_by_jax(caller: str, name: str, value: Any) -> Any:
    """Return real numbers as an array; raise if JAX's numbers are too narrow for them."""
    array = as_array(caller, name, value)
    if not isinstance(array, np.ndarray) or array.dtype.itemsize < 8:
        return array
    info: Any = np.finfo if array.dtype.kind == "f" else np.iinfo
    limits, finite = info(jax.dtypes.canonicalize_dtype(array.dtype)), np.isfinite(array)
    for end in (find(array, where=finite, initial=0) for find in (np.min, np.max)):
        if not limits.min <= end <= limits.max:
            raise DataError(
                f"{caller}: {name} has the value {end}, beyond {limits.dtype}, in which JAX "
                f"computes; rescale it, pass {name.split()[-1].strip(chr(39))}.astype(float) for "
                "large integers, or set jax_enable_x64"
            )
    return array


def check_inputs(caller: str, x: Any, name: str = "x") -> Any:
    """Return inputs as an array; raise unless they are finite numbers, or traced."""
    array = as_array(caller, name, x)
    values = np.zeros(0) if is_traced(array) else np.asarray(array)
    if values.dtype.kind == "f" and values.ndim and (bad := ~np.isfinite(values)).any():
        raise DataError(
            f"{caller}: {name} is NaN or infinite in {bad_rows(bad)}; fill in these "
            "values (dgp_ppl.datasets.Preprocessor does), or leave out these rows"
        )
    return array


def warn_if_blurred(caller: str, x: Any, stacklevel: int) -> None:
    """Warn if float32 cannot tell rows of inputs apart, such as seconds since 1970."""
    step = max(1, np.size(x) // _SOME)
    some = np.asarray(x if step == 1 else x[::step], np.float64)
    if some.ndim != 2 or not some.size or not np.isfinite(some).all():
        return
    dtype = jax.dtypes.canonicalize_dtype(float)
    mean, sd = some.mean(axis=0), some.std(axis=0)
    rounding = np.finfo(dtype).eps * np.abs(mean) / np.where(sd > 0, sd, np.inf)
    for i in np.flatnonzero(rounding > _LEAST_ROUNDING):
        values = np.unique(np.asarray(x)[:_FEW, i].astype(np.float64))
        gaps = np.diff(values)
        steps = gaps / gaps.min(initial=np.inf)
        on_grid = (abs(steps - steps.round()) < 1e-2).all()  # in any order of the rows
        gap = gaps.min(initial=np.inf) if on_grid else np.median(gaps)
        if gap < np.spacing(abs(mean[i]).astype(dtype)) or rounding[i] > _MOST_ROUNDING:
            warnings.warn(
                f"{caller}: column {i} of x has mean {mean[i]:g} and standard deviation {sd[i]:g}, "
                f"so {dtype.name} cannot tell near values apart; subtract a constant from the "
                "column (dgp_ppl.Standardizer does), or set jax_enable_x64",
                stacklevel=stacklevel + 1,
            )
            return


def _on_host(value: Any) -> Any:
    """Return numbers as NumPy's, and what has none, such as random keys, as an array of text."""
    known = isinstance(value, Real | np.generic | np.ndarray | jax.Array)
    is_key = known and jnp.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key)
    return np.asarray(value if known and not is_key else "")


def _brief(value: Any) -> str:
    return repr(value) if isinstance(value, Real | str | None) else f"a {type(value).__name__}"


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
    arrays = {n: a for n, a in found.items() if isinstance(a, np.ndarray)}
    bad = {n: np.isnan(a) for n, a in arrays.items() if a.dtype.kind == "f"}
    if names := [n for n, a in bad.items() if a.any()]:
        warnings.warn(
            f"{caller}: NaN in {short_list(names)}, of {names[0]!r} in {bad_rows(bad[names[0]])}; "
            "look for params out of their range, such as a negative scale or probs above 1, or a "
            "covariance that float32 cannot factorise (jax_enable_x64)",
            stacklevel=4,
        )


def check_value(
    what: str, value: Any, constraint: Any = None, *, edge: bool = False, nan: bool = False
) -> None:
    """Raise unless a param's value is of finite numbers within its constraint.

    Traced ones are not checked, nor functions of a network. Its `edge` may be allowed, or NaN.
    """
    elementwise = getattr(constraint, "event_dim", 1) == 0 and not is_traced(constraint)
    for leaf in [value] if value is None else jax.tree.leaves(value):
        if is_traced(leaf) or callable(leaf) or not (leaf is value or hasattr(leaf, "dtype")):
            continue
        a = _on_host(leaf)
        met = a.dtype.kind not in "cOUSMm"
        if met and elementwise:
            ways = (a, np.nextafter(a, -np.inf), np.nextafter(a, np.inf))[: 3 if edge else 1]
            met = bool((np.any([constraint(b) for b in ways], axis=0) | np.isnan(a)).all())
        if not met or not (nan or np.isfinite(a).all()):
            shown = " ".join(str(leaf).split())[:60]
            within = f" within its constraint, {constraint}" if elementwise else ""
            raise ValueError(f"{what} is {shown}, wanted finite numbers{within}")


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
        self, fn: Any, params: Params, caller: str, *,
        missing: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        super().__init__(fn)
        self.params, self.caller, self.missing = params, caller, missing
        self.constraints: dict[str, Any] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "param" or msg["value"] is not None:
            return
        name, declared = msg["name"], (*msg["args"], None)[0]
        if name in self.params:
            if declared is not None:
                check_shapes(self.caller, name, self.params[name], declared)
            msg["value"] = self.params[name]
            self.constraints[name] = limit = msg["kwargs"].get("constraint")
            check_value(f"{self.caller}: params[{name!r}]", self.params[name], limit, edge=True)
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
        "guide, with the arguments of that fit (such as local=), or leave these out if they are "
        "meant to be unused"
    )


def short_list(names: Iterable[Any], most: int = 6) -> str:
    """Return the first entries of a list, and the number of all, in brackets."""
    return f"[{listed(list(map(repr, names)), most)}]"


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    """Return the shapes of a tree's arrays and numbers; functions of a network have none."""
    return [
        tuple(getattr(a, "shape", ()))
        for a in jax.tree.leaves(tree)
        if hasattr(a, "shape") or isinstance(a, int | float)
    ]


def is_traced(*trees: Any) -> bool:
    """Return whether an array in these trees is traced by `jax.jit`, `jax.vmap` or `jax.grad`."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))
