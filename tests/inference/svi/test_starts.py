"""Fits that choose among several starts, by a trial of each."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import random
from support.fits import OPTIMIZER, SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.inference.svi import _starts as starts
from dgp_ppl.models import svgp

GOOD, BAD = {"noise": jnp.float32(0.3)}, {"noise": jnp.float32(3e4)}
BROKEN = {"noise": jnp.float32(jnp.nan)}
CLIMBING = optax.sgd(-1e-7)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("given", [[GOOD, BAD], [BAD, GOOD], (BAD, None), [BROKEN, GOOD, {}]])
def test_a_fit_goes_on_from_the_best_start(given):
    """It equals the fit of that start alone, which a trial of it has begun."""
    found = shallow(40, start=given)
    ends = [np.inf if s is BROKEN else shallow(10, start=s).losses[-1] for s in given]
    np.testing.assert_allclose(found.start_losses, ends, rtol=1e-6)
    best = given[int(np.argmin(ends))]
    assert best is not BAD
    alone = shallow(40, start=best)
    assert_same(found.params, alone.params)
    np.testing.assert_array_equal(found.losses, alone.losses)
    assert alone.start_losses is None
    assert "best of starts" in str(found)
    assert "best of starts" not in str(alone)


def test_the_loss_of_a_trial_is_that_of_its_end():
    """The last tenth of a quarter of the steps."""
    found = shallow(80, start=[BAD, GOOD])
    trials = [shallow(20, start=s).losses[-2:].mean() for s in (BAD, GOOD)]
    np.testing.assert_allclose(found.start_losses, trials, rtol=1e-6)


def test_the_default_schedule_is_that_of_one_start():
    found = shallow(40, start=[BAD, GOOD], optimizer=None)
    assert_same(found.params, shallow(40, start=GOOD, optimizer=None).params)


def test_a_fit_of_one_step_has_a_trial():
    assert shallow(1, start=[BAD, GOOD]).losses.shape == (1,)


def test_it_fails_only_if_all_trials_do():
    with pytest.raises(dgp.NonFiniteLossError) as caught:
        shallow(40, start=[BROKEN, BROKEN])
    assert caught.value.step == 0


def test_a_list_of_no_start_is_refused():
    with pytest.raises(ValueError, match="start"):
        shallow(10, start=[])
    with pytest.raises(ValueError, match="none of them a param"):
        shallow(10, start=[{}, {"nois": 0.3}])


def test_a_checkpoint_goes_on_after_the_trials(tmp_path):
    whole = shallow(40, start=[BAD, GOOD])
    for _ in range(2):  # the second call reads the end of the first
        kept = shallow(40, start=[BAD, GOOD], checkpoint=tmp_path / "run", every=7)
        assert_same(kept.params, whole.params)
        np.testing.assert_array_equal(kept.losses, whole.losses)


def test_keep_best_compares_with_the_first_params():
    found = shallow(8, start=[BAD, GOOD], keep_best=True, optimizer=CLIMBING)
    assert found.reverted
    np.testing.assert_allclose(found.params["noise"], 0.3, rtol=1e-6)


@pytest.mark.parametrize("given", [[BAD, GOOD], [BROKEN, GOOD], [BROKEN, BROKEN]])
@pytest.mark.usefixtures("x64")
def test_many_fits_choose_as_each_alone(given):
    keys = random.split(KEY, 2)
    options = {"z": Z, "steps": 40, "optimizer": OPTIMIZER, "start": given, "progress": False}
    fits = dgp.fit_many(keys, svgp, SHALLOW, X, Y, **options)
    assert fits.start_losses.shape == (2, 2)
    if given == [BROKEN, BROKEN]:
        assert sorted(fits.errors) == [0, 1]
        assert fits.errors[0].step == 0
        return
    for key, found in zip(keys, fits, strict=True):
        alone = dgp.fit(key, svgp, SHALLOW, X, Y, **options)
        np.testing.assert_allclose(found.losses, alone.losses, rtol=1e-8)
        np.testing.assert_allclose(found.start_losses, alone.start_losses, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_each_of_many_fits_chooses_for_itself():
    """The start that fits the data of one fit is the wrong one for the other."""
    ys = jnp.stack([Y, 30 * random.normal(KEY, jnp.shape(Y))])
    keys = random.split(KEY, 2)
    fits = dgp.fit_many(
        keys, svgp, SHALLOW, X, ys, z=Z, each=("y",), steps=40, optimizer=OPTIMIZER,
        start=[GOOD, BAD], progress=False,
    )  # fmt: skip
    assert np.argmin(fits.start_losses, axis=1).tolist() == [0, 1]
    for i, (noise, found) in enumerate(zip((0.3, 3e4), fits, strict=True)):
        alone = dgp.fit(
            keys[i], svgp, SHALLOW, X, ys[i], z=Z, steps=40, optimizer=OPTIMIZER,
            start={"noise": jnp.float32(noise)}, progress=False,
        )  # fmt: skip
        np.testing.assert_allclose(found.losses, alone.losses, rtol=1e-6)


@pytest.mark.parametrize("found", ["first", "second"])
def test_an_interrupt_in_a_trial_keeps_the_best_so_far(monkeypatch, found):
    """One in the first trial keeps that; one in a later trial the best of those that ended."""
    run, calls = starts.run_steps, []

    def interrupted(loop, state, *args, **options):
        calls.append(state)
        outcome = run(loop, state, *args, **options)
        if len(calls) == (1 if found == "first" else 2):
            outcome = outcome._replace(interrupt=KeyboardInterrupt())
        return outcome

    monkeypatch.setattr(starts, "run_steps", interrupted)
    with pytest.raises(dgp.Interrupted, match="after 10 of 40 steps") as caught:
        shallow(40, start=[GOOD, BAD])
    assert_same(caught.value.result.params, shallow(10, start=GOOD).params)


def test_each_trial_of_rows_reads_them_from_their_first():
    """A fit to rows chooses like any other, and goes on after the trial's minibatches."""
    rows = dgp.Rows.from_arrays(np.asarray(X), np.asarray(Y))
    options = {"z": Z, "batch_size": 5, "steps": 40, "optimizer": OPTIMIZER, "progress": False}
    found = dgp.fit(KEY, svgp, SHALLOW, rows, start=[BAD, GOOD], **options)
    alone = dgp.fit(KEY, svgp, SHALLOW, rows, start=GOOD, **options)
    assert found.start_losses[1] < found.start_losses[0]
    assert_same(found.params, alone.params)
    assert found.position == alone.position
