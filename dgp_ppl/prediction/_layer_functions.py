"""What each layer of a fitted model does: its function, where it is called, its inducing values."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.primitives import Messenger

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import DrawMode, RandomFunction, function_draws
from dgp_ppl.inference import Chains
from dgp_ppl.prediction._passes import Program
from dgp_ppl.prediction._predict import predict

__all__ = ["LayerFunction", "layer_functions"]

_LINE, _SIDE = 100, 20  # points of an even grid over one input, and of a side over two


@dataclasses.dataclass(frozen=True)
class LayerFunction:
    """A layer's function under the posterior, in the model's own units.

    S: passes; G: points; D and P: the layer's inputs and outputs; N: rows of x; M: inducing inputs.

    Attributes:
        inputs: where the function is given, in the layer's own input space, [G, D].
        mean: posterior mean of the function there, [G, P].
        var: posterior variance, [G, P].
        draws: coherent draws of the function there, one of each pass, [S, G, P].
        z: inducing inputs, [M, D], or [P, M, D] for a set per output.
        z_mean: posterior mean of the function at them, [M, P].
        z_sd: posterior standard deviation there, [M, P].
        reached: what the layer was called at in each pass, [S, N, D]; of the first one, x.
        passed: what it made of that, [S, N, P]: values of the same draws of functions.
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


def layer_functions(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params,
    x: ArrayLike,
    *args: Any,
    num_draws: int = 20,
    at: Mapping[str, ArrayLike] | None = None,
    mode: DrawMode = "joint",
    posterior_samples: dict[str, Array] | Chains | None = None,
    site: str = "y",
    **kwargs: Any,
) -> dict[str, LayerFunction]:
    """The function of every GP layer of a fitted model, for `plots.layers` and `plots.hidden_maps`.

    Every pass draws all layers' functions and carries x through them. Means and variances are those
    of the posterior: with the inducing values integrated out where the guide hands over their law,
    and over the passes. A layer that is called several times (a flow's field, say) is reported at
    its first call.

    Args:
        key: random key.
        model: the model; ``model(x, *args, **kwargs)`` must be a call without y.
        guide: its fitted guide, or None.
        params: the fit's params.
        x: inputs, [N, D], in the model's units.
        *args: further arguments of the model.
        num_draws: number of passes S.
        at: by layer (``"l1"``), where to give its function, [G, D]. By default a layer that is
            called at the same inputs in all passes (the first one, at x) has those; another of one
            or two inputs an even grid over what it is called at; of more, the mean over passes.
        mode: how functions are drawn: see `function_draws`. ``"joint"`` costs (N + G)³ a layer.
        posterior_samples: draws of latent sites in place of a guide's, as of `predict`.
        site: the observed site.
        **kwargs: keyword arguments of the model.

    Returns:
        By layer, in the order of the calls: ``"l1"`` for the site ``l1.v``.

    Raises:
        TypeError: if `num_draws` is no integer.
        ValueError: as `predict`; if the model calls no GP layer, or `at` names or shapes none.
    """
    check_count("layer_functions", "num_draws", num_draws)
    p = predict(
        key, model, guide, params, x, *args, num_samples=num_draws,
        posterior_samples=posterior_samples, site=site, **kwargs,
    )  # fmt: skip
    function_draws(mode=mode)  # says so if there is no such mode
    keys = random.split(key, p.num_samples)

    def run(at: dict[str, Array]) -> dict[str, dict[str, np.ndarray]]:
        found = _passes(p.program, mode, keys, p.latents, p.params, p.data, p.x, at)
        # A dict from `jax.jit` is sorted by its keys; the layers' places are in their records.
        order = sorted(found, key=lambda n: int(found[n]["place"][0]))
        return {n: jax.tree.map(np.asarray, found[n]) for n in order}

    called = run({})
    if not called:
        raise ValueError("layer_functions: the model calls no dgp_ppl.gp layer")
    places = {n: _places(layer["reached"]) for n, layer in called.items()}
    for name, points in (at or {}).items():
        places[name] = _checked(name, points, called)
    found = run({n: jnp.asarray(a, p.x.dtype) for n, a in places.items()})
    return {n: _summary(places[n], layer) for n, layer in found.items()}


class _Watch(Messenger):
    """Keeps what layers do at their first call: there, at given points, and at inducing inputs."""

    def __init__(self, at: dict[str, Array]) -> None:
        super().__init__(None)
        self.at = at
        self.found: dict[str, dict[str, Array]] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "function_draw" or msg["args"][0].name in self.found:
            return
        layer, x = msg["args"]
        own = self.found[layer.name] = {"place": jnp.asarray(len(self.found)), "reached": x}
        points: Any = self.at.get(layer.name, x[:1])  # of none the layers know no moments
        draw = msg["fn"](layer, jnp.concatenate([x, points]))  # one function at both
        msg["value"] = own["passed"] = draw[: len(x)]
        own["draws"] = draw[len(x) :]
        own["mean"], own["var"] = _marginals(layer, points)
        own["z"] = layer.sparse.z
        own["z_mean"], own["z_var"] = _at_inducing(layer)


def _marginals(layer: RandomFunction, x: Array) -> tuple[Array, Array]:
    mean, var = layer.sparse.marginals(layer.law, x)
    return layer.mean(x) + mean, var


def _at_inducing(layer: RandomFunction) -> tuple[Array, Array]:
    """Mean and variance [M, P] of the function at its inducing inputs."""
    z = layer.sparse.z
    if z.ndim == 2:
        return _marginals(layer, z)
    own = [_marginals(layer, z_p) for z_p in z]  # each output at its own
    mean, var = ([a[:, p] for p, a in enumerate(part)] for part in zip(*own, strict=True))
    return jnp.stack(mean, axis=1), jnp.stack(var, axis=1)


@partial(jax.jit, static_argnums=(0, 1))
def _passes(
    program: Program,
    mode: DrawMode,
    keys: Array,
    latents: dict[str, Array],
    params: Params,
    data: list[Any],
    x: Array,
    at: dict[str, Array],
) -> dict[str, dict[str, Array]]:
    """What every layer did in the passes of these keys; all lead with [S]."""

    def one(each: tuple[Array, dict[str, Array]]) -> dict[str, dict[str, Array]]:
        key, latent = each
        watch = _Watch(at)
        with watch:
            program.law(key, latent, params, data, x, mode=mode)
        return watch.found

    return jax.lax.map(one, (keys, latents))


def _places(reached: np.ndarray) -> np.ndarray:
    """Where to give a function that is called at these inputs, [S, N, D] -> [G, D]."""
    if not np.ptp(reached, axis=0).any():
        return reached[0]
    low, high = np.quantile(reached, [0.005, 0.995], axis=(0, 1))  # of all but a stray pass
    if len(low) == 1:
        return np.linspace(low, high, _LINE)
    if len(low) == 2:
        sides = np.meshgrid(*np.linspace(low, high, _SIDE).T, indexing="ij")
        return np.stack(sides, axis=-1).reshape(-1, 2)
    return reached.mean(axis=0)


def _checked(name: str, points: ArrayLike, called: Mapping[str, Any]) -> np.ndarray:
    if name not in called:
        raise ValueError(
            f"layer_functions: at names the layer {name!r}, wanted one of {', '.join(called)}"
        )
    array, dim = np.asarray(points, float), called[name]["reached"].shape[-1]
    if array.ndim != 2 or array.shape[1] != dim or not len(array):
        raise ValueError(
            f"layer_functions: at[{name!r}] has shape {array.shape}, wanted [G, {dim}]"
        )
    return array


def _summary(places: np.ndarray, layer: dict[str, np.ndarray]) -> LayerFunction:
    """Over the passes, by the law of total variance."""
    z_var = layer["z_var"].mean(axis=0) + layer["z_mean"].var(axis=0)
    return LayerFunction(
        inputs=places,
        mean=layer["mean"].mean(axis=0),
        var=layer["var"].mean(axis=0) + layer["mean"].var(axis=0),
        draws=layer["draws"],
        z=layer["z"][0],
        z_mean=layer["z_mean"].mean(axis=0),
        z_sd=np.sqrt(z_var),
        reached=layer["reached"],
        passed=layer["passed"],
    )
