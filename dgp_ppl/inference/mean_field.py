"""The mean-field Gaussian guide: doubly stochastic variational inference."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpyro
from jax import random
from jax.scipy.special import ndtri
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inducing import AbstractInducing, DiagonalInducing, FullInducing, cholesky_factor
from dgp_ppl.minibatch import stratified
from dgp_ppl.observe import Observed

__all__ = ["MeanField"]


class MeanField(AutoGuide):
    """q(v) = prod over layers and outputs of N(m, L L').

    Handed to the layers by way of the site's ``infer["q"]``, it is integrated out there: with stock
    `SVI` and `TraceMeanField_ELBO` this is DSVI (Salimbeni & Deisenroth 2017, section 3), for one
    layer SVGP (Hensman et al. 2013). Latent sites that are not inducing values (hyperparameters
    under `handlers.lift`, latent inputs) get the guide `rest`.

    Params of a layer ``l1``: ``l1.v.loc`` [M, P], and ``l1.v.scale_tril`` [P, M, M] or, with a
    diagonal covariance, ``l1.v.scale`` [M, P].

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        covariance: ``"full"`` (per output) or ``"diagonal"``.
        hidden_scale: initial scale of q in hidden layers, a multiple of the prior's square root.
            Small, so that a fit starts with nearly deterministic hidden layers; the layers that are
            observed start at the prior.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for another `covariance`, and at the first call if the model has no layer.
    """

    def __init__(
        self,
        model: Model,
        *,
        covariance: Literal["full", "diagonal"] = "full",
        hidden_scale: float = 1e-5,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        if covariance not in ("full", "diagonal"):
            raise ValueError(
                f"MeanField: covariance is {covariance!r}, wanted 'full' or 'diagonal'"
            )
        if not hidden_scale > 0:
            raise ValueError(f"MeanField: hidden_scale is {hidden_scale}, wanted a positive number")
        super().__init__(model)
        self.covariance, self.hidden_scale = covariance, hidden_scale
        self._rest_factory = rest
        self._layers: dict[str, tuple[tuple[int, int], float]] | None = None
        self._rest: dict[str, AutoGuide] = {}
        self._order: list[str] = []

    def __eq__(self, other: object) -> bool:
        """Whether two guides are the same program: what was compiled for one serves the other."""
        if self is other or not isinstance(other, MeanField):
            return self is other
        return self._program() == other._program() and self._layers is not None and not self._rest

    def __hash__(self) -> int:
        return hash((MeanField, self.model, self.covariance, self.hidden_scale))

    def _program(self) -> tuple[Any, ...]:
        return (self.model, self.covariance, self.hidden_scale, self._layers, self._rest)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Find the model's latent sites; takes the model's arguments. The first call does it too.

        To be called outside of `jax.jit` where the model has latent sites besides its layers.
        """
        if self._layers is None:
            self._setup_prototype(*args, **kwargs)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        """Find the layers by running the model once on shapes alone."""
        trace: dict[str, Any] = {}

        def run(key: PRNGKey) -> None:
            seeded = handlers.seed(self.model, key)
            trace.update(handlers.trace(seeded).get_trace(*args, **kwargs))

        with handlers.block():
            jax.eval_shape(run, random.PRNGKey(0))
        sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        layers = {n: s for n, s in sites.items() if "inducing" in s["infer"]}
        if not layers:
            raise ValueError(
                f"MeanField: the model has no dgp_ppl.gp layer; its latent sites are {list(sites)}"
            )
        # A layer that is sampled from (and so has unit noise) is a hidden one.
        noisy = {n.rsplit(".eps", 1)[0] for n in sites if ".eps" in n}
        self._layers = {
            n: (s["fn"].event_shape, self.hidden_scale if n.removesuffix(".v") in noisy else 1.0)
            for n, s in layers.items()
        }
        # What `observe` describes is data, also in a call without it.
        others = {
            n: bool(s["cond_indep_stack"])
            for n, s in sites.items()
            if n not in layers
            and not s["infer"].get("is_auxiliary")
            and not isinstance(s["fn"], Observed)
        }
        # TraceMeanField_ELBO wants the guide's sites in the model's order. Normals are independent,
        # so each global site can have a guide of its own; local ones share their plates' rows.
        if self._rest_factory is AutoNormal:
            groups = [[n] for n, local in others.items() if not local]
            groups += [[n for n, local in others.items() if local]]
        else:
            groups = [list(others)]
        self._rest = {}
        for group in filter(None, groups):
            hidden = [n for n in sites if n not in group]
            part = self._rest_factory(handlers.block(self.model, hide=hidden))
            with handlers.block(), handlers.seed(rng_seed=0):
                part(*args, **kwargs)
            self._rest[group[0]] = part
        self._order = [n for n in sites if n in layers or n in self._rest]
        self.prototype_trace = {
            n: {"type": s["type"], "name": n, "shape": s["fn"].shape()} for n, s in sites.items()
        }

    def _law(self, name: str, shape: tuple[int, int], scale: float) -> AbstractInducing:
        """The site's q(v), from its params."""
        M, P = shape
        # Params are valid by their constraints; checking them eagerly compiles dozens of programs.
        loc = numpyro.param(f"{name}.loc", jnp.zeros(shape))
        if self.covariance == "diagonal":
            start = jnp.full(shape, scale)
            positive = constraints.positive
            sd = numpyro.param(f"{name}.scale", start, constraint=positive)
            return DiagonalInducing(loc, sd, validate_args=False)
        start = jnp.tile(scale * jnp.eye(M), (P, 1, 1))
        tril = numpyro.param(f"{name}.scale_tril", start, constraint=cholesky_factor)
        return FullInducing(loc, tril, validate_args=False)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Draw all latent sites; takes the model's arguments."""
        self.setup(*args, **kwargs)
        assert self._layers is not None
        draws = {}
        for name in self._order:
            if name in self._layers:
                q = self._law(name, *self._layers[name])
                draws[name] = numpyro.sample(name, q, infer={"q": q})
            else:
                with stratified():
                    draws.update(self._rest[name](*args, **kwargs))
        return draws

    def sample_posterior(
        self,
        rng_key: PRNGKey,
        params: Params,
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Draws of all latent sites from q, each of shape `sample_shape` + the site's shape.

        The arguments after `params` are the model's; they may be left out once the guide has run.
        """
        guide = handlers.substitute(self, data=params)

        def draw(key: PRNGKey) -> dict[str, Any]:
            trace = handlers.trace(handlers.seed(guide, key)).get_trace(*args, **kwargs)
            return {n: s["value"] for n, s in trace.items() if s["type"] == "sample"}

        if not sample_shape:
            return draw(rng_key)
        draws = jax.vmap(draw)(random.split(rng_key, math.prod(sample_shape)))
        return jax.tree.map(lambda a: a.reshape(sample_shape + a.shape[1:]), draws)

    def median(self, params: Params) -> dict[str, Any]:
        """The median of each latent site."""
        own = {n: q.loc for n, q in self._laws(params).items()}
        return own | self._merged(lambda guide: guide.median(params))

    def quantiles(self, params: Params, quantiles: Any) -> dict[str, Any]:
        """Marginal quantiles of each latent site, with the quantiles' shape in front."""
        z = ndtri(jnp.asarray(quantiles, float))
        own = {
            n: q.loc + jnp.sqrt(q.variance) * z.reshape((*z.shape, 1, 1))
            for n, q in self._laws(params).items()
        }
        return own | self._merged(lambda guide: guide.quantiles(params, quantiles))

    def _merged(self, ask: Callable[[AutoGuide], Any]) -> dict[str, Any]:
        return {n: value for part in self._rest.values() for n, value in ask(part).items()}

    def _laws(self, params: Params) -> dict[str, AbstractInducing]:
        if self._layers is None:
            raise ValueError("MeanField: call the guide once (SVI.init does) before asking of it")
        with handlers.block(), handlers.substitute(data=params):
            return {n: self._law(n, *layer) for n, layer in self._layers.items()}
