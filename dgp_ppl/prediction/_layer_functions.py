"""The functions of a fitted model's layers, and the inputs at which the layers are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.infer.mcmc import MCMC
from numpyro.primitives import Messenger

from dgp_ppl._checks import as_array, check_count, check_key, check_kind, warn_of_nan
from dgp_ppl._partition import CallArrays
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.core import RandomFunction, function_draws
from dgp_ppl.core._gp import DrawMode
from dgp_ppl.inference import Chains
from dgp_ppl.inference.runs._blocks import PassProgram
from dgp_ppl.inference.runs._summary import Summarized, list_arrays
from dgp_ppl.inference.svi._setup import refuse_tracing
from dgp_ppl.linalg._precision import in_precision_of_argument
from dgp_ppl.prediction._passes import ForwardPass
from dgp_ppl.prediction._predict import predict

_GRID_1D, _GRID_2D = 100, 20  # points along each input of an even grid


@dataclasses.dataclass(frozen=True, repr=False)
class LayerFunction(Summarized):
    """A layer's function under the posterior, in the model's units.

    S is the number of passes, G of grid points, N of rows of x, and M of inducing inputs. D and P
    are the layer's numbers of inputs and outputs.

    Attributes:
        inputs: grid in the layer's input space, [G, D].
        mean: posterior mean of the function on the grid, [G, P].
        var: posterior variance on the grid, [G, P].
        draws: joint draws of the function on the grid, one from each pass, [S, G, P].
        z: inducing inputs, [M, D], or [P, M, D] for one set per output.
        z_mean: posterior mean of the function at the inducing inputs, [M, P].
        z_sd: posterior standard deviation at the inducing inputs, [M, P].
        reached: inputs at which each pass calls the layer, [S, N, D]; x for the first layer.
        passed: values of the same draws at these inputs, [S, N, P]: the layer's output.
    """

    inputs: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    draws: np.ndarray
    z: np.ndarray
    z_mean: np.ndarray
    z_sd: np.ndarray
    reached: np.ndarray
    passed: np.ndarray

    def summary(self) -> list[str]:
        return [f"{len(self.draws)} draws", *list_arrays("arrays", vars(self))]


def layer_functions(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params | Fitted,
    x: ArrayLike,
    *args: Any,
    num_draws: int = 20,
    at: Mapping[str, ArrayLike] | None = None,
    mode: DrawMode = "joint",
    posterior_samples: Mapping[str, ArrayLike] | Chains | MCMC | None = None,
    **kwargs: Any,
) -> dict[str, LayerFunction]:
    """Return the function of every GP layer of a fitted model.

    Each pass draws the functions of all layers and carries x through them. Means and variances are
    the posterior's: they integrate over the inducing values where the guide supplies q(v), and
    average over the passes. A layer that is called several times (such as the field of a flow) is
    reported at its first call. `plots.layers` and `plots.hidden_maps` show the result.

    Args:
        key: random key.
        model: the model; ``model(x, *args, **kwargs)`` must be a call without y.
        guide: its fitted guide, or None.
        params: the fit's params, or its result.
        x: inputs, [N, D], or [N, ..., D] if the model takes them, in the model's units.
        *args: further arguments of the model.
        num_draws: number of passes S.
        at: grid of a layer, [G, D], by the layer's name (``"l1"``). The default depends on the
            inputs at which the layer is called. If they are the same in all passes, as for the
            first layer, it is these inputs. If not, it is an even grid over them for one or two
            inputs, and their mean over the passes for more.
        mode: how functions are drawn; see `function_draws`. ``"joint"`` costs O((N + G)³) a layer.
        posterior_samples: draws of latent sites instead of a guide; see `predict`.
        **kwargs: keyword arguments of the model.

    Returns:
        The layers in the order of their calls, by name: ``"l1"`` for the site ``l1.v``.

    Raises:
        TypeError: if `num_draws` is not an integer; under `jax.jit`.
        ValueError: as `predict`; if the model has no GP layer, `at` names no layer of the model, or
            a grid has the wrong shape.
    """
    refuse_tracing("layer_functions", key, params, x, args, kwargs)
    check_key("layer_functions", key)
    check_count("layer_functions", "num_draws", num_draws)
    if "num_samples" in kwargs:
        raise TypeError("layer_functions: num_samples is given, wanted num_draws")
    check_kind("layer_functions", "at", at, Mapping | None, "a dict of inputs by layer")
    p = predict(
        key, model, guide, params, x, *args, num_samples=num_draws,
        posterior_samples=posterior_samples, **kwargs,
    )  # fmt: skip
    function_draws(mode=mode)  # raises for an unknown mode
    keys = random.split(key, p.num_samples)

    def run(at: dict[str, Array]) -> dict[str, dict[str, np.ndarray]]:
        found = _passes((p.forward_pass, mode), (keys, p.draws), p.params, p.data, p.x, at)
        # `jax.jit` sorts a dict by its keys: restore the order of the calls.
        order = sorted(found, key=lambda n: int(found[n]["order"][0]))
        return {n: jax.tree.map(np.asarray, found[n]) for n in order}

    called = run({})
    if not called:
        raise ValueError("layer_functions: the model has no GP layer, wanted a dgp_ppl.gp")
    grids = {n: _default_grid(layer["reached"]) for n, layer in called.items()}
    for name, points in (at or {}).items():
        if name not in called:
            raise ValueError(
                f"layer_functions: at names the layer {name!r}, wanted one of {', '.join(called)}"
            )
        grid = np.asarray(as_array("layer_functions", f"at[{name!r}]", points), float)
        dim = called[name]["reached"].shape[-1]
        if grid.ndim != 2 or grid.shape[1] != dim or not len(grid):
            raise ValueError(
                f"layer_functions: at[{name!r}] has shape {grid.shape}, wanted [G, {dim}]"
            )
        grids[name] = grid
    found = run({n: jnp.asarray(a, p.x.dtype) for n, a in grids.items()})
    layers = {n: _summary(grids[n], layer) for n, layer in found.items()}
    warn_of_nan(
        "layer_functions", {f"{n}.{a}": v for n, f in layers.items() for a, v in vars(f).items()}
    )
    return layers


class _RecordLayers(Messenger):
    """Records each layer at its first call: there, on its grid, and at its inducing inputs."""

    def __init__(self, at: dict[str, Array]) -> None:
        super().__init__(None)
        self.at = at
        self.found: dict[str, dict[str, Array]] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "function_draw" or msg["args"][0].name in self.found:
            return
        layer, x = msg["args"]
        record = self.found[layer.name] = {"order": jnp.asarray(len(self.found)), "reached": x}
        grid: Any = self.at.get(layer.name, x[:1])  # layers need at least one point
        draw = msg["fn"](layer, jnp.concatenate([x, grid]))  # one function at both
        msg["value"] = record["passed"] = draw[: len(x)]
        record["draws"] = draw[len(x) :]
        record["mean"], record["var"] = _marginals(layer, grid)
        record["z"] = layer.sparse.z
        record["z_mean"], record["z_var"] = _at_inducing(layer)


def _marginals(layer: RandomFunction, x: Array) -> tuple[Array, Array]:
    mean, var = layer.sparse.marginals(layer.inducing, x)
    return layer.mean(x) + mean, var


def _at_inducing(layer: RandomFunction) -> tuple[Array, Array]:
    """Return the function's mean and variance at its inducing inputs, [M, P] each."""
    z = layer.sparse.z
    if z.ndim == 2:
        return _marginals(layer, z)
    found = [_marginals(layer, z_p) for z_p in z]  # [P] pairs of [M, P]: keep output p at z_p
    mean, var = ([a[:, p] for p, a in enumerate(part)] for part in zip(*found, strict=True))
    return jnp.stack(mean, axis=1), jnp.stack(var, axis=1)


@in_precision_of_argument(2)
@PassProgram
def _passes(
    static: tuple[ForwardPass, DrawMode], each: tuple[PRNGKey, dict[str, Array]], params: Params,
    data: CallArrays, x: Array, at: dict[str, Array],
) -> dict[str, dict[str, Array]]:  # fmt: skip
    """Return the layers' records of the pass with this key and draws."""
    forward_pass, mode = static
    key, draws = each
    recorder = _RecordLayers(at)
    with recorder:
        forward_pass.sites(key, draws, params, data, x, mode=mode)
    return recorder.found


def _default_grid(reached: np.ndarray) -> np.ndarray:
    """Return a grid, [G, D], for a layer that is called at these inputs, [S, N, D]."""
    if not np.ptp(reached, axis=0).any():
        return reached[0]
    low, high = np.quantile(reached, [0.005, 0.995], axis=(0, 1))  # ignores outlying passes
    if len(low) == 1:
        return np.linspace(low, high, _GRID_1D)
    if len(low) == 2:
        sides = np.meshgrid(*np.linspace(low, high, _GRID_2D).T, indexing="ij")
        return np.stack(sides, axis=-1).reshape(-1, 2)
    return reached.mean(axis=0)


def _summary(grid: np.ndarray, layer: dict[str, np.ndarray]) -> LayerFunction:
    """Combine the passes by the law of total variance."""
    z_var = layer["z_var"].mean(axis=0) + layer["z_mean"].var(axis=0)
    return LayerFunction(
        inputs=grid, mean=layer["mean"].mean(axis=0),
        var=layer["var"].mean(axis=0) + layer["mean"].var(axis=0), draws=layer["draws"],
        z=layer["z"][0], z_mean=layer["z_mean"].mean(axis=0), z_sd=np.sqrt(z_var),
        reached=layer["reached"], passed=layer["passed"],
    )  # fmt: skip
