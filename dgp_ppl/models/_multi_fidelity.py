"""A simulator of several fidelities: each is a function of x and of the fidelity before."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from dgp_ppl._checks import as_array, check_kind
from dgp_ppl._typing import AnyArray, Inputs
from dgp_ppl.core import minibatch
from dgp_ppl.kernels import Linear, SquaredExponential
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.kernels._scaled import start_value
from dgp_ppl.likelihoods import observe
from dgp_ppl.linalg import factorise
from dgp_ppl.linalg._products import as_float, matmul
from dgp_ppl.models._exact import LEAST_NOISE, Priors, RowsNormal, given_layer
from dgp_ppl.models._stack import KernelMaker, gaussian


def multi_fidelity(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    sizes: tuple[int, ...],
    given: tuple[AnyArray, AnyArray] | None = None,
    kernel: KernelMaker | None = None,
    noise: float = 0.01,
) -> None:
    """Layers f_t(x, f_{t-1}(x)) of a simulator's fidelities, each with rows of its own.

    The functions are integrated out exactly, given the runs of their fidelity. Run NUTS in float64,
    and predict the last fidelity given the same rows::

        model = partial(models.multi_fidelity, sizes=(50, 14))  # 50 cheap runs, then 14 costly ones
        chains = dgp.run_mcmc(key, NUTS(model), x, y, num_warmup=100, num_samples=100)
        p = dgp.predict(key, model, None, {}, x_new, given=(x, y), posterior_samples=chains)

    The sampler moves all hyperparameters, and each function at the rows of the fidelities after it.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.multi_fidelity(jnp.arange(5.0)[:, None], sizes=(3, 2))
    >>> [name for name, site in sites.items() if site["type"] == "sample"][-3:]
    ['l2.linear.lengthscale', 'noise2', 'y2']

    Args:
        x: inputs of all runs, [N, D], the cheapest fidelity first.
        y: their results, [N]; None to draw them.
        sizes: number of runs of each fidelity; they add up to N.
        given: the runs and their results, [N, D] and [N], to predict at x, [N*, D].
        kernel: makes the kernel of a fidelity from its name, ``l1``, ``l2``, and number of inputs,
            which is D for the first, and D + 1 for others, whose last input is the value of the
            fidelity before. None for `SquaredExponential`, for others with a `Linear` one beside
            it, ``lT.linear``: few costly runs are often the cheap ones but for scale and trend.
        noise: standard deviation of the noise of each fidelity, in the units of y, where it starts.
            There is always a variance of 1e-8 of the kernel's beside it.

    Raises:
        TypeError: if `sizes` is no tuple of integers.
        ValueError: if the shapes do not fit, or both `y` and `given` are there.

    Source: Perdikaris et al. (2017), "Nonlinear information fusion algorithms for data-efficient
    multi-fidelity modelling"; Cutajar et al. (2019), "Deep Gaussian processes for multi-fidelity
    modelling", for all fidelities at once.
    """
    caller = "multi_fidelity"
    start_value(f"{caller}: noise", noise, (), constraints.positive)
    check_kind(caller, "sizes", sizes, tuple | list, "a tuple of numbers of runs")
    if not sizes or any(not isinstance(n, int | np.integer) or n < 1 for n in sizes):
        raise TypeError(f"{caller}: sizes is {sizes}, wanted numbers of runs, such as (50, 14)")
    if given is not None and y is not None:
        raise ValueError(
            f"{caller}: both y and given are there, so y would be predicted from itself; wanted y "
            "alone for its density, or given alone to predict"
        )
    rows, values = (x, y) if given is None else given
    rows = as_float(as_array(caller, "x" if given is None else "given[0]", rows))
    total = sum(sizes)
    if rows.ndim != 2 or len(rows) != total or jnp.shape(x)[1:] != rows.shape[1:]:
        raise ValueError(
            f"{caller}: the runs have inputs of shape {rows.shape}, and x {jnp.shape(x)}, wanted "
            f"[{total}, D], as sizes is {sizes}, of the same D"
        )
    if values is not None and jnp.shape(values) != (total,):
        raise ValueError(f"{caller}: y has shape {jnp.shape(values)}, wanted ({total},)")
    functions, h, f, var = [], rows, rows[:0, 0], jnp.zeros(())
    for t, end in enumerate(np.cumsum(sizes), start=1):
        n = sizes[t - 1]
        with Priors():
            k = (kernel or SquaredExponential.learned)(f"l{t}", h.shape[1])
            if kernel is None and t > 1:
                k = k + Linear.learned(f"l{t}.linear", h.shape[1])
            scale: Any = numpyro.param(f"noise{t}", noise, constraint=constraints.positive)
        least = LEAST_NOISE * jnp.mean(evaluated(k, h[:n]))
        var = jnp.square(scale) + least
        K, known = evaluated(k, h[:n], h[:n]), None if values is None else values[end - n : end]
        if given is None:
            known = numpyro.sample(f"y{t}", RowsNormal(K, var, jnp.ones(n, bool)), obs=known)
        known, sd = as_float(as_array(caller, "y", known)), jnp.full(n, jnp.sqrt(var))
        own, later = h[:n], h[n:]
        if left := len(later):
            # The function at the rows of later fidelities, given the runs of this one.
            inverse = factorise(K + var * jnp.eye(n, dtype=K.dtype), jitter=0.0).inverse
            A = matmul(inverse, evaluated(k, own, later))
            cov = evaluated(k, later, later) - matmul(A.T, A)
            root = factorise(cov, scale=jnp.mean(evaluated(k, later))).lower
            unit = dist.Normal(0, 1).expand([left]).to_event(1)
            eps: Any = numpyro.sample(f"l{t}.eps", unit)
            f = matmul(A.T, matmul(inverse, known)) + matmul(root, eps)
            known = jnp.concatenate([known, f])
            sd = jnp.concatenate([sd, jnp.full(left, jnp.sqrt(least))])
        if given is not None:
            functions.append(given_layer(f"l{t}", k, h, known, sd))
        h = jnp.concatenate([rows[end:], f[:left, None]], axis=1)
    if given is None:
        return
    with minibatch(x, y) as (x, y):
        h = as_float(x)
        for layer in functions[:-1]:
            h = jnp.concatenate([x, layer.sample(h)], axis=1)
        likelihood = partial(gaussian, noise=jnp.sqrt(var), out=1)
        numpyro.sample("y", observe(functions[-1](h), likelihood), obs=y)
