"""The mean-field Gaussian guide: doubly stochastic variational inference."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import jax.numpy as jnp
import numpyro
from jax.scipy.special import ndtri
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from dgp_ppl._typing import Model, Params
from dgp_ppl.core import (
    AbstractInducing,
    DiagonalInducing,
    FullInducing,
    SharedInducing,
    cholesky_factor,
)
from dgp_ppl.inference.guides._base import Handed, LayerGuide, Reshape

__all__ = ["MeanField", "gaussian_params"]

Covariance = Literal["full", "diagonal", "shared"]


class MeanField(LayerGuide):
    """q(v) = prod over layers and outputs of N(m, L L').

    Handed to the layers by way of the site's ``infer["q"]``, it is integrated out there: with stock
    `SVI` and `TraceMeanField_ELBO` this is DSVI (Salimbeni & Deisenroth 2017, section 3), for one
    layer SVGP (Hensman et al. 2013). Latent sites that are not inducing values (hyperparameters
    under `handlers.lift`, latent inputs) get the guide `rest`.

    Params of a layer ``l1``: ``l1.v.loc`` [M, P], and ``l1.v.scale_tril`` [P, M, M] (shared: one
    [M, M]) or, with a diagonal covariance, ``l1.v.scale`` [M, P].

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        covariance: ``"full"`` (per output), ``"diagonal"``, or ``"shared"``: full, and the same
            for all outputs of a layer. That costs a layer of hundreds of outputs what one of one
            output costs, and loses nothing where all of them have one kernel and Gaussian noise of
            one variance.
        hidden_scale: initial scale of q in hidden layers, a multiple of the prior's square root.
            Small, so that a fit starts with nearly deterministic hidden layers; the layers that are
            observed start at the prior.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for another `covariance`, and at the first call if the model has no layer.
    """

    white: ClassVar[bool] = True

    def __init__(
        self,
        model: Model,
        *,
        covariance: Covariance = "full",
        hidden_scale: float = 1e-5,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        if covariance not in get_args(Covariance):
            raise ValueError(
                f"MeanField: covariance is {covariance!r}, wanted 'full', 'diagonal' or 'shared'"
            )
        if not hidden_scale > 0:
            raise ValueError(f"MeanField: hidden_scale is {hidden_scale}, wanted a positive number")
        super().__init__(model, rest=rest)
        self.covariance: Covariance = covariance
        self.hidden_scale = hidden_scale

    def _options(self) -> tuple[Any, ...]:
        return (self.covariance, self.hidden_scale)

    def _laws(self) -> dict[str, AbstractInducing]:
        """Each layer's q(v), from its params."""
        return {
            n: gaussian_params(
                n, layer.shape, self.hidden_scale if layer.hidden else 1.0, self.covariance
            )
            for n, layer in self.layers.items()
        }

    def _posterior(
        self,
        given: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reshape: Reshape | None = None,
    ) -> dict[str, Handed]:
        laws = self._laws()
        if reshape is not None:
            laws = {n: reshape(n, law) for n, law in laws.items()}
        return {n: Handed(law, {"q": law}) for n, law in laws.items()}

    def median(self, params: Params) -> dict[str, Any]:
        """The median of each latent site."""
        own = {n: q.loc for n, q in self._laws_at(params).items()}
        return own | self._merged(lambda guide: guide.median(params))

    def quantiles(self, params: Params, quantiles: Any) -> dict[str, Any]:
        """Marginal quantiles of each latent site, with the quantiles' shape in front."""
        z = ndtri(jnp.asarray(quantiles, float))
        own = {
            n: q.loc + jnp.sqrt(q.variance) * z.reshape((*z.shape, 1, 1))
            for n, q in self._laws_at(params).items()
        }
        return own | self._merged(lambda guide: guide.quantiles(params, quantiles))

    def _merged(self, ask: Callable[[AutoGuide], Any]) -> dict[str, Any]:
        parts = {**self._global, **self._local}.values()
        return {n: value for part in parts for n, value in ask(part).items()}

    def _laws_at(self, params: Params) -> dict[str, AbstractInducing]:
        with handlers.block(), handlers.substitute(data=params):
            return self._laws()


def gaussian_params(
    name: str, shape: tuple[int, int], scale: float, covariance: Covariance
) -> AbstractInducing:
    """A Gaussian over inducing values [M, P] with params of its own, at first N(0, scale² I)."""
    M, P = shape
    # Params are valid by their constraints; checking them eagerly compiles dozens of programs.
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
