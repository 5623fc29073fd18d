"""Programs that compute in the precision of an argument."""

import jax
import numpy as np
import pytest

from dgp_ppl.linalg._precision import in_precision_of_argument

SMALL = 1e-12


@in_precision_of_argument(1)
def difference(_, params, x):
    return (x + params["a"]) - x


@pytest.mark.parametrize(("dtype", "expected"), [("float64", SMALL), ("float32", 0.0)])
def test_float64_params_are_computed_with_in_float64(dtype, expected):
    found = difference(None, {"a": np.full(2, SMALL, dtype)}, jax.numpy.ones(2))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_one_float32_param_makes_it_float32():
    params = {"a": np.full(2, SMALL), "b": np.zeros(2, np.float32)}
    assert not difference(None, params, jax.numpy.ones(2)).any()


def test_programs_inside_others_are_in_float64_too():
    found = jax.jit(lambda x: difference(None, {"a": np.full(2, SMALL)}, x))(np.ones(2))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, SMALL, rtol=1e-3)
