"""Integrals of one variable against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl.likelihoods._log_integral import evenly_spaced, log_integral


def test_nodes_are_evenly_spaced():
    u, step = evenly_spaced(jnp.array([0.0, -1.0]), jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(u[0], [0.0, -1.0])
    np.testing.assert_allclose(u[-1], [1.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(np.diff(u, axis=0), np.broadcast_to(step, (63, 2)), rtol=1e-4)


@pytest.mark.parametrize("width", [0.03, 0.5, 3.0])
def test_one_peak_and_its_gradient(x64, width):
    """A Gaussian much narrower than the interval, and one that fills a sixth of it."""

    def integral(log_height):
        log_normal = lambda u: log_height - 0.5 * jnp.square((u - 4.321) / width)  # noqa: E731
        return log_integral(log_normal, jnp.array(-20.0), jnp.array(25.0))

    found, slope = jax.value_and_grad(integral)(2.0)
    assert found == pytest.approx(2 + np.log(width * np.sqrt(2 * np.pi)), abs=1e-6)
    assert slope == pytest.approx(1.0)


def test_two_peaks(x64):
    def log_sum(u):
        return jnp.logaddexp(-0.5 * jnp.square(u + 5), 3 - 0.5 * jnp.square(u - 7))

    found = log_integral(log_sum, jnp.array(-15.0), jnp.array(20.0))
    assert found == pytest.approx(np.log(np.sqrt(2 * np.pi) * (1 + np.exp(3))), abs=1e-6)
