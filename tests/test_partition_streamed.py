"""`Streamed`: what a model may do with an array of which a minibatch is at hand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import dgp_ppl as dgp
from dgp_ppl._partition import Streamed, is_streamed
from dgp_ppl.core._minibatch import whole_plates

NUMBERS = jnp.array([3, 97])
X = Streamed(jnp.array([[1.0, 2, 3], [4, 5, 6]]), NUMBERS, 100)
Y = Streamed(jnp.array([7.0, 8]), NUMBERS, 100)


def test_it_has_the_shape_of_the_whole_array():
    assert (X.shape, X.ndim, len(X), X.dtype) == ((100, 3), 2, 100, jnp.float32)
    assert is_streamed((1, {"y": Y}))
    assert not is_streamed((1, jnp.zeros(3), None))


MESSAGE = r"shape \[100, 3\], of which only 2 rows.*minibatch\(x, y"
USES = [
    jnp.sum, jnp.mean, np.asarray, np.mean, list, float, bool, abs, jnp.exp,
    lambda x: x[0], lambda x: jnp.add(x, 1.0), lambda x: x + 1, lambda x: 1 - x, lambda x: x**2,
    lambda x: -x, lambda x: x @ jnp.ones(3), lambda x: jnp.ones((2, 100)) @ x, lambda x: x == 1,
    lambda x: x != 1, lambda x: x < 1, lambda x: np.ones(3) * x, lambda x: jnp.concatenate([x, x]),
    lambda x: jnp.where(x > 0, 1, 0), jax.jit(lambda x: x / 2), lambda x: divmod(x, 2),
]  # fmt: skip


def test_entries_outside_of_the_plate_are_an_error():
    for use in USES:
        with pytest.raises(TypeError, match=MESSAGE):
            use(X)
    for name in ("T", "mean", "sum", "at", "reshape", "astype"):
        with pytest.raises(AttributeError, match=f"^{name} of an array: .*{MESSAGE}"):
            getattr(X, name)
        assert not hasattr(X, name)
    with pytest.raises(AttributeError, match="'Streamed' object has no attribute 'nothing'"):
        _ = X.nothing


def test_minibatch_gives_the_rows_at_hand_and_scales_as_a_plate_of_all_rows():
    others = jnp.arange(100.0)

    def model(batch_size):
        with dgp.minibatch(X, Y, others, None, batch_size=batch_size) as (x, y, other, none):
            assert none is None
            numpyro.deterministic("x", x)
            numpyro.deterministic("other", other)
            numpyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)

    trace = handlers.trace(model).get_trace(2)  # needs no random key
    np.testing.assert_array_equal(trace["x"]["value"], X.rows)
    np.testing.assert_array_equal(trace["other"]["value"], NUMBERS)
    np.testing.assert_array_equal(trace["data"]["value"], NUMBERS)
    assert trace["data"]["args"] == (100, 2)
    assert trace["y"]["scale"] == 50
    for size, wanted in ((None, "all"), (100, "100"), (3, "3")):
        with pytest.raises(ValueError, match=f"2 rows of a source.*takes {wanted} rows"):
            model(size)
    with pytest.raises(ValueError, match="2 rows of a source are at hand"):
        whole_plates(model)(2)
