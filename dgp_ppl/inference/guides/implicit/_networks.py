"""The default generator and discriminator of an implicit posterior."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from dgp_ppl._typing import PRNGKey, Values


class GeneratorNet(eqx.Module):
    """Features of the noise that all layers share: h(s) = s + MLP(s).

    The initial h is close to s, so q starts as a Gaussian that couples the layers. Change its size
    with ``Implicit(model, generator=functools.partial(GeneratorNet, width=32))``.

    Args:
        noise_dim: K, the dimension of s and of h.
        width: number of units in each of the two hidden layers.
        scale: factor on the usual initial weights of the MLP's last layer.
        key: random key of the initial weights.
    """

    mlp: eqx.nn.MLP

    def __init__(
        self, noise_dim: int, *, width: int = 64, scale: float = 0.3, key: PRNGKey
    ) -> None:
        mlp = eqx.nn.MLP(noise_dim, noise_dim, width, 2, jnp.tanh, key=key)
        self.mlp = eqx.tree_at(lambda m: m.layers[-1], mlp, _scaled(mlp.layers[-1], scale))

    def __call__(self, shared: Array) -> Array:
        return shared + self.mlp(shared)


class DiscriminatorNet(eqx.Module):
    """The discriminator t, a scalar function of all its inputs. It starts at zero.

    It is the sum of three parts:

    - a weighted sum of every input and its square;
    - a weighted sum of the squares of `rank` projections of all inputs. With the first part it can
      represent the log ratio of two Gaussians, of any covariance if `rank` equals the number of
      inputs;
    - an MLP of those projections, their squares, and a summary of each site. The summary adds up
      features of each output's column and its squares; outputs share the weights, and each has a
      learned embedding.

    Args:
        shapes: shapes (M, P) of the inputs by site; see `Implicit`.
        width: number of features of a site's summary, and of hidden units.
        rank: number of projections.
        key: random key of the initial weights.
    """

    linear: dict[str, Array]
    square: dict[str, Array]
    project: dict[str, Array]
    curvature: Array
    columns: dict[str, eqx.nn.Linear]
    outputs: dict[str, Array]
    gates: dict[str, Array]
    joint: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(
        self, shapes: dict[str, tuple[int, int]], *, width: int = 32, rank: int = 16, key: PRNGKey
    ) -> None:
        split = random.split(key, len(shapes))
        keys = {n: random.split(k, 4) for n, k in zip(shapes, split, strict=True)}
        size = sum(M * P for M, P in shapes.values())
        self.linear = {n: jnp.zeros(s) for n, s in shapes.items()}
        self.square = {n: jnp.zeros(s) for n, s in shapes.items()}
        self.project = {
            n: random.normal(keys[n][0], (rank, *s)) / jnp.sqrt(size) for n, s in shapes.items()
        }
        self.curvature = jnp.zeros(rank)
        self.columns = {
            n: eqx.nn.Linear(2 * M, width, key=keys[n][1]) for n, (M, _) in shapes.items()
        }
        self.outputs = {n: random.normal(keys[n][2], (P, width)) for n, (_, P) in shapes.items()}
        self.gates = {
            n: random.normal(keys[n][3], (P, width)) / jnp.sqrt(P) for n, (_, P) in shapes.items()
        }
        inputs = len(shapes) * width + 2 * rank
        self.joint = eqx.nn.Linear(inputs, width, key=key)
        self.last = _scaled(eqx.nn.Linear(width, 1, key=key), 0.0)

    def __call__(self, values: Values) -> Array:
        direct, projections, features = 0.0, 0.0, []
        for n, v in values.items():
            squares = jnp.square(v) - 1  # of mean 0 under the prior
            direct = direct + jnp.sum(self.linear[n] * v + self.square[n] * squares)
            projections = projections + jnp.einsum("kmp,mp->k", self.project[n], v)
            column = jax.vmap(self.columns[n], 1)(jnp.concatenate([v, squares]))
            features.append(jnp.sum(self.gates[n] * jnp.tanh(column + self.outputs[n]), axis=0))
        curved = jnp.square(projections) - 1
        hidden = jnp.tanh(self.joint(jnp.concatenate([*features, projections, curved])))
        return direct + jnp.sum(self.curvature * curved) + self.last(hidden)[0]


def _scaled(linear: eqx.nn.Linear, scale: float) -> eqx.nn.Linear:
    return jax.tree.map(lambda a: scale * a, linear)
