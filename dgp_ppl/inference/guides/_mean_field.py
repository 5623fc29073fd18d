"""The mean-field Gaussian guide: doubly stochastic variational inference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpyro
from jax.scipy.special import ndtri
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoGuide, AutoMultivariateNormal, AutoNormal

from dgp_ppl._checks import GivenParams, check_choice, check_flags, check_positive, params_of
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Fitted, Model, Params, Values
from dgp_ppl.core import DiagonalInducing, FullInducing, Handover, SharedInducing, TransportInducing
from dgp_ppl.core._inducing import cholesky_factor
from dgp_ppl.inference.guides._base import Replace, TransportGuide

CovarianceForm = Literal["full", "diagonal", "shared"]


class MeanField(TransportGuide):
    """A Gaussian for each layer and output, integrated out: DSVI.

    q(v) is the product over layers and outputs of N(m, L L'). The layers integrate v out, so stock
    `SVI` with `TraceMeanField_ELBO` is doubly stochastic variational inference, and SVGP for one
    layer::

        guide = dgp.MeanField(model)
        result = dgp.fit(key, model, guide, x, y, z=z)

    Params of a layer ``l1``: ``l1.v.loc`` [M, P], and ``l1.v.scale_tril`` [P, M, M] ([M, M] if
    shared), or ``l1.v.scale`` [M, P] if the covariance is diagonal.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        covariance: ``"full"`` (per output), ``"diagonal"``, or ``"shared"``: full, and the same for
            all outputs of a layer. A shared covariance of hundreds of outputs costs as much as that
            of one. It loses nothing if all outputs have one kernel and Gaussian noise of one
            variance.
        hidden_scale: initial scale of q in hidden layers, as a multiple of the prior's. It is small
            so that a fit starts with nearly deterministic hidden layers. Observed layers start at
            the prior.
        rest: from a model without inducing values to a guide of its other latent sites.
        coupled: whether the mean of q(v) of observed layers moves with the draw u of the other
            latent sites, m + B (u - E u), and these have a joint normal. Without it, an intercept
            or cutpoints get the sd that they have if the function stays: far too small. More
            params: ``l1.v.slope`` [K, M, P]. Give it 5,000 steps: after 2,500 the sd of an
            intercept was 0.42, not 0.61, in one of three fits. `check_fit` sees too small sds.

    Raises:
        ValueError: if the model is `coupled` and has no other latent sites; for another
            `covariance`, or a `hidden_scale` that is not positive; at the first
            call if the model has no layer.

    Source: Salimbeni & Deisenroth (2017), "Doubly stochastic variational inference for deep
    Gaussian processes", section 3; Hensman et al. (2013) for one layer.
    """

    def __init__(
        self,
        model: Model,
        *,
        covariance: CovarianceForm = "full",
        hidden_scale: float = 1e-5,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
        coupled: bool = False,
    ) -> None:
        check_choice("MeanField", "covariance", covariance, get_args(CovarianceForm))
        check_positive("MeanField", "hidden_scale", hidden_scale)
        check_flags("MeanField", coupled=coupled)
        is_joint = coupled and rest is AutoNormal
        super().__init__(model, rest=AutoMultivariateNormal if is_joint else rest)
        self.covariance: CovarianceForm = covariance
        self.hidden_scale, self.coupled = hidden_scale, coupled

    @property
    def natural_params(self) -> frozenset[str]:
        # Natural steps of hidden layers reach better optima of some data, and a trap in others.
        if self.found is None or self.covariance == "diagonal":
            return frozenset()
        observed = [n for n, layer in self.layers.items() if not layer.hidden]
        return frozenset(f"{n}.{part}" for n in observed for part in ("loc", "scale_tril"))

    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        found = self._distributions()
        if self.coupled:
            parts = self.other_sites.parts
            draw: Any = call.given.get(f"_{parts[0].prefix}_latent") if parts else None
            if draw is None:  # of all sites together
                raise ValueError(
                    "MeanField: coupled is True and the other latent sites have no joint guide: "
                    "leave out coupled, or rest=AutoMultivariateNormal"
                )
            centre: Any = numpyro.param(f"{parts[0].prefix}_loc", parts[0]._init_latent)
            for name in (n for n, layer in self.layers.items() if not layer.hidden):
                start = jnp.zeros((len(draw), *self.layers[name].shape))
                slope: Any = numpyro.param(f"{name}.slope", start)
                found[name] = copy.copy(found[name])
                found[name].loc += jnp.einsum("k,kmp->mp", draw - centre, slope)
        return {n: Handover(replace(n, q)) for n, q in found.items()}

    def distributions(self, params: Params | Fitted) -> dict[str, TransportInducing]:
        """Return each layer's q(v) at given params, by site; a ValueError if it is `coupled`."""
        caller = type(self).__name__
        if self.coupled:
            raise ValueError(
                f"{caller}: coupled is True, so q(v) is known given the other latent sites alone; "
                "draw all of them by sample_posterior(key, params, ...), or leave out coupled"
            )
        given = GivenParams(None, params_of(caller, params), caller)
        with alone(), given:
            return self._distributions()

    def median(self, params: Params | Fitted) -> Values:
        """Return the median of each latent site."""
        return self.quantiles(params, 0.5)

    def quantiles(self, params: Params | Fitted, quantiles: ArrayLike) -> Values:
        """Return marginal quantiles of each latent site, with the quantiles' shape in front."""
        params, z = params_of(type(self).__name__, params), ndtri(jnp.asarray(quantiles, float))
        found: Values = {
            n: q.loc + jnp.sqrt(q.variance) * z[..., None, None]
            for n, q in self.distributions(params).items()
        }
        for part in self.other_sites.parts:
            found |= part.quantiles(params, quantiles)
        return found

    def _distributions(self) -> dict[str, TransportInducing]:
        return {
            n: gaussian_params(
                n, layer.shape, self.hidden_scale if layer.hidden else 1.0, self.covariance
            )
            for n, layer in self.layers.items()
        }


def gaussian_params(
    name: str, shape: tuple[int, int], scale: float, covariance: CovarianceForm
) -> TransportInducing:
    """Return a Gaussian over inducing values [M, P] with new params, initially N(0, scale² I)."""
    M, P = shape
    # Constraints keep the params valid. Checking them eagerly would compile dozens of programs.
    loc: Any = numpyro.param(f"{name}.loc", jnp.zeros(shape))
    if covariance == "diagonal":
        start = jnp.full(shape, scale)
        sd: Any = numpyro.param(f"{name}.scale", start, constraint=constraints.positive)
        return DiagonalInducing(loc, sd, validate_args=False)
    if covariance == "shared":
        one = scale * jnp.eye(M)
        root: Any = numpyro.param(f"{name}.scale_tril", one, constraint=cholesky_factor)
        return SharedInducing(loc, root, validate_args=False)
    start = jnp.tile(scale * jnp.eye(M), (P, 1, 1))
    tril: Any = numpyro.param(f"{name}.scale_tril", start, constraint=cholesky_factor)
    return FullInducing(loc, tril, validate_args=False)
