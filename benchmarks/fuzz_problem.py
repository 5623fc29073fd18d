"""The small problem of the fuzz: models, fits, and calls that make one function of several."""

import dataclasses
import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from fuzz_values import KEY, QUICK, ROWS, G, X, Y, Z

import dgp_ppl as dgp
from dgp_ppl import inference, initialize, kernels, likelihoods, models


def ordered(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """Pass arguments of these names by position, as users do, and the others by keyword."""

    def call(**options: Any) -> Any:
        first = [options.pop(n) for n in names.split() if n in options]
        return function(*first, **options)

    return call


@functools.cache
def fitted(model: Any = models.svgp, *, out: int = 1) -> tuple[Any, Any]:
    """Return a guide and its fit."""
    guide = dgp.MeanField(model)
    z = (Z, Z) if model is models.deep_gp else Z
    return guide, dgp.fit(KEY, model, guide, X, Y, z=z, out=out, **QUICK)


@functools.cache
def chains(model: Any = None) -> Any:
    sampler = dgp.SGHMC(model or dgp.freeze(models.svgp, fitted()[1].params))
    steps = {"num_warmup": 5, "num_samples": 20, "num_chains": 2, "progress": False}
    return dgp.run_mcmc(KEY, sampler, X, Y, z=Z, **steps)


def predicted(key: Any = KEY, x: Any = X, **options: Any) -> Any:
    guide, fit = fitted()
    given = {"model": models.svgp, "guide": guide, "params": fit, "z": Z, "num_samples": 4}
    given |= options
    first = (given.pop(n) for n in ("model", "guide", "params"))
    return dgp.predict(key, *first, x, **given)


def grouped(x: Any, g: Any, y: Any = None, *, z: Any = Z, batch_size: Any = None) -> None:
    """A GP with a shift of each group, from a plate of groups."""
    f = dgp.gp("f", kernels.Matern52.learned("f", 1), z)
    with numpyro.plate("groups", 3):
        shift: Any = numpyro.sample("shift", dist.Normal(0, 1))
    with dgp.minibatch(x, g, y, batch_size=batch_size) as (x, g, y):
        numpyro.sample("y", dgp.observe(f(x) + shift[g][:, None], _normal), obs=y)


def _normal(f: Any) -> Any:
    return dist.Normal(f, 0.3)


def near_model(x: Any, y: Any = None, *, near: Any, batch_size: Any = None) -> None:
    f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), Z)
    g = dgp.local("g", near)
    with dgp.minibatch(x, y, batch_size=batch_size, near=None if y is None else near) as (x, y):
        numpyro.sample("y", g.observe(f, x, y, 0.3), obs=y)


@functools.cache
def fitted_grouped() -> tuple[Any, Any]:
    guide = dgp.MeanField(grouped)
    return guide, dgp.fit(KEY, grouped, guide, X, G, Y, **QUICK)


@functools.cache
def fitted_near() -> tuple[Any, Any]:
    guide, near = dgp.MeanField(near_model), dgp.NearRows(X, Y, block=6)
    return guide, dgp.fit(KEY, near_model, guide, X, Y, near=near, **QUICK)


@functools.cache
def fitted_diffusion() -> tuple[Any, Any]:
    guide = dgp.Diffusion(models.svgp, steps=2)
    return guide, dgp.fit(KEY, models.svgp, guide, X, Y, z=Z, **QUICK)


@functools.cache
def fitted_latent() -> dict[str, Any]:
    """Return the arguments of functions of a fitted GPLVM."""
    y, model, guide = np.stack([Y, X[:, 0]], axis=1), models.gplvm, dgp.MeanField(models.gplvm)
    kwargs, _ = initialize.gplvm(KEY, y, dim=1, num_inducing=3, depth=1)
    params = dgp.fit(KEY, model, guide, None, y, out=2, **kwargs, **QUICK)
    return {"model": model, "guide": guide, "params": params, "x": None, "y": y, "out": 2, **kwargs}


@functools.cache
def inference_data() -> Any:
    guide, fit = fitted()
    return dgp.to_inferencedata(KEY, models.svgp, guide, fit, X, Y, z=Z, num_samples=30)


def near_prediction(x: Any, y: Any, x_new: Any, **options: Any) -> Any:
    guide, fit = fitted_near()
    near = dgp.NearRows(x, y, **options)
    return dgp.predict(KEY, near_model, guide, fit, x_new, near=near, num_samples=4)


def own_model(x: Any, y: Any, *, name: Any, kernel: Any, out: Any, mean: Any, plate: Any,
              batch_size: Any, **options: Any) -> Any:  # fmt: skip
    """Fit a model of the arguments of `gp`, `minibatch` and `observe`."""

    def model(x: Any, y: Any = None) -> None:
        f = dgp.gp(name, kernel, Z, out, mean)
        with dgp.minibatch(x, y, batch_size=batch_size, name=plate) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), _normal, **options), obs=y)

    return dgp.fit(KEY, model, dgp.MeanField(model), x, y, **QUICK)


def censored(kind: Any, y: Any, flags: Any, scale: Any) -> Any:
    """Fit with a censored likelihood."""

    def likelihood(f: Any) -> Any:
        return getattr(likelihoods, kind)(dist.Normal(f, scale), flags)

    return dgp.fit(
        KEY, models.svgp, fitted()[0], X, y, z=Z, likelihood=likelihood, **QUICK
    )  # fmt: skip


def clipped(y: Any, **options: Any) -> Any:
    likelihood = lambda f: likelihoods.CensoredNormal(f, **options)  # noqa: E731
    return dgp.fit(KEY, models.svgp, fitted()[0], X, y, z=Z, likelihood=likelihood, **QUICK)


def estimator(kind: Any) -> Callable[..., Any]:
    def run(x: Any, y: Any, x_new: Any, **options: Any) -> Any:
        return kind(**{"random_state": 0, **options}).fit(x, y).predict(x_new)

    return run


def sampled(key: Any, x: Any, y: Any, **options: Any) -> Any:
    sampler = dgp.SGHMC(dgp.freeze(models.svgp, fitted()[1].params))
    return dgp.run_mcmc(key, sampler, x, y, **options)


def kept(name: Any, trusted: Any = (), x_new: Any = X, **options: Any) -> Any:
    """Save a fit, load it and predict."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name if isinstance(name, str) else name
        given = {"model": models.svgp, "guide": fitted()[0], "params": fitted()[1], "z": Z}
        given |= options
        first = (given.pop(n) for n in ("model", "guide", "params"))
        dgp.save(path, *first, **given)
        return dgp.load(path, trusted).predict(KEY, x_new, num_samples=4)


def exported(name: Any, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name if isinstance(name, str) else name
        dgp.export(path, predicted(), platforms=("cpu",), **options)


def weighted(log_weights: Any, samples: Any, **options: Any) -> Any:
    """Predict from weighted chains."""
    given = samples if log_weights is None else dgp.Chains(samples, log_weights=log_weights)
    frozen = dgp.freeze(models.svgp, fitted()[1].params)
    return dgp.predict(KEY, frozen, None, {}, X, z=Z, posterior_samples=given, **options)


def naturally_fitted(learning_rate: Any, steps: Any, **options: Any) -> Any:
    return fitted_by(inference.natural_adam(learning_rate, steps, **options))


def fitted_by(optimizer: Any) -> Any:
    given: Any = {"steps": 3, "progress": False, "optimizer": optimizer}
    return dgp.fit(KEY, models.svgp, fitted()[0], X, Y, z=Z, **given)


def numbers(result: Any) -> list[np.ndarray]:
    """Return the numbers of a result, by which results are compared and NaN is found."""
    if isinstance(result, dgp.Prediction):
        if len(result.x) == ROWS:
            return [result.mean, result.var, result.log_prob(Y)]
        return [result.mean, result.var]
    if isinstance(result, dgp.FitCheck):
        found = [re.findall(r"\d+\.\d+", line.value) for line in result.lines]
        return [np.array([float(n) for n in values]) for values in found]
    if hasattr(result, "subtree"):  # of ArviZ
        return [a.values for node in result.subtree for a in node.dataset.data_vars.values()]
    if isinstance(result, dgp.Rows):
        result = result.take(np.arange(len(result)))
    if isinstance(result, dgp.Comparison):
        result = [row["log_density"]["mean"] for row in result.summary]
    for name in ("losses", "energies", "samples"):
        result = getattr(result, name, result)
    found = []
    for leaf in jax.tree.leaves(result):
        if dataclasses.is_dataclass(leaf):
            found += numbers(
                {n: a for n, a in vars(leaf).items() if n not in ("seconds", "report")}
            )
        elif np.isscalar(leaf) or hasattr(leaf, "dtype"):
            kind = getattr(leaf, "dtype", np.asarray(leaf).dtype)
            found += [np.asarray(leaf)] if getattr(kind, "kind", "O") in "biuf" else []
    return found
