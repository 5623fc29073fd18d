"""Integrals of one variable against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl.likelihoods._log_integral import log_integral


def test_peaks_and_their_gradients(x64):
    """A Gaussian much narrower than the interval, one that fills a sixth of it, and two peaks."""

    def integral(log_height, width):
        log_normal = lambda u: log_height - 0.5 * jnp.square((u - 4.321) / width)  # noqa: E731
        return log_integral(log_normal, jnp.array(-20.0), jnp.array(25.0))

    for width in (0.03, 0.5, 3.0):
        found, slope = jax.value_and_grad(integral)(2.0, width)
        assert found == pytest.approx(2 + np.log(width * np.sqrt(2 * np.pi)), abs=1e-6)
        assert slope == pytest.approx(1.0)

    def log_sum(u):
        return jnp.logaddexp(-0.5 * jnp.square(u + 5), 3 - 0.5 * jnp.square(u - 7))

    found = log_integral(log_sum, jnp.array(-15.0), jnp.array(20.0))
    assert found == pytest.approx(np.log(np.sqrt(2 * np.pi) * (1 + np.exp(3))), abs=1e-6)
