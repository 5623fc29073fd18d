"""Which of a model's arguments its layers, and its data, are computed from."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from numpyro import handlers

from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Model, Params
from dgp_ppl.core._dependence import dependence
from dgp_ppl.core._handover import is_layer, layer_of

Place = int | str
"""Position or name of an argument."""


def sources(model: Model, call: Call, params: Params) -> tuple[dict[str, set[Place]], set[Place]]:
    """Find the arguments that each layer is computed from, by site, and those that are observed.

    Params do not count as arguments, whatever their values; neither do sizes. A model that needs
    its arguments' values to run, which no compiled program has, yields nothing.
    """
    arrays, static = eqx.partition(tuple(call), lambda a: hasattr(a, "dtype"))
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(arrays)]
    places: list[Place] = [getattr(p[1], "idx", getattr(p[1], "key", 0)) for p in paths]
    found: dict[str, int] = {}  # number of arrays of each layer

    def run(data: Any) -> list[Any]:
        args, kwargs = eqx.combine(data, static)
        # Not the initial values of params, which may depend on the data.
        given = handlers.substitute(data=params)
        with alone(), given, handlers.seed(rng_seed=0), handlers.trace() as trace:
            model(*args, **kwargs)
        sites = {n: s for n, s in trace.items() if s["type"] == "sample"}
        layers = {n: layer_of(s) for n, s in sites.items() if is_layer(s)}
        parts = {n: _arrays((layer.kernel, layer.z)) for n, layer in layers.items()}
        found.update({n: len(a) for n, a in parts.items()})
        observed = [s["value"] for n, s in sites.items() if s["is_observed"] and n not in layers]
        return [*(a for part in parts.values() for a in part), *_arrays(observed)]

    try:
        reads = dependence(run, arrays)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return {}, set()

    def used(results: list[list[bool]]) -> set[Place]:
        return {p for read in results for p, r in zip(places, read, strict=True) if r}

    by_layer = {}
    for site, count in found.items():
        by_layer[site], reads = used(reads[:count]), reads[count:]
    return by_layer, used(reads)


def _arrays(tree: Any) -> list[Any]:
    return [jnp.asarray(a) for a in jax.tree.leaves(tree) if hasattr(a, "dtype")]
