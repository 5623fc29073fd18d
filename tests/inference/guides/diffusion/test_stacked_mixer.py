import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from support.helpers import KEY

from dgp_ppl.inference.guides._base import Layer
from dgp_ppl.inference.guides.diffusion._networks import MixerScore

SHAPES = {
    "equal": [(5, 3), (5, 3)],
    "other outputs": [(5, 3), (5, 1), (5, 2)],
    "other points": [(5, 3), (4, 3), (5, 1)],
}


def unit(h):
    return h / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + 1e-6)


def layer_by_layer(score, t, z):
    """Write the mixer out, with a token mixer for each layer."""
    linear = lambda m, a: a @ m.weight.T + m.bias  # noqa: E731
    mlp = lambda m, a: linear(m.layers[1], jax.nn.silu(linear(m.layers[0], a)))  # noqa: E731
    features = jnp.array([t, *(np.cos(np.pi * i * t) for i in range(1, 9))])
    time = jax.nn.silu(linear(score.time, features))
    h = {n: linear(score.embed[n], a) + score.position[n] + time for n, a in z.items()}
    for block in score.blocks:
        h = {n: a + mlp(block.tokens[n], unit(a).T).T for n, a in h.items()}
        context = sum(linear(block.summary[n], a.mean(axis=0)) for n, a in h.items()) / len(h)
        h = {n: a + mlp(block.channels, unit(a) + context) for n, a in h.items()}
    return {n: linear(score.out[n], a) for n, a in h.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_stacked_layers_are_the_layers_one_by_one(name, x64):
    layers = {f"l{i}.v": Layer(shape, 1, True) for i, shape in enumerate(SHAPES[name], 1)}
    score = MixerScore(layers, KEY, channels=4, hidden=6, blocks=2)
    leaves, tree = jax.tree.flatten(eqx.filter(score, eqx.is_array))
    keys = random.split(KEY, len(leaves))
    drawn = [random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    score = eqx.combine(jax.tree.unflatten(tree, drawn), score)
    z = {n: random.normal(KEY, layer.shape) for n, layer in layers.items()}
    times = jnp.array([0.2, 0.7, 1.0])
    at = score.at(times)
    for k, t in enumerate(times):
        found, one, truth = at(k, z), score(t, z), layer_by_layer(score, float(t), z)
        assert list(found) == list(z)
        for n, a in truth.items():
            np.testing.assert_allclose(found[n], a, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(one[n], a, rtol=1e-10, atol=1e-12)
