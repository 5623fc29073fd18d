"""Random generators of a key: uses have draws of their own."""

import itertools

import jax
import numpy as np
import pytest

from dgp_ppl.datasets.rows._seeds import generator, seed_of

USES = [("pass", 0), ("pass", 1), ("shuffle", 0), ("shuffle", 1), ("sample",), ("hold out",),
        ("minibatches",)]  # fmt: skip


def test_uses_of_a_key_have_draws_of_their_own():
    key = jax.random.key(7)
    draws = [generator(seed_of(key), *use).standard_normal(4000) for use in USES]
    draws.append(np.random.default_rng(seed_of(key)).standard_normal(4000))  # a user's own
    for a, b in itertools.combinations(draws, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(4000)
    again = generator(seed_of(key), *USES[1]).standard_normal(4000)
    np.testing.assert_array_equal(again, draws[1])


def test_seeds():
    assert seed_of(jax.random.key(5)) == seed_of(jax.random.PRNGKey(5)) == (0, 5)
    with pytest.raises(TypeError, match="wanted one random key"):
        seed_of(5)
