"""The implicit guide: a posterior that is known by its draws alone."""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.infer.elbo import ELBO

from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.adversarial import (
    AdversarialELBO,
    AdversarialGuide,
    adversarial_optimizer,
)
from dgp_ppl.inference.layer_guide import Handed, Layer, Reshape
from dgp_ppl.inference.mean_field import gaussian_of_params
from dgp_ppl.inference.players import Players, Values

__all__ = ["DiscriminatorNet", "GeneratorNet", "Implicit"]

Layers = dict[str, Layer]


class GeneratorNet(eqx.Module):
    """d(s) of the generator: an MLP from the noise s that all layers share to each whole layer.

    Its first map is shared by the layers, its second by a layer's outputs, which have an embedding
    each, and its last goes from an output's hidden units to its column of M values: a layer costs
    M x width numbers, and not M x P x width.

    Inducing points are known by their place: a learned row of the last map stands for z_m. The
    whitened v_m is what the m-th pivot of the Cholesky factor adds to those before it, and so no
    function of z_m alone that points could share.

    Args:
        layers: by site.
        noise_dim: K, of s.
        width: hidden units.
        scale: of the last map at the start. At exactly 0 the gradient would be the same for all s.
        key: of the initial weights.
    """

    first: eqx.nn.Linear
    hidden: dict[str, eqx.nn.Linear]
    outputs: dict[str, Array]
    last: dict[str, eqx.nn.Linear]

    def __init__(
        self,
        layers: Layers,
        noise_dim: int,
        *,
        width: int = 64,
        scale: float = 0.3,
        key: PRNGKey,
    ) -> None:
        keys = {n: random.split(k, 3) for n, k in _split(key, layers)}
        shapes = {n: layer.shape for n, layer in layers.items()}
        self.first = eqx.nn.Linear(noise_dim, width, key=key)
        self.hidden = {n: eqx.nn.Linear(width, width, key=keys[n][0]) for n in shapes}
        self.outputs = {n: random.normal(keys[n][1], (P, width)) for n, (_, P) in shapes.items()}
        self.last = {
            n: _scaled(eqx.nn.Linear(width, M, key=keys[n][2]), scale)
            for n, (M, _) in shapes.items()
        }

    def __call__(self, shared: Array) -> Values:
        h = jnp.tanh(self.first(shared))
        return {
            n: jax.vmap(self.last[n], 0, 1)(jnp.tanh(self.hidden[n](h) + self.outputs[n]))
            for n in self.hidden
        }


class DiscriminatorNet(eqx.Module):
    """T(v), jointly of all layers, starting at zero.

    A sum of (i) a weight for every v and v², (ii) `rank` squares of projections of all layers'
    values together, so that T can be the log ratio of two Gaussians (of any covariance once the
    rank is the number of values), and (iii) an MLP of those projections, their squares, and a
    summary of each layer: features of an output's column and its squares, with weights that the
    outputs share and an embedding for each, summed over outputs.

    Args:
        layers: by site.
        width: features of a layer, and hidden units.
        rank: number of projections.
        key: of the initial weights.
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

    def __init__(self, layers: Layers, *, width: int = 32, rank: int = 16, key: PRNGKey) -> None:
        keys = {n: random.split(k, 4) for n, k in _split(key, layers)}
        shapes = {n: layer.shape for n, layer in layers.items()}
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


def _split(key: PRNGKey, layers: Layers) -> Any:
    return zip(layers, random.split(key, len(layers)), strict=True)


def _scaled(linear: eqx.nn.Linear, scale: float) -> eqx.nn.Linear:
    return jax.tree.map(lambda a: scale * a, linear)


class NoDensity(dist.Distribution):
    """The law of an implicit layer: it is drawn from by its guide, and has no density."""

    support: Any = constraints.real_matrix

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__((), shape)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        raise NotImplementedError("Implicit: all layers are drawn together, by the guide")

    def log_prob(self, value: Any) -> Array:
        raise NotImplementedError(
            "Implicit: q(v) has no density, which this objective asks for; use "
            "loss=dgp_ppl.AdversarialELBO()"
        )


class Implicit(AdversarialGuide):
    """An implicit posterior over all layers' inducing values jointly (IPVI, Yu et al. 2019).

    A generator turns noise into draws of v, and q(v) has no density; a discriminator learns
    log q(v)/p(v) from draws. Fit it with `AdversarialELBO`. `Players` says what form the generator
    has and what the discriminator contrasts, `discriminator_gap` whether it keeps up.

    Params: of a layer ``l1``, ``implicit.affine.l1.v.loc`` [M, P] and ``.scale_tril`` [P, M, M];
    and the arrays of the networks, ``implicit.generator.PATH`` and ``implicit.discriminator.PATH``.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        generator: makes d, ``generator(layers, noise_dim, key=key)``, an equinox module from shared
            noise [K] to {site: [M, P]}; None for d = 0, which leaves a Gaussian, factorised over
            layers and outputs.
        discriminator: makes t, ``discriminator(layers, key=key)``, an equinox module from
            {site: [M, P]} to [].
        contrast: what the discriminator tells q from: ``"anchor"``, the Gaussian of the generator's
            moments, or ``"prior"``, as in IPVI. Both have the same optimum. But a posterior is tens
            or hundreds of nats from its prior: such laws overlap in no number of draws, every
            classifier tells them apart, and the estimate falls far short of the KL.
        integrate: whether layers integrate the own noise of v out (given the shared noise v is
            Gaussian, so this is exact); else they use the draw of v, one for all rows of a pass.
        noise_dim: dimension K of the noise that all layers share.
        hidden_scale: initial scale of hidden layers; by default 1e-5 as in `MeanField`, and 1 with
            the prior's contrast, which could not see further.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for another `contrast`, sizes that are not positive, and at the first call if
            the model has no layer.
    """

    default_loss = AdversarialELBO()

    def __init__(
        self,
        model: Model,
        *,
        generator: Callable[..., Any] | None = GeneratorNet,
        discriminator: Callable[..., Any] = DiscriminatorNet,
        contrast: Literal["anchor", "prior"] = "anchor",
        integrate: bool = True,
        noise_dim: int = 8,
        hidden_scale: float | None = None,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        if contrast not in ("anchor", "prior"):
            raise ValueError(f"Implicit: contrast is {contrast!r}, wanted 'anchor' or 'prior'")
        if noise_dim < 1:
            raise ValueError(f"Implicit: noise_dim is {noise_dim}, wanted at least 1")
        if hidden_scale is None:
            hidden_scale = 1e-5 if contrast == "anchor" else 1.0
        if not hidden_scale > 0:
            raise ValueError(f"Implicit: hidden_scale is {hidden_scale}, wanted a positive number")
        super().__init__(model, rest=rest)
        self.generator, self.discriminator = generator, discriminator
        self.contrast: Literal["anchor", "prior"] = contrast
        self.integrate, self.noise_dim, self.hidden_scale = integrate, noise_dim, hidden_scale

    @property
    def bound_loss(self) -> ELBO:
        return AdversarialELBO(game_draws=256, certified=True)

    def optimizer(self, learning_rate: float, steps: int, slow: frozenset[str]) -> Any:
        return adversarial_optimizer(learning_rate, steps, slow)

    def _options(self) -> tuple[Any, ...]:
        numbers = self.integrate, self.noise_dim, self.hidden_scale
        return (self.generator, self.discriminator, self.contrast, *numbers)

    def players(self, params: Params) -> Players:
        with handlers.block(), handlers.substitute(data=params):
            return self._players()

    def _players(self) -> Players:
        affine: Any = {
            n: gaussian_of_params(
                f"implicit.affine.{n}",
                layer.shape,
                self.hidden_scale if layer.hidden else 1,
                "full",
            )
            for n, layer in self.layers.items()
        }
        generator = None
        if (make := self.generator) is not None:
            size = self.noise_dim
            generator = _learned("generator", lambda key: make(self.layers, size, key=key))
        judge = _learned("discriminator", lambda key: self.discriminator(self.layers, key=key))
        anchored = self.contrast == "anchor"
        return Players(affine, generator, judge, self.noise_dim, anchored, self.integrate)

    def _posterior(
        self,
        given: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reshape: Reshape | None = None,
    ) -> dict[str, Handed]:
        if reshape is not None:
            raise ValueError(
                "Implicit has no Gaussian of v that another guide could start from; take MeanField "
                "or GlobalInducing for a base"
            )
        players, key = self._players(), numpyro.prng_key()
        if key is None:
            raise ValueError(
                "Implicit needs a random key: run it under numpyro.handlers.seed, or through SVI"
            )
        draw = players.draw(key, 1)
        laws, values = players.handed(draw), players.values(draw)
        return {
            n: Handed(NoDensity(layer.shape), {"q": laws[n]}, values[n][0])
            for n, layer in self.layers.items()
        }


def _learned(prefix: str, make: Callable[[PRNGKey], Any]) -> Any:
    """A module whose arrays are the params ``implicit.PREFIX.PATH``."""
    key = numpyro.prng_key()
    shapes = eqx.filter_eval_shape(make, random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)

    @cache
    def made() -> list[Any]:
        if key is None:
            raise ValueError(
                f"Implicit: the params lack some of implicit.{prefix}.*, which this guide has; "
                "they are those of another guide"
            )
        return jax.tree.leaves(make(key))

    def array(i: int, path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return numpyro.param(f"implicit.{prefix}.{name}", lambda _: made()[i])

    return jax.tree.unflatten(tree, [array(i, p, a) for i, (p, a) in enumerate(leaves)])
