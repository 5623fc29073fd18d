"""Differential GPs: inputs carried along by the flow of a random field, then a GP."""

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl import means
from dgp_ppl._typing import InducingInputs, Inputs
from dgp_ppl.core import Grid, Likelihood, RandomFunction, gp, minibatch, observe
from dgp_ppl.kernels import Separable, SquaredExponential
from dgp_ppl.linalg import as_float
from dgp_ppl.models._sde import Scheme, integrate
from dgp_ppl.models._stack import KernelMaker, Mean, likelihood_or_gaussian

__all__ = ["diff_gp"]

_FLOW_VARIANCE = 0.01  # of the field, per unit of time: a flow that starts near to none


def diff_gp(
    x: Inputs,
    y: Array | None = None,
    *,
    z: InducingInputs,
    z_flow: InducingInputs,
    z_time: Array | None = None,
    horizon: float = 5.0,
    flow_steps: int = 19,
    flow: Literal["marginal", "sampled"] = "marginal",
    scheme: Scheme = "euler",
    mean: Mean = means.zero,
    out: int = 1,
    kernel: KernelMaker = SquaredExponential.learned,
    flow_kernel: Callable[..., Any] = SquaredExponential.learned,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    keep_path: bool = False,
    batch_size: int | None = None,
) -> None:
    """A GP on inputs that have flowed along a random field for a time T (Hegde et al. 2019).

    dx = mu(x) dt + sd(x) dW from t = 0 to `horizon`, with mean and standard deviation those of the
    GP ``flow``, whose outputs are the input's dimensions; then the GP ``out`` and a likelihood.

    Params: ``flow.z``, ``out.z``, the kernels', and ``noise``. Sites: ``flow.v``, ``out.v``,
    without a guide the flow's unit noise ``flow.eps``, and ``y`` in the plate ``data``.

    Args:
        x: inputs, [N, D].
        y: targets, [N], or what the likelihood takes; None to draw them.
        z: initial inducing inputs of the predictor, [M, D].
        z_flow: those of the field, [M, D].
        z_time: for a field that changes with time: times of inducing inputs in [0, T], [M_t]. The
            field's inducing inputs are then the `Grid` of `z_flow` and these, M M_t in all, and its
            kernel is separable, that of x times a squared exponential of t: K = K_t (x) K_x.
        horizon: T; 0 leaves the inputs where they are.
        flow_steps: of the integrator; the paper's code takes 19.
        flow: what a guide's q(v) of the field means. ``"marginal"``: coefficients have it
            integrated out anew at every step, as in the paper; the objective is then a bound for
            the model whose coefficients those are. ``"sampled"``: one draw of it drives the whole
            path, as in the model, and the objective is a bound on its evidence. The same without a
            guide.
        scheme: "euler" or "heun"; see `sde.integrate`.
        mean: mean function of the predictor.
        out: outputs of the predictor.
        kernel: makes the predictor's kernel from its name and input dimension.
        flow_kernel: makes the field's from its name, input dimension and initial `variance`.
        likelihood: from f to a distribution of y; Gaussian noise that is learned by default.
        noise: initial standard deviation of the Gaussian noise.
        keep_path: whether to record where the inputs have been, after every step, as NumPyro's
            deterministic site ``flow.path``, [N, flow_steps, D]. Under
            `function_draws` it is the path along one field.
        batch_size: rows of a minibatch; None takes all.

    Source: Hegde, Heinonen, Lähdesmäki, Kaski (2019), "Deep learning with differential Gaussian
    process flows", sections 3 and 4, with the KL terms counted once.

    Raises:
        ValueError: if an option is none of the above, or shapes do not fit.
    """
    if flow not in ("marginal", "sampled"):
        raise ValueError(f"diff_gp: flow is {flow!r}, wanted 'marginal' or 'sampled'")
    field = _field(x.shape[-1], z_flow, z_time, horizon, flow_kernel)
    inducing: Any = numpyro.param("out.z", as_float(z))
    predictor = gp("out", kernel("out", x.shape[-1]), inducing, out=out, mean=mean)
    likelihood = likelihood_or_gaussian(likelihood, noise, out)
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        x = as_float(x)
        field(_timed(x, 0.0, z_time))  # a guide may answer for the layer at its first call
        field = (field.given() if flow == "sampled" else field).repeatable()

        def coefficients(x: Array, t: Array) -> tuple[Array, Array]:
            f = field(_timed(x, t, z_time))
            return f.mean, f.var

        noise_of_steps = field.unit_noise(x, flow_steps)
        flowed, path = integrate(coefficients, x, noise_of_steps, horizon, scheme)
        if keep_path:
            numpyro.deterministic("flow.path", jnp.moveaxis(path, 0, 1))
        numpyro.sample("y", observe(predictor(flowed), likelihood), obs=y)


def _field(
    dim: int, z: InducingInputs, z_time: Array | None, horizon: float, kernel: Callable[..., Any]
) -> RandomFunction:
    """The layer ``flow``."""
    inducing: Any = numpyro.param("flow.z", as_float(z))
    covariance = kernel("flow", dim, variance=_FLOW_VARIANCE)
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


def _timed(x: Array, t: Any, z_time: Array | None) -> Array:
    """Inputs of the field at a time: with a column for it if the field changes with it."""
    if z_time is None:
        return x
    return jnp.concatenate([x, jnp.full((len(x), 1), t, x.dtype)], axis=1)
