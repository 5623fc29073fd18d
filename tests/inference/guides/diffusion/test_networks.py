import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from support.helpers import KEY

from dgp_ppl.inference.guides._base import Layer
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, MixerScore


@pytest.mark.parametrize("make", [DenseScore, MixerScore])
def test_scores_start_at_zero_and_know_time_layers_and_points(make):
    layers = {"a.v": Layer((4, 2), 1, True), "b.v": Layer((3, 1), 2, False)}
    score = eqx.filter_jit(make)(layers, KEY)
    z = {n: random.normal(KEY, layer.shape) for n, layer in layers.items()}
    assert all((a == 0).all() for a in score(jnp.array(0.3), z).values())
    leaves, treedef = jax.tree.flatten(eqx.filter(score, eqx.is_array))
    noise = [0.3 * random.normal(random.fold_in(KEY, i), a.shape) for i, a in enumerate(leaves)]
    score = eqx.combine(jax.tree.unflatten(treedef, noise), score)
    call = jax.jit(lambda t, z: score(t, z))
    one = call(jnp.array(0.3), z)
    assert {n: a.shape for n, a in one.items()} == {"a.v": (4, 2), "b.v": (3, 1)}
    assert not np.allclose(one["a.v"], call(jnp.array(0.8), z)["a.v"])
    # Each output depends on each input, within and across layers.
    for jacobian in jax.tree.leaves(jax.jit(jax.jacobian(lambda z: score(0.3, z)))(z)):
        assert (jacobian != 0).all()
