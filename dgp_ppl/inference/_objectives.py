"""Objectives besides the ELBO: importance-weighted bounds, and the predictive likelihood.

They stand in place of `TraceMeanField_ELBO` in `SVI`, `fit` and `evaluate`.
"""

import abc
import zlib
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax import random
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import scale_and_mask
from numpyro.infer.elbo import ELBO
from numpyro.primitives import Messenger

from dgp_ppl._checks import check_count
from dgp_ppl._partition import ComparedByArguments
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import as_observed, carries_mean, handover_of, log_density, with_handover
from dgp_ppl.inference.guides import LayerGuide

__all__ = ["ImportanceWeighted", "PredictiveELBO"]

Sites = dict[str, Any]


class _Terms(NamedTuple):
    """One particle's terms in nats."""

    outside: Array  # averaged over particles, []
    inside: Float[Array, " B"] | Float[Array, ""]  # exponentials averaged: of each row, or of all
    scale: Array  # what the logarithms of those averages count, N/B or 1, []


class _RowKeys(Messenger):
    """Keys of a particle's own for what it draws in the data's plate."""

    def __init__(self, fn: Model, key: PRNGKey, plate: str) -> None:
        super().__init__(fn)
        self.key, self.plate = key, plate

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and not msg["is_observed"] and _in_plate(msg, self.plate):
            msg["kwargs"]["rng_key"] = random.fold_in(self.key, zlib.crc32(msg["name"].encode()))


class _Objective(ComparedByArguments, ELBO):
    """An objective of several particles: passes through guide and model on one minibatch."""

    def __init__(self, num_particles: int, plate: str, vectorize_particles: bool) -> None:
        check_count(self._name, "num_particles", num_particles)
        super().__init__(num_particles, vectorize_particles)
        self.plate = plate

    @abc.abstractmethod
    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        """One particle's terms, inside and outside a logarithm, from the sites of its pass."""

    def _met(self, guide: Model, drawn: Sites, run: Callable[[Any], Sites]) -> Sites:
        """The model's sites; `run` runs it with the guide's as they are handed to it."""
        return run(drawn)

    def _guide_of(self, guide: Model, shared: PRNGKey, own: PRNGKey) -> Model:
        """The guide with its keys: what particles share, and what is this one's own."""
        return handlers.seed(guide, own)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def loss(
        self,
        rng_key: PRNGKey,
        param_map: Params,
        model: Model,
        guide: Model,
        *args: Any,
        **kwargs: Any,
    ) -> Array:
        """Minus the objective, in nats; what follows `guide` is the model's."""
        key_rows, key_shared, key_own = random.split(rng_key, 3)
        rows = {"rng_seed": key_rows, "hide_types": ["sample", "prng_key", "control_flow"]}

        def sites(program: Model) -> Any:
            given = handlers.substitute(program, data=param_map)
            return handlers.trace(given).get_trace(*args, **kwargs)

        def particle(key: PRNGKey) -> _Terms:
            key_guide, key_model = random.split(key)
            drawn = sites(self._guide_of(handlers.seed(guide, **rows), key_shared, key_guide))
            program = handlers.seed(handlers.seed(model, **rows), key_model)
            met = self._met(guide, drawn, lambda handed: sites(handlers.replay(program, handed)))
            self._check(drawn, met)
            return self._terms(drawn, met)

        keys = random.split(key_own, self.num_particles)
        all_: _Terms = self.vectorize_particles_fn(particle, keys)
        mixed = logsumexp(all_.inside, axis=0) - jnp.log(self.num_particles)
        return -(jnp.mean(all_.outside) + jnp.mean(all_.scale) * jnp.sum(mixed))

    def _check(self, guide: Sites, model: Sites) -> None:
        latent = [n for n, s in model.items() if s["type"] == "sample" and not s["is_observed"]]
        if missing := [n for n in latent if n not in guide]:
            raise ValueError(
                f"{self._name}: the guide lacks the model's latent sites {missing}; wanted a guide "
                "of all of them, such as MeanField(model)"
            )

    def _rows(self, terms: Array, site: Any) -> Array:
        """Terms of a site in the data's plate, [B]: summed over all but its rows."""
        dim = next(f.dim for f in site["cond_indep_stack"] if f.name == self.plate)
        return jnp.sum(terms, axis=tuple(a for a in range(terms.ndim) if a - terms.ndim != dim))

    def _split(self, sites: Sites) -> tuple[Sites, Sites]:
        """Sample sites in the data's plate, and the others."""
        sampled = {n: s for n, s in sites.items() if s["type"] == "sample"}
        local = {n: s for n, s in sampled.items() if _in_plate(s, self.plate)}
        return local, {n: s for n, s in sampled.items() if n not in local}

    def _scale(self, model: Sites, local: Sites) -> Array:
        """N/B: what stands outside a row's logarithm, so that minibatches are unbiased."""
        plates = {n: s for n, s in model.items() if s["type"] == "plate"}
        if self.plate not in plates or not local:
            raise ValueError(
                f"{self._name}: no site of the model is in a plate {self.plate!r}; its plates are "
                f"{list(plates)}; name the data's: plate=..."
            )
        scale = plates[self.plate]["args"][0] / len(plates[self.plate]["value"])
        for name, site in local.items():
            own = 1.0 if site["scale"] is None else site["scale"]
            if not isinstance(own, int | float) or own != scale:
                raise ValueError(
                    f"{self._name}: site {name!r} is scaled by {own}, wanted N/B = {scale} alone: "
                    "another factor inside the logarithm of a mean changes what is bounded"
                )
        return jnp.asarray(scale, float)


class ImportanceWeighted(_Objective):
    """Importance-weighted bounds on the evidence.

    ``over="local"`` (Salimbeni et al. 2019, "Deep Gaussian processes with importance-weighted
    variational inference"): a row's own latents, which are latent sites in the data's plate and the
    unit noise of hidden layers, are drawn K times, and the row's term is
    ``log 1/K sum_k p(y_n | k) p(k) / q(k)``. What rows share (inducing values, hyperparameters) is
    drawn once and pays its KL, as in the ELBO: v of hidden layers is not integrated, for a row's
    mean over draws of what all rows share would be no bound. (That of the observed layer is: the
    log of a mean of exponentials is convex in the expected log-likelihoods. Where these are Monte
    Carlo estimates, of likelihoods with vector latents that do not know their averages, their noise
    would be averaged in that exponential: there v of the observed layer is drawn too.) The bound
    grows with K, from the ELBO at K = 1; minibatches are unbiased.

    With hidden layers it bounds the evidence of the model as a program, in which points are
    independent given v, as for MCMC: the deep GP's own where inducing inputs are dense.

    ``over="global"``: ``log 1/K sum_k p(y, v_k) / q(v_k)``, all latents in the weights (Burda et
    al. 2016), no layer's v integrated. For checks on small data: the weights of many rows spread
    too far.

    Args:
        num_particles: K.
        over: ``"local"`` or ``"global"``.
        plate: name of the data's plate.
        vectorize_particles: particles side by side, or one after the other.

    Raises:
        ValueError: for less than one particle; for another `over`; without that plate; with latent
            sites that the guide lacks; ``"global"`` on minibatches: the log of an average of noisy
            weights is no bound.
        TypeError: for guides whose draws do not carry their weights: `Decoupled` with hidden layers
            or an estimated likelihood, or ``"global"`` with a `Diffusion` that is not ``drawn()``;
            if `num_particles` is no integer.
        NotImplementedError: for guides without a density (`Implicit`).
    """

    def __init__(
        self,
        num_particles: int,
        over: Literal["local", "global"] = "local",
        *,
        plate: str = "data",
        vectorize_particles: bool = True,
    ) -> None:
        if over not in ("local", "global"):
            raise ValueError(f"{self._name}: over is {over!r}, wanted 'local' or 'global'")
        super().__init__(num_particles, plate, vectorize_particles)
        self.over: Literal["local", "global"] = over

    def _guide_of(self, guide: Model, shared: PRNGKey, own: PRNGKey) -> Model:
        if self.over == "global":
            return super()._guide_of(guide, shared, own)
        return handlers.seed(_RowKeys(guide, own, self.plate), shared)

    def _met(self, guide: Model, drawn: Sites, run: Callable[[Any], Sites]) -> Sites:
        """With the draws of the layers that must not be integrated."""
        laws = [n for n, s in drawn.items() if handover_of(s).q is not None]
        if self.over == "global":
            return run(self._hand(drawn, laws))
        met = run(self._hand(drawn, [n for n in laws if _is_hidden(guide, n)]))
        data = [s["fn"] for s in met.values() if s["type"] == "sample" and s["is_observed"]]
        if not any(law is not None and law.estimated for law in map(as_observed, data)):
            return met
        # With v integrated, a mean of exp of noisy estimates is too large; given v, exp of a mean
        # of log p(y | f) is on average at most p(y | v).
        return run(self._hand(drawn, laws))

    def _hand(self, sites: Sites, layers: list[str]) -> Any:
        """The guide's sites, draws in place of the laws of some layers."""
        handed = {n: sites[n] for n in layers}
        factors = [n for n, s in sites.items() if s["type"] == "sample" and s["is_observed"]]
        if self.over == "global" and handed and factors:
            raise TypeError(
                f"{self._name}: the guide's terms {factors} are means over what the layers "
                f"{list(handed)} integrate, and make no importance weights; wanted a guide that "
                "draws: of a Diffusion, guide.drawn()"
            )
        for n, site in handed.items():
            q = handover_of(site).q
            if q is not None and not carries_mean(q):
                raise TypeError(
                    f"{self._name}: the law of {n!r} has a mean with a basis of its own, which "
                    "draws of v do not carry; wanted MeanField, GlobalInducing or Diffusion"
                )
        return sites | {n: {**s, "infer": with_handover(s, q=None)} for n, s in handed.items()}

    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        if self.over == "global":
            _check_all_rows(model)
            weight = _sum(_scaled_log_probs(model)) - _sum(_scaled_log_probs(guide))
            return _Terms(jnp.zeros(()), weight, jnp.ones(()))
        local, shared = self._split(model)
        local_q, shared_q = self._split(guide)
        scale = self._scale(model, local)
        outside = _scaled_log_probs(shared, observed=True) + _negative_kls(shared_q, shared)
        rows = [self._rows(_log_prob(s), s) for s in local.values()]
        rows += [-self._rows(_log_prob(s), s) for s in local_q.values()]
        return _Terms(_sum(outside), _sum(rows), scale)


class PredictiveELBO(_Objective):
    """The log predictive density of the data, less beta times the KL. It is no bound.

    ``sum_n log E_q[p(y_n | f)] - beta KL``: of the one-layer GP the objective of PPGPR (Jankowiak
    et al. 2020, "Parametric Gaussian process regressors"), of deep ones that of DSPP (Jankowiak et
    al. 2020, "Deep sigma point processes", with draws in place of learned sigma points). It fits
    predictions of single rows to the data rather than the posterior to the model, and may exceed
    the evidence.

    Each of K particles draws all that the guide draws, and the unit noise of hidden layers; a row's
    density is the mean over particles, with the observed layer's f integrated. The log of that mean
    is biased downwards, by less for more particles.

    Args:
        beta: weight of the KL.
        num_particles: K.
        plate: name of the data's plate.
        vectorize_particles: particles side by side, or one after the other.

    Raises:
        ValueError: if `beta` is negative; without that plate, or an `observe(...)` in it; with
            latent sites that the guide lacks.
        NotImplementedError: for guides without a density (`Implicit`).
    """

    def __init__(
        self,
        beta: float = 1.0,
        num_particles: int = 8,
        *,
        plate: str = "data",
        vectorize_particles: bool = True,
    ) -> None:
        if not (isinstance(beta, Real) and beta >= 0):
            raise ValueError(
                f"{self._name}: beta is {beta!r}, wanted a number that is not negative"
            )
        super().__init__(num_particles, plate, vectorize_particles)
        self.beta = beta

    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        local, shared = self._split(model)
        scale = self._scale(model, local)
        data = {n: s for n, s in local.items() if s["is_observed"]}
        if not any(as_observed(s["fn"]) for s in data.values()):
            raise ValueError(
                f"{self._name}: the sites {list(data)} of plate {self.plate!r} are none of them "
                "observe(...), wanted numpyro.sample('y', dgp.observe(f(x), ...), obs=y)"
            )
        rows = [self._rows(log_density(s["fn"], s["value"]), s) for s in data.values()]
        outside = [self.beta * term for term in _negative_kls(guide, model)]
        return _Terms(_sum(outside + _scaled_log_probs(shared, observed=True)), _sum(rows), scale)


def _is_hidden(guide: Model, site: str) -> bool:
    if isinstance(guide, LayerGuide):
        return guide.layers[site].hidden
    raise TypeError(
        f"ImportanceWeighted: guide is a {type(guide).__name__} that hands a law to {site!r}; "
        "wanted a LayerGuide, which knows whether that layer is hidden"
    )


def _check_all_rows(model: Sites) -> None:
    for n, site in model.items():
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"ImportanceWeighted: plate {n!r} takes {len(site['value'])} of {site['args'][0]} "
                "rows, and over='global' wants all: the log of an average of noisy weights is no "
                "bound; leave out batch_size, or take over='local'"
            )


def _in_plate(site: Any, plate: str) -> bool:
    return any(frame.name == plate for frame in site["cond_indep_stack"])


def _sum(terms: list[Array]) -> Array:
    return sum(terms, start=jnp.zeros(()))


def _log_prob(site: Any) -> Array:
    more = [site["intermediates"]] if site["intermediates"] else []
    return site["fn"].log_prob(site["value"], *more)


def _scaled_log_probs(sites: Sites, observed: bool = False) -> list[Array]:
    """Summed log densities of the sample sites, or of the observed ones among them."""
    sampled = [s for s in sites.values() if s["type"] == "sample"]
    wanted = [s for s in sampled if s["is_observed"] or not observed]
    return [jnp.sum(scale_and_mask(_log_prob(s), scale=s["scale"])) for s in wanted]


def _negative_kls(guide: Sites, model: Sites) -> list[Array]:
    """Minus the KL of every latent site, as in `TraceMeanField_ELBO`, and the guide's own terms."""
    terms = []
    for name, q in guide.items():
        if q["type"] != "sample":
            continue
        p = model.get(name)
        if p is None or q["is_observed"]:
            terms += [-a for a in _scaled_log_probs({name: q})]
            continue
        try:
            kl = scale_and_mask(kl_divergence(q["fn"], p["fn"]), scale=q["scale"])
            terms.append(-jnp.sum(kl))
        except NotImplementedError:
            terms += _scaled_log_probs({name: p}) + [-a for a in _scaled_log_probs({name: q})]
    return terms
