"""Adam for rows of minibatches, and the schedule of the learning rate."""

import jax.numpy as jnp
import numpy as np
import optax

from dgp_ppl.inference.programs._optimizer import cosine_schedule, scale_by_row_adam


def test_row_adam_is_adam_at_the_visits_of_each_row():
    """Without a visit, neither a row nor the means of its gradients move."""
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(rng.standard_normal((4, 2)))}
    ours, adam = scale_by_row_adam(0.9, 0.99), optax.scale_by_adam(0.9, 0.99)
    state, of_rows = ours.init(params), [adam.init(params["a"][0])] * 4
    for step in range(6):
        gradient, seen = rng.standard_normal((4, 2)), np.arange(4) % (step % 3 + 1) == 0
        moves, state = ours.update({"a": jnp.asarray(gradient * seen[:, None])}, state)
        for n in range(4):
            wanted = np.zeros(2)
            if seen[n]:
                wanted, of_rows[n] = adam.update(jnp.asarray(gradient[n]), of_rows[n])
            np.testing.assert_allclose(moves["a"][n], wanted, rtol=1e-5)


def test_cosine_schedule():
    schedule = cosine_schedule(0.1, 1000)
    values = [float(schedule(t)) for t in (0, 500, 1000, 2000)]
    np.testing.assert_allclose(values, [0.1, 0.0515, 0.003, 0.003], rtol=1e-5)
