"""Deep GPs of few rows without inducing inputs: the last layer is integrated out exactly."""

from __future__ import annotations

import contextlib
from functools import partial
from numbers import Real
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import constraints

from dgp_ppl import means
from dgp_ppl._checks import as_array, check_count, check_flags
from dgp_ppl._typing import AnyArray, Inputs
from dgp_ppl.core import Handover, RandomFunction, gp, guide_site, minibatch
from dgp_ppl.core._conditional import Sparse, given_values
from dgp_ppl.kernels import Columns, SquaredExponential, Sum
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.likelihoods import observe
from dgp_ppl.linalg import default_jitter
from dgp_ppl.linalg._density import normal_log_density
from dgp_ppl.linalg._products import as_float, matmul
from dgp_ppl.linalg._triangular import cholesky, inverse_by_blocks
from dgp_ppl.models._local import rough_kernel
from dgp_ppl.models._stack import (
    HIDDEN_VARIANCE,
    KernelMaker,
    gaussian,
    makes_kernel,
    noise_param,
    rows_that_count,
    takes_variance,
)

LEAST_NOISE = 1e-8  # of the variance; with less the sampler's steps become tiny


class Priors(handlers.lift):
    """Gives every positive param a log-normal prior about its starting value."""

    def __init__(self) -> None:
        super().__init__(None, {})

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "param" or msg["kwargs"].get("constraint") != constraints.positive:
            return
        start = jnp.asarray(msg["args"][0], float)
        width = 1.0 if msg["name"].endswith("lengthscale") else 2.0
        self.prior = {msg["name"]: dist.LogNormal(jnp.log(start), width).to_event(start.ndim)}
        super().process_message(msg)


class RowsNormal(dist.MultivariateNormal):
    """The normal of y at the rows that count; other rows are apart, and add nothing."""

    pytree_data_fields = ("counts", "noise_var")

    def __init__(self, K: Array, noise_var: Array, counts: Array) -> None:
        self.counts, self.noise_var = counts, noise_var
        K = jnp.where(counts[:, None] & counts[None], K, 0.0)
        K = K + jnp.diag(jnp.where(counts, noise_var, 1.0))
        # NumPyro's checks compile twenty small programs.
        super().__init__(jnp.zeros(len(K), K.dtype), K, validate_args=False)

    def log_prob(self, value: Array) -> Array:
        others = 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(~self.counts)
        y = jnp.where(self.counts, value, 0.0)
        return normal_log_density(self.covariance_matrix, y) + others


class LastRows(RowsNormal):
    """The normal of y where nothing else depends on it: LOO can leave out a row."""

    def left_out(self, value: Array) -> dist.Distribution:
        """Return the distribution of each row given all others, [N]; of rows that count.

        Source: Sundararajan & Keerthi (2001), "Predictive approaches for choosing hyperparameters
        in Gaussian processes", eq. 6.
        """
        K: Any = self.covariance_matrix
        inverse = inverse_by_blocks(cholesky(K))
        precision = jnp.sum(jnp.square(inverse), axis=0)  # the diagonal of K⁻¹
        value = jnp.where(self.counts, value, 0.0)
        solved = matmul(inverse.T, matmul(inverse, value))
        left = dist.Normal(value - solved / precision, 1 / jnp.sqrt(precision), validate_args=False)
        return left.mask(self.counts)


def exact(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    given: tuple[AnyArray, AnyArray] | None = None,
    counts: AnyArray | None = None,
    depth: int = 2,
    kernel: KernelMaker = SquaredExponential.learned,
    noise: float | None = 0.01,
    priors: bool = True,
    local: bool = False,
) -> None:
    """A deep GP of some hundreds of rows, whose last layer is integrated out exactly.

    Hidden layers have their inducing inputs at the rows, so nothing is approximate but the draws of
    a sampler. Run NUTS in float64, and predict given the same rows::

        chains = dgp.run_mcmc(key, NUTS(models.exact), x, y, num_warmup=300, num_samples=300)
        p = dgp.predict(key, models.exact, None, {}, x_new, given=(x, y), posterior_samples=chains)

    The sampler moves the hidden layers' inducing values and all hyperparameters. Where the data
    look like a GP, the hidden layers' variance falls, and the model becomes one. As f is integrated
    out, log-likelihoods and posterior draws of y of `to_inferencedata` are of each row given all
    others, as LOO needs them: see `plots.validation`. With `given`, densities of the given rows are
    of y given itself: they are too high for LOO.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.exact(jnp.arange(3.0)[:, None])
    >>> [name for name, site in sites.items() if site["type"] == "sample"]
    ['l1.variance', 'l1.lengthscale', 'l1.v', 'l2.variance', 'l2.lengthscale', 'noise', 'y']

    Args:
        x: inputs, [N, D].
        y: targets, [N]; None to draw them.
        given: the rows and their targets, [N, D] and [N], to predict at x, [N*, D].
        counts: which of the rows and targets count, [N], of bool; None for all. Others change
            nothing: with rows away from the data one compiled program serves any number of rows.
        depth: number of layers; 1 is GP regression.
        kernel: makes a layer's kernel from its name and number of inputs; the outputs of a hidden
            layer share one.
        noise: standard deviation of the noise, in the units of y, where it starts. There is always
            a variance of 1e-8 of the last layer's beside it, or what rounding needs; None or 0 for
            no other, as of simulators.
        priors: whether hyperparameters have log-normal priors about their starting values: the log
            of a lengthscale has the sd 1, of a variance or the noise 2. Without, they are params,
            for `minimize`, and the least variance is what rounding needs.
        local: whether the rough process g(x) of `dgp_ppl.local` is added to the last layer, and
            integrated out with it, over all rows. Its kernel is of two scales, with the params
            ``g.variance``, ``g.lengthscale``, ``g.short.variance`` and ``g.short.lengthscale``.

    Raises:
        TypeError: if `depth` is not an integer, `given` no pair, or `kernel` no such function.
        ValueError: if the shapes do not fit.

    Source: Damianou & Lawrence (2013); Sauer, Gramacy & Higdon (2023), "Active learning for deep
    Gaussian process surrogates", section 2.
    """
    check_count("exact", "depth", depth)
    check_flags("exact", priors=priors, local=local)
    if not makes_kernel(kernel):
        raise TypeError(
            f"exact: kernel is {kernel!r}, wanted a function of a name and a number of inputs, "
            "such as kernels.Matern52.learned"
        )
    if given is not None and (not isinstance(given, tuple | list) or len(given) != 2):
        raise TypeError(f"exact: given is {type(given).__name__}, wanted the pair (x, y) of a run")
    name = "x" if given is None else "given"
    rows, values = (x, y) if given is None else given
    rows = as_float(as_array("exact", name, rows))
    if rows.ndim != 2 or not len(rows) or jnp.shape(x)[1:] != rows.shape[1:]:
        raise ValueError(
            f"exact: {name} has shape {rows.shape}, and x {jnp.shape(x)}, wanted [N, D] with N "
            ">= 1, of the same D; for one input dimension pass x[:, None]"
        )
    if values is not None and jnp.shape(values) != rows.shape[:1]:
        raise ValueError(
            f"exact: y has shape {jnp.shape(values)}, wanted {rows.shape[:1]}: one for each row"
        )
    every = np.ones(len(rows), bool)
    kept = rows_that_count("exact", every if counts is None else counts, rows.shape[:1])
    # Draws of `l1.v` belong to the rows in any order. Rows that do not count come last, where they
    # are inducing inputs whose values the others do not depend on.
    layers, order = [], jnp.lexsort((*rows.T, ~kept))
    h = rows[order]
    with Priors() if priors else contextlib.nullcontext():
        for name in (f"l{l}" for l in range(1, depth)):
            start = {"variance": HIDDEN_VARIANCE} if takes_variance(kernel) else {}
            k = kernel(name, rows.shape[1], **start)
            layer = gp(name, k, h, out=rows.shape[1], mean=means.identity)
            h = layer.mean(h) + matmul(layer.sparse.factor.lower, layer.v)
            layers.append(layer.given())  # the last layer is at these values, not at their q
        h, dim = h[jnp.argsort(order)], rows.shape[1]
        last = kernel(f"l{depth}", dim)
        if local:
            h, rough = jnp.concatenate([h, rows], axis=1), rough_kernel("g", dim)
            last = Sum(Columns(last, range(dim)), Columns(rough, range(dim, 2 * dim)))
        noise = None if isinstance(noise, Real) and noise == 0 else noise
        scale = 0.0 if noise is None else noise_param("exact", noise)
    least = max(LEAST_NOISE if priors else 0.0, default_jitter(h.dtype))
    least = least * jnp.mean(evaluated(last, h), where=kept)
    scale = jnp.sqrt(jnp.square(scale) + least)
    if given is None:
        numpyro.sample("y", LastRows(evaluated(last, h, h), jnp.square(scale), kept), obs=y)
        return
    values = as_float(as_array("exact", "given[1]", given[1]))
    values = jnp.where(kept, values, 0.0)
    f = given_layer(f"l{depth}", last, h, values, jnp.where(kept, scale, jnp.inf))
    with minibatch(x, y) as (x, y):
        h = x = as_float(x)
        for layer in layers:
            h = layer.sample(h)
        h = jnp.concatenate([h, x], axis=1) if local else h
        numpyro.sample("y", observe(f(h), partial(gaussian, noise=scale, out=1)), obs=y)


def given_layer(name: str, kernel: Any, rows: Array, values: Array, noise: Array) -> RandomFunction:
    """Return the layer given values at its rows, [N], with noise of these sds, [N]."""
    sparse = Sparse.build(kernel, rows, 1)
    q = given_values(sparse.project(rows), values, noise)
    # The layer takes the exact q(v) as it takes a guide's.
    site = f"{name}.v"
    drawn: Any = {site: guide_site(site, Handover(q, sparse=sparse), q.loc)}
    with handlers.block(hide=[site]), handlers.replay(trace=drawn):
        return gp(name, kernel, rows)
