"""The token mixer with the params of all layers stacked.

A step of a process is a chain of small operations. Layers with equal numbers of inducing points go
through it as one array, so the chain does not grow with them. Layers with fewer outputs are filled
with zeros. `MixerScore` stacks its params once, outside the loop over steps.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dgp_ppl._typing import Values

__all__ = ["StackedBlock", "StackedMixer", "Tokens", "stacked"]

Map = tuple[Array, Array]  # weights and biases of several layers


class Tokens(eqx.Module):
    """The maps from a group of layers to tokens, and back.

    Attributes:
        outputs: number of outputs of each layer, by site.
        embed: weights, [layers, channels, outputs].
        offset: biases and positions, [layers, M, channels].
        out: weights, [layers, outputs, channels].
        bias: biases, [layers, outputs].
    """

    outputs: dict[str, int] = eqx.field(static=True)
    embed: Array
    offset: Array
    out: Array
    bias: Array

    def of(self, z: Values) -> Float[Array, "L M C"]:
        """Return the tokens of the group's layers."""
        most = self.embed.shape[2]
        values = jnp.stack([_filled(z[n], 1, most) for n in self.outputs])
        return jnp.einsum("lcp,lmp->lmc", self.embed, values) + self.offset

    def values(self, h: Float[Array, "L M C"]) -> Values:
        """Return the values by site."""
        a = jnp.einsum("lpc,lmc->lmp", self.out, h) + self.bias[:, None]
        return {n: a[l, :, :num] for l, (n, num) in enumerate(self.outputs.items())}


class StackedBlock(eqx.Module):
    """A block of the mixer.

    Attributes:
        tokens: two maps that mix the tokens of the layers, for each group.
        summary: weights of mean tokens, [layers, channels, channels], for each group.
        bias: bias of the sum of all summaries, [channels].
        channels: the map that mixes channels.
    """

    tokens: list[tuple[Map, Map]]
    summary: list[Array]
    bias: Array
    channels: eqx.nn.MLP

    def __call__(self, h: list[Array]) -> list[Array]:
        h = [a + _mixed(maps, _unit(a)) for a, maps in zip(h, self.tokens, strict=True)]
        context = self.bias
        for a, w in zip(h, self.summary, strict=True):
            context = context + jnp.einsum("lcd,ld->c", w, jnp.mean(a, axis=1))
        channels = jax.vmap(jax.vmap(self.channels))
        return [a + channels(_unit(a) + context) for a in h]


class StackedMixer(eqx.Module):
    """A `MixerScore` at given times, with stacked params.

    Attributes:
        time: what the tokens know of each time, [times, channels].
        groups: layers with equal numbers of points.
        blocks: the blocks.
    """

    time: Array
    groups: list[Tokens]
    blocks: list[StackedBlock]

    def __call__(self, k: Array | int, z: Values) -> Values:
        """Return the score at the time of index k."""
        h = [group.of(z) + self.time[k] for group in self.groups]
        for block in self.blocks:
            h = block(h)
        found: dict[str, Any] = {}
        for group, a in zip(self.groups, h, strict=True):
            found |= group.values(a)
        return {n: found[n] for n in z}


def _mixed(maps: tuple[Map, Map], h: Array) -> Array:
    (w, b), (v, c) = maps
    units = jax.nn.silu(jnp.einsum("lhm,lmc->lhc", w, h) + b[..., None])
    return jnp.einsum("lmh,lhc->lmc", v, units) + c[..., None]


def stacked(maps: list[Any], *, inputs: int | None = None, outputs: int | None = None) -> Map:
    """Return the stacked weights and biases of linear maps, filled with zeros to equal shapes."""
    weights = jnp.stack([_filled(_filled(m.weight, 0, outputs), 1, inputs) for m in maps])
    return weights, jnp.stack([_filled(m.bias, 0, outputs) for m in maps])


def _filled(a: Array, axis: int, size: int | None) -> Array:
    """Add zeros to an axis, up to a size."""
    missing = 0 if size is None else size - a.shape[axis]
    return jnp.pad(a, [(0, missing if i == axis else 0) for i in range(a.ndim)]) if missing else a


def _unit(h: Array) -> Array:
    """Scale each token to unit mean square."""
    return h * jax.lax.rsqrt(jnp.mean(jnp.square(h), axis=-1, keepdims=True) + 1e-6)
