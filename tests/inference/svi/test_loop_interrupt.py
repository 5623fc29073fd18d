"""Ctrl-C in a fit: the state that is kept, and how it goes on."""

import pickle

import jax
import numpy as np
import pytest
from support.fits import OPTIMIZER, X, Y, Z
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.inference.svi._loop import TrainingLoop
from dgp_ppl.models import svgp

GUIDE = dgp.MeanField(svgp)


def fit(steps, **options):
    return dgp.fit(
        KEY, svgp, GUIDE, X, Y, z=Z, steps=steps, optimizer=OPTIMIZER, progress=False, **options
    )


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """Return a function that interrupts the chunk of ten steps with this number, from 0."""
    advance = TrainingLoop.advance

    def interrupt_at(number):
        calls = iter(range(number + 1))

        def interrupted(self, *args):
            if next(calls) == number:
                raise KeyboardInterrupt
            return advance(self, *args)

        monkeypatch.setattr(TrainingLoop, "advance", interrupted)

    return interrupt_at


def test_an_interrupted_fit_is_the_errors_result(press_ctrl_c, tmp_path):
    press_ctrl_c(2)
    with pytest.raises(dgp.Interrupted, match=r"after 20 of 40 steps.*for 20 steps") as caught:
        fit(40)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not isinstance(caught.value, Exception)
    result = caught.value.result
    assert result.interrupted
    assert "interrupted" in repr(result)
    assert pickle.loads(pickle.dumps(result)).interrupted
    assert result.losses.shape == (20,)
    mean = dgp.predict(KEY, svgp, GUIDE, result, X, z=Z, num_samples=2).mean
    assert np.isfinite(mean).all()
    dgp.save(tmp_path / "part.dgp", svgp, GUIDE, result, z=Z)
    kept = dgp.load(tmp_path / "part.dgp")
    np.testing.assert_array_equal(kept.predict(KEY, X, num_samples=2).mean, mean)


def test_an_interrupted_fit_goes_on_where_it_stopped(press_ctrl_c, monkeypatch):
    press_ctrl_c(1)
    with pytest.raises(dgp.Interrupted) as caught:
        fit(30)
    monkeypatch.undo()
    rest = fit(20, start=caught.value.result)
    whole = fit(30)
    assert not rest.interrupted
    np.testing.assert_array_equal([*caught.value.result.losses, *rest.losses], whole.losses)
    for a, b in zip(*map(jax.tree.leaves, (rest.params, whole.params)), strict=True):
        np.testing.assert_array_equal(a, b)
