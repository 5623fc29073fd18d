"""The sites of a model: latent and observed ones, and their dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model
from dgp_ppl.core._handover import is_layer
from dgp_ppl.core._minibatch import whole_plates
from dgp_ppl.inference.programs._handlers import survey
from dgp_ppl.likelihoods._observe import as_observed


@dataclasses.dataclass(frozen=True)
class ModelSites:
    """The sites of a model at some arguments."""

    # Names of the dimensions of each latent site, without auxiliary sites.
    latent_dims: dict[str, tuple[str, ...]]
    latent_shapes: dict[str, tuple[int, ...]]  # shape of each of these sites
    # Names of the dimensions of each data site: one that is observed, or whose distribution is an
    # `observe`.
    data_dims: dict[str, tuple[str, ...]]
    event_ndims: dict[str, int]  # number of event dimensions of each data site
    row_sites: frozenset[str]  # latent sites with one value for each row of the data
    # Rows N of the data, if N is the leading dimension of all data sites; else None.
    num_rows: int | None
    draws_noise: bool  # whether a run of the model draws noise, as hidden layers do
    auxiliary: frozenset[str]  # auxiliary sites
    tied: bool  # whether rows depend on each other given all sites, as of a `local` process
    # Names of the dimensions of each deterministic site.
    deterministic_dims: dict[str, tuple[str, ...]]

    @staticmethod
    def from_model(model: Model, call: Call, data: Iterable[str] = ()) -> ModelSites:
        """Trace the model's shapes; raise ValueError if an observed value has another shape."""
        trace = survey(whole_plates(model), call)
        sites = {n: s for n, s in trace.items() if s["type"] == "sample"}
        observed = {n: s for n, s in sites.items() if n in data or _is_data(s)}
        auxiliary = {n for n, s in sites.items() if s["infer"].get("is_auxiliary")}
        latent = {n: s for n, s in sites.items() if not s["is_observed"] and n not in observed}
        latent = {n: s for n, s in latent.items() if n not in auxiliary}
        for name, site in observed.items():
            shape, wanted = jnp.shape(site["value"]), site["fn"].shape()
            if site["is_observed"] and shape != wanted:
                hint = "; pass y[:, 0]" if shape == (*wanted, 1) else ""
                raise ValueError(
                    f"to_inferencedata: the value of site {name!r} has shape {shape}, wanted "
                    f"{wanted}, the shape of its distribution{hint}"
                )
        plates = _row_plates(observed.values(), call)
        rows = {n for n, s in latent.items() if {f.name for f in s["cond_indep_stack"]} & plates}
        leading = {_leading_size(sites[n], plates) for n in (*observed, *rows)}
        return ModelSites(
            {n: _dims(n, s, n in observed) for n, s in latent.items()},
            {n: tuple(s["fn"].shape()) for n, s in latent.items()},
            {n: _dims(n, s, True) for n, s in observed.items()},
            {n: len(s["fn"].event_shape) for n, s in observed.items()},
            frozenset(rows),
            leading.pop() if len(leading) == 1 else None,
            bool(auxiliary) or any(map(_draws_noise, observed.values())),
            frozenset(auxiliary),
            any(hasattr(s["fn"], "left_out") for s in observed.values()),
            {n: _plate_dims(n, s) for n, s in trace.items() if s["type"] == "deterministic"},
        )


def _is_data(site: Any) -> bool:
    if as_observed(site["fn"]) is not None:
        return True
    return site["is_observed"] and not isinstance(site["fn"], dist.Unit)  # Unit: a factor


def _draws_noise(site: Any) -> bool:
    """Return whether a site's log density is a Monte Carlo estimate."""
    observed = as_observed(site["fn"])
    return observed is not None and observed.estimated


def _row_plates(sites: Iterable[Any], call: Call) -> set[str]:
    """Return the plates of the data's rows.

    For each data site, this is the outermost plate as long as the model's first array. Plates of
    outputs or of groups, which may contain data too, are left out.
    """
    values: list[Any] = [*call.args, call.kwargs.get("x"), call.kwargs.get("y")]
    arrays = [a for a in values if np.ndim(a) > 0]
    size = np.shape(arrays[0])[0] if arrays else None
    found = set()
    for site in sites:
        frames = sorted(site["cond_indep_stack"], key=lambda f: f.dim)  # outermost first
        frames = [f for f in frames if size is None or f.size == size]
        found |= {f.name for f in frames[:1]}
    return found


def _leading_size(site: Any, plates: set[str]) -> int | None:
    """Return the size of a site's leading dimension if it is a plate of rows, else None."""
    batch = site["fn"].batch_shape
    frames = {len(batch) + f.dim: f for f in site["cond_indep_stack"] if f.name in plates}
    return frames[0].size if 0 in frames else None


def _dims(name: str, site: Any, data: bool) -> tuple[str, ...]:
    """Name a site's dimensions after its plates, or after the layer for inducing values."""
    batch, event = site["fn"].batch_shape, site["fn"].event_shape
    if is_layer(site):
        layer = name.removesuffix(".v")
        return f"{layer}.inducing", f"{layer}.output"
    total = len(batch) + len(event)
    dims = [f"{name}.dim_{i}" for i in range(total)]
    for frame in site["cond_indep_stack"]:
        dims[len(batch) + frame.dim] = frame.name
    if data:
        if batch and not site["cond_indep_stack"]:
            dims[0] = "data"
        if len(event) == 1:
            dims[-1] = "output"
    return tuple(dims)


def _plate_dims(name: str, site: Any) -> tuple[str, ...]:
    """Name a deterministic site's dimensions after its plates, from the left if that fits."""
    shape = jnp.shape(site["value"])
    dims = [f"{name}.dim_{i}" for i in range(len(shape))]
    for frame in site.get("cond_indep_stack", ()):
        axes = [len(shape) + frame.dim, 0] if shape else []
        axes = [i for i in axes if 0 <= i < len(shape) and shape[i] == frame.size]
        if axes:
            dims[axes[0]] = frame.name
    return tuple(dims)
