"""Adam for rows of minibatches, and the schedule of the learning rate."""

import jax.numpy as jnp
import numpy as np
import optax

from dgp_ppl.inference.programs._optimizer import cosine_schedule, scale_by_row_adam


def test_row_adam_is_adam_where_all_rows_are_seen():
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(rng.standard_normal((4, 2)))}
    ours, adam = scale_by_row_adam(0.9, 0.99), optax.scale_by_adam(0.9, 0.99)
    states = ours.init(params), adam.init(params)
    for _ in range(5):
        g = {"a": jnp.asarray(rng.standard_normal((4, 2)))}
        (one, s1), (two, s2) = ours.update(g, states[0]), adam.update(g, states[1])
        np.testing.assert_allclose(one["a"], two["a"], rtol=1e-5)
        states = s1, s2


def test_cosine_schedule():
    schedule = cosine_schedule(0.1, 1000)
    values = [float(schedule(t)) for t in (0, 500, 1000, 2000)]
    np.testing.assert_allclose(values, [0.1, 0.0515, 0.003, 0.003], rtol=1e-5)
