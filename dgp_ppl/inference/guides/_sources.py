"""Which of a model's arguments its layers, and its data, are made of."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro import handlers
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model

__all__ = ["Place", "sources"]

Place = int | str
"""Of an argument: its position, or its name."""


class _Layers(Messenger):
    """Keeps what layers are made of, and what is observed. Params are as they are given."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(None)
        self.params = params
        self.made_of: dict[str, Any] = {}
        self.observed: list[Any] = []

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["name"] in self.params:
            msg["value"] = self.params[msg["name"]]  # where it starts is not what it is
        elif msg["type"] == "sample" and "inducing" in msg["infer"]:
            self.made_of[msg["name"]] = msg["infer"]["inducing"]["made_of"]
        elif msg["type"] == "sample" and msg["is_observed"]:
            self.observed.append(msg["value"])


def sources(
    model: Model, call: Call, trace: Mapping[str, Any]
) -> tuple[dict[str, set[Place]], set[Place]]:
    """Which arguments each layer's kernel and inducing inputs are computed from, by its site.

    And which of them are observed. Params are no arguments, whatever they start from; sizes do not
    count. `trace` is a `survey` of the model at the same arguments.

    Nothing is found of a model that needs its arguments' values to run, which no compiled program
    can have.
    """
    located, treedef = jax.tree_util.tree_flatten_with_path(tuple(call))
    leaves = [leaf for _, leaf in located]
    places: list[Place] = [
        getattr(path[1], "idx", getattr(path[1], "key", 0)) for path, _ in located
    ]
    arrays = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]
    params = {n: s["value"] for n, s in trace.items() if s["type"] == "param"}
    params = jax.tree.map(_some_value, params)
    found: dict[str, int] = {}  # how many outputs each layer has

    def run(data: list[Any]) -> list[Any]:
        own = list(leaves)
        for i, a in zip(arrays, data, strict=True):
            own[i] = a
        args, kwargs = jax.tree.unflatten(treedef, own)
        listener = _Layers(params)
        with handlers.block(), handlers.seed(rng_seed=0), listener:
            model(*args, **kwargs)
        parts = {n: _arrays(m) for n, m in listener.made_of.items()}
        found.update({n: len(a) for n, a in parts.items()})
        return [*(a for part in parts.values() for a in part), *_arrays(listener.observed)]

    try:
        program = jax.make_jaxpr(run)([leaves[i] for i in arrays]).jaxpr
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return {}, set()

    def used(outputs: Iterable[int]) -> set[Place]:
        wanted = [i in set(outputs) for i in range(len(program.outvars))]
        _, read = dce_jaxpr(program, wanted)
        return {places[i] for i, r in zip(arrays, read, strict=True) if r}

    start, by_layer = 0, {}
    for site, count in found.items():
        by_layer[site] = used(range(start, start + count))
        start += count
    return by_layer, used(range(start, len(program.outvars)))


def _some_value(leaf: Any) -> Any:
    """An array for one of which the shape is known; a network's param has other leaves too."""
    return jnp.ones(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf


def _arrays(tree: Any) -> list[Any]:
    return [jnp.asarray(a) for a in jax.tree.leaves(tree) if hasattr(a, "dtype")]
