"""The objective of implicit posteriors, and the guides that it accepts."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_count
from dgp_ppl._partition import ComparedByFields
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.inference.guides._base import LayerGuide
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair

__all__ = ["AdversarialELBO", "AdversarialGuide"]


class AdversarialGuide(LayerGuide):
    """A guide whose q(v) has no density, with a discriminator that estimates log q(v)/p(v)."""

    has_density: ClassVar[bool] = False

    @abc.abstractmethod
    def adversarial_pair(self, params: Params) -> AdversarialPair:
        """Return generator and discriminator at these params.

        Raises:
            ValueError: if the guide has not been run.
        """


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
        for name, value in (("num_draws", num_draws), ("kl_draws", kl_draws)):
            check_count("AdversarialELBO", name, value)
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
        guide: Model,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        key_s, key_e, key_z, key_p, key_data = random.split(rng_key, 5)
        if not isinstance(guide, AdversarialGuide):
            raise TypeError(
                f"AdversarialELBO: guide is {getattr(guide, '__name__', type(guide).__name__)}, "
                "wanted one with a discriminator, such as dgp_ppl.Implicit(model); use "
                "numpyro.infer.TraceMeanField_ELBO() for a guide with a density"
            )
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
