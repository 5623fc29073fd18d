"""What `check_fit` finds in the layers of a fit, by one compiled pass along their means."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.linalg
from jaxtyping import Array
from numpyro.primitives import Messenger

from dgp_ppl._partition import compiled
from dgp_ppl.core._conditional import covariance
from dgp_ppl.core._inducing import AbstractInducing
from dgp_ppl.inference.runs._lines import INDEPENDENCE, Line, checked, worst
from dgp_ppl.kernels import PerOutput, Separable
from dgp_ppl.kernels._base import Columns, evaluated
from dgp_ppl.linalg import default_jitter
from dgp_ppl.prediction._passes import ForwardPass

_ROWS = 200  # of the pass in float64


class _RecordLayers(Messenger):
    """Records what each layer does at its first call."""

    def __init__(self) -> None:
        super().__init__(None)
        self.found: dict[str, dict[str, Any]] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "function_draw":
            return
        layer, x = msg["args"]
        if layer.site in self.found or not layer.site.endswith(f"{layer.name}.v"):  # or a part
            return
        sparse, q = layer.sparse, layer.inducing
        explained = jnp.sum(jnp.square(sparse.project(x)), axis=-2)
        msg["value"] = msg["fn"](layer, x)
        prior = jnp.broadcast_to(evaluated(sparse.kernel, x), explained.shape)
        self.found[layer.site] = {
            "x": x, "output": msg["value"], "kernel": sparse.kernel, "z": sparse.z,
            "prior": prior, "residual": prior - explained, "jitter": layer.jitter,
            "v": q.loc if isinstance(q, AbstractInducing) else q,
            "mean": sparse.marginals(q, x)[0],
            # Whether K + jitter I and v alone give the mean.
            "plain": jnp.asarray(sparse.parts is None and getattr(q, "determines_mean", True)),
        }  # fmt: skip


@partial(compiled, static_argnums=0)
def mean_pass(
    forward_pass: ForwardPass, key: Any, draws: Any, params: Any, data: Any, x: Array
) -> tuple[dict[str, dict[str, Any]], Any, Any]:
    """Return layers' records, the mean variance of Gaussian noise or NaN, and the mask of y."""
    recorder = _RecordLayers()
    with recorder:
        observed = forward_pass.distribution(key, draws, params, data, x, mode="mean")
    y: Any = observed.at_mean
    y = y.base_dist if isinstance(y, dist.Independent) else y
    for name, layer in recorder.found.items():
        layer["observed"] = jnp.asarray(name in observed.marginals.layers)
    scale: Any = y.scale if type(y) is dist.Normal else jnp.nan
    return recorder.found, jnp.mean(jnp.square(scale)), observed.obs_mask


def layer_lines(layers: dict[str, Any], noise: float, sd: float, share: float) -> Iterator[Line]:
    """Yield lines of the layers, of each check the worst, from the records of `mean_pass`.

    `sd` is of predictions in the model's units, and `share` the part of the data's rows here.
    """
    host = {n.removesuffix(".v"): _on_host(layer) for n, layer in layers.items()}
    observed = [layer for layer in host.values() if layer["observed"]]
    dtype = next(iter(host.values()))["dtype"]
    of_sd = partial(_rounding, sd=sd), partial(_clipping, sd=sd)
    for check in (_use, _independence, _scales, _spread, _jitter, *of_sd):
        found = {n: check(layer, share) for n, layer in host.items()}  # type: ignore[operator]
        yield from worst(
            line._replace(value=f"{n}: {line.value}") for n, ls in found.items() for line in ls
        )
    if observed and np.isfinite(noise):
        yield noise_line(noise, float(sum(layer["prior"].mean() for layer in observed)), dtype)
        left = sum(np.maximum(layer["residual"], 0.0).sum() / len(layer["x"]) for layer in observed)
        gain = float(left) / (2 * noise)
        yield checked("inducing inputs", gain, f"more of them gain at most {gain:.2g} nats per row")


def noise_line(noise_var: float, prior_var: float, dtype: Any) -> Line:
    """Compare the noise's variance with the floor by the jitter of a layer with this k(x, x)."""
    floor = default_jitter(dtype) * prior_var
    text = f"sd {np.sqrt(noise_var):.2g}, rounding {np.sqrt(floor):.2g}"
    return checked("noise at its floor", floor / max(noise_var, 1e-300), text)


def squared_distances(x: np.ndarray) -> np.ndarray:
    """Return squared distances between rows, [N, N]; infinite to the row itself."""
    squares = np.square(x).sum(axis=1)
    found = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0.0)
    np.fill_diagonal(found, np.inf)
    return found


def _on_host(layer: dict[str, Any]) -> dict[str, Any]:
    """Return a record in NumPy, with k(z, z) + jitter and k(z, x) in float64, [1 or P, M, ...]."""
    host = jax.tree.map(np.asarray, layer)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda a: jnp.asarray(a, np.float64), host)
        found = _covariances(exact["kernel"], exact["z"], exact["x"][:_ROWS])
        host["gram"], host["cross"] = (np.asarray(a).reshape(-1, *a.shape[-2:]) for a in found)
    host["dtype"] = host["jitter"].dtype  # of the factor: x may have another
    host["jitter"] = np.broadcast_to(host["jitter"], len(host["gram"])).astype(np.float64)
    host["gram"] = host["gram"] + host["jitter"][:, None, None] * np.eye(host["z"].shape[-2])
    return host


@jax.jit
def _covariances(kernel: Any, z: Array, x: Array) -> tuple[Array, Array]:
    return covariance(kernel, z, z), covariance(kernel, z, x)


def _use(layer: dict[str, Any], share: float) -> Iterator[Line]:
    """Compare a hidden layer's output with its best linear approximation."""
    if not layer["observed"]:
        curved = _curved(layer)
        yield checked("hidden layer", -curved, f"{curved:.1%} of it is not linear")


def _independence(layer: dict[str, Any], share: float) -> Iterator[Line]:
    """Say where a q that makes layers independent is too sure: where hidden layers bend."""
    if not layer["observed"]:
        curved = _curved(layer)
        yield checked(INDEPENDENCE, curved, f"one bends: {curved:.1%} of it is not linear")


def _curved(layer: dict[str, Any]) -> float:
    """Return the largest share of an output's variance that no linear function of x has."""
    x, h = (np.asarray(layer[n], np.float64) for n in ("x", "output"))
    design = np.column_stack([np.ones(len(x)), x])
    left = h - design @ np.linalg.lstsq(design, h, rcond=None)[0]
    return float((left.var(axis=0) / np.maximum(h.var(axis=0), 1e-30)).max())


def _scales(layer: dict[str, Any], share: float) -> list[Line]:
    """Compare lengthscales with the range and spacing of inputs; the best kernel counts."""
    found = []
    for kernel, x, per_output in _parts(layer["kernel"], np.asarray(layer["x"], np.float64)):
        ranges = np.maximum(np.ptp(x, axis=0), 1e-30)
        if hasattr(kernel, "period"):
            ratio = float((ranges / kernel.period).max())
            found.append(checked("range in periods", -ratio, f"{ratio:.2g}"))
            continue
        scales = np.asarray(kernel.lengthscale, np.float64)
        scales = scales.reshape((len(scales), -1) if per_output else (1, -1))
        # An input may well be irrelevant. A function that is flat along all inputs is suspect.
        ratio = float((ranges / scales).max())
        gaps = [np.median(squared_distances(x / s).min(axis=1)) for s in scales]
        # All rows are closer to each other than the share of them that is here.
        gap = float(np.sqrt(min(gaps))) * share ** (1 / x.shape[1])
        found += worst(
            (
                checked("gaps in lengthscales", gap, f"{gap:.2g}"),
                checked("range in lengthscales", -ratio, f"{ratio:.2g}"),
            )
        )
    return worst(found, min)


def _parts(kernel: Any, x: np.ndarray, own: bool = False) -> Iterator[tuple[Any, np.ndarray, bool]]:
    """Yield each kernel with a lengthscale, its inputs, and whether each output has its own."""
    if hasattr(kernel, "lengthscale"):
        yield kernel, x, own
    elif isinstance(kernel, Separable):
        yield from (*_parts(kernel.space, x[:, :-1], own), *_parts(kernel.time, x[:, -1:], own))
    elif isinstance(kernel, eqx.Module):
        x = x[:, list(kernel.columns)] if isinstance(kernel, Columns) else x
        for part in vars(kernel).values():
            yield from _parts(part, x, own or isinstance(kernel, PerOutput))


def _spread(layer: dict[str, Any], share: float) -> Iterator[Line]:
    """Compare the spread of inducing inputs with the spread of the inputs."""
    spread = layer["x"].std(axis=0)
    if layer["z"].shape[-2] > 2 and spread.any():
        ratio = float((layer["z"].std(axis=-2) / np.maximum(spread, 1e-30)).max())
        yield checked("spread of z", -ratio, f"{ratio:.2g} of the spread of its inputs")


def _jitter(layer: dict[str, Any], share: float) -> Iterator[Line]:
    for K, jitter in zip(layer["gram"], layer["jitter"], strict=True):
        raised = jitter / (default_jitter(layer["dtype"]) * np.diagonal(K).mean())
        condition = f"condition of k(z, z) {np.linalg.cond(K):.0e}"
        yield checked("jitter", raised, f"{raised:.2g} times the least; {condition}")


def _rounding(layer: dict[str, Any], share: float, sd: float) -> Iterator[Line]:
    """Compare a layer's mean in float32 with the mean in float64, of the same arrays."""
    if layer["dtype"] == np.float64 or not layer["plain"]:
        return
    lowers = [scipy.linalg.cholesky(K, lower=True) for K in layer["gram"]]
    error = []
    for p, v in enumerate(np.asarray(layer["v"], np.float64).T):
        own = p % len(lowers)
        u = scipy.linalg.solve_triangular(lowers[own], v, trans=1, lower=True)
        error.append(layer["mean"][:_ROWS, p] - layer["cross"][own].T @ u)
    size = float(np.sqrt(np.mean(np.square(error)))) / _unit(layer, sd)
    yield checked("float32", size, f"error {size:.1%} of the sd")


def _clipping(layer: dict[str, Any], share: float, sd: float) -> Iterator[Line]:
    """Compare the sd that rounding leaves where z knows a value, with the sd of predictions."""
    floor = default_jitter(layer["dtype"]) * layer["prior"]
    low = layer["residual"] < floor
    size = float(np.sqrt(np.mean(np.where(low, floor, 0.0)))) / _unit(layer, sd)
    text = f"{low.mean():.0%} of its values, to {size:.1%} of the sd"
    yield checked("variance clipped", size, text)


def _unit(layer: dict[str, Any], sd: float) -> float:
    """Return the sd of predictions, or of a hidden layer's output, which errors are shares of."""
    return max(sd if layer["observed"] else float(layer["output"].std(axis=0).max()), 1e-30)
