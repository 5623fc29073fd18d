"""Checks of counts and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dgp_ppl._checks import check_count, check_key, is_traced


@pytest.mark.parametrize("value", [2, np.int64(7)])
def test_integers_that_are_large_enough_pass(value):
    check_count("fit", "steps", value, 2)


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_other_types_are_no_counts(value):
    with pytest.raises(TypeError, match=rf"^fit: steps is {value!r}, wanted an integer of at"):
        check_count("fit", "steps", value)


def test_counts_below_the_minimum():
    with pytest.raises(ValueError, match=r"^fit: steps is 1, wanted at least 2$"):
        check_count("fit", "steps", 1, 2)


def test_keys_of_both_kinds_pass():
    check_key("fit", random.key(0))
    check_key("fit", random.PRNGKey(0))


@pytest.mark.parametrize("key", [0, None, random.split(random.key(0))])
def test_seeds_and_several_keys_are_no_key(key):
    with pytest.raises(TypeError, match=r"^fit: key is .*, wanted one random key"):
        check_key("fit", key)


def test_traced_arrays():
    found = []
    jax.jit(lambda a: found.append(is_traced(1.0, {"a": [np.ones(2), a]})))(1.0)
    assert found == [True]
    assert not is_traced(1.0, {"a": [np.ones(2), jnp.ones(2), "text", None]})
