"""Programs that make a number of steps: one for all numbers, or blocks of static length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.helpers import KEY, one_layer, regression

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.inference.runs import _blocks
from dgp_ppl.inference.samplers import _mcmc

X, Y = regression(rows=12)
Z = np.linspace(-2, 2, 3)[:, None]
PLACES = (_blocks, _mcmc)


@pytest.fixture
def off_cpu(monkeypatch):
    """Run programs as they run on a GPU."""
    for place in PLACES:
        monkeypatch.setattr(place, "runs_on_cpu", lambda tree: False)


def counting(lengths):
    """Return a program that adds its step's number to the state; it keeps the lengths traced."""

    def function(state, num, first, factor):
        lengths.append(num)
        outputs = jnp.zeros(200)

        def step(i, carry):
            state, outputs = carry
            return state + factor, outputs.at[i].set(factor * (first + i))

        return lax.fori_loop(0, num, step, (state, outputs))

    return _blocks.StepProgram(function)


def test_blocks_add_up():
    for num in (0, 1, 9, 10, 57, 100, 199, 200):
        found = _blocks.blocks(num)
        assert sum(found) == num
        assert set(found) <= {1, 10, 100}
        assert found == sorted(found, reverse=True)


def test_the_steps_are_the_same(request):
    for place in ("on a CPU", "elsewhere"):
        if place == "elsewhere":
            request.getfixturevalue("off_cpu")
        for num in (1, 13, 120):
            state, parts = counting([])(jnp.zeros(()), num, 2.0)
            np.testing.assert_array_equal(state, 2.0 * num)
            outputs = np.concatenate([part[:done] for part, done in parts])
            np.testing.assert_array_equal(outputs, 2.0 * np.arange(num))


def test_numbers_share_a_program_on_a_cpu_and_blocks_elsewhere(request):
    counted, static = [], []
    program = counting(counted)
    for num in (3, 17, 120):
        program(jnp.zeros(()), num, 1.0)
    assert [isinstance(n, jax.core.Tracer) for n in counted] == [True]
    request.getfixturevalue("off_cpu")
    program = counting(static)
    for num in (3, 17, 120, 111):
        program(jnp.zeros(()), num, 1.0)
    assert static == [1, 10, 100]


def test_fits_and_chains_are_those_of_a_cpu(request):
    """Blocks change nothing but rounding, in `fit`, also to rows, and in the other loops."""

    def everything():
        guide = dgp.MeanField(one_layer)
        options = {"z": Z, "progress": False}
        fit = dgp.fit(KEY, one_layer, guide, X, Y, steps=23, **options)
        rows = dgp.Rows.from_arrays(np.asarray(X), np.asarray(Y))
        read = dgp.fit(KEY, one_layer, guide, rows, steps=23, batch_size=3, **options)
        keys = jax.random.split(KEY, 2)
        many = dgp.fit_many(keys, one_layer, guide, X, Y, steps=12, **options)
        chains = dgp.run_mcmc(
            KEY, dgp.SGHMC(one_layer), X, Y, num_warmup=12, num_samples=5, thinning=2, **options
        )
        single = dgp.run_mcmc(
            KEY, dgp.SGHMC(one_layer), X, Y, num_warmup=1, num_samples=1, thinning=11, **options
        )
        mcem = dgp.fit_mcem(
            KEY, models.svgp, X, Y, steps=23, num_samples=3, thinning=2, num_chains=1, **options
        )
        return (
            fit.losses, fit.params, read.losses, many.losses, many.params, mcem.params,
            *(dict(c.samples) for c in (chains, single, mcem.chains)),
        )  # fmt: skip

    wanted = everything()
    request.getfixturevalue("off_cpu")
    found = everything()
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_passes_at_once_are_those_one_by_one(request):
    """A mapped program makes 16 passes at once off a CPU, and the same numbers."""
    at_once = []

    def function(static, each, other):
        at_once.append(each[1].shape)
        return {"sum": jnp.sum(each[0] * other) + static, "number": each[1]}

    each = jnp.arange(40.0).reshape(20, 2), jnp.arange(20)
    found = [_blocks.PassProgram(function)(3, each, 2.0)]
    request.getfixturevalue("off_cpu")
    found.append(_blocks.PassProgram(function)(3, each, 2.0))
    for result in found:
        np.testing.assert_array_equal(result["sum"], 2 * np.sum(each[0], axis=1) + 3)
        np.testing.assert_array_equal(result["number"], np.arange(20))


def test_evaluations_and_draws_are_the_same_off_a_cpu(off_cpu, monkeypatch, x64):
    guide = dgp.MeanField(models.deep_gp)
    call = {"z": [Z, Z], "steps": 5, "progress": False}
    fit = dgp.fit(KEY, models.deep_gp, guide, X, Y, **call)

    def results():
        losses = dgp.evaluate(KEY, models.deep_gp, guide, fit, X, Y, num_draws=20, z=[Z, Z])
        p = dgp.predict(KEY, models.deep_gp, guide, fit, X, num_samples=20, z=[Z, Z])
        tree = dgp.to_inferencedata(
            KEY, models.deep_gp, guide, fit, X, Y, num_samples=20, num_prior_samples=3, z=[Z, Z]
        )
        draws = p.latent_draws(), p.function_draws(KEY, 20)
        return losses, draws, tree.posterior["l1.v"].values, tree.prior["l2.v"].values

    sixteen = results()
    monkeypatch.setattr(_blocks, "runs_on_cpu", lambda tree: True)
    # Joint draws factorise covariances that are singular but for a jitter of 1e-10.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), sixteen, results())
