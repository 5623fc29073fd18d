"""The problems: models whose hyperparameters are fixed, so that all posteriors have one target."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from sklearn.datasets import load_iris

import dgp_ppl as dgp
from dgp_ppl import initialize, kernels, likelihoods, means, models

__all__ = ["PROBLEMS", "Problem"]

Data = tuple[Any, Any]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model with fixed hyperparameters, its data, and how to study it.

    Attributes:
        model: its latent sites are the inducing values of the layers, and latent inputs.
        data: the model's positional arguments.
        test: new inputs and targets in the model's units, or None.
        kwargs: the model's keyword arguments.
        steps: steps of a guide's fit.
        pseudo: pseudo-inputs of `GlobalInducing`; None where it does not apply.
        z_mean: inducing inputs of `Decoupled`'s mean in each layer; None where it does not apply.
        rest: params that guides of the latent inputs start from.
        exact: whether NUTS can sample it.
        evidence: options of `annealed_evidence`, or None where there is none.
        calibrate: whether to run NumPyro's simulation-based calibration.
    """

    model: Callable[..., None]
    data: tuple[Any, ...]
    test: Data | None
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: int = 4000
    pseudo: Any = None
    z_mean: Any = None
    rest: dict[str, Any] = dataclasses.field(default_factory=dict)
    exact: bool = True
    evidence: dict[str, Any] | None = dataclasses.field(default_factory=dict)
    calibrate: bool = False


def toy_model(x: Any, y: Any = None) -> None:
    """Two layers with 8 inducing inputs each. Everything but their values is fixed."""
    kernel = kernels.SquaredExponential(1.0, 0.8)
    f1 = dgp.gp("l1", kernel, np.linspace(-2.2, 2.2, 8)[:, None], mean=means.identity)
    f2 = dgp.gp("l2", kernel, np.linspace(-2.5, 2.5, 8)[:, None])
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.1)), obs=y)


def toy_data(name: str, rows: int, seed: int) -> Data:
    """Return rows of a sine with a gap, or of a step, with noise 0.1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, rows)
    if name == "sine":
        x = x + np.sign(x) * 0.5
        f = np.sin(2 * x)
    else:
        f = np.sign(x - 0.2)
    y = f + 0.1 * rng.standard_normal(rows)
    return jnp.asarray(x[:, None], float), jnp.asarray(y, float)


def toy(name: str) -> Problem:
    x, y = toy_data(name, 40, 0)
    return Problem(
        toy_model, (x, y), toy_data(name, 200, 1),
        pseudo=initialize.inducing_inputs(random.key(6), x, 20),
        z_mean=initialize.inducing_inputs(random.key(0), x, 40),
        evidence={"num_particles": 1024}, calibrate=True,
    )  # fmt: skip


def fitted(data: Data, test: Data, *, inducing: int, pseudo: int, width: int | None = None,
           likelihood: Any = None, steps: int, **options: Any) -> Problem:  # fmt: skip
    """Return the problem at the hyperparameters of a mean-field fit of 6,000 steps."""
    keys = random.split(random.key(0), 3)
    kwargs = initialize.deep_gp(keys[0], data[0], num_inducing=inducing, depth=2, width=width)
    if likelihood is not None:
        kwargs["likelihood"] = likelihood
    guide = dgp.MeanField(models.deep_gp)
    fit = dgp.fit(keys[1], models.deep_gp, guide, *data, steps=6000, progress=False, **kwargs)
    fixed = dgp.freeze(models.deep_gp, {n: a for n, a in fit.params.items() if ".v." not in n})
    z = initialize.inducing_inputs(keys[2], data[0], pseudo)
    more = min(len(data[0]), 2 * pseudo)
    z_mean = initialize.deep_gp(keys[2], data[0], num_inducing=more, depth=2, width=width)["z"]
    return Problem(fixed, data, test, kwargs, steps=steps, pseudo=z, z_mean=z_mean, **options)


def standardised(name: str, split_key: str, *, classes: bool = False) -> tuple[Data, Data]:
    """Return training and test rows of the first split, standardised by the training rows."""
    data = dgp.datasets.load(name, split_key=split_key)
    train, test = dgp.datasets.splits(data, 1, 0)[0]
    scale = dgp.Standardizer.fit(data.x[train], None if classes else data.y[train])
    outputs = (lambda y: jnp.asarray(y, float)) if classes else scale.outputs
    return (
        (scale.inputs(data.x[train]), outputs(data.y[train])),
        (scale.inputs(data.x[test]), outputs(data.y[test])),
    )


def motorcycle() -> Problem:
    rows = standardised("toy/mcycle", "test_index")
    return fitted(*rows, inducing=20, pseudo=30, steps=4000, evidence={"num_particles": 256})


def energy() -> Problem:
    rows = standardised("uci/energy", "dsdgp_test_index")
    evidence = {"num_particles": 64, "num_noise": 2, "leapfrogs": 10}
    return fitted(*rows, inducing=50, pseudo=100, steps=3000, exact=False, evidence=evidence)


def breast_cancer() -> Problem:
    rows = standardised("breast_cancer", "test_index", classes=True)
    evidence = {"num_particles": 64, "num_noise": 2}
    return fitted(
        *rows, inducing=20, pseudo=40, width=5, likelihood=likelihoods.bernoulli_probit, steps=3000,
        exact=False, evidence=evidence,
    )  # fmt: skip


def gplvm() -> Problem:
    """The Bayesian GPLVM of 100 irises: four measurements, two latent inputs, M = 20."""
    y, _ = load_iris(return_X_y=True)
    y = np.random.default_rng(0).permutation(np.asarray(y))[:100]
    y = jnp.asarray((y - y.mean(axis=0)) / y.std(axis=0), float)
    kwargs, start = initialize.gplvm(random.key(0), y, dim=2, num_inducing=20)
    kwargs["out"] = 4
    guide = dgp.MeanField(models.gplvm)
    fit = dgp.fit(
        random.key(1), models.gplvm, guide, None, y, steps=6000, start=start, progress=False,
        **kwargs,
    )  # fmt: skip
    rest = {n: a for n, a in fit.params.items() if n.startswith("latent")}
    hyper = {n: a for n, a in fit.params.items() if ".v." not in n and n not in rest}
    fixed = dgp.freeze(models.gplvm, hyper)
    evidence = {"num_particles": 64, "temperatures": 800}
    return Problem(fixed, (None, y), None, kwargs, rest=rest, evidence=evidence)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "sine": lambda: toy("sine"),
    "step": lambda: toy("step"),
    "motorcycle": motorcycle,
    "energy": energy,
    "breast_cancer": breast_cancer,
    "gplvm": gplvm,
}
