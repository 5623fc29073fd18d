"""Losses that are not finite: the step, the site, and the state that is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from support.fits import OPTIMIZER, X, Y, Z, shallow
from support.helpers import KEY, no_guide

import dgp_ppl as dgp
from dgp_ppl.models import svgp


def descending(w):
    """A loss that is NaN below w = -0.05; gradient descent lowers w by 0.1 per step."""
    w = numpyro.param("w", w)
    numpyro.factor("f", -w + 1e-6 * jnp.log(w + 0.05))


def test_the_step_and_the_site_of_a_loss_that_is_not_finite():
    """The step is inside a chunk of ten steps, or the first one of a chunk."""
    options = {"steps": 30, "optimizer": optax.sgd(0.1), "progress": False}
    for first, step in ((1.0, 11), (0.9, 10), (0.5, 6), (0.0, 1)):
        with pytest.raises(dgp.NonFiniteLossError) as caught:
            dgp.fit(KEY, descending, no_guide, first, **options)
        error = caught.value
        assert (error.step, error.site) == (step, "site f")
        assert f"not finite at step {step} (of 30); first not finite: site f" in str(error)
        assert "smaller learning_rate" in str(error)
        assert error.result.losses.shape == (step,)
        assert np.isfinite(error.result.losses).all()
        # The last state with a finite loss.
        assert error.result.params["w"] == pytest.approx(first - 0.1 * (step - 1), abs=1e-4)


def test_nothing_is_kept_where_the_first_loss_is_not_finite():
    with pytest.raises(dgp.NonFiniteLossError, match="at step 0") as caught:
        shallow(10, key=KEY, start={"noise": jnp.float32(jnp.nan)})
    assert caught.value.site == "param noise"
    assert caught.value.result is None


def test_data_that_is_not_finite():
    """NaN in the argument itself is found before: see `test_data`."""

    def halved(x, y, z):
        svgp(x, 0.5 * y, z=z)

    y = np.asarray(Y).copy()
    y[3] = np.nan
    guide = dgp.MeanField(halved)
    with pytest.raises(
        dgp.NonFiniteLossError, match=r"'y' is NaN or infinite in 1 of 20 rows \[3\]"
    ) as caught:
        dgp.fit(KEY, halved, guide, X, y, z=Z, steps=10, optimizer=OPTIMIZER, progress=False)
    assert (caught.value.step, caught.value.site) == (0, "site y")
    assert caught.value.result is None


def test_an_enormous_learning_rate():
    with pytest.raises(dgp.NonFiniteLossError) as caught:
        shallow(10, optimizer=optax.sgd(1e8))
    assert caught.value.site.startswith(("param l", "param noise"))
    result = caught.value.result
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(result.params))
    assert isinstance(caught.value, FloatingPointError)
