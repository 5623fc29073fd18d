"""Objectives besides the ELBO: importance-weighted bounds and the predictive likelihood.

They replace `TraceMeanField_ELBO` in `SVI`, `fit` and `evaluate`.
"""

from __future__ import annotations

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

from dgp_ppl._checks import check_choice, check_count
from dgp_ppl._partition import ComparedByFields
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core._handover import handover_of, with_handover
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._handlers import check_whole
from dgp_ppl.likelihoods import log_density
from dgp_ppl.likelihoods._observe import as_observed

Sites = dict[str, Any]


class _Terms(NamedTuple):
    """One particle's terms of the objective, in nats."""

    outside: Array  # averaged over particles, []
    # Log weights, whose exponentials are averaged over particles: of each row [B], or of all rows
    # [].
    inside: Float[Array, " B"] | Float[Array, ""]
    scale: Array  # factors of the logarithms of those averages, [] or [B]


class _RowKeys(Messenger):
    """Draws the sites of the data's plate with a separate key for each particle."""

    def __init__(self, fn: Model, key: PRNGKey, plate: str) -> None:
        super().__init__(fn)
        self.key, self.plate = key, plate

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and not msg["is_observed"] and _in_plate(msg, self.plate):
            msg["kwargs"]["rng_key"] = random.fold_in(self.key, zlib.crc32(msg["name"].encode()))


class _Objective(ComparedByFields, ELBO):
    """An objective of several particles, each a run of guide and model on the same minibatch."""

    def __init__(self, num_particles: int, plate: str) -> None:
        check_count(self._name, "num_particles", num_particles)
        super().__init__(num_particles)
        self.plate = plate

    @abc.abstractmethod
    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        """Return one particle's terms from the sites of its run."""

    def _model_sites(self, guide: Any, drawn: Sites, run: Callable[[Any], Sites]) -> Sites:
        """Return the model's sites; `run` replays the model against sites of the guide."""
        return run(drawn)

    def _seeded_guide(self, guide: Model, shared: PRNGKey, particle: PRNGKey) -> Model:
        """Return the guide, with a key that all particles share and the particle's key."""
        return handlers.seed(guide, particle)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def loss(
        self, rng_key: PRNGKey, param_map: Params, model: Model, guide: Model, *args: Any,
        **kwargs: Any,
    ) -> Array:  # fmt: skip
        """Return minus the objective in nats."""
        key_rows, key_shared, key_particles = random.split(rng_key, 3)
        rows = {"rng_seed": key_rows, "hide_types": ["sample", "prng_key", "control_flow"]}

        def sites(program: Model) -> Any:
            given = handlers.substitute(program, data=param_map)
            return handlers.trace(given).get_trace(*args, **kwargs)

        def particle(key: PRNGKey) -> _Terms:
            key_guide, key_model = random.split(key)
            seeded = self._seeded_guide(handlers.seed(guide, **rows), key_shared, key_guide)
            drawn = sites(seeded)
            program = handlers.seed(handlers.seed(model, **rows), key_model)
            run = lambda replayed: sites(handlers.replay(program, replayed))  # noqa: E731
            observed = self._model_sites(guide, drawn, run)
            self._check(drawn, observed)
            return self._terms(drawn, observed)

        keys = random.split(key_particles, self.num_particles)
        terms: _Terms = self.vectorize_particles_fn(particle, keys)
        log_means = logsumexp(terms.inside, axis=0) - jnp.log(self.num_particles)
        scale = jnp.mean(terms.scale, axis=0)
        inside = jnp.sum(scale * log_means) if scale.ndim else scale * jnp.sum(log_means)
        return -(jnp.mean(terms.outside) + inside)

    def _check(self, guide: Sites, model: Sites) -> None:
        latent = [n for n, s in model.items() if s["type"] == "sample" and not s["is_observed"]]
        if missing := [n for n in latent if n not in guide]:
            raise ValueError(
                f"{self._name}: the guide lacks the model's latent sites {missing}; wanted a guide "
                "of all of them, such as MeanField(model)"
            )

    def _rows(self, terms: Array, site: Any) -> Array:
        """Sum a site's terms over all axes but the rows, [B]."""
        dim = next(f.dim for f in site["cond_indep_stack"] if f.name == self.plate)
        return jnp.sum(terms, axis=tuple(a for a in range(terms.ndim) if a - terms.ndim != dim))

    def _factor(self, site: Any) -> Array:
        """Return the factor of a site's rows: N/B by the weights of `handlers.scale`; [] or [B]."""
        factor = jnp.asarray(1.0 if site["scale"] is None else site["scale"], float)
        if factor.size == 1:
            return factor.reshape(())
        if factor.size != (rows := self._rows(factor, site)).size:
            raise ValueError(
                f"{self._name}: site {site['name']!r} is scaled by an array of shape "
                f"{factor.shape}, wanted one factor for each row, as a row has one logarithm"
            )
        return rows

    def _split(self, sites: Sites) -> tuple[Sites, Sites]:
        """Sample sites in the data's plate, and all other sample sites."""
        sampled = {n: s for n, s in sites.items() if s["type"] == "sample"}
        local = {n: s for n, s in sampled.items() if _in_plate(s, self.plate)}
        return local, {n: s for n, s in sampled.items() if n not in local}

    def _by_row(self, model: Sites, terms: list[tuple[Any, Array]]) -> tuple[Array, Array]:
        """Return the sum of sites' terms by row, and the factor of its logarithm; latents first.

        The factor is the first site's: N/B, and the row's weight, as if the row came so many times.
        A site with another factor has the rest of it within the logarithm, as a power of its
        density. So one particle gives NumPyro's ELBO.
        """
        if not terms:
            plates = [n for n, s in model.items() if s["type"] == "plate"]
            raise ValueError(
                f"{self._name}: no site of the model is in a plate {self.plate!r}; its plates are "
                f"{plates}; name the data's: plate=..."
            )
        first, *others = (self._factor(site) for site, _ in terms)
        rows = [self._rows(term, site) for site, term in terms]
        powers = [jnp.where(own == first, 1.0, own / first) for own in others]
        return _sum([rows[0], *(p * row for p, row in zip(powers, rows[1:], strict=True))]), first


class ImportanceWeighted(_Objective):
    """Importance-weighted bounds on the evidence.

    One particle is the ELBO, and the bound grows with their number::

        dgp.fit(key, model, guide, x, y, z=z, loss=dgp.ImportanceWeighted(8), steps=3000)

    ``over="local"`` (Salimbeni et al. 2019, "Deep Gaussian processes with importance-weighted
    variational inference") draws the latents of each row K times: the unit noise of hidden layers,
    and latent sites in the data's plate. A row's term is ``log 1/K sum_k p(y_n | k) p(k) / q(k)``.
    Inducing values and hyperparameters are drawn once and pay their KL as in the ELBO. Minibatches
    are unbiased.

    ``over="global"`` is ``log 1/K sum_k p(y, v_k) / q(v_k)`` with all latents in the weights (Burda
    et al. 2016). Use it for checks on small data: on many rows the weights spread too far.

    Args:
        num_particles: K.
        over: ``"local"`` or ``"global"``.
        plate: name of the data's plate.

    Raises:
        ValueError: for fewer than one particle or another `over`; in a fit, if the plate is
            missing, the guide lacks latent sites, or ``"global"`` meets minibatches.
        TypeError: if `num_particles` is not an integer; in a fit, for guides whose draws have no
            weights: `Decoupled` with hidden layers or an estimated likelihood, or ``"global"`` with
            a `Diffusion` that is not ``drawn()``.
        NotImplementedError: for guides without a density (`Implicit`).
    """

    def __init__(
        self, num_particles: int, over: Literal["local", "global"] = "local", *, plate: str = "data"
    ) -> None:
        check_choice(self._name, "over", over, ("local", "global"))
        super().__init__(num_particles, plate)
        self.over: Literal["local", "global"] = over

    def _seeded_guide(self, guide: Model, shared: PRNGKey, particle: PRNGKey) -> Model:
        if self.over == "global":
            return super()._seeded_guide(guide, shared, particle)
        return handlers.seed(_RowKeys(guide, particle, self.plate), shared)

    def _model_sites(self, guide: Any, drawn: Sites, run: Callable[[Any], Sites]) -> Sites:
        """Return the model's sites given draws of the layers that must not be integrated.

        The v of hidden layers is drawn: averaging each row over draws that all rows share would not
        give a bound. The v of the observed layer may be integrated, because the log of a mean of
        exponentials is convex in the expected log-likelihoods.
        """
        layers = [n for n, s in drawn.items() if handover_of(s).q is not None]
        if self.over == "global":
            return run(self._with_draws(drawn, layers))
        if layers and not isinstance(guide, LayerGuide):
            raise TypeError(
                f"ImportanceWeighted: guide is a {type(guide).__name__} that gives {layers[0]!r} a "
                "q(v), wanted a LayerGuide, which records whether that layer is hidden"
            )
        hidden = [n for n in layers if guide.layers[n].hidden]
        found = run(self._with_draws(drawn, hidden))
        data = [s["fn"] for s in found.values() if s["type"] == "sample" and s["is_observed"]]
        if not any(o is not None and o.estimated for o in map(as_observed, data)):
            return found
        # With v integrated, the mean of exponentials of noisy estimates is too large. Given v, the
        # exponential of a mean of log p(y | f) is on average at most p(y | v).
        return run(self._with_draws(drawn, layers))

    def _with_draws(self, sites: Sites, layers: list[str]) -> Any:
        """Return the guide's sites, with draws of v instead of q(v) for some layers."""
        drawn = {n: sites[n] for n in layers}
        factors = [n for n, s in sites.items() if s["type"] == "sample" and s["is_observed"]]
        if self.over == "global" and drawn and factors:
            raise TypeError(
                f"{self._name}: the guide's terms {factors} average over the layers {list(drawn)} "
                "that it integrates, so they make no importance weights; wanted a guide that draws "
                "all layers, such as guide.drawn() of a Diffusion"
            )
        for n, site in drawn.items():
            q = handover_of(site).q
            if q is not None and not q.determines_mean:
                raise TypeError(
                    f"{self._name}: q of {n!r} has a mean with separate inducing inputs, which "
                    "draws of v do not determine; wanted MeanField, GlobalInducing or Diffusion"
                )
        return sites | {n: {**s, "infer": with_handover(s, q=None)} for n, s in drawn.items()}

    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        if self.over == "global":
            why = " with over='global': the log of an average of noisy weights is no bound; leave "
            check_whole(self._name, model, f"{why}out batch_size, or take over='local'")
            weight = _sum(_scaled_log_probs(model)) - _sum(_scaled_log_probs(guide))
            return _Terms(jnp.zeros(()), weight, jnp.ones(()))
        local, shared = self._split(model)
        if tied := [n for n, s in local.items() if hasattr(s["fn"], "left_out")]:
            raise TypeError(
                f"{self._name}: rows of {tied[0]!r} depend on each other, by a local process, and "
                "over='local' averages rows apart, wanted over='global'"
            )
        local_q, shared_q = self._split(guide)
        outside = _scaled_log_probs(shared, observed=True) + _negative_kls(shared_q, shared)
        inside = [(s, -_log_prob(s)) for s in local_q.values()]
        by_kind = sorted(local.values(), key=lambda s: s["is_observed"])
        inside += [(s, _log_prob(s)) for s in by_kind]
        return _Terms(_sum(outside), *self._by_row(model, inside))


class PredictiveELBO(_Objective):
    """The log predictive density of the data minus beta times the KL, which is not a bound.

    ``sum_n log E_q[p(y_n | f)] - beta KL`` fits the predictions of single rows to the data, and may
    exceed the evidence. For one layer it is the objective of PPGPR, for deep models of DSPP
    with draws instead of learned sigma points. Pass it as the loss::

        dgp.fit(key, model, guide, x, y, z=z, loss=dgp.PredictiveELBO(elbo_share=0.5), steps=3000)

    The predictive density alone is overconfident on small data: 79 % of 90 % intervals hold on
    concrete. A share of the ELBO, ``elbo_share * ELBO + (1 - elbo_share) * predictive``, makes it
    less so. The documentation's tables compare shares.

    A row's density is the mean over K draws of the guide and of the hidden layers' noise, with the
    observed layer's f integrated. The log of that mean is biased downwards, less with more draws.

    Args:
        beta: weight of the KL in the predictive objective.
        elbo_share: weight of the ELBO, from 0 to 1.
        num_particles: K.
        plate: name of the data's plate.

    Raises:
        ValueError: if `beta` is negative or `elbo_share` is not from 0 to 1; in a fit, if the plate
            or an `observe(...)` in it is missing, or the guide lacks latent sites.
        NotImplementedError: for guides without a density (`Implicit`).

    Source: Jankowiak et al. (2020), "Parametric Gaussian process regressors"; Jankowiak et al.
    (2020), "Deep sigma point processes".
    """

    def __init__(
        self,
        beta: float = 1.0,
        num_particles: int = 8,
        *,
        elbo_share: float = 0.0,
        plate: str = "data",
    ) -> None:
        if not (isinstance(beta, Real) and beta >= 0):
            raise ValueError(f"{self._name}: beta is {beta!r}, wanted a number of at least 0")
        if not (isinstance(elbo_share, Real) and 0 <= elbo_share <= 1):
            raise ValueError(
                f"{self._name}: elbo_share is {elbo_share!r}, wanted a number from 0 to 1"
            )
        super().__init__(num_particles, plate)
        self.beta, self.elbo_share = beta, elbo_share

    def _terms(self, guide: Sites, model: Sites) -> _Terms:
        local, shared = self._split(model)
        data = {n: s for n, s in local.items() if s["is_observed"]}
        if not any(as_observed(s["fn"]) for s in data.values()):
            raise ValueError(
                f"{self._name}: plate {self.plate!r} has the sites {list(data)}, wanted one from "
                "observe(...): numpyro.sample('y', dgp.observe(f(x), ...), obs=y)"
            )
        share = self.elbo_share
        density = [(s, log_density(s["fn"], s["value"])) for s in data.values()]
        rows, scale = self._by_row(model, density)
        weight = share + (1 - share) * self.beta
        outside = [weight * term for term in _negative_kls(guide, model)]
        if share:
            outside += [share * term for term in _scaled_log_probs(data)]
        outside += _scaled_log_probs(shared, observed=True)
        return _Terms(_sum(outside), rows, (1 - share) * scale)


def _in_plate(site: Any, plate: str) -> bool:
    return any(frame.name == plate for frame in site["cond_indep_stack"])


def _sum(terms: list[Array]) -> Array:
    return sum(terms, start=jnp.zeros(()))


def _log_prob(site: Any) -> Array:
    intermediates = [site["intermediates"]] if site["intermediates"] else []
    return site["fn"].log_prob(site["value"], *intermediates)


def _scaled_log_probs(sites: Sites, observed: bool = False) -> list[Array]:
    """Return the summed and scaled log density of each sample site, or each observed one."""
    sampled = [s for s in sites.values() if s["type"] == "sample"]
    wanted = [s for s in sampled if s["is_observed"] or not observed]
    return [jnp.sum(scale_and_mask(_log_prob(s), scale=s["scale"])) for s in wanted]


def _negative_kls(guide: Sites, model: Sites) -> list[Array]:
    """Return minus the KL of every latent site, and the guide's factors, as in NumPyro's ELBO."""
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
