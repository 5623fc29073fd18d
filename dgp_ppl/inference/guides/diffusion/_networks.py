"""The score of a denoising chain over all layers' inducing values, and networks for it.

A score is called as ``score(t, z)``, with t in [0, 1] (1 where the chain starts) and z the state:
the whitened inducing values of each layer by site, [M, P]. It returns arrays of the same shapes,
the difference from the reference's own score -z / kappa: zero leaves the base as it is.

A callable that requires a parameter named ``key`` is a maker: called as ``maker(layers, key=key)``
it returns a score. Any other callable is a score; of an `equinox` module, as of any PyTree, the
arrays are learned.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.guides._base import Layer

__all__ = [
    "DenseScore",
    "MixerScore",
    "Score",
    "ScoreMaker",
    "apply_score",
    "default_score",
    "score_params",
]

Values = dict[str, Float[Array, "M P"]]
Score = Callable[[Array, Values], Values]
ScoreMaker = Callable[..., Score]  # (layers: dict[str, Layer], *, key: PRNGKey)

_WAVES = 8  # of the time: as many as a chain of 16 steps can tell apart
_SMALL = 256  # numbers of a state, up to which one dense layer over all of them is best


def default_score(layers: dict[str, Layer], key: PRNGKey) -> Score:
    """`DenseScore` for up to 256 inducing values in all, `MixerScore` for more."""
    size = sum(layer.shape[0] * layer.shape[1] for layer in layers.values())
    return (DenseScore if size <= _SMALL else MixerScore)(layers, key)


class DenseScore(eqx.Module):
    """Dense layers over the flattened state: each number sees all others.

    Args:
        layers: the layers of the state.
        key: random key.
        width: hidden units.
        depth: hidden layers.
    """

    net: eqx.nn.MLP

    def __init__(
        self, layers: dict[str, Layer], key: PRNGKey, *, width: int = 64, depth: int = 2
    ) -> None:
        size = sum(layer.shape[0] * layer.shape[1] for layer in layers.values())
        net = eqx.nn.MLP(size + 1 + _WAVES, size, width, depth, jax.nn.silu, key=key)
        last: Any = lambda net: (net.layers[-1].weight, net.layers[-1].bias)  # noqa: E731
        self.net = eqx.tree_at(last, net, replace_fn=jnp.zeros_like)

    def __call__(self, t: Array, z: Values) -> Values:
        flat, unravel = ravel_pytree(z)
        return unravel(self.net(jnp.concatenate([flat, _waves(t, flat)])))


class MixerScore(eqx.Module):
    """A token mixer: weights shared over outputs and inducing points, not one dense layer.

    Each inducing point of each layer is a token of `channels` numbers: its outputs through a linear
    map, a learned embedding of the point, and the time. A block mixes a layer's tokens through
    `hidden` units, the same for all channels (Tolstikhin et al. 2021, "MLP-Mixer"), and a token's
    channels; the layers hear of each other through their mean tokens. For layers of M points and P
    outputs, params and work per layer are of the order of channels (M hidden + P + channels).

    Args:
        layers: the layers of the state.
        key: random key.
        channels: numbers of a token.
        hidden: units between tokens.
        blocks: number of blocks.
    """

    embed: dict[str, eqx.nn.Linear]
    position: dict[str, Array]
    time: eqx.nn.Linear
    blocks: list["_Block"]
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
        own = dict(zip(layers, random.split(keys[0], len(layers)), strict=True))
        points = dict(zip(layers, random.split(keys[1], len(layers)), strict=True))
        shapes = {n: layer.shape for n, layer in layers.items()}
        self.embed = {n: eqx.nn.Linear(P, channels, key=own[n]) for n, (_, P) in shapes.items()}
        self.position = {
            n: 0.5 * random.normal(points[n], (M, channels)) for n, (M, _) in shapes.items()
        }
        self.time = eqx.nn.Linear(1 + _WAVES, channels, key=keys[2])
        self.blocks = [_Block(layers, k, channels, hidden) for k in keys[3:]]
        zero = lambda a: jax.tree.map(jnp.zeros_like, a)  # noqa: E731
        self.out = {n: zero(eqx.nn.Linear(channels, P, key=own[n])) for n, (_, P) in shapes.items()}

    def __call__(self, t: Array, z: Values) -> Values:
        when = jax.nn.silu(self.time(_waves(t, next(iter(z.values())))))
        h = {n: jax.vmap(self.embed[n])(a) + self.position[n] + when for n, a in z.items()}
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
        means = [self.summary[n](jnp.mean(a, axis=0)) for n, a in h.items()]
        context = sum(means[1:], means[0]) / len(means)
        return {n: a + jax.vmap(self.channels)(_unit(a) + context) for n, a in h.items()}


def _unit(h: Array) -> Array:
    """Tokens of unit mean square."""
    return h * jax.lax.rsqrt(jnp.mean(jnp.square(h), axis=-1, keepdims=True) + 1e-6)


def _waves(t: Array, like: Array) -> Float[Array, " W"]:
    """The time and its half waves, in another array's dtype."""
    t = jnp.asarray(t, like.dtype)
    order = jnp.arange(1, 1 + _WAVES, dtype=like.dtype)
    return jnp.concatenate([t[None], jnp.cos(jnp.pi * order * t)])


def score_params(score: Any, layers: dict[str, Layer], name: str) -> tuple[Any, Any]:
    """A score's arrays, each a param of its own, and the rest of it.

    Args:
        score: a score, or a maker of one.
        layers: by site.
        name: of the params: ``NAME.PATH``.

    Raises:
        TypeError: if an array of it is not of floating-point numbers.
    """
    if _is_maker(score):
        made_of = lambda key: score(layers, key=key)  # noqa: E731
        shapes, static = eqx.partition(eqx.filter_eval_shape(made_of, random.key(0)), _is_shape)
        make = jax.jit(lambda key: eqx.filter(made_of(key), eqx.is_array))
    else:
        arrays, static = eqx.partition(score, eqx.is_array)
        shapes, make = arrays, lambda _: arrays
    if odd := {str(a.dtype) for a in jax.tree.leaves(shapes) if not _is_real(a)}:
        raise TypeError(
            f"Diffusion: the score has arrays of {sorted(odd)}, which cannot be learned; wanted "
            "floating-point ones, others as NumPy arrays or static fields"
        )
    made: list[list[Array]] = []

    def start(i: int, key: PRNGKey) -> Array:
        if not made:  # all arrays at once, and only where no values are given
            made.append(jax.tree.leaves(make(key)))
        return made[0][i]

    paths, treedef = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    values = [
        numpyro.param(f"{name}.{n}" if n else name, partial(start, i)) for i, n in enumerate(names)
    ]
    return jax.tree.unflatten(treedef, values), static


def apply_score(score: Any, t: Array, z: Values) -> Values:
    """``score(t, z)``.

    Raises:
        ValueError: if its values are not arrays of the state's shapes, by site.
    """
    values = score(t, z)
    got, wanted = (jax.tree.map(np.shape, a) for a in (values, z))
    if got != wanted:
        raise ValueError(
            f"Diffusion: score(t, z) has the shapes {got}, wanted those of z, {wanted}; if it is "
            "to make a score from the layers, give it a parameter named key"
        )
    return values


def _is_maker(score: Any) -> bool:
    # Required: many modules take key=None when called.
    key = inspect.signature(score).parameters.get("key")
    return key is not None and key.default is key.empty


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
