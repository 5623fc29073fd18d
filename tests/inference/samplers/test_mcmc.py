"""`run_mcmc`: runs that go on, interruptions, and warnings about unreliable draws."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import NUTS, init_to_value
from support.helpers import KEY, compiled, slow
from support.mcem_runs import X, Y, slope as learned
from support.mcmc_runs import X as MX, Y as MY, assert_same, sampled, short, slope

import dgp_ppl as dgp
from dgp_ppl._partition import TRACING
from dgp_ppl.inference.samplers._em import ExpectationMaximization
from dgp_ppl.inference.samplers._mcmc import _Program, _program, run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC


def hills(x, y):
    """Ten normal values."""
    numpyro.sample("w", dist.Normal(0, 1).expand([10]).to_event(1))


@pytest.mark.slow
def test_draws_that_are_too_hot_are_said():
    """Euler steps that are too large heat the momentum; there is one warning."""
    hot = SGHMC(hills, step_size=1.0, preconditioner=None, integrator="euler", friction=0.5)
    options = {"num_warmup": 200, "num_samples": 200, "num_chains": 4}
    with pytest.warns(
        UserWarning, match="mean kinetic temperature is .*longer num_warmup"
    ) as warned:
        chains = short(hot, **options)
    assert len(warned) == 1
    assert chains.fields["temperature"].mean() > 1.25
    sound = short(SGHMC(hills, step_size=0.2, preconditioner=None), **options)
    assert sound.fields["temperature"].mean() == pytest.approx(1, abs=0.1)


def test_divergences_are_said():
    """A chain diverges from far out without warm-up."""
    start = init_to_value(values={"w": 100 * jnp.ones(10)})
    far = SGHMC(hills, step_size=1.0, preconditioner=None, init_strategy=start)
    with pytest.warns(UserWarning, match="1 of the draws diverge"):
        chains = short(far, num_samples=20)
    assert chains.fields["diverging"].all()


# NumPyro's search for a step size closes over the data at every adaptation.
SAMPLERS = {
    "numpyro": lambda: NUTS(shared_slope, find_heuristic_step_size=True),
    "ours": lambda: SGHMC(shared_slope),
}


def shared_slope(x, y):
    slope(x, y)


@pytest.mark.filterwarnings("ignore:run_mcmc. these draws:UserWarning")  # 20 steps adapt little
@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_runs_share_programs_and_read_their_own_data(name, caplog):
    """So does a run that goes on. Those of another warm-up change nothing."""

    def run(y, warmup, **more):
        options = {"num_warmup": warmup, "num_samples": 20, "num_chains": 2, "progress": False}
        return run_mcmc(KEY, SAMPLERS[name](), MX, y, **(options | more))

    def runs():
        first = run(-MY, 20)
        return first, run(-MY, 0, start=first.state)

    _program.cache_clear()
    wanted = runs()
    _program.cache_clear()
    for warmup in (20, 0):
        run(MY, warmup)
    found = []
    assert compiled(caplog, lambda: found.extend(runs())) == []
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)


def test_without_a_first_state_numpyro_says_so():
    def nowhere(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.factor("nowhere", jnp.log(-jnp.exp(w)))

    with pytest.raises(RuntimeError, match="Cannot find valid initial parameters"):
        short(NUTS(nowhere))


def test_a_kernel_starts_side_by_side_with_others():
    """A search in `init` can take long; only NumPyro's kernels need the lock in all of it."""
    owned = []

    def seen(self, *args):
        owned.append(TRACING._is_owned())
        raise KeyboardInterrupt

    for kind in (SGHMC, NUTS):
        kernel = type("Seen", (kind,), {"init": seen})(hills)
        with pytest.raises(KeyboardInterrupt):
            short(kernel)
    assert owned == [False, True]


LONG = {"num_warmup": 300, "num_samples": 100, "thinning": 4}  # 2 calls, then 50 draws a call
MCEM = {"steps": 300, "num_samples": 120, "thinning": 4, "progress": False}


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """Return a function that interrupts the call of the device with this number, from 0."""

    def interrupt_at(kind, number):
        advance, calls = kind.advance, iter(range(number + 1))

        def interrupted(self, *args):
            if next(calls) == number:
                raise KeyboardInterrupt
            return advance(self, *args)

        monkeypatch.setattr(kind, "advance", interrupted)

    return interrupt_at


def test_an_interrupted_run_is_the_errors_result(press_ctrl_c, monkeypatch):
    """A run goes on from the state, also where its random keys are of JAX's old style."""
    whole = sampled(**LONG)
    press_ctrl_c(_Program, 3)
    wanted = r"after 500 steps with 50 of 100 draws .* start=error\.result\.state .* for 50 draws"
    with pytest.raises(dgp.Interrupted, match=wanted) as caught:
        sampled(**LONG)
    monkeypatch.undo()
    first = caught.value.result
    assert first.shape == (2, 50)
    state = first.state._replace(rng_key=random.key_data(first.state.rng_key))
    rest = sampled(**LONG | {"num_warmup": 0, "num_samples": 50}, start=state)
    for name, draws in whole.samples.items():
        parts = [first.samples[name], rest.samples[name]]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), draws)


@pytest.mark.slow
def test_a_warm_up_without_and_with_a_checkpoint(press_ctrl_c, monkeypatch, tmp_path):
    press_ctrl_c(_Program, 1)
    with pytest.raises(dgp.Interrupted, match=r"after 200 steps with 0 of 100 .* again: a warm-up"):
        sampled(**LONG)
    monkeypatch.undo()
    press_ctrl_c(_Program, 3 + 1)  # three calls identify the run
    run = {**LONG, "checkpoint": tmp_path, "every": 100}
    with pytest.raises(dgp.Interrupted, match="it resumes from the last checkpoint") as caught:
        sampled(**run)
    assert caught.value.result.samples == {}
    assert "no draws, 100 steps" in repr(caught.value.result)
    monkeypatch.undo()
    assert_same(sampled(**run), sampled(**LONG))


@functools.cache
def whole_fit():
    return dgp.fit_mcem(KEY, learned, X, Y, **MCEM)


@pytest.mark.parametrize(("kind", "iterations", "draws"), [("fit", 200, 0), slow("draws", 300, 50)])
def test_an_interrupted_fit_mcem(press_ctrl_c, monkeypatch, tmp_path, kind, iterations, draws):
    press_ctrl_c(ExpectationMaximization if kind == "fit" else _Program, 3 + 1)
    wanted = f"after {iterations} of 300 iterations with {draws} of 120 draws"
    with pytest.raises(dgp.Interrupted, match=wanted) as caught:
        dgp.fit_mcem(KEY, learned, X, Y, checkpoint=tmp_path, **MCEM)
    monkeypatch.undo()
    result = caught.value.result
    assert len(result.losses) == iterations
    assert set(result.params) == {"scale", "noise"}
    assert len(result.chains.samples) == bool(draws)
    found = dgp.fit_mcem(KEY, learned, X, Y, checkpoint=tmp_path, **MCEM)
    whole = whole_fit()
    assert found.params == whole.params
    np.testing.assert_array_equal(found.losses, whole.losses)
    np.testing.assert_array_equal(found.chains.samples["w"], whole.chains.samples["w"])
    with pytest.raises(dgp.DataError, match="holds another run: different window;"):
        dgp.fit_mcem(KEY, learned, X, Y, checkpoint=tmp_path, window=7, **MCEM)
