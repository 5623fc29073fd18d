"""Adam for rows of minibatches, and the schedule of the learning rate."""

import jax.numpy as jnp
import numpy as np
import optax

import dgp_ppl as dgp
from dgp_ppl.inference.programs._optimizer import cosine_schedule, scale_by_row_adam
from dgp_ppl.inference.svi._setup import guide_optimizer
from dgp_ppl.models import gplvm


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
    held = cosine_schedule(0.1, 1000, hold=0.5, last=0.0)
    values = [float(held(t)) for t in (0, 500, 750, 1000)]
    np.testing.assert_allclose(values, [0.1, 0.1, 0.05, 0.0], atol=1e-8)


def test_a_minibatch_moves_its_own_rows_alone():
    """With `fit`'s optimiser, rows without a gradient do not move, not even by momentum."""
    y, z = np.zeros((6, 2)), np.zeros((3, 1))
    guide = dgp.Implicit(gplvm)  # it has an optimiser of its own
    guide.setup(None, y, z=[z], out=2)
    params = {"latent_auto_loc": jnp.zeros((6, 1)), "implicit.generator.a": jnp.zeros(3)}
    optimizer = guide_optimizer(guide, 0.1, 100)
    state = optimizer.init(params)
    for row in range(6):
        gradient = {n: jnp.ones_like(a) for n, a in params.items()}
        gradient["latent_auto_loc"] = jnp.zeros((6, 1)).at[row].set(1.0)
        change, state = optimizer.update(gradient, state, params)
        assert np.flatnonzero(change["latent_auto_loc"]).tolist() == [row]
