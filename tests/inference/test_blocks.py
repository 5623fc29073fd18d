"""Programs that make a number of steps: one for all numbers, or blocks of static length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.helpers import KEY, one_layer, regression

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.inference import _blocks
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


@pytest.mark.parametrize("num", [0, 1, 9, 10, 57, 100, 199, 200])
def test_blocks_add_up(num):
    found = _blocks.blocks(num)
    assert sum(found) == num
    assert set(found) <= {1, 10, 100}
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("num", [1, 13, 120])
def test_the_steps_are_the_same(num, request):
    lengths = []
    ends = []
    for off in (False, True):
        if off:
            request.getfixturevalue("off_cpu")
        state, parts = counting(lengths)(jnp.zeros(()), num, 2.0)
        ends.append((state, np.concatenate([part[:done] for part, done in parts])))
    np.testing.assert_array_equal(ends[0][0], 2.0 * num)
    np.testing.assert_array_equal(ends[0][1], 2.0 * np.arange(num))
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


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


def test_arrays_say_where_a_program_runs():
    assert _blocks.runs_on_cpu({"a": jnp.zeros(3), "n": 2})


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
