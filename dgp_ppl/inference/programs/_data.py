"""The check of observed data, before anything is fitted: NaN, and values that no f can produce."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.core import Tracer
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._checks import bad_rows, is_traced, warn_if_blurred
from dgp_ppl._errors import DataError, one_line
from dgp_ppl._partition import (
    Call,
    CallArrays,
    Partition,
    Streamed,
    alone,
    compiled,
    is_streamed,
    named_arrays,
    on_device,
)
from dgp_ppl._typing import Model
from dgp_ppl.core._minibatch import padded, whole_plates
from dgp_ppl.datasets import Rows
from dgp_ppl.inference.programs._handlers import Sites, data_plates, refuse_obs_mask, survey
from dgp_ppl.likelihoods import Observed
from dgp_ppl.likelihoods._likelihood_sites import out_of_limits
from dgp_ppl.likelihoods._observe import as_observed
from dgp_ppl.likelihoods._survival import OF_NUMPYRO

_REMEDY = (
    "leave the values out by a mask, observe(..., mask=...) or numpyro.handlers.mask, or leave out "
    "these rows"
)

_DRAWS = 8  # of latent sites

_FILL_IN = (
    "fill in these values (dgp_ppl.datasets.Preprocessor does), or leave out these rows; a mask "
    "leaves out observed values only"
)


def check_data(caller: str, model: Model, call: Call, *, fitted: bool = True) -> tuple[Call, Sites]:
    """Check the values that a model observes, as far as they are its arguments as they are.

    The model runs once, on shapes, so nothing is computed but the comparison of the data with the
    supports. Where that does not decide, a second run computes densities of `observe` at many f.
    Values that the model computes are left to `explain_data`. A `DataError` says what is NaN, out
    of the support or without a density for any f, where no mask leaves it out. If nothing is
    `fitted`, the model may lack data, and only values of discrete supports are checked.

    Returns the call with JAX's arrays, and the sites of the model, which observe these arrays. Each
    plate has all rows, or the rows of the minibatch at hand.
    """
    if any(isinstance(a, Rows) for a in (*call.args, *call.kwargs.values())):
        raise TypeError(
            f"{caller}: an argument is Rows, wanted arrays in memory: Rows.sample draws some rows; "
            "fit and evaluate take Rows for the model's first arguments"
        )
    inputs = call.inputs.rows if isinstance(call.inputs, Streamed) else call.inputs
    if caller and isinstance(inputs, jax.Array | np.ndarray) and not isinstance(inputs, Tracer):
        warn_if_blurred(caller, inputs, 4)
    # JAX's arrays stay themselves in a traced program.
    call = Call(*jax.tree.map(on_device, (call.args, call.kwargs)))
    sites = survey(_with_all_rows(model, call), call, hide_params=True)
    if is_streamed(call.args):
        _refuse_row_sites(caller, sites, "Rows")
    for name, site in sites.items():
        unseen = site["type"] == "sample" and not site["is_observed"]
        if fitted and unseen and as_observed(site["fn"]) is not None:
            refuse_obs_mask(caller, name)
            raise ValueError(
                f"{caller}: site {name!r} of dgp_ppl.observe has no data, wanted an array for the "
                "model's argument that it observes, which is None"
            )
    for name, site in _observed(sites).items():
        if (ours := OF_NUMPYRO.get(type(_inner(site["fn"])))) is not None:
            warnings.warn(
                f"{caller}: site {name!r} is NumPyro's {_name(site['fn'])}, whose densities come "
                "from 1 - cdf, wrong in the tails of float32; wanted dgp_ppl.likelihoods."
                f"{ours.__name__}, which is called alike",
                stacklevel=2,
            )
    undecided = {}
    for what, site in _observed_arguments(model, call, sites):
        fn, value = site["fn"], site["value"]
        if not (fitted or getattr(_entry_support(fn), "is_discrete", False)):
            continue
        is_ours = isinstance(fn, Observed)  # within NumPyro's `scan` it has steps in front
        wanted = (*fn.marginals.mean.shape[:-2], *fn.shape()) if is_ours else value.shape
        if value.shape != wanted:
            hint = "; pass y[:, 0]" if value.shape == (*wanted, 1) else ""
            raise ValueError(f"{caller}: {what} has shape {value.shape}, wanted {wanted}{hint}")
        decided = _check_values(caller, what, fn, value, _numbers_of(call, value))
        if not decided and is_ours:
            undecided[site["name"]] = what, value, _numbers_of(call, value)
    if undecided or (fitted and _by_nodes(sites)):
        _check_likelihoods(caller, model, call, undecided)
    return call, sites


def _check_likelihoods(caller: str, model: Model, call: Call, undecided: dict[str, Any]) -> None:
    """Raise if an f makes a scale negative, or a site observes what no f can produce.

    The `undecided` sites are given with their descriptions, values and rows. Fault is what is one
    at several draws of the latent sites, which do not move the ends of a support.
    """
    impossible, limits, ends = _computed(_judged, model, call, tuple(undecided))
    for draw in range(1, _DRAWS):
        if not any(map(np.any, jax.tree.leaves((impossible, limits)))):
            return
        more, others, moved = _computed(_judged, model, call, tuple(undecided), draw)
        for n in undecided:
            impossible[n] = impossible[n] & more[n] & all(map(np.array_equal, ends[n], moved[n]))
        limits = jax.tree.map(np.logical_and, limits, others)
    for name, wrong in limits.items():
        if found := [what for what, is_wrong in wrong.items() if is_wrong]:
            raise ValueError(
                f"{caller}: site {name!r}: {found[0]} at an f of -4 or 4, "
                "wanted a link of all f, such as jnp.exp(f), jax.nn.softplus(f) or "
                "jax.nn.sigmoid(f)"
            )
    for name, bad in impossible.items():
        if bad.any():
            what, y, numbers = undecided[name]
            raise DataError(
                f"{caller}: {what} has no finite density for any f in {bad_rows(bad, numbers)}, "
                f"first {y[np.argmax(bad)]}, wanted values that the likelihood can give, such as "
                f"(y (N - 1) + 1/2) / N for shares from 0 to 1; or {_REMEDY}"
            )


def _by_nodes(sites: Sites) -> dict[str, Observed]:
    """Return the sites that call their likelihood at many f, for want of a closed form."""
    found = {n: as_observed(s["fn"]) for n, s in _observed(sites).items()}
    return {
        n: fn
        for n, fn in found.items()
        if fn and fn.normal_scale is None and not fn.analytic and fn.marginals.mean.ndim == 2
    }


def _judged(trace: Sites, names: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Return which rows of these sites no f can produce, limits that f leaves, and supports' ends.

    The ends are those at an f of 0, as far as they are computed.
    """
    found = {n: trace[n]["fn"] for n in names}
    nodes = _by_nodes(trace).items()
    limits = {n: out_of_limits(fn.likelihood, fn.latent_mean) for n, fn in nodes}
    at_0 = {n: fn.likelihood(jnp.zeros_like(fn.latent_mean)) for n, fn in found.items()}
    ends = {n: [a for a in _bounds(_entry_support(d)) if is_traced(a)] for n, d in at_0.items()}
    return {n: fn.is_impossible(trace[n]["value"]) for n, fn in found.items()}, limits, ends


def _values(trace: Sites, _: tuple[str, ...]) -> dict[str, Any]:
    """Return what all sites observe, and where it counts."""
    return {n: (s["value"], seen_where(s["fn"])) for n, s in _observed(trace).items()}


def _part_of(
    part: Any, names: tuple[str, ...], made_from: Partition, arrays: CallArrays, draw: Any
) -> Any:
    call = made_from.join(arrays)
    seeded = handlers.seed(_with_all_rows(made_from.model, call), random.PRNGKey(draw))
    return part(handlers.trace(seeded).get_trace(*call.args, **call.kwargs), names)


_program = compiled(_part_of, static_argnums=(0, 1, 2))


def _computed(
    part: Any, model: Model, call: Call, names: tuple[str, ...] = (), draw: int = 0
) -> Any:
    """Compute a part of the trace of a model; XLA leaves out what the part does not need."""
    made_from, arrays = Partition.split(model, call)
    with alone():
        return jax.tree.map(np.asarray, _program(part, names, made_from, arrays, draw))


def _observed(sites: Sites) -> Sites:
    """Return the sites that observe data; factors are not among them."""
    sampled = {n: s for n, s in sites.items() if s["type"] == "sample" and s["is_observed"]}
    return {n: s for n, s in sampled.items() if not isinstance(s["fn"], dist.Unit)}


def _observed_arguments(model: Model, call: Call, sites: Sites) -> Iterator[tuple[str, Any]]:
    """Yield the sites that observe an argument as it is, each with a description of both."""
    names = {id(a): n for n, a in named_arrays(model, call)}
    for name, site in _observed(sites).items():
        if (argument := names.get(id(site["value"]))) is not None:
            yield f"argument {argument!r}, observed at site {name!r},", site


def explain_data(model: Model, call: Call) -> str | None:
    """Return what is not finite in the data of a loss that is not, or None.

    It names the arguments that are not finite, apart from observed ones that `check_data` passed,
    and the observed sites whose computed values are not finite.
    """
    call, sites = check_data("", model, call)
    checked = {id(s["value"]) for s in sites.values() if s["type"] == "sample"}
    for name, array in named_arrays(model, call):
        values = np.asarray(array)
        bad = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(())
        if id(array) not in checked and bad.any():
            where = bad_rows(bad, _numbers_of(call, array))
            return f"argument {name!r} is NaN or infinite in {where}: {_FILL_IN}"

    for name, (value, seen) in _computed(_values, model, call).items():
        if value.dtype.kind == "f":
            bad = ~np.isfinite(value) & _over(seen, value)
            if bad.any():
                return f"site {name!r} observes NaN or infinity in {bad_rows(bad)}: {_REMEDY}"
    return None


RowCheck = Callable[[Sequence[np.ndarray], np.ndarray], None]
"""Raises if rows of a source's arrays cannot be observed; takes also the rows' numbers."""


def row_check(caller: str, model: Model, call: Call, sites: Sites) -> RowCheck:
    """Return the check of `check_data`, which returned the call, for further streamed rows."""
    streamed = [a.rows for a in call.args if isinstance(a, Streamed)]
    # A mask of the first minibatch says nothing about other minibatches.
    found = [
        (i, what, site)
        for what, site in _observed_arguments(model, call, sites)
        for i, array in enumerate(streamed)
        if site["value"] is array and not _masks(site["fn"])
    ]

    def check(arrays: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        for i, what, site in found:
            _check_values(caller, what, site["fn"], arrays[i], numbers)

    return check


def _numbers_of(call: Call, array: Any) -> np.ndarray | None:
    """Return the numbers that the rows of an array have in its source, or None without one."""
    for argument in call.args:
        if isinstance(argument, Streamed) and argument.rows is array:
            return np.asarray(argument.numbers)
    return None


def _with_all_rows(model: Model, call: Call) -> Any:
    """Return the model with all rows in each plate, unless only a minibatch is at hand."""
    return model if is_streamed(call.args) else whole_plates(model)


def _refuse_row_sites(caller: str, sites: Sites, to: str) -> None:
    """Raise if a model has a latent site for each row, which a fit `to` these data cannot have."""
    plates = data_plates(sites)
    for name, site in sites.items():
        if site["type"] != "sample" or site["is_observed"] or site["infer"].get("is_auxiliary"):
            continue
        if plates & {frame.name for frame in site["cond_indep_stack"]}:
            raise ValueError(
                f"{caller}: site {name!r} is a latent value of each row, which a fit to {to} "
                "cannot have; wanted arrays of one length in memory, or a model without it"
            )


def check_padding(caller: str, model: Model, call: Call) -> Sites:
    """Return a model's sites; raise a ValueError if padding of rows would count in its density."""
    with padded(1):
        sites = survey(whole_plates(model), call)
    _refuse_row_sites(caller, sites, "padded data")
    if len(plates := data_plates(sites)) > 1:
        raise ValueError(
            f"{caller}: num_rows is given, and the model observes data in the plates "
            f"{', '.join(sorted(plates))}, wanted one; call fit for each data set"
        )
    for name, site in sites.items():
        if site["type"] != "sample" or not site["is_observed"]:
            continue
        if not (isinstance(site["fn"], Observed) and site["fn"].skips_padding):
            raise ValueError(
                f"{caller}: num_rows is given, and site {name!r} does not leave padding out, "
                "wanted dgp_ppl.observe called within dgp_ppl.minibatch; call fit for each data set"
            )
    return sites


def _check_values(
    caller: str, what: str, fn: Any, value: Any, numbers: np.ndarray | None = None
) -> bool:
    """Raise if values are NaN or out of the support; return whether a density is known there."""
    if is_traced(_masks(fn)):  # by the survey, which has ended
        return False
    y = np.asarray(value)
    seen = _over(seen_where(fn), y)
    if y.dtype.kind == "f" and (bad := np.isnan(y) & seen).any():
        raise DataError(f"{caller}: {what} is NaN in {bad_rows(bad, numbers)}: {_REMEDY}")
    support = _entry_support(fn)
    if support is None or support.event_dim or is_traced(_bounds(support)):
        return False  # a support that f or params determine, or of rows as a whole
    inside = np.broadcast_to(np.asarray(support(y)), y.shape) & ~np.isinf(y)
    if (bad := ~inside & seen).any():
        raise off_support(caller, what, fn, bad, y, numbers)
    if support.is_discrete:
        return True
    y = y.astype(np.result_type(y, np.float32))
    near = (np.asarray(support(np.nextafter(y, y.dtype.type(a)))) for a in (-np.inf, np.inf))
    known = type(_inner(fn)).__module__.split(".")[0] in ("numpyro", "dgp_ppl")
    return known and all((inside | ~seen).all() for inside in near)


def off_support(
    caller: str, what: str, fn: Any, bad: np.ndarray, y: Any, numbers: np.ndarray | None = None,
    remedy: str = _REMEDY,
) -> DataError:  # fmt: skip
    """Return the error for rows of y, or entries, that are outside of the support."""
    first = y[tuple(np.argwhere(bad)[0])].tolist()
    return DataError(
        f"{caller}: {what} is outside of the support of {_name(fn)} "
        f"({one_line(_entry_support(fn))}) in {bad_rows(bad, numbers)}, first {first!r}, wanted "
        f"values of the support; take another likelihood, or {remedy}"
    )


def _entry_support(fn: Any) -> Any:
    """Return the support of entries, or None if a transform computes it from the survey's f."""
    try:
        support = fn.support
    except jax.errors.UnexpectedTracerError:
        return None
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support


def _bounds(support: Any) -> list[Any]:
    return jax.tree.leaves(vars(support)) if hasattr(support, "__dict__") else []


def _masks(fn: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the masks of a site's values with their shapes, of entries before those of rows."""
    if isinstance(fn, Observed):
        return [] if fn.obs_mask is None else [(fn.obs_mask, fn.obs_mask.shape)]
    if isinstance(fn, dist.MaskedDistribution):
        return [*_masks(fn.base_dist), (fn._mask, fn.batch_shape)]
    wrapped = isinstance(fn, dist.Independent | dist.ExpandedDistribution)
    return _masks(fn.base_dist) if wrapped else []


def seen_where(fn: Any) -> Array:
    """Return where a site's values count: a mask of rows or of entries, or True."""
    seen = jnp.asarray(True)
    for given, shape in _masks(fn):
        mask = jnp.broadcast_to(given, shape)
        seen = seen & mask.reshape(mask.shape + (1,) * (seen.ndim - mask.ndim))
    return seen


def _over(seen: Any, value: np.ndarray) -> np.ndarray:
    """Return a mask of a value's entries, from one of its rows or of its entries."""
    seen = np.asarray(seen)
    return np.broadcast_to(seen.reshape(seen.shape + (1,) * (value.ndim - seen.ndim)), value.shape)


def _name(fn: Any) -> str:
    return type(_inner(fn)).__name__


def _inner(fn: Any) -> Any:
    if isinstance(fn, Observed):
        return _inner(fn.at_mean)
    masked = isinstance(fn, dist.MaskedDistribution | dist.Independent | dist.ExpandedDistribution)
    return _inner(fn.base_dist) if masked else fn
