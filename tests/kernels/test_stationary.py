"""Rounding errors and memory of the squared distance."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from support.helpers import KEY
from support.kernel_cases import CASES, contract, inputs

from dgp_ppl import kernels


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


def test_gradients_keep_the_data_once():
    """The gradient keeps no second array of the data's size.

    On MNIST their squares would take a tenth of the memory of a step.
    """
    x = random.normal(KEY, (50, 7))

    def cross(lengthscale, z):
        return kernels.SquaredExponential(1.0, lengthscale)(z, x)

    _, gradient = jax.vjp(cross, jnp.ones(7), x[:5])
    kept = [np.sort(a, axis=None) for a in jax.tree.leaves(gradient) if jnp.size(a) == x.size]
    assert kept
    for each in kept:
        np.testing.assert_array_equal(each, kept[0])
