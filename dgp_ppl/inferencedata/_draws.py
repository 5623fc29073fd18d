"""Draws of a model's latent sites: of its posterior, by a guide or a sampler, and of its prior."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide, AutoLaplaceApproximation
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import (
    AbstractInducing,
    TransportInducing,
    carries_mean,
    handover_of,
    whole_plates,
    with_handover,
)
from dgp_ppl.inference import Chains, LayerGuide
from dgp_ppl.inferencedata._sites import Sites

__all__ = [
    "NUMBERS",
    "Draws",
    "Given",
    "Program",
    "draws_from_chains",
    "draws_from_guide",
    "draws_from_prior",
]

NUMBERS = 20_000_000
"""Of an answer, that are on the device at once."""


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of a model's latent sites, on the host.

    Attributes:
        values: by site, [C, S, ...]: S draws in each of C chains.
        laws: of layers whose function has a part that the inducing values do not carry (a mean
            with a basis of its own): the law given each draw; leaves lead with [C S].
        log_prior: log density of each draw under the model, in nats, [C, S].
        log_q: log density of each draw under the guide, in nats, [C, S]. None, as `log_prior` is,
            where there is no such density.
    """

    values: dict[str, np.ndarray]
    laws: dict[str, Any] = dataclasses.field(default_factory=dict)
    log_prior: np.ndarray | None = None
    log_q: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Chains C, and draws S of each."""
        chains, num = next(iter(self.values.values())).shape[:2]
        return chains, num


class Given(Messenger):
    """Handler that sets latent sites to draws, and lets layers have a law given their draw."""

    def __init__(self, fn: Any, values: dict[str, Array], laws: dict[str, Any]) -> None:
        super().__init__(fn)
        self.values, self.laws = values, laws

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["name"] not in self.values:
            return
        msg["value"] = self.values[msg["name"]]
        if msg["name"] in self.laws:
            msg["infer"] = with_handover(msg, q=self.laws[msg["name"]], guided=True)


@dataclasses.dataclass(frozen=True)
class Program:
    """A model, and its guide, at some arguments: all that is compiled in."""

    model: Model
    guide: Model | None
    partition: Partition
    latent: tuple[str, ...]
    data: tuple[str, ...] = ()

    def call(self, data: list[Any]) -> Call:
        return self.partition.join(data)


def draws_from_chains(chains: Chains, sites: Sites) -> Draws:
    """A sampler's draws, of what is not the model's noise.

    Raises:
        ValueError: if the chains lack a latent site of the model that is no row's, or have another
            shape of it.
    """
    _check(chains.samples, sites, "posterior_samples")
    return Draws({n: a for n, a in chains.samples.items() if n not in sites.hidden})


def _check(values: Mapping[str, Any], sites: Sites, whose: str) -> None:
    """Whether draws, [C, S, ...], are of the model's latent sites."""
    missing = [n for n in sites.latent if n not in values and n not in sites.rows]
    if missing:
        raise ValueError(
            f"to_inferencedata: {whose} has no draws of {missing[0]!r}, a latent site of the "
            f"model; it has {list(values)}, wanted all of {list(sites.latent)}"
        )
    for name in sites.latent:
        shape, wanted = np.shape(values[name])[2:] if name in values else None, sites.shapes[name]
        if shape is not None and shape != wanted:
            raise ValueError(
                f"to_inferencedata: {whose} has draws of {name!r} of shape {shape}, wanted "
                f"{wanted}; pass MCMC's get_samples() of the same model and data"
            )


def draws_from_guide(
    key: PRNGKey,
    model: Model,
    guide: Model,
    params: Params,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sites: Sites,
    num: int,
) -> Draws:
    """A guide's draws, as one chain, and their log densities where they have any.

    Raises:
        ValueError: if the guide, or the model, has a param that `params` lacks, or the guide does
            not draw a latent site.
    """
    if isinstance(guide, LayerGuide):
        guide.setup(*args, **kwargs)
        guide = guide.drawn()
    elif isinstance(guide, AutoGuide) and guide.prototype_trace is None:
        with handlers.block(), handlers.seed(rng_seed=0):
            guide(*args, **kwargs)
    unset = Sites.from_model(guide, Call(args, kwargs)).params | sites.params
    if missing := sorted(unset - set(params)):
        raise ValueError(
            f"to_inferencedata: params has no {missing[0]!r} ({len(missing)} are missing); it has "
            f"{sorted(params)}, wanted those of the fit, result.params"
        )
    if isinstance(guide, AutoLaplaceApproximation):  # whose trace is its mode
        found = guide.sample_posterior(key, params, *args, sample_shape=(num,), **kwargs)
        return Draws({n: np.asarray(found[n])[None] for n in sites.latent})
    partition, data = Partition.split(model, Call(args, kwargs), guide)
    program = Program(model, guide, partition, tuple(sites.latent))
    values, laws, log_prior, log_q = _in_parts(_from_guide, program, key, num, params, data)
    _check(values, sites, "the guide")
    known = getattr(guide, "has_density", True) and not isinstance(guide, AutoDelta)
    if laws or not known or not _plausible(log_q, values):
        return Draws(values, laws)
    return Draws(values, laws, log_prior, log_q)


def _plausible(log_q: np.ndarray, values: dict[str, np.ndarray]) -> bool:
    """Whether log densities of draws spread as those of a law do, and not as rounding would."""
    size = sum(a[0, 0].size for a in values.values())
    spread = np.ptp(log_q) if np.isfinite(log_q).all() else np.inf
    if spread <= 100 + 2 * size:  # a Gaussian's: some sqrt(2 size)
        return True
    warnings.warn(
        f"the guide's log densities of its draws spread by {spread:.3g} nats, which {size} latent "
        "values do not: q is too narrow for this precision. There are no lp, log_q and log_weight; "
        "train longer, or compute in float64",
        UserWarning,
        stacklevel=4,
    )
    return False


def draws_from_prior(
    key: PRNGKey,
    model: Model,
    params: Params,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sites: Sites,
    num: int,
) -> Draws:
    """Draws of the prior, as one chain."""
    partition, data = Partition.split(model, Call(args, kwargs))
    program = Program(model, None, partition, tuple(sites.latent))
    return Draws(_in_parts(_from_prior, program, key, num, params, data))


def _in_parts(
    draw: Any, program: Program, key: PRNGKey, num: int, params: Params, data: list[Any]
) -> Any:
    """Draws part by part, moved to the host as they come, with a leading axis of one chain."""
    keys = random.split(key, num)
    one = jax.eval_shape(partial(draw, program), keys[:1], params, data)
    size = sum(math.prod(a.shape) for a in jax.tree.leaves(one))
    at_once = max(1, min(num, NUMBERS // max(size, 1)))
    parts = []
    for start in range(0, num, at_once):
        part = draw(program, keys[start : start + at_once], params, data)
        parts.append(jax.tree.map(np.asarray, part))
    whole = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    # Laws keep one leading axis: they go back to the device as they are.
    chain = lambda tree: jax.tree.map(lambda a: a[None], tree)  # noqa: E731
    return (chain(whole[0]), whole[1], *chain(whole[2:])) if len(whole) == 4 else chain(whole[0])


@partial(jax.jit, static_argnums=0)
def _from_prior(program: Program, keys: Array, params: Params, data: list[Any]) -> Any:
    args, kwargs = program.call(data)

    def draw(key: PRNGKey) -> Any:
        model = handlers.substitute(handlers.seed(whole_plates(program.model), key), data=params)
        trace = handlers.trace(model).get_trace(*args, **kwargs)
        return {n: trace[n]["value"] for n in program.latent}

    return (lax.map(draw, keys),)


@partial(jax.jit, static_argnums=0)
def _from_guide(program: Program, keys: Array, params: Params, data: list[Any]) -> Any:
    args, kwargs = program.call(data)
    guide: Any = program.partition.guide(program.guide, data)
    known = getattr(guide, "has_density", True)

    def draw(key: PRNGKey) -> Any:
        key, key_model = random.split(key)
        seeded = handlers.substitute(handlers.seed(whole_plates(guide), key), data=params)
        trace = handlers.trace(_Drawing(seeded)).get_trace(*args, **kwargs)
        drawn = {n: s for n, s in trace.items() if s["type"] == "sample"}
        log_q = sum(_log_density(s) for s in (drawn.values() if known else ()))
        found = {n: s for n, s in drawn.items() if n in program.latent}
        values = {n: s["value"] for n, s in found.items()}
        model = handlers.seed(Given(whole_plates(program.model), values, {}), key_model)
        model = handlers.substitute(model, data=params)
        prior = handlers.trace(model).get_trace(*args, **kwargs)
        factors = {n: s["value"] for n, s in prior.items() if _is_factor(s)}
        log_prior = sum(jnp.sum(prior[n]["fn"].log_prob(a)) for n, a in (values | factors).items())
        laws = {n: _given_draw(handover_of(s).q, s["value"]) for n, s in found.items()}
        laws = {n: q for n, q in laws.items() if q is not None}
        return values, laws, jnp.asarray(log_prior), jnp.asarray(log_q)

    return lax.map(draw, keys)


class _Drawing(Messenger):
    """Keeps the noise that inducing values are drawn from, as their density is known of it."""

    def process_message(self, msg: Any) -> None:
        open_ = msg["type"] == "sample" and msg["value"] is None
        if open_ and isinstance(msg["fn"], AbstractInducing):
            msg["value"], white = msg["fn"].draw(msg["kwargs"]["rng_key"])
            msg["infer"] = with_handover(msg, white=white)


def _log_density(site: Any) -> Array:
    """Of a guide's draw, in nats."""
    white = handover_of(site).white
    if white is not None:
        return site["fn"].log_prob_from_white(white)
    return jnp.sum(site["fn"].log_prob(site["value"]))


def _is_factor(site: Any) -> bool:
    return site["type"] == "sample" and isinstance(site["fn"], dist.Unit)


def _given_draw(q: Any, v: Array) -> AbstractInducing | None:
    """The law of a layer given a draw of v, where that is more than the draw itself."""
    if not isinstance(q, TransportInducing) or carries_mean(q):
        return None
    return q.scaled(q.to_white(v), jnp.zeros_like(v))
