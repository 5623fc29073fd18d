"""Score networks of a denoising process over all layers' inducing values.

A *score* is a callable ``score(t, z)``. The time t is in [0, 1], and 1 is where paths start. The
state z is a dict of reference values by site, [M, P] for each layer. The score returns a dict of
the same shapes: the difference from the reference's score, -z / kappa. A score of zero leaves the
base unchanged.

A callable with a required parameter named ``key`` is a *maker*: ``maker(layers, key=key)`` returns
a score. Any other callable is a score. If it is a PyTree, such as an `equinox` module, its arrays
are learned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey, Values
from dgp_ppl.inference.guides._base import Layer

Score = Callable[[Array, Values], Values]
ScoreMaker = Callable[..., Score]  # (layers: dict[str, Layer], *, key: PRNGKey)

_COSINES = 8  # features of the time: a process of 16 steps cannot resolve more
_SMALL = 256  # largest state, in numbers, for which one dense layer over all of them is best


def default_score(layers: dict[str, Layer], key: PRNGKey) -> Score:
    """Make a `DenseScore` for up to 256 inducing values in all, a `MixerScore` for more."""
    size = sum(layer.shape[0] * layer.shape[1] for layer in layers.values())
    return (DenseScore if size <= _SMALL else MixerScore)(layers, key)


class DenseScore(eqx.Module):
    """A multilayer perceptron over the flattened state.

    The default score for up to 256 inducing values in all. It starts at zero. Change its size with
    ``Diffusion(model, score=functools.partial(DenseScore, width=128))``.

    Args:
        layers: the model's layers by site; `Diffusion` provides them.
        key: random key of the initial weights.
        width: number of units in a hidden layer.
        depth: number of hidden layers.
    """

    net: eqx.nn.MLP

    def __init__(
        self, layers: dict[str, Layer], key: PRNGKey, *, width: int = 64, depth: int = 2
    ) -> None:
        size = sum(layer.shape[0] * layer.shape[1] for layer in layers.values())
        net = eqx.nn.MLP(size + 1 + _COSINES, size, width, depth, jax.nn.silu, key=key)
        last: Any = lambda net: (net.layers[-1].weight, net.layers[-1].bias)  # noqa: E731
        self.net = eqx.tree_at(last, net, replace_fn=jnp.zeros_like)

    def __call__(self, t: Array, z: Values) -> Values:
        flat, unravel = ravel_pytree(z)
        return unravel(self.net(jnp.concatenate([flat, _time_features(t, flat)])))


class MixerScore(eqx.Module):
    """A token mixer, which shares weights over outputs and inducing points.

    The default score for more than 256 inducing values. It starts at zero.

    Each inducing point of each layer is a token of `channels` numbers: the sum of a linear map of
    its outputs, a learned embedding of the point, and features of the time. A block first mixes the
    tokens of a layer through `hidden` units, with the same weights for all channels (Tolstikhin et
    al. 2021, "MLP-Mixer"). It then mixes the channels of each token. The layers exchange
    information through their mean tokens. For a layer of M points and P outputs, the number of
    params and the work are of the order of channels (M hidden + P + channels).

    Args:
        layers: the model's layers by site; `Diffusion` provides them.
        key: random key of the initial weights.
        channels: number of channels of a token.
        hidden: number of hidden units in the map that mixes tokens.
        blocks: number of blocks.
    """

    embed: dict[str, eqx.nn.Linear]
    position: dict[str, Array]
    time: eqx.nn.Linear
    blocks: list[_Block]
    out: dict[str, eqx.nn.Linear]

    def __init__(
        self,
        layers: dict[str, Layer],
        key: PRNGKey,
        *,
        channels: int = 16,
        hidden: int = 32,
        blocks: int = 1,
    ) -> None:
        keys = random.split(key, 3 + blocks)
        maps = dict(zip(layers, random.split(keys[0], len(layers)), strict=True))
        points = dict(zip(layers, random.split(keys[1], len(layers)), strict=True))
        shapes = {n: layer.shape for n, layer in layers.items()}
        self.embed = {n: eqx.nn.Linear(P, channels, key=maps[n]) for n, (_, P) in shapes.items()}
        self.position = {
            n: 0.5 * random.normal(points[n], (M, channels)) for n, (M, _) in shapes.items()
        }
        self.time = eqx.nn.Linear(1 + _COSINES, channels, key=keys[2])
        self.blocks = [_Block(layers, k, channels, hidden) for k in keys[3:]]
        zero = lambda a: jax.tree.map(jnp.zeros_like, a)  # noqa: E731
        self.out = {
            n: zero(eqx.nn.Linear(channels, P, key=maps[n])) for n, (_, P) in shapes.items()
        }

    def __call__(self, t: Array, z: Values) -> Values:
        time = jax.nn.silu(self.time(_time_features(t, self.time.weight)))
        h = {n: jax.vmap(self.embed[n])(a) + self.position[n] + time[None] for n, a in z.items()}
        for block in self.blocks:
            h = block(h)
        return {n: jax.vmap(self.out[n])(a) for n, a in h.items()}


class _Block(eqx.Module):
    tokens: dict[str, eqx.nn.MLP]
    channels: eqx.nn.MLP
    summary: dict[str, eqx.nn.Linear]

    def __init__(self, layers: dict[str, Layer], key: PRNGKey, channels: int, hidden: int) -> None:
        first, *rest = random.split(key, 1 + 2 * len(layers))
        self.channels = eqx.nn.MLP(channels, channels, 2 * channels, 1, jax.nn.silu, key=first)
        self.tokens, self.summary = {}, {}
        for (n, layer), a, b in zip(layers.items(), rest[::2], rest[1::2], strict=True):
            M = layer.shape[0]
            self.tokens[n] = eqx.nn.MLP(M, M, hidden, 1, jax.nn.silu, key=a)
            self.summary[n] = eqx.nn.Linear(channels, channels, key=b)

    def __call__(self, h: Values) -> Values:
        h = {n: a + jax.vmap(self.tokens[n], 1, 1)(_unit(a)) for n, a in h.items()}
        summaries = [self.summary[n](jnp.mean(a, axis=0)) for n, a in h.items()]
        context = jnp.mean(jnp.stack(summaries), axis=0)
        return {n: a + jax.vmap(self.channels)(_unit(a) + context[None]) for n, a in h.items()}


def _unit(h: Float[Array, "M C"]) -> Float[Array, "M C"]:
    """Scale each token to unit mean square."""
    return h * lax.rsqrt(jnp.mean(jnp.square(h), axis=-1, keepdims=True) + 1e-6)


def _time_features(t: Array, like: Array) -> Float[Array, " W"]:
    """Return the time and its half-wave cosines, in the dtype of `like`."""
    t = jnp.asarray(t, like.dtype)
    order = jnp.arange(1, 1 + _COSINES, dtype=like.dtype)
    return jnp.concatenate([t[None], jnp.cos(jnp.pi * order * t)])


def apply_score(score: Any, t: Array, z: Values) -> Values:
    """Return ``score(t, z)``, a dict of arrays with the shapes of `z`."""
    values = score(t, z)
    got, wanted = (jax.tree.map(np.shape, a) for a in (values, z))
    if got != wanted:
        raise ValueError(
            f"Diffusion: score(t, z) has the shapes {got}, wanted the shapes of z, {wanted}; "
            "if score makes a score from the layers, give it a parameter named key"
        )
    return values
