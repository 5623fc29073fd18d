"""Programs that compute in the precision of an argument."""

import warnings

import jax
import numpy as np
import pytest

from dgp_ppl.linalg._precision import in_precision_of_argument, warn_if_wide

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


def test_params_that_would_mean_another_function_are_a_warning():
    with pytest.warns(UserWarning, match=r"fit: start: params are float64"):
        warn_if_wide("fit: start", {"l1.v.loc": np.ones((2, 1)), "noise": np.float32(0.1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_wide("fit", {"l1.v.loc": np.zeros((2, 1)), "noise": np.ones(3)})
        warn_if_wide("fit", {"l1.v.loc": np.ones((2, 1), np.float32)})
