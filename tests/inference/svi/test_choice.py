"""Fits that choose among several starts, by a trial of each."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import random
from support.fits import OPTIMIZER, SHALLOW, X, Y, Z, assert_same, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.svi import _choice as starts
from dgp_ppl.models import svgp

GOOD, BAD, BROKEN = {"noise": 0.3}, {"noise": 3e4}, {"noise": jnp.nan}
# In float64, so that rounding does not grow, with inducing inputs that need no jitter.
ON_APART, X_64, Y_64 = dgp.MeanField(svgp), np.asarray(X, float), np.asarray(Y, float)
APART = X_64[1::4]


def test_a_fit_goes_on_from_the_best_start():
    """It equals the fit of that start alone, which a trial of it has begun."""
    for given in ([GOOD, BAD], (BAD, None), [BROKEN, GOOD, {}]):
        found = shallow(40, start=given)
        ends = [np.inf if s is BROKEN else shallow(10, start=s).losses[-1] for s in given]
        np.testing.assert_allclose(found.start_losses, ends, rtol=1e-6)
        best = given[int(np.argmin(ends))]
        assert best is not BAD
        alone = shallow(40, start=best)
        assert_same(found, alone)
        assert alone.start_losses is None
    assert "best of starts" in str(found)
    assert "best of starts" not in str(alone)


def test_a_list_of_no_start_is_refused():
    assert shallow(1, start=[BAD, GOOD]).losses.shape == (1,)
    with pytest.raises(ValueError, match="start"):
        shallow(10, start=[])
    with pytest.raises(ValueError, match=r"start\[1\] has \['nois'\], none of them a param"):
        shallow(10, start=[{}, {"nois": 0.3}])
    with pytest.raises(TypeError, match=r"start\[0\] is a int, wanted a fit's result"):
        shallow(10, start=[3, {}])
    with pytest.raises(dgp.NonFiniteLossError) as caught:  # only if all trials fail
        shallow(40, start=[BROKEN, BROKEN])
    assert caught.value.step == 0


def test_a_checkpoint_goes_on_after_the_trials(tmp_path, monkeypatch):
    whole = shallow(40, start=[BAD, GOOD])
    options = {"start": [BAD, GOOD], "checkpoint": tmp_path / "run", "every": 7}
    with monkeypatch.context() as patched:  # killed
        patched.setattr(RunFolder, "write", _ends_after(RunFolder.write, 2))
        with pytest.raises(SystemExit):
            shallow(40, **options)
    run, trials = starts.run_steps, []

    def counted(*args, **options):
        trials.extend([args] * ("until" in options))
        return run(*args, **options)

    monkeypatch.setattr(starts, "run_steps", counted)
    for _ in range(2):  # it goes on, and then reads the end
        kept = shallow(40, **options)
        assert_same(kept, whole)
        np.testing.assert_array_equal(kept.start_losses, whole.start_losses)
    assert not trials
    with pytest.raises(dgp.DataError, match="holds another run"):
        shallow(40, **(options | {"start": [GOOD, BAD]}))


def _ends_after(write, num):
    """A write that is killed at its call of this number."""
    calls = []

    def counted(*args):
        write(*args)
        calls.append(args)
        if len(calls) == num:
            raise SystemExit

    return counted


def test_a_failure_after_the_trials_keeps_the_last_finite_state():
    """The first step after a trial has no chunk of its own before it."""
    broken = optax.chain(
        OPTIMIZER,
        optax.inject_hyperparams(optax.scale)(step_size=lambda i: jnp.where(i == 9, jnp.nan, 1.0)),
    )
    options = {"optimizer": broken, "start": [BAD, GOOD]}
    with pytest.raises(dgp.NonFiniteLossError) as caught:
        shallow(40, **options)
    assert caught.value.step == 10
    kept = caught.value.result
    assert all(np.isfinite(a).all() for a in kept.params.values())
    fits = dgp.fit_many(
        random.split(KEY, 2), svgp, SHALLOW, X, Y, z=Z, steps=40, progress=False, **options
    )
    assert fits.errors[1].step == 10
    assert all(np.isfinite(a).all() for a in fits.params.values())
    assert len(fits.errors[1].result.losses) == 10


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_each_of_many_fits_chooses_for_itself():
    """The start that fits the data of one fit is the wrong one for the other."""
    ys = np.stack([Y_64, 30 * np.asarray(random.normal(KEY, Y_64.shape))])
    keys = random.split(KEY, 2)
    fits = dgp.fit_many(
        keys, svgp, ON_APART, X_64, ys, z=APART, each=("y",), steps=40, optimizer=OPTIMIZER,
        start=[GOOD, BAD], progress=False,
    )  # fmt: skip
    assert np.argmin(fits.start_losses, axis=1).tolist() == [0, 1]
    for i, (noise, found) in enumerate(zip((0.3, 3e4), fits, strict=True)):
        alone = dgp.fit(
            keys[i], svgp, ON_APART, X_64, ys[i], z=APART, steps=40, optimizer=OPTIMIZER,
            start={"noise": jnp.float32(noise)}, progress=False,
        )  # fmt: skip
        np.testing.assert_allclose(found.losses, alone.losses, rtol=1e-6)


def test_an_interrupt_in_a_trial_keeps_the_best_so_far(monkeypatch):
    """One in the first trial keeps that; one in a later trial the best of those that ended."""
    run, calls = starts.run_steps, []

    def interrupted(loop, state, *args, **options):
        calls.append(state)
        outcome = run(loop, state, *args, **options)
        if len(calls) == 2:
            outcome = outcome._replace(interrupt=KeyboardInterrupt())
        return outcome

    monkeypatch.setattr(starts, "run_steps", interrupted)
    with pytest.raises(dgp.Interrupted, match="after 10 of 40 steps") as caught:
        shallow(40, start=[BROKEN, GOOD])
    assert_same(caught.value.result, shallow(10, start=GOOD))


@pytest.mark.slow
def test_each_trial_of_rows_reads_them_from_their_first():
    """A fit to rows chooses like any other, and goes on after the trial's minibatches."""
    rows = dgp.Rows.from_arrays(np.asarray(X), np.asarray(Y))
    options = {"z": Z, "batch_size": 5, "steps": 40, "optimizer": OPTIMIZER, "progress": False}
    found = dgp.fit(KEY, svgp, SHALLOW, rows, start=[BAD, GOOD], **options)
    alone = dgp.fit(KEY, svgp, SHALLOW, rows, start=GOOD, **options)
    assert found.start_losses[1] < found.start_losses[0]
    assert_same(found, alone)
