"""Programs that make a number of steps: one for all numbers, or blocks of static length."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from support.helpers import KEY, one_layer, regression, slow
from threadpoolctl import threadpool_info, threadpool_limits

import dgp_ppl as dgp
from dgp_ppl.inference.runs import _blocks
from dgp_ppl.inference.samplers import _mcmc
from dgp_ppl.linalg._threads import one_blas_thread

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


def fits():
    guide = dgp.MeanField(one_layer)
    fit = dgp.fit(KEY, one_layer, guide, X, Y, z=Z, steps=23, progress=False)
    return fit.losses, fit.params


def chains():
    """Draws of one number: two blocks of 10, thinned, after two blocks of the warm-up."""
    model = lambda: numpyro.sample("w", dist.Normal(0, 1))  # noqa: E731
    options = {"num_warmup": 20, "num_samples": 20, "thinning": 3, "progress": False}
    return dict(dgp.run_mcmc(KEY, dgp.SGHMC(model), **options).samples)


@pytest.mark.parametrize("run", [slow(fits), chains])
def test_runs_are_the_same_off_a_cpu(run, request):
    """Blocks change nothing but rounding."""
    wanted = run()
    request.getfixturevalue("off_cpu")
    found = run()
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


def test_passes_on_a_cpu_keep_openblas_to_one_thread():
    """While any caller needs it, in whatever order they end."""
    num = lambda: {a["num_threads"] for a in threadpool_info() if a["user_api"] == "blas"}  # noqa: E731

    def count(static, x):
        return jax.pure_callback(lambda x: x + np.float32(max(num())), x, x)

    with threadpool_limits(2, "blas"):
        found = _blocks.PassProgram(count)(None, jnp.zeros(3, jnp.float32))
        np.testing.assert_array_equal(found, 1)
        assert num() == {2}
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert num() == {1}
        second.__exit__(None, None, None)
        assert num() == {2}
