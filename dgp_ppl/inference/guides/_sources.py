"""Which of a model's arguments its layers, and its data, are computed from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Model, Params
from dgp_ppl.core._dependence import dependence
from dgp_ppl.core._handover import is_layer, layer_of

Place = int | str
"""Position or name of an argument."""


class _Recorder(Messenger):
    """Records the layers' kernels and inducing inputs, and the observations."""

    def __init__(self) -> None:
        super().__init__(None)
        self.made_of: dict[str, Any] = {}
        self.observed: list[Any] = []

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and is_layer(msg):
            layer = layer_of(msg)
            self.made_of[msg["name"]] = (layer.kernel, layer.z)
        elif msg["type"] == "sample" and msg["is_observed"]:
            self.observed.append(msg["value"])


def sources(model: Model, call: Call, params: Params) -> tuple[dict[str, set[Place]], set[Place]]:
    """Find the arguments that each layer is computed from, by site, and those that are observed.

    Params do not count as arguments, whatever their values; neither do sizes. A model that needs
    its arguments' values to run, which no compiled program has, yields nothing.
    """
    located, treedef = jax.tree_util.tree_flatten_with_path(tuple(call))
    leaves = [leaf for _, leaf in located]
    places: list[Place] = [
        getattr(path[1], "idx", getattr(path[1], "key", 0)) for path, _ in located
    ]
    arrays = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]
    found: dict[str, int] = {}  # number of arrays of each layer

    def run(data: list[Any]) -> list[Any]:
        own = list(leaves)
        for i, a in zip(arrays, data, strict=True):
            own[i] = a
        args, kwargs = jax.tree.unflatten(treedef, own)
        listener = _Recorder()
        # Not the initial values of params, which may depend on the data.
        given = handlers.substitute(data=params)
        with alone(), given, handlers.seed(rng_seed=0), listener:
            model(*args, **kwargs)
        parts = {n: _arrays(m) for n, m in listener.made_of.items()}
        found.update({n: len(a) for n, a in parts.items()})
        return [*(a for part in parts.values() for a in part), *_arrays(listener.observed)]

    try:
        reads = dependence(run, [leaves[i] for i in arrays])
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return {}, set()

    def used(results: list[list[bool]]) -> set[Place]:
        return {places[i] for read in results for i, r in zip(arrays, read, strict=True) if r}

    by_layer = {}
    for site, count in found.items():
        by_layer[site], reads = used(reads[:count]), reads[count:]
    return by_layer, used(reads)


def _arrays(tree: Any) -> list[Any]:
    return [jnp.asarray(a) for a in jax.tree.leaves(tree) if hasattr(a, "dtype")]
