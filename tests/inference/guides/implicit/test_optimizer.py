"""The optimiser of implicit posteriors."""

import jax.numpy as jnp
import numpy as np

from dgp_ppl.inference.guides.implicit._optimizer import adversarial_optimizer


def test_discriminator_steps():
    """The other params move once in three steps of the discriminator, each at its rate."""
    params = {"implicit.discriminator.a": 0.0, "implicit.generator.a": 0.0, "b": 0.0, "noise": 0.0}
    params = {n: jnp.asarray(a) for n, a in params.items()}
    optimizer = adversarial_optimizer(0.1, 300, frozenset({"noise"}), discriminator_steps=3)
    state, moves = optimizer.init(params), []
    for _ in range(6):
        change, state = optimizer.update({n: jnp.ones(()) for n in params}, state, params)
        moves.append({n: -float(a) for n, a in change.items()})
    np.testing.assert_allclose([m["implicit.discriminator.a"] for m in moves], 0.01, rtol=0.01)
    for name, rate in (("implicit.generator.a", 0.001), ("b", 0.1), ("noise", 0.03)):
        expected = [0, 0, rate, 0, 0, rate]
        np.testing.assert_allclose([m[name] for m in moves], expected, rtol=0.02)
