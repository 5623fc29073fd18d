"""The implicit guide: a posterior without a density, known through its draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Handover
from dgp_ppl.inference.guides._base import DrawnTogether
from dgp_ppl.inference.guides._mean_field import gaussian_params
from dgp_ppl.inference.guides.implicit._elbo import AdversarialELBO, AdversarialGuide
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.guides.implicit._optimizer import adversarial_optimizer
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair

__all__ = ["Implicit"]


class Implicit(AdversarialGuide):
    """An implicit posterior over all layers' inducing values jointly (IPVI, Yu et al. 2019).

    A generator maps noise to draws of v; q(v) has no density. A discriminator learns log q(v)/p(v)
    from draws, for `AdversarialELBO`. `evaluate` reports a bound for any discriminator::

        guide = Implicit(model)
        result = dgp.fit(key, model, guide, x, y)
        bound, error = inference.evaluate(key, model, guide, result.params, x, y)

    Params: ``implicit.affine.l1.v.loc`` [M, P], ``.scale_tril`` [P, M, M] and ``.directions``
    [K, M, P] for a layer ``l1``; ``implicit.generator.PATH`` and ``implicit.discriminator.PATH``.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        generator: ``generator(noise_dim, key=key)`` makes an equinox module from [K] to [K]. None
            makes q Gaussian and independent over layers.
        discriminator: ``discriminator(shapes, key=key)`` makes an equinox module from
            {"shared": [K, 1]} to a scalar. It separates q from the Gaussian with q's moments.
        noise_dim: K, the dimension of the noise that all layers share.
        direction_scale: initial length of each direction, relative to the layers' unit noise.
        hidden_scale: initial scale of hidden layers; see `MeanField`.
        rest: maps a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for a size that is not positive; at the first call, if the model has no layer or
            a network's output has the wrong shape.
        TypeError: if `noise_dim` is not an integer or a network is not callable.
    """

    default_loss = AdversarialELBO()
    optimizer = staticmethod(adversarial_optimizer)

    def __init__(
        self,
        model: Model,
        *,
        generator: Callable[..., Any] | None = GeneratorNet,
        discriminator: Callable[..., Any] = DiscriminatorNet,
        noise_dim: int = 8,
        direction_scale: float = 0.3,
        hidden_scale: float = 1e-5,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        check_count("Implicit", "noise_dim", noise_dim)
        for name, make in (("generator", generator), ("discriminator", discriminator)):
            if not (callable(make) or (make is None and name == "generator")):
                raise TypeError(
                    f"Implicit: {name} is {make!r}, wanted a callable that makes an equinox "
                    "module; leave it out for the default"
                )
        for name, value in (("hidden_scale", hidden_scale), ("direction_scale", direction_scale)):
            if not value > 0:
                raise ValueError(f"Implicit: {name} is {value}, wanted a positive number")
        super().__init__(model, rest=rest)
        self.generator, self.discriminator = generator, discriminator
        self.noise_dim = noise_dim
        self.direction_scale, self.hidden_scale = direction_scale, hidden_scale

    @property
    def bound_loss(self) -> ELBO:
        return AdversarialELBO(kl_draws=1024, certified=True)

    def adversarial_pair(self, params: Params) -> AdversarialPair:
        with handlers.block(), handlers.substitute(data=params):
            return self._pair()

    def _pair(self) -> AdversarialPair:
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
        inputs = {"shared": (K, 1)}
        discriminator = _learned("discriminator", lambda key: self.discriminator(inputs, key=key))
        return AdversarialPair(affine, directions, generator, discriminator)

    def _directions(self, site: str, length: float) -> Any:
        shape = self.noise_dim, *self.layers[site].shape
        key = numpyro.prng_key()

        def start(_: Any) -> Array:
            return length * random.normal(_required_key(key, f"affine.{site}.directions"), shape)

        return numpyro.param(f"implicit.affine.{site}.directions", start)

    def posterior(self, call: Call) -> dict[str, Handover]:
        pair, key = self._pair(), numpyro.prng_key()
        if key is None:
            raise ValueError(
                "Implicit needs a random key: run it under numpyro.handlers.seed, or through SVI"
            )
        key_s, key_e = random.split(key)
        h = pair.features(key_s, 1)
        q, values = pair.conditionals(h[0]), pair.values(key_e, h)
        return {
            n: Handover(q[n], site=DrawnTogether(layer.shape), value=values[n][0])
            for n, layer in self.layers.items()
        }


def _learned(prefix: str, make: Callable[[PRNGKey], Any]) -> Any:
    """Declare each array of a module as a param ``implicit.PREFIX.PATH``."""
    key = numpyro.prng_key()
    shapes = eqx.filter_eval_shape(make, random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)

    @cache
    def initial() -> list[Any]:
        return jax.tree.leaves(make(_required_key(key, f"{prefix}.*")))

    def array(i: int, path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return numpyro.param(f"implicit.{prefix}.{name}", lambda _: initial()[i])

    return jax.tree.unflatten(tree, [array(i, p, a) for i, (p, a) in enumerate(leaves)])


def _required_key(key: PRNGKey | None, name: str) -> PRNGKey:
    """Return the key that initialises params. Without a key, all params must have values."""
    if key is None:
        raise ValueError(
            f"Implicit: the params lack some of implicit.{name}, which this guide has; pass the "
            "params of a fit of this guide"
        )
    return key
