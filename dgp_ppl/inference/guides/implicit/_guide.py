"""The implicit guide: a posterior that is known by its draws alone."""

import math
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

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Handover
from dgp_ppl.inference.guides._mean_field import gaussian_params
from dgp_ppl.inference.guides.implicit._game import (
    AdversarialELBO,
    AdversarialGuide,
    adversarial_optimizer,
)
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair, Values

__all__ = ["DiscriminatorNet", "GeneratorNet", "Implicit"]

Shapes = dict[str, tuple[int, int]]


class GeneratorNet(eqx.Module):
    """Features of the noise that all layers share: h(s) = s + MLP(s).

    At first close to s, so that q starts as a Gaussian that couples the layers.

    Args:
        noise_dim: K, of s and h.
        width: hidden units.
        scale: of the MLP's last map at the start, a multiple of the usual one.
        key: of the initial weights.
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
    """t, jointly of all values that it is shown, starting at zero.

    A sum of (i) a weight for every value and its square, (ii) `rank` squares of projections of all
    sites' values together, so that t can be the log ratio of two Gaussians (of any covariance once
    the rank is the number of values), and (iii) an MLP of those projections, their squares, and a
    summary of each site: features of an output's column and its squares, with weights that the
    outputs share and an embedding for each, summed over outputs.

    Args:
        shapes: (M, P) of what it is shown, by site; see `AdversarialPair`.
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

    def __init__(self, shapes: Shapes, *, width: int = 32, rank: int = 16, key: PRNGKey) -> None:
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
    log q(v)/p(v) from draws. Fit it with `AdversarialELBO`. `AdversarialPair` says what form the
    generator has and what the discriminator contrasts, `discriminator_gap` whether it keeps up.

    It departs from the paper in two ways. By default the discriminator contrasts q with a Gaussian,
    not with the prior (``contrast="prior"`` is the paper's, and what it costs is said there). And
    the generator is not conditioned on the inducing inputs Z: its directions, below, take their
    place.

    Params: of a layer ``l1``, ``implicit.affine.l1.v.loc`` [M, P], ``.scale_tril`` [P, M, M] and
    ``.directions`` [K, M, P]; and the networks' arrays, ``implicit.generator.PATH`` and
    ``implicit.discriminator.PATH``.

    The directions are K numbers for every inducing value, learned. They, and no network of z_m, say
    what a point is: the whitened v_m is what the m-th pivot of the Cholesky factor adds to those
    before it, and so no function of z_m alone that points could share.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        generator: makes the features h of the shared noise, ``generator(noise_dim, key=key)``, an
            equinox module from [K] to [K]; None for a Gaussian q, factorised over layers.
        discriminator: makes t, ``discriminator(shapes, key=key)``, an equinox module to [] from
            values of these shapes: {"shared": [K, 1]}, or {site: [M, P]} with the prior's contrast.
        contrast: what the discriminator tells q from: ``"anchor"``, the Gaussian of q's moments, or
            ``"prior"``, as in IPVI. Both have the same optimum. But a posterior is tens or hundreds
            of nats from its prior: such laws overlap in no number of draws, every classifier tells
            them apart, and the estimate falls far short of the KL. On uci/energy (one layer, M =
            50; benchmarks/results/README.md) the prior's contrast estimates 24 nats of a KL of 347,
            ends 0.25 nats per datum below the best q, and reports 0.22 above; the anchor's is right
            to 0.1 nats and ends 0.001 below.
        integrate: whether layers integrate the own noise of v out (given the shared noise v is
            Gaussian, so this is exact); else they use the draw of v, one for all rows of a pass.
        noise_dim: dimension K of the noise that all layers share.
        direction_scale: of the directions at the start: the length of each, in the units of the
            layers' own noise. 0 would be a saddle: h has mean 0.
        hidden_scale: initial scale of hidden layers; by default 1e-5 as in `MeanField`, and 1 with
            the prior's contrast, which could not see further.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for another `contrast`, sizes that are not positive, and at the first call if
            the model has no layer, or a network's output has another shape.
        TypeError: for a `noise_dim` that is no integer, and networks that are no callables.
    """

    default_loss = AdversarialELBO()
    optimizer = staticmethod(adversarial_optimizer)

    def __init__(
        self,
        model: Model,
        *,
        generator: Callable[..., Any] | None = GeneratorNet,
        discriminator: Callable[..., Any] = DiscriminatorNet,
        contrast: Literal["anchor", "prior"] = "anchor",
        integrate: bool = True,
        noise_dim: int = 8,
        direction_scale: float = 0.3,
        hidden_scale: float | None = None,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        if contrast not in ("anchor", "prior"):
            raise ValueError(f"Implicit: contrast is {contrast!r}, wanted 'anchor' or 'prior'")
        check_count("Implicit", "noise_dim", noise_dim)
        for name, make in (("generator", generator), ("discriminator", discriminator)):
            if not (callable(make) or (make is None and name == "generator")):
                raise TypeError(
                    f"Implicit: {name} is {make!r}, wanted a callable that makes an equinox "
                    "module; leave it out for the default"
                )
        if hidden_scale is None:
            hidden_scale = 1e-5 if contrast == "anchor" else 1.0
        scales = ("hidden_scale", hidden_scale), ("direction_scale", direction_scale)
        for name, value in scales:
            if not value > 0:
                raise ValueError(f"Implicit: {name} is {value}, wanted a positive number")
        super().__init__(model, rest=rest)
        self.generator, self.discriminator = generator, discriminator
        self.contrast: Literal["anchor", "prior"] = contrast
        self.integrate, self.noise_dim = integrate, noise_dim
        self.direction_scale, self.hidden_scale = direction_scale, hidden_scale

    @property
    def bound_loss(self) -> ELBO:
        return AdversarialELBO(game_draws=1024, certified=True)

    def players(self, params: Params) -> AdversarialPair:
        with handlers.block(), handlers.substitute(data=params):
            return self._players()

    def _players(self) -> AdversarialPair:
        affine: Any = {
            n: gaussian_params(
                f"implicit.affine.{n}",
                layer.shape,
                self.hidden_scale if layer.hidden else 1,
                "full",
            )
            for n, layer in self.layers.items()
        }
        shapes = {n: layer.shape for n, layer in self.layers.items()}
        K, make = self.noise_dim, self.generator
        if make is None:
            generator, directions = None, {n: jnp.zeros((K, *s)) for n, s in shapes.items()}
        else:
            generator = _learned("generator", lambda key: make(K, key=key))
            length = self.direction_scale / math.sqrt(sum(M * P for M, P in shapes.values()))
            directions = {n: self._directions(n, length) for n in shapes}
        anchored = self.contrast == "anchor"
        seen = {"shared": (K, 1)} if anchored else shapes
        judge = _learned("discriminator", lambda key: self.discriminator(seen, key=key))
        return AdversarialPair(affine, directions, generator, judge, anchored, self.integrate)

    def _directions(self, site: str, length: float) -> Any:
        shape = self.noise_dim, *self.layers[site].shape
        key = numpyro.prng_key()

        def start(_: Any) -> Array:
            return length * random.normal(_given(key, f"affine.{site}.directions"), shape)

        return numpyro.param(f"implicit.affine.{site}.directions", start)

    def posterior(self, call: Call) -> dict[str, Handover]:
        players, key = self._players(), numpyro.prng_key()
        if key is None:
            raise ValueError(
                "Implicit needs a random key: run it under numpyro.handlers.seed, or through SVI"
            )
        key_s, key_e = random.split(key)
        h = players.features(key_s, 1)
        laws, values = players.handed(h[0]), players.values(key_e, h)
        return {
            n: Handover(laws[n], site=NoDensity(layer.shape), value=values[n][0])
            for n, layer in self.layers.items()
        }


def _learned(prefix: str, make: Callable[[PRNGKey], Any]) -> Any:
    """A module whose arrays are the params ``implicit.PREFIX.PATH``."""
    key = numpyro.prng_key()
    shapes = eqx.filter_eval_shape(make, random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)

    @cache
    def made() -> list[Any]:
        return jax.tree.leaves(make(_given(key, f"{prefix}.*")))

    def array(i: int, path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return numpyro.param(f"implicit.{prefix}.{name}", lambda _: made()[i])

    return jax.tree.unflatten(tree, [array(i, p, a) for i, (p, a) in enumerate(leaves)])


def _given(key: PRNGKey | None, name: str) -> PRNGKey:
    """The key to start params from; there is none where all of them should have been given."""
    if key is None:
        raise ValueError(
            f"Implicit: the params lack some of implicit.{name}, which this guide has; they are "
            "those of another guide"
        )
    return key
