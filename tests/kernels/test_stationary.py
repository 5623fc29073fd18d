"""Rounding errors and memory of the squared distance."""

import jax.numpy as jnp
import numpy as np
from support.kernel_cases import CASES, contract, inputs


def test_a_common_shift_costs_no_digits():
    # Multiples of 1/64 are exact before and after the shift.
    x, z = (jnp.asarray(np.round(64 * inputs(6, s)) / 64, jnp.float32) for s in (4, 5))
    for name in ("SquaredExponential", "Matern12", "RationalQuadratic"):
        kernel = CASES[name][0]
        shifted = contract(kernel, x + 2**16, z + 2**16)[0]
        np.testing.assert_allclose(shifted, contract(kernel, x, z)[0], atol=2e-6)


def test_outliers_cost_the_other_inputs_no_digits():
    x, is_near = np.round(64 * inputs(7, 4)) / 64, np.arange(7) % 3 != 1
    far = x + np.where(is_near, 0.0, 1e6 * np.arange(7))[:, None]
    for name in ("SquaredExponential", "Matern12", "RationalQuadratic"):
        kernel = CASES[name][0]
        found, expected = (
            kernel(a, a) for a in (jnp.asarray(far, jnp.float32), jnp.asarray(x, jnp.float32))
        )
        near = np.ix_(is_near, is_near)
        np.testing.assert_allclose(found[near], expected[near], atol=2e-6)
