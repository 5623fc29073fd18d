"""Tune the kernel of a local process to what predictions are made from: the nearest rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._checks import check_key, checked_call
from dgp_ppl._partition import Call, CallArrays, Partition, compiled
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.core import NearRows
from dgp_ppl.inference import minimize
from dgp_ppl.inference._params import params_of
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.likelihoods._student_t import LEAST_DF, of_variance, tails
from dgp_ppl.models import KernelMaker
from dgp_ppl.models._local import InBlocks, log_prior, near_weights, nearest, rough_kernel
from dgp_ppl.prediction._passes import ForwardPass

_ROWS = 1000  # whose densities are maximised
_DF, _LEAST = 5.0, LEAST_DF * (1 + 1e-6)  # where degrees of freedom start; float32 tells from 3
_ROUNDS, _STEPS = 2, 25  # of L-BFGS: the first finds which rows are near, as measured


def tune_local(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params | Fitted,
    *args: Any,
    name: str = "g",
    local_kernel: KernelMaker | None = None,
    site: str = "y",
    **kwargs: Any,
) -> Params:
    """Tune the kernel of a `local` process to the density of rows given the nearest others.

    ::

        near = dgp.NearRows(x, y)
        fit = dgp.fit(key, models.deep_gp, guide, x, y, local=near, z=z)
        params = dgp.tune_local(key, models.deep_gp, guide, fit, local=near, z=z)

    A fit knows blocks of near rows, in which most rows lack some of their nearest ones. A
    prediction has them all. So this maximises the density of 1,000 rows, each given its nearest
    ones without copies of itself, as a function of g's kernel and of the degrees of freedom of a
    prediction: f is at its mean, and the noise stays, because residuals of rows that f was fitted
    to are too small. Lengthscales have the prior LogNormal(0, 1.5), and degrees of freedom, less
    3, the prior Gamma(2, 0.1). It takes half a minute; the bound of the blocks becomes lower.

    Args:
        key: random key.
        model: the model, with a `local` process.
        guide: its fitted guide.
        params: the fit's params, or its result.
        *args: further arguments of the model after x and y, which are the rows of its `NearRows`.
        name: prefix of the params of g's kernel.
        local_kernel: what made g's kernel, as for `local`.
        site: the observed site.
        **kwargs: keyword arguments of the model; the `NearRows` is one of them, or of `args`.

    Returns:
        The params, with other values for g's kernel and its ``df``.

    Raises:
        TypeError: if no argument of the model is a `NearRows`.
        ValueError: if the params lack the kernel's, the site is of no local process, or
            `local_kernel` is not the model's.

    Source: Vecchia (1988), for densities given near rows; Lange, Little & Taylor (1989), "Robust
    statistical modeling using the t distribution", for tails; Sundararajan & Keerthi (2001),
    "Predictive approaches for choosing hyperparameters in Gaussian processes".
    """
    check_key("tune_local", key)
    found_near = [a for a in (*args, *kwargs.values()) if isinstance(a, NearRows)]
    if len(found_near) != 1:
        raise TypeError(
            f"tune_local: {len(found_near)} arguments of the model are NearRows, wanted one, such "
            "as local=near of models.deep_gp"
        )
    (near,) = found_near
    found = dict(params_of("tune_local", params))
    free = {n: found[n] for n in found if n.startswith(f"{name}.")} | {f"{name}.df": _DF}
    if f"{name}.df" not in found:
        raise ValueError(
            f"tune_local: params has {sorted(found)}, wanted {name}.df: pass name= as in the model"
        )
    kwargs.pop("batch_size", None)
    place = np.argsort(near.order)
    x, y = np.asarray(near.x)[place], np.asarray(near.y)[place]
    call = checked_call("tune_local", model, guide, (x, y, *args), kwargs)
    partition, data = Partition.split(model, Call(call.args[1:], call.kwargs), guide)
    forward_pass, rows = ForwardPass(partition, site), np.asarray(near.x)
    residuals = _residuals(forward_pass, key, found, data, jnp.asarray(x))
    r, var, K = map(np.asarray, residuals)
    maker = rough_kernel if local_kernel is None else local_kernel
    kernel = partial(_kernel, maker, name, rows.shape[1])
    own = np.asarray(kernel(found)(near.x[: len(K)], near.x[: len(K)]))
    # Of near rows float32 rounds the distance.
    if abs(own - K).max() > 0.01 * K.max():
        raise ValueError(
            "tune_local: local_kernel gives another covariance of the first rows than the model, "
            "wanted the kernel of local(name, near, kernel)"
        )
    chosen = np.random.default_rng(0).permutation(len(rows))[:_ROWS]
    program = partial(_nearest_others, name=name, kernel=maker)
    for _ in range(_ROUNDS if len(rows) > 1 else 0):
        others = _others(kernel(found), near.x, chosen, min(near.neighbours, len(rows) - 1))
        tuned = minimize(
            key, program, None, rows[chosen], r[chosen], var[chosen], rows[others], r[others],
            var[others], steps=_STEPS, start=free, progress=False,
        )  # fmt: skip
        free = {n: jnp.asarray(a, found[n].dtype) for n, a in tuned.params.items()}
        free[f"{name}.df"] = jnp.maximum(free[f"{name}.df"], _LEAST)
        found |= free
    return found


_nearest = compiled(nearest, static_argnums=3)


@partial(compiled, static_argnums=0)
def _residuals(forward_pass: ForwardPass, key: Any, params: Any, data: CallArrays, x: Array) -> Any:
    """Return y less the mean of f and the noise, of near rows, and g's covariance in a block."""
    site: Any = forward_pass.sites(key, {}, params, data, x, mode="mean").get(forward_pass.site)
    blocks = site and site["fn"]
    if not isinstance(blocks, InBlocks):
        raise ValueError(
            f"tune_local: site {forward_pass.site!r} is of no local process, wanted the site of "
            "g.observe(f, x, y, noise): pass site="
        )
    var = blocks.noise_var.ravel()[: len(blocks.order)]
    return site["value"][blocks.order] - blocks.mean_of_f, var, blocks.rough[0]


def _kernel(maker: KernelMaker, name: str, dim: int, params: Params) -> Any:
    """Return g's kernel at these params."""
    with handlers.block(), handlers.substitute(data=dict(params)):
        return maker(name, dim)


def _others(kernel: Any, known: Array, chosen: np.ndarray, num: int) -> np.ndarray:
    """Return the nearest rows of the chosen ones, [R, num], with copies of a row only if needed."""
    x = np.asarray(known)
    found = np.asarray(_nearest(kernel, known, known[chosen], min(4 * num, len(x))))
    copies = (x[found] == x[chosen][:, None]).all(axis=2)
    last = copies + (found == chosen[:, None])  # the row itself after its copies
    first = np.argsort(last, axis=1, kind="stable")[:, :num]
    return np.take_along_axis(found, first, axis=1)


def _nearest_others(
    x: Array, r: Array, var: Array, near_x: Array, near_r: Array, near_var: Array, *, name: str,
    kernel: Any,
) -> None:  # fmt: skip
    """Model residuals r = g(x) + noise, each given the residuals of others."""
    with handlers.trace() as sites:
        k = kernel(name, x.shape[1])
    df = tails(name)
    # Juárez & Steel (2010): a Gamma prior, which also keeps it from its bound.
    away = df - LEAST_DF
    numpyro.factor("prior", log_prior(sites) + jnp.log(away) - 0.1 * away)
    weights, own = jax.vmap(partial(near_weights, k))(x, near_x, near_var)
    with numpyro.plate("data", len(x)):
        mean = jnp.sum(weights * near_r, axis=1)
        given = of_variance(df, mean, own + var)
        numpyro.sample("r", given, obs=r)
