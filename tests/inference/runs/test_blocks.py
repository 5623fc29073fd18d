"""Programs that make a number of steps: one for all numbers, or blocks of static length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.helpers import KEY, one_layer, regression

import dgp_ppl as dgp
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


@pytest.mark.slow
def test_fits_and_chains_are_the_same_as_on_a_cpu(request):
    """Blocks change nothing but rounding, in `fit` and `run_mcmc`."""

    def everything():
        guide = dgp.MeanField(one_layer)
        options = {"z": Z, "progress": False}
        fit = dgp.fit(KEY, one_layer, guide, X, Y, steps=23, **options)
        chains = dgp.run_mcmc(
            KEY, dgp.SGHMC(one_layer), X, Y, num_warmup=12, num_samples=5, thinning=2, **options
        )
        return fit.losses, fit.params, dict(chains.samples)

    wanted = everything()
    request.getfixturevalue("off_cpu")
    found = everything()
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_passes_are_the_same_off_a_cpu(request):
    """Sixteen passes at once give what each gives alone."""
    program = _blocks.PassProgram(lambda power, x, scale: scale * x**power)
    each = jnp.arange(40.0)
    alone = program(2, each, 3.0)
    request.getfixturevalue("off_cpu")
    np.testing.assert_allclose(program(2, each, 3.0), alone)
    np.testing.assert_allclose(alone, 3 * each**2)
