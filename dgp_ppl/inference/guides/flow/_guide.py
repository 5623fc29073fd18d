"""The normalising-flow guide: a bijection over all layers' inducing values."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_flags
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Values
from dgp_ppl.core import Handover, TransportInducing
from dgp_ppl.inference.guides._base import DrawnTogether, TransportGuide
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._modules import is_maker
from dgp_ppl.inference.guides._on_base import WarpedGuide
from dgp_ppl.inference.guides._transport import point_distribution
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.flow._bijections import (
    Bijection,
    BijectionMaker,
    SplineCoupling,
    bijection_params,
)

PREFIX = "flow."  # prefix of the bijection's params


class Flow(WarpedGuide):
    """A normalising-flow posterior over all layers' inducing values jointly.

    A learned bijection F maps noise e ~ N(0, I) to the reference space of another guide, the base,
    whose map T leads to v = T(F(e)). It couples all layers and outputs. It starts at the identity,
    which is the base itself, so start from the base's fit::

        first = dgp.fit(key, model, MeanField(model), x, y)
        result = dgp.fit(key, model, Flow(model), x, y, start=first.params, keep_best=True)

    The density of a draw is exact, and the ELBO is a bound. Layers use draws of v, so the bound is
    noisier than one for which they integrate v out: a step takes eight draws. `transported` and
    `annealed_evidence` move in the space of e.

    Params: the base's, and ``flow.PATH`` for each array of the bijection.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        base: `MeanField` (default) or `GlobalInducing`.
        flow: a bijection of vectors [H], the inducing values of all layers, such as FlowJAX's; or
            a maker of one, ``flow(size, key=key)``, such as `SplineCoupling`.
        stick_the_landing: whether to hold the flow's params constant in the density, for gradients
            with less noise. It takes the flow's inverse.

    Raises:
        TypeError: if `flow` is neither; at the first call, if it makes no bijection.
        ValueError: if `base` has no reference space; at the first call, if it is of another model,
            the flow returns no vector [H], or it has no inverse with `stick_the_landing`.

    Source: Rezende & Mohamed (2015), "Variational inference with normalizing flows", eq. 7.
    """

    rate: ClassVar[float] = 0.1  # draws of all layers make the bound noisier
    default_loss: ClassVar[ELBO] = DiffusionELBO(8)
    rates: ClassVar[dict[str, float]] = {PREFIX: 0.01}

    def __init__(
        self,
        model: Model,
        *,
        base: TransportGuide | None = None,
        flow: Bijection | BijectionMaker = SplineCoupling,
        stick_the_landing: bool = True,
    ) -> None:
        check_flags("Flow", stick_the_landing=stick_the_landing)
        is_object = isinstance(flow, Bijection) and not isinstance(flow, type)
        if not (is_maker(flow) or is_object):
            raise TypeError(
                f"Flow: flow is {flow!r}, wanted a bijection with transform_and_log_det(x), or a "
                "callable (size, key) that makes one; leave it out for SplineCoupling"
            )
        wanted = "MeanField(model) or GlobalInducing(model, ...)"
        super().__init__(model, MeanField(model) if base is None else base, wanted)
        if not self.base.bijective:
            raise ValueError(
                f"Flow: base is {base!r}, whose mean has separate inducing inputs, which draws of "
                f"v do not determine; wanted {wanted}"
            )
        self.flow, self.stick_the_landing = flow, stick_the_landing

    @property
    def own_prefixes(self) -> tuple[str, ...]:
        return (*super().own_prefixes, PREFIX)

    def warped(self, e: Values) -> tuple[Values, Array]:
        flat, unravel = ravel_pytree(e)
        z, log_det = self._bijection(flat.size).transform_and_log_det(flat)
        return unravel(z), log_det

    def _bijection(self, size: int) -> Bijection:
        return bijection_params(self.flow, size, PREFIX.rstrip("."))

    def posterior(self, call: Call) -> dict[str, Handover]:
        key = self.random_key()
        zeros = {n: jnp.zeros(layer.shape) for n, layer in self.layers.items()}
        flat, unravel = ravel_pytree(zeros)
        flow = self._bijection(flat.size)
        e = random.normal(key, flat.shape, flat.dtype)
        z, log_det = flow.transform_and_log_det(e)
        if (jnp.shape(z), jnp.shape(log_det)) != (flat.shape, ()):
            raise ValueError(
                f"Flow: flow maps {list(flat.shape)} to {list(jnp.shape(z))} with a log "
                f"determinant {list(jnp.shape(log_det))}, wanted {list(flat.shape)} and []: the "
                f"model has {flat.size} inducing values in all"
            )
        if self.stick_the_landing:
            log_det = _landing(flow, e, z, log_det)
        noise, reference = unravel(e), unravel(z)
        log_dets: dict[str, Array] = {}

        def at_z(site: str, q: TransportInducing) -> TransportInducing:
            log_dets[site] = q.log_det()
            return point_distribution(site, q, reference[site])

        handovers = self.base.transport(call, at_z)
        numpyro.factor(f"{PREFIX}log_det", -log_det)
        return {
            n: h._replace(
                q=None,
                # The density given the layers below, but for the flow's volume.
                site=DrawnTogether(
                    zeros[n].shape, jnp.sum(dist.Normal().log_prob(noise[n])) - log_dets[n]
                ),
                value=h.distribution.loc,
                white=None,
            )
            for n, h in handovers.items()
        }


def _landing(flow: Any, e: Array, z: Array, log_det: Array) -> Float[Array, ""]:
    """Return log |F'(e)| without gradients of log q(z) at constant z, which have mean zero."""
    arrays, static = eqx.partition(flow, eqx.is_array)
    held = eqx.combine(lax.stop_gradient(arrays), static)
    back, inverse_log_det = _inverse(held, z)
    # log q(z) = log N(F⁻¹(z)) + log |(F⁻¹)'(z)|, and the layers' sites have log N(e).
    landing = 0.5 * (jnp.sum(jnp.square(back)) - jnp.sum(jnp.square(e))) - inverse_log_det
    return landing + lax.stop_gradient(log_det - landing)


def _inverse(flow: Any, z: Array) -> tuple[Array, Array]:
    """Return F⁻¹(z) and its log determinant."""
    try:
        if hasattr(flow, "inverse_and_log_det"):
            return flow.inverse_and_log_det(z)
    except NotImplementedError:  # FlowJAX's bijections of one direction
        pass
    raise ValueError(
        f"Flow: flow is a {type(flow).__name__} without an inverse, with stick_the_landing=True "
        "wanted inverse_and_log_det(y); pass False"
    )
