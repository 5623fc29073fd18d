import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from support.helpers import KEY

from dgp_ppl.inference.guides._base import Layer
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, MixerScore, default_score


def test_scores_share_weights_over_many_inducing_values():
    """30 outputs x 100 points x 3 layers: no array grows with the square of the state."""
    layers = {f"l{l}.v": Layer((100, 30), 30, True) for l in (1, 2, 3)}
    shapes = eqx.filter_eval_shape(default_score, layers, KEY)
    arrays = [a for a in jax.tree.leaves(shapes) if isinstance(a, jax.ShapeDtypeStruct)]
    assert isinstance(shapes, MixerScore)
    assert sum(a.size for a in arrays) < 150_000
    small = {"l1.v": Layer((5, 2), 1, False)}
    assert isinstance(default_score(small, KEY), DenseScore)


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


def test_the_mixer_written_out(x64):
    """Tokens, then channels, with the mean tokens of all layers as context."""
    layers = {"a.v": Layer((5, 3), 1, True), "b.v": Layer((4, 1), 1, True)}
    score = MixerScore(layers, KEY, channels=4, hidden=6, blocks=2)
    leaves, tree = jax.tree.flatten(eqx.filter(score, eqx.is_array))
    drawn = [random.normal(random.fold_in(KEY, i), a.shape) for i, a in enumerate(leaves)]
    score = eqx.combine(jax.tree.unflatten(tree, drawn), score)
    z = {n: random.normal(KEY, layer.shape) for n, layer in layers.items()}
    linear = lambda m, a: a @ m.weight.T + m.bias  # noqa: E731
    mlp = lambda m, a: linear(m.layers[1], jax.nn.silu(linear(m.layers[0], a)))  # noqa: E731
    unit = lambda a: a / jnp.sqrt(jnp.mean(a**2, axis=-1, keepdims=True) + 1e-6)  # noqa: E731
    t = 0.7
    features = jnp.array([t, *(np.cos(np.pi * i * t) for i in range(1, 9))])
    time = jax.nn.silu(linear(score.time, features))
    h = {n: linear(score.embed[n], a) + score.position[n] + time for n, a in z.items()}
    for block in score.blocks:
        h = {n: a + mlp(block.tokens[n], unit(a).T).T for n, a in h.items()}
        context = sum(linear(block.summary[n], a.mean(axis=0)) for n, a in h.items()) / len(h)
        h = {n: a + mlp(block.channels, unit(a) + context) for n, a in h.items()}
    found = eqx.filter_jit(score)(jnp.array(t), z)
    for n, a in h.items():
        np.testing.assert_allclose(found[n], linear(score.out[n], a), rtol=1e-10, atol=1e-12)
