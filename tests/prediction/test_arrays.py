"""Padding, and results that are NumPy's on the host and JAX's where they are traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl.prediction._arrays import check_concrete, namespace, pad, to_host


def test_results_are_numpys_on_the_host_and_jaxs_where_traced():
    found = to_host(jnp.float32([1.0, 2.5]))
    assert type(found) is np.ndarray
    assert found.dtype == np.float64
    assert to_host(jnp.int32([1, 2]), None).dtype == np.int32
    assert namespace([jnp.ones(2)], 1.0) is np

    def traced(a):
        assert to_host(a, None) is a
        assert namespace({"a": a}) is jnp
        with pytest.raises(TypeError, match=r"^f is computed in NumPy.*outside"):
            check_concrete("f", a)
        return to_host(a)

    assert jax.jit(traced)(jnp.int32([1, 2])).dtype == jnp.float32
    check_concrete("f", np.ones(2), jnp.ones(2))


def test_padding_repeats_the_last_row():
    a = jnp.arange(4.0).reshape(2, 2)
    np.testing.assert_array_equal(pad(a, 4), [[0, 1], [2, 3], [2, 3], [2, 3]])
