"""The contract of guides, and what every guide does with it."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from low_rank_guide import LowRank
from numpyro import handlers
from numpyro.infer import Predictive
from scipy import stats
from support.helpers import KEY, assert_mean, regression, slow, start

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference import SplineCoupling, evaluate
from dgp_ppl.inference.svi._setup import guide_optimizer
from dgp_ppl.models import deep_gp

# The prior on the noise makes a latent site that belongs to no layer.
model = handlers.lift(deep_gp, {"noise": dist.LogNormal(-1, 1)})
PSEUDO = np.linspace(-1.5, 1.5, 3)[:, None]
BASES = (PSEUDO, np.c_[PSEUDO, np.zeros(3)])
# The hidden layer has two outputs, each with its own kernel.
Z1 = np.linspace(-2, 2, 3)[:, None]
Z = (Z1, np.c_[Z1, np.zeros(3)])


class Case(NamedTuple):
    """A guide, with the options that the tests need."""

    build: Callable
    """Builds the guide from a model; accepts `at_prior` as keyword arguments."""
    at_prior: dict
    """Options with which q starts at the prior."""
    kwargs: dict
    """Arguments of the model."""


def case(build, **at_prior):
    return Case(build, at_prior, {"z": Z})


def coupled_diffusion(model, **options):
    return dgp.Diffusion(model, steps=3, base=dgp.GlobalInducing(model, PSEUDO, **options))


def flow(model, **options):
    small = functools.partial(SplineCoupling, layers=1, width=4, bins=3)
    return dgp.Flow(model, base=dgp.GlobalInducing(model, PSEUDO, **options), flow=small)


def anchored_diffusion(model, **options):
    return dgp.Diffusion(model, steps=3, base=dgp.MeanField(model, **options))


# To run all tests of this file on a guide, add it here.
CASES = {
    "mean_field": case(dgp.MeanField, hidden_scale=1.0),
    "global_inducing": case(
        functools.partial(dgp.GlobalInducing, pseudo_inputs=PSEUDO), hidden_scale=1.0
    ),
    "decoupled": case(functools.partial(dgp.Decoupled, z_mean=BASES), hidden_scale=1.0),
    "diffusion": case(functools.partial(dgp.Diffusion, steps=3), base="prior"),
    "coupled_diffusion": case(coupled_diffusion, hidden_scale=1.0),
    "flow": case(flow, hidden_scale=1.0),
    "implicit": case(dgp.Implicit, generator=None, hidden_scale=1.0),
    "low_rank": case(functools.partial(LowRank, rank=1), hidden_scale=1.0, factor_scale=0.0),
}
# The same guides of a hidden layer whose outputs share one kernel.
CASES |= {
    f"{name}_shared": c._replace(kwargs={"z": Z, "share_kernel": True}) for name, c in CASES.items()
}
GUIDES = {name: c.build for name, c in CASES.items()}
SHAPES = {"l1.v": (3, 2), "l2.v": (3, 1), "noise": ()}
X, Y = (np.asarray(a) for a in regression(rows=24))
DRAWS = 400
X_TEST = np.linspace(-2, 2, 7)[:, None]

PLAIN = [n for n in CASES if not n.endswith("_shared")]
# A guide of two that are tested each, and the one of examples/.
LATER = "coupled_diffusion", "low_rank"
every_guide = pytest.mark.parametrize("name", [slow(n) if n in LATER else n for n in PLAIN])
every_guide_and_kernel = pytest.mark.parametrize(
    "name", [slow(n) if n in LATER or n.endswith("_shared") else n for n in CASES]
)


@functools.cache
def fitted(name):
    """Return a guide and the result of a short fit."""
    guide = GUIDES[name](model)
    options = {"steps": 60, "learning_rate": 0.03, "progress": False}
    return guide, dgp.fit(KEY, model, guide, X, Y, batch_size=8, **options, **CASES[name].kwargs)


@functools.cache
def losses(name, dtype="float32", **kwargs):
    """Return estimates of the loss at the fit's params, [DRAWS], with one key each."""
    guide, result = fitted(name)
    keys = random.split(random.key(len(kwargs)), DRAWS)
    with jax.enable_x64(dtype == "float64"):
        data = [jnp.asarray(a, dtype) for a in (X, Y)]
        params = {n: jnp.asarray(a, dtype) for n, a in result.params.items()}

        def one(key):
            return guide.default_loss.loss(
                key, params, model, guide, *data, **CASES[name].kwargs, **kwargs
            )

        return np.asarray(jax.jit(jax.vmap(one))(keys))


def predicted(name, **options):
    guide, result = fitted(name)
    options = {"num_samples": 10, **CASES[name].kwargs, **options}
    return dgp.predict(KEY, model, guide, result.params, X_TEST, **options)


@every_guide_and_kernel
def test_it_fits_with_the_one_call(name):
    """A hyperparameter with a prior has params of the guide."""
    _, result = fitted(name)
    assert np.isfinite(result.losses).all()
    assert result.losses[-20:].mean() < result.losses[:20].mean()
    assert all(isinstance(a, jax.Array) for a in result.params.values())
    assert {"noise_auto_loc", "noise_auto_scale"} <= set(result.params)
    assert "noise" not in result.params


@pytest.mark.slow
@every_guide
def test_a_file_keeps_its_predictions(name, tmp_path):
    guide, result = fitted(name)
    dgp.save(tmp_path / "fit.dgp", model, guide, result, **CASES[name].kwargs)
    kept = dgp.load(tmp_path / "fit.dgp", trusted=["low_rank_guide"])
    found = kept.predict(KEY, X_TEST, num_samples=10)
    np.testing.assert_array_equal(found.mean, predicted(name).mean)
    np.testing.assert_array_equal(found.var, predicted(name).var)


AT_THE_PRIOR = {
    **{n: functools.partial(CASES[n].build, **CASES[n].at_prior) for n in PLAIN},
    "diagonal": functools.partial(dgp.MeanField, covariance="diagonal", hidden_scale=1.0),
    "anchored_diffusion": functools.partial(anchored_diffusion, hidden_scale=1.0),
}


@pytest.mark.parametrize(
    "name", [slow(n) if n in (*LATER, "anchored_diffusion") else n for n in AT_THE_PRIOR]
)
def test_the_bound_at_the_prior(name):
    """If q is the prior, and the data do not depend on the layers, the bound is exact."""

    def independent(x, y=None):
        f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z[0], out=2)
        f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), Z[1])
        with dgp.minibatch(x, y) as (x, y):
            f2(f1.sample(x))
            numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0), obs=y)

    guide = AT_THE_PRIOR[name](independent)
    params = start(independent, guide, X, Y)
    params |= {n: jnp.full_like(a, 1e-9) for n, a in params.items() if n.endswith(".precision")}
    loss = jax.jit(lambda p: guide.default_loss.loss(KEY, p, independent, guide, X, Y))(params)
    assert -loss == pytest.approx(stats.norm.logpdf(Y).sum(), abs=1e-3)


@every_guide_and_kernel
def test_minibatches_are_unbiased(name):
    full, batches = losses(name), losses(name, batch_size=6)
    assert_mean(batches - full, 0.0)


@pytest.mark.slow
@every_guide
def test_float64(name):
    """Draws depend on the dtype, so the bounds agree only in the mean."""
    single, double = losses(name), losses(name, dtype="float64")
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert_mean(double - single, 0.0)


@every_guide
def test_draws(name):
    guide, result = fitted(name)
    sample = functools.partial(guide.sample_posterior, **CASES[name].kwargs)
    draw = jax.jit(lambda key: sample(key, result.params, X))
    one, again, other = draw(KEY), draw(KEY), draw(random.key(1))
    assert {n: a.shape for n, a in one.items()} == SHAPES
    for n in SHAPES:
        np.testing.assert_array_equal(one[n], again[n])
        assert (one[n] != other[n]).any()
    many = jax.eval_shape(lambda: sample(KEY, result.params, X, sample_shape=(3, 2)))
    assert {n: a.shape for n, a in many.items()} == {n: (3, 2, *s) for n, s in SHAPES.items()}


@pytest.mark.slow
@every_guide_and_kernel
def test_draws_of_functions(name):
    draws = predicted(name).function_draws(KEY, 4, mode="joint")
    assert draws.shape == (4, 7)
    assert np.isfinite(draws).all()


@pytest.mark.slow
@every_guide
def test_arviz(name):
    guide, result = fitted(name)
    y = jnp.zeros(7)
    options = {"num_samples": 10, "passes": 2, "result": result, **CASES[name].kwargs}
    tree = dgp.to_inferencedata(KEY, model, guide, result.params, X_TEST, y, **options)
    shapes = {n: tree["posterior"][n].shape for n in SHAPES}
    assert shapes == {n: (1, 10, *s) for n, s in SHAPES.items()}
    assert np.isfinite(tree["log_likelihood"]["y"]).all()
    assert set(tree["fit"].data_vars) == set(result.params)


@pytest.mark.slow
@every_guide
def test_stock_predictive(name):
    guide, result = fitted(name)
    predictive = Predictive(model, guide=guide, params=result.params, num_samples=5)
    draws = predictive(KEY, X_TEST, **CASES[name].kwargs)
    assert draws["y"].shape == (5, 7)
    assert np.isfinite(draws["y"]).all()


@pytest.mark.slow
@every_guide
def test_predictive_of_the_model_under_its_guide(name):
    """The draws have the mean that `predict` returns."""
    guide, result = fitted(name)
    program = dgp.guided(model, guide, result.params)
    draws = Predictive(program, num_samples=2000)(KEY, X_TEST, **CASES[name].kwargs)["y"]
    prediction = predicted(name, num_samples=2000)
    error = np.sqrt(2 * prediction.var / 2000)
    assert (abs(draws.mean(axis=0) - prediction.mean) < 4.5 * error).all()


# Of the guide's and the model's params, a period and the diffusion: from scratch, and from params.
RATES = {
    "mean_field": ((0.1, 0.03, 0.003, 0.1), (0.1, 0.03, 0.003, 0.1)),
    "global_inducing": ((0.1, 0.03, 0.003, 0.1), (0.01, 0.003, 0.0003, 0.01)),
    "diffusion": ((0.1, 0.03, 0.003, 0.01), (0.001, 0.0003, 0.00003, 0.01)),
}


def test_rates_of_a_fit_from_scratch_and_of_one_that_goes_on():
    params = {n: jnp.zeros(()) for n in ("l1.v.loc", "noise", "l1.period", "diffusion.a")}
    for name, both in RATES.items():
        for from_params, wanted in zip((False, True), both, strict=True):
            guide, own = GUIDES[name](model), frozenset({"noise", "l1.period"})
            optimizer = guide_optimizer(guide, 0.1, 300, own, from_params=from_params)
            gradient, state = {n: jnp.ones(()) for n in params}, optimizer.init(params)
            change, _ = optimizer.update(gradient, state, params)
            np.testing.assert_allclose([-change[n] for n in params], wanted, rtol=0.01)


def noisy_inputs(x, y=None, *, batch_size=None):
    """A model of noisy inputs: one latent value per row."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z[0], out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), Z[1])
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        w = numpyro.sample("w", dist.Normal(0, 0.3).expand([1]).to_event(1))
        f = f2(f1.sample(x + w))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


@pytest.mark.slow
@every_guide
def test_latent_inputs(name):
    """The guide draws the latent values of a minibatch's rows, and the bound is unbiased."""
    guide, whole = (GUIDES[name](noisy_inputs) for _ in range(2))
    options = {"batch_size": 8, "steps": 100, "progress": False}
    params = dgp.fit(KEY, noisy_inputs, guide, X, Y, **options).params
    assert params["w_auto_loc"].shape == (24, 1)
    many = {"num_draws": DRAWS}
    full, error = evaluate(KEY, noisy_inputs, whole, params, X, Y, **many)
    part, noise = evaluate(KEY, noisy_inputs, guide, params, X, Y, batch_size=8, **many)
    assert abs(full - part) < 4.5 * np.hypot(error, noise)
    assert noise > error
    draws = whole.sample_posterior(KEY, params, X, sample_shape=(3,))
    assert (draws["w"].shape, draws["l1.v"].shape) == ((3, 24, 1), (3, 3, 2))


# Params whose gradients must not vanish at the guide's initial params.
NONZERO_GRADIENTS = {
    "global_inducing": {"pseudo_inputs", "l1.v.loc", "l2.v.target"},
    "decoupled": {"l2.v.weights"},
    "diffusion": {"l1.v.loc", "l2.v.loc"},
    "flow": {"l1.v.loc", "l2.v.target", "flow.nets.layers.1.weight"},
}


@pytest.mark.parametrize("name", [n if n == "decoupled" else slow(n) for n in PLAIN])
def test_a_model_that_holds_and_hides_params(name):
    """The model's handlers do not affect the guide's params, even those of the same names."""
    fixed = {"noise": 0.3, "pseudo_inputs": jnp.zeros((3, 1)), "l1.v.loc": jnp.ones((3, 2))}

    def hidden(x, y=None):
        with handlers.block(hide_fn=lambda s: s["type"] == "param"):
            handlers.substitute(deep_gp, data=fixed)(x, y, **CASES[name].kwargs)

    guide = GUIDES[name](hidden)
    params = start(hidden, guide, X, Y)
    names = NONZERO_GRADIENTS.get(name, set())
    assert names <= set(params)
    assert params
    assert not {n for n in params if n.endswith((".lengthscale", "noise"))}
    loss = lambda p: guide.default_loss.loss(KEY, p, hidden, guide, X, Y)  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(params)
    assert all(jnp.abs(gradient[n]).max() > 0 for n in names)
    assert any(jnp.abs(a).max() > 0 for a in gradient.values())
    np.testing.assert_array_equal(params.get("pseudo_inputs", PSEUDO), PSEUDO)


def test_a_guide_refuses_other_inducing_inputs_than_at_its_first_call():
    guide = dgp.MeanField(model)
    guide.setup(X, Y, z=Z)
    z1 = np.linspace(-2, 2, 7)[:, None]
    other = {"z": (z1, np.c_[z1, np.zeros(7)])}
    with pytest.raises(ValueError, match=r"l1.*keeps the shapes of its first call: make a new"):
        dgp.fit(KEY, model, guide, X, Y, steps=1, progress=False, **other)
