"""Differential GPs: inputs that flow along a random field, then a GP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jaxtyping import Array, Float, Real

from dgp_ppl._checks import check_choice, check_count
from dgp_ppl._typing import AnyArray, InducingInputs, Inputs
from dgp_ppl.core import Grid, RandomFunction, gp, minibatch
from dgp_ppl.kernels import Separable, SquaredExponential
from dgp_ppl.likelihoods import Likelihood, observe
from dgp_ppl.linalg._products import as_float, deviation
from dgp_ppl.models._stack import KernelMaker, MeanFunction, likelihood_or_gaussian, shares_kernel

_FLOW_VARIANCE = 0.01  # initial variance of the field: inputs hardly flow at the start


def diff_gp(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    z: InducingInputs,
    z_flow: Real[AnyArray, "K D"],
    z_time: Array | None = None,
    horizon: float = 5.0,
    flow_steps: int = 19,
    flow: Literal["marginal", "sampled"] = "marginal",
    mean: MeanFunction | None = None,
    out: int = 1,
    kernel: KernelMaker = SquaredExponential.learned,
    flow_kernel: Callable[..., Any] = SquaredExponential.learned,
    share_kernel: bool | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    keep_path: bool = False,
    batch_size: int | None = None,
) -> None:
    """A GP whose inputs first flow along a random field for a time T.

    The inputs follow dx = mu(x) dt + sd(x) dW from t = 0 to `horizon`. mu and sd are the mean and
    standard deviation of the GP ``flow``, which has D outputs. The GP ``out`` and a likelihood
    follow.

    Params: ``flow.z``, ``out.z``, the kernels' params, and ``noise``. Sites: ``flow.v``,
    ``out.v``; ``y`` in the plate ``data``; without a guide also the flow's unit noise ``flow.eps``.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> x, z = jnp.zeros((4, 2)), jnp.zeros((3, 2))
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.diff_gp(x, z=z, z_flow=z, flow_steps=5)
    >>> sites["flow.v"]["value"].shape, sites["flow.eps"]["value"].shape
    ((3, 2), (4, 5, 2))

    Args:
        x: inputs, [N, D].
        y: targets, [N], or of the shape of the likelihood; None to draw them.
        z: initial inducing inputs of the predictor, [M, D].
        z_flow: initial inducing inputs of the field, [M, D].
        z_time: times of inducing inputs in [0, T], [M_t], for a field that changes with time. Its
            inducing inputs are then the `Grid` of `z_flow` and these times, and its kernel is
            separable with a squared exponential in t. None for a constant field.
        horizon: T; with 0 the inputs do not move.
        flow_steps: number of Euler-Maruyama steps; the paper's code takes 19.
        flow: ``"marginal"`` integrates q(v) of the field out at every step, as in the paper.
            The objective then bounds the evidence of a model with these coefficients.
            ``"sampled"`` draws the field once for the whole path, as in the model, and the
            objective bounds the model's evidence. Both are the same without a guide. Draws of
            whole functions, as of `dgp.function`, have one field in both. What its inducing inputs
            leave open is then part of the field, not noise of each step: with few of them these
            draws spread wider than `predict`.
        mean: mean function of the predictor; None for zero.
        out: number of outputs of the predictor.
        kernel: makes the predictor's kernel from its name and number of inputs.
        flow_kernel: makes the field's kernel from its name, number of inputs and initial
            `variance`. If it also takes ``out``, as `Kernel.learned` does, it is called with
            ``out=D`` to get a kernel per output.
        share_kernel: whether the outputs of the field share one kernel. None gives each its own
            by the rule of `models.deep_gp`, unless the field changes with time.
        likelihood: a function from f to the distribution of y; None for Gaussian noise with a
            learned standard deviation.
        noise: initial standard deviation of the Gaussian noise, in the units of y.
        keep_path: whether to record the inputs after every step as the deterministic site
            ``flow.path``, [N, flow_steps, D]; under `function_draws`, along one field.
        batch_size: number of rows of a minibatch; None takes all.

    Raises:
        ValueError: if `flow` is unknown, `flow_steps` is not positive, `horizon` is negative,
            `share_kernel` is False with `z_time`, or shapes do not fit.

    Source: Hegde et al. (2019), "Deep learning with differential Gaussian process flows", sections
    3 and 4, with the KL terms counted once.
    """
    if share_kernel is False and z_time is not None:
        raise ValueError(
            "diff_gp: share_kernel is False, but a field on a grid of times has one kernel for all "
            "outputs; leave out share_kernel, or z_time"
        )
    check_choice("diff_gp", "flow", flow, ("marginal", "sampled"))
    check_count("diff_gp", "flow_steps", flow_steps)
    if not isinstance(horizon, int | float | np.number | AnyArray) or not horizon >= 0:
        raise ValueError(f"diff_gp: horizon is {horizon!r}, wanted at least 0")
    share = z_time is not None or shares_kernel(
        "diff_gp", flow_kernel, z_flow, share_kernel, "flow_kernel"
    )
    field = _field(x.shape[-1], z_flow, z_time, horizon, flow_kernel, share)
    inducing: Any = numpyro.param("out.z", as_float(z))
    predictor = gp("out", kernel("out", x.shape[-1]), inducing, out=out, mean=mean)
    likelihood = likelihood_or_gaussian("diff_gp", likelihood, noise, out)
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        x = as_float(x)
        field(_with_time(x, 0.0, z_time))  # a guide may draw v at the layer's first call
        field = (field.given() if flow == "sampled" else field).repeatable()

        def coefficients(x: Array, t: Array) -> tuple[Array, Array]:
            f = field(_with_time(x, t, z_time))
            return f.mean, f.var

        step_noise = field.unit_noise(x, flow_steps)
        flowed, path = integrate(coefficients, x, step_noise, horizon)
        if keep_path:
            numpyro.deterministic("flow.path", jnp.moveaxis(path, 0, 1))
        numpyro.sample("y", observe(predictor(flowed), likelihood), obs=y)


def _field(
    dim: int, z: InducingInputs, z_time: Array | None, horizon: float, kernel: Callable[..., Any],
    share_kernel: bool,
) -> RandomFunction:  # fmt: skip
    inducing: Any = numpyro.param("flow.z", as_float(z))
    separate = {} if share_kernel or dim == 1 else {"out": dim}
    covariance = kernel("flow", dim, variance=_FLOW_VARIANCE, **separate)
    if z_time is not None:
        times = as_float(z_time)
        if times.ndim != 1:
            raise ValueError(f"diff_gp: z_time has shape {times.shape}, wanted [M_t]")
        scale: Any = numpyro.param(
            "flow.timescale", max(horizon, 1e-3), constraint=dist.constraints.positive
        )
        covariance = Separable(covariance, SquaredExponential(1.0, scale))
        inducing = Grid(inducing, times)
    return gp("flow", covariance, inducing, out=dim)


def integrate(
    coefficients: Callable[[Array, Array], tuple[Array, Array]],
    x: Float[Array, "N D"],
    noise: Float[Array, "N K D"],
    horizon: float,
) -> tuple[Float[Array, "N D"], Float[Array, "K N D"]]:
    """Integrate dx = mu(x, t) dt + sd(x, t) dW up to the horizon by K Euler-Maruyama steps.

    The coefficients, from points and the time, are mu and sd². The noise is standard normal. The
    result is the last x, and x after every step.
    """
    steps = noise.shape[1]
    dt = horizon / steps

    # The backward pass recomputes each step, so memory does not grow with what a step computes.
    @jax.checkpoint
    def step(x: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        t, e = at
        mu, var = coefficients(x, t)
        # The variance is 0 where the field is drawn as a whole function.
        new = x + mu * dt + deviation(var * dt) * e
        return new, new

    times = dt * jnp.arange(steps, dtype=x.dtype)
    return lax.scan(step, x, (times, jnp.moveaxis(noise, 1, 0)))


def _with_time(x: Array, t: Any, z_time: Array | None) -> Array:
    """Append the time to the inputs of the field, if it changes with time."""
    if z_time is None:
        return x
    return jnp.concatenate([x, jnp.full((len(x), 1), t, x.dtype)], axis=1)
