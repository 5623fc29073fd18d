"""Draws of a model's latent sites from a guide, a sampler or the prior."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call, CallArrays, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import AbstractInducing, TransportInducing
from dgp_ppl.core._handover import handover_of, with_handover
from dgp_ppl.core._minibatch import whole_plates
from dgp_ppl.inference import Chains, LayerGuide
from dgp_ppl.inference.runs._blocks import PassProgram
from dgp_ppl.inferencedata._sites import ModelSites


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of a model's latent sites, in host memory."""

    values: dict[str, np.ndarray]  # by site, [C, S, ...]: S draws in each of C chains
    # By site, the distribution of a layer's function given each draw of v, where v does not
    # determine the mean (a mean with a separate basis); leaves are [C S, ...].
    conditionals: dict[str, Any] = dataclasses.field(default_factory=dict)
    log_prior: np.ndarray | None = None  # log density of each draw under the model, in nats, [C, S]
    # Log density of each draw under the guide, in nats, [C, S]. Both log densities are None where
    # the guide has no density.
    log_q: np.ndarray | None = None
    # The model's deterministic sites at each draw, [C, S, ...].
    deterministic: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains C, and of draws S in each."""
        chains, num = next(iter(self.values.values())).shape[:2]
        return chains, num


class SetDraws(Messenger):
    """Handler that sets latent sites to draws; layers use the conditionals as their q(v)."""

    def __init__(self, fn: Any, values: dict[str, Array], conditionals: dict[str, Any]) -> None:
        super().__init__(fn)
        self.values, self.conditionals = values, conditionals

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["name"] not in self.values:
            return
        msg["value"] = self.values[msg["name"]]
        if msg["name"] in self.conditionals:
            msg["infer"] = with_handover(msg, q=self.conditionals[msg["name"]], guided=True)


def draws_from_chains(chains: Chains, sites: ModelSites) -> Draws:
    """Return a sampler's draws, without draws of auxiliary sites."""
    _check(chains.samples, sites, "posterior_samples")
    return Draws({n: a for n, a in chains.samples.items() if n not in sites.auxiliary})


def _check(values: Mapping[str, Any], sites: ModelSites, source: str) -> None:
    """Raise unless draws, [C, S, ...], fit the model's latent sites."""
    names = list(sites.latent_dims)
    missing = [n for n in names if n not in values and n not in sites.row_sites]
    if missing:
        raise ValueError(
            f"to_inferencedata: {source} has no draws of {missing[0]!r}, a latent site of the "
            f"model; it has {list(values)}, wanted all of {names}"
        )
    for name, wanted in sites.latent_shapes.items():
        shape = np.shape(values[name])[2:] if name in values else None
        if shape is not None and shape != wanted:
            raise ValueError(
                f"to_inferencedata: {source} has draws of {name!r} of shape {shape}, wanted "
                f"{wanted}; pass MCMC's get_samples() of the same model and data"
            )


def draws_from_guide(
    key: PRNGKey, model: Model, guide: Model, params: Params, call: Call, sites: ModelSites,
    num: int,
) -> Draws:  # fmt: skip
    """Draw from a guide, as one chain, with log densities where the guide has them."""
    guide = guide.drawn() if isinstance(guide, LayerGuide) else guide
    if isinstance(guide, AutoLaplaceApproximation):  # a trace of it is only the mode
        found = guide.sample_posterior(key, params, *call.args, sample_shape=(num,), **call.kwargs)
        return Draws({n: np.asarray(found[n])[None] for n in sites.latent_dims})
    partition, data = Partition.split(model, call, guide)
    found = _draw_guide((partition, (*sites.latent_dims,)), np.arange(num), key, params, data)
    *found, conditionals = jax.tree.map(np.asarray, found)
    # Conditionals go back to the device as they are, without the axis of chains.
    values, log_prior, log_q = jax.tree.map(lambda a: a[None], found)
    deterministic = {n: values.pop(n) for n in sites.deterministic_dims if n in values}
    _check(values, sites, "the guide")
    has_density = getattr(guide, "has_density", True) and not isinstance(guide, AutoDelta)
    if conditionals or not has_density or not _plausible(log_q, values):
        return Draws(values, conditionals, deterministic=deterministic)
    return Draws(values, conditionals, log_prior, log_q, deterministic)


def _plausible(log_q: np.ndarray, values: dict[str, np.ndarray]) -> bool:
    """Return whether log densities vary as draws' densities do, not only by rounding errors."""
    size = sum(a[0, 0].size for a in values.values())
    spread = np.ptp(log_q) if np.isfinite(log_q).all() else np.inf
    if spread <= 100 + 2 * size:  # for a Gaussian about sqrt(2 size)
        return True
    warnings.warn(
        f"the guide's log densities of its draws spread over {spread:.3g} nats, too much for "
        f"{size} latent values: q is too narrow for this precision. The tree has no lp, log_q and "
        "log_weight; train longer, or compute in float64",
        stacklevel=4,
    )
    return False


def draws_from_prior(
    key: PRNGKey, model: Model, params: Params, call: Call, sites: ModelSites, num: int
) -> Draws:
    """Draw from the prior, as one chain."""
    partition, data = Partition.split(model, call)
    found = _draw_prior((partition, (*sites.latent_dims,)), np.arange(num), key, params, data)
    values = {n: np.asarray(a)[None] for n, a in found.items()}
    deterministic = {n: values.pop(n) for n in sites.deterministic_dims if n in values}
    return Draws(values, deterministic=deterministic)


@PassProgram
def _draw_prior(
    static: tuple[Partition, tuple[str, ...]], number: Array, key: PRNGKey, params: Params,
    data: CallArrays,
) -> dict[str, Array]:  # fmt: skip
    partition, latent_sites = static
    call, key = partition.join(data), random.fold_in(key, number)
    model = handlers.substitute(handlers.seed(whole_plates(partition.model), key), data=params)
    trace = handlers.trace(model).get_trace(*call.args, **call.kwargs)
    return {n: trace[n]["value"] for n in latent_sites} | _deterministic(trace)


@PassProgram
def _draw_guide(
    static: tuple[Partition, tuple[str, ...]], number: Array, key: PRNGKey, params: Params,
    data: CallArrays,
) -> Any:  # fmt: skip
    """Draw once: values by site, log densities under model and guide, and conditionals."""
    partition, latent_sites = static
    call = partition.join(data)
    guide: Any = partition.guide_with(data)
    has_density = getattr(guide, "has_density", True)

    key, key_model = random.split(random.fold_in(key, number))
    seeded = handlers.substitute(handlers.seed(whole_plates(guide), key), data=params)
    trace = handlers.trace(_RecordNoise(seeded)).get_trace(*call.args, **call.kwargs)
    sampled = {n: s for n, s in trace.items() if s["type"] == "sample"}
    log_q = sum(_log_density(s) for s in (sampled.values() if has_density else ()))
    latent = {n: s for n, s in sampled.items() if n in latent_sites}
    values = {n: s["value"] for n, s in latent.items()}
    model = handlers.seed(SetDraws(whole_plates(partition.model), values, {}), key_model)
    model = handlers.substitute(model, data=params)
    prior = handlers.trace(model).get_trace(*call.args, **call.kwargs)
    factors = {
        n: s["value"]
        for n, s in prior.items()
        if s["type"] == "sample" and isinstance(s["fn"], dist.Unit)
    }
    log_prior = sum(
        jnp.sum(_factor(prior[n]) * prior[n]["fn"].log_prob(a))
        for n, a in (values | factors).items()
    )
    conditionals = {n: _conditional(handover_of(s).q, s["value"]) for n, s in latent.items()}
    conditionals = {n: q for n, q in conditionals.items() if q is not None}
    values = _deterministic(prior) | values
    return values, jnp.asarray(log_prior), jnp.asarray(log_q), conditionals


def _deterministic(trace: dict[str, Any]) -> dict[str, Array]:
    return {n: jnp.asarray(s["value"]) for n, s in trace.items() if s["type"] == "deterministic"}


class _RecordNoise(Messenger):
    """Records the noise behind draws of inducing values: their densities are computed from it."""

    def process_message(self, msg: Any) -> None:
        unset = msg["type"] == "sample" and msg["value"] is None
        if unset and isinstance(msg["fn"], AbstractInducing):
            msg["value"], white = msg["fn"].draw(msg["kwargs"]["rng_key"])
            msg["infer"] = with_handover(msg, white=white)


def _factor(site: Any) -> Any:
    return 1.0 if site["scale"] is None else site["scale"]  # of `handlers.scale`


def _log_density(site: Any) -> Array:
    """Return the log density of a guide's draw, in nats."""
    white = handover_of(site).white
    if white is not None:
        return _factor(site) * site["fn"].log_prob_from_white(white)
    return jnp.sum(_factor(site) * site["fn"].log_prob(site["value"]))


def _conditional(q: Any, v: Array) -> AbstractInducing | None:
    """Return a layer's distribution given a draw of v; None where v determines its mean."""
    if not isinstance(q, TransportInducing) or q.determines_mean:
        return None
    return q.scaled(q.to_white(v), jnp.zeros_like(v))
