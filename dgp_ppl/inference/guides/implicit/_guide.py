"""The implicit guide, a posterior known through its draws alone, and its objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_count, check_counts, check_kind, check_positive
from dgp_ppl._partition import Call, ComparedByFields, alone
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.inference.guides._base import DrawnTogether, LayerGuide
from dgp_ppl.inference.guides._mean_field import gaussian_params
from dgp_ppl.inference.guides._modules import module_params, required_key
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair
from dgp_ppl.inference.programs._optimizer import adversarial_optimizer


class AdversarialELBO(ComparedByFields, ELBO):
    """The objective of guides without a density, such as `Implicit`.

    The loss is minus the bound, with the discriminator's estimate instead of the KL::

        -E_q[log p(y | f)] + E_q[T(v)]    (+ the KL of other latent sites)

    All params move in every step (Yu et al. 2019, eq. 4 and 5). The generator and the model get the
    gradient of the loss at fixed discriminator. The discriminator gets the gradient of its
    cross-entropy at fixed draws.

    The loss is a bound only if T is right. With ``certified=True`` an upper bound on the KL (exact
    for a Gaussian generator) replaces E_q[T], and the result is a bound for any discriminator. It
    does not train the discriminator. `evaluate` reports it, so a fit whose own loss promises more
    than `evaluate` has a discriminator that lags behind.

    Args:
        num_draws: number of draws of v in the data term, in antithetic pairs. All use one
            minibatch.
        kl_draws: number S of draws in E_q[T], and of q and its reference in the cross-entropy. They
            also give the reference's moments, so with K features the estimate is too high by up to
            about K² / (2 S) nats. If certified, the number of draws in the KL's upper bound. It
            credits q with at most log(S + 1) nats of coupling: more draws are tighter.
        certified: whether the loss is a bound for any discriminator.

    Raises:
        TypeError: if a number is not an integer. `loss` raises it for guides without a
            discriminator.
        ValueError: if a number is not positive, or `kl_draws` is below `num_draws`.
    """

    def __init__(self, num_draws: int = 1, kl_draws: int = 256, *, certified: bool = False) -> None:
        check_counts("AdversarialELBO", num_draws=num_draws, kl_draws=kl_draws)
        if kl_draws < num_draws:
            raise ValueError(
                f"AdversarialELBO: kl_draws is {kl_draws}, wanted at least num_draws, {num_draws}: "
                "the draws of the data term are among the KL's draws"
            )
        super().__init__()
        self.num_draws, self.kl_draws, self.certified = num_draws, kl_draws, certified

    def loss_with_mutable_state(
        self,
        rng_key: PRNGKey,
        param_map: Params,
        model: Model,
        guide: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        key_s, key_e, key_z, key_p, key_data = random.split(rng_key, 5)
        wanted = "a dgp_ppl.Implicit, or numpyro.infer.TraceMeanField_ELBO() for a density"
        check_kind("AdversarialELBO", "guide", guide, Implicit, wanted)
        pair = guide.adversarial_pair(param_map)
        h = pair.features(key_s, self.kl_draws)
        values = pair.values(key_e, h[: self.num_draws])

        def stock_loss(i: Any) -> Array:
            """Return NumPyro's loss given draw i. One key for all draws: one minibatch."""
            q = pair.conditionals(h[i])
            drawn: Any = {n: guide_site(n, Handover(q[n]), v[i]) for n, v in values.items()}
            given = handlers.block(handlers.replay(model, drawn), hide=list(q))
            others = handlers.block(guide, hide=list(q))
            stock: Any = TraceMeanField_ELBO()
            return stock.loss(key_data, param_map, given, others, *args, **kwargs)

        # A loop, because vmap would batch the layers' large matrix products, which is slower.
        num = self.num_draws
        data = stock_loss(0) if num == 1 else jnp.mean(lax.map(stock_loss, jnp.arange(num)))
        if self.certified:
            others = pair.features(key_p, 2 * self.kl_draws)[::2]
            kl = jnp.mean(pair.kl_bound(key_z, h, others))
            return {"loss": data + kl, "mutable_state": None}
        inputs = pair.discriminator_inputs(key_z, h)
        fixed = eqx.tree_at(lambda p: p.discriminator, pair, _frozen(pair.discriminator))
        kl = jnp.mean(fixed.log_ratio(h, inputs))
        entropy = pair.cross_entropy(_frozen(inputs), pair.reference_inputs(key_p, self.kl_draws))
        # The last two terms cancel in value: they carry the discriminator's gradient alone.
        return {"loss": data + kl + entropy - lax.stop_gradient(entropy), "mutable_state": None}


def _frozen(tree: Any) -> Any:
    """Hold arrays constant in gradients."""
    return jax.tree.map(lambda a: lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


class Implicit(LayerGuide):
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

    has_density: ClassVar[bool] = False
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
            check_positive("Implicit", name, value)
        super().__init__(model, rest=rest)
        self.generator, self.discriminator = generator, discriminator
        self.noise_dim = noise_dim
        self.direction_scale, self.hidden_scale = direction_scale, hidden_scale

    @property
    def bound_loss(self) -> ELBO:
        return AdversarialELBO(kl_draws=1024, certified=True)

    def adversarial_pair(self, params: Params) -> AdversarialPair:
        """Return the generator and the discriminator at these params."""
        with alone(), handlers.substitute(data=params):
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
            generator = _learned("generator", make, K)
            length = self.direction_scale / math.sqrt(sum(M * P for M, P in shapes.values()))
            directions = {n: self._directions(n, length) for n in shapes}
        discriminator = _learned("discriminator", self.discriminator, {"shared": (K, 1)})
        return AdversarialPair(affine, directions, generator, discriminator)

    def _directions(self, site: str, length: float) -> Any:
        shape = self.noise_dim, *self.layers[site].shape
        name, key = f"implicit.affine.{site}.directions", numpyro.prng_key()

        def start(_: Any) -> Array:
            return length * random.normal(required_key("Implicit", key, name), shape)

        return numpyro.param(name, start)

    def posterior(self, call: Call) -> dict[str, Handover]:
        pair = self._pair()
        key_s, key_e = random.split(self.random_key())
        h = pair.features(key_s, 1)
        q, values = pair.conditionals(h[0]), pair.values(key_e, h)
        return {
            n: Handover(q[n], site=DrawnTogether(layer.shape), value=values[n][0])
            for n, layer in self.layers.items()
        }


def _learned(part: str, make: Callable[..., Any], argument: Any) -> Any:
    """Declare each array of a network as a param ``implicit.PART.PATH``."""
    own = numpyro.prng_key()
    maker = lambda *_, key: make(argument, key=key)  # noqa: E731 - for `is_maker`, also key=None
    return eqx.combine(*module_params(f"Implicit: {part}", maker, f"implicit.{part}", key=own))
