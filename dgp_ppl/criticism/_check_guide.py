"""Diagnostics of a variational fit: NumPyro's PSIS k-hat and VSBC."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from jax import random
from numpyro import handlers
from numpyro.infer import psis_diagnostic
from numpyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation
from numpyro.infer.calibration import vsbc_diagnostic
from numpyro.infer.elbo import ELBO
from numpyro.optim import optax_to_numpyro
from scipy.stats import binom

from dgp_ppl._checks import check_count, check_key, checked_call
from dgp_ppl._partition import TRACING, Call, alone
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl._waiting import Waiting
from dgp_ppl.core._handover import handover_of, is_layer, with_handover
from dgp_ppl.inference import LayerGuide, freeze
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inference.svi._setup import guide_optimizer
from dgp_ppl.inferencedata._sites import ModelSites

_LEVEL = 0.05
_FALL = 0.25  # nats, of losses that still fall: means may be 0.7 sd off


@dataclasses.dataclass(frozen=True)
class GuideCheck:
    """Result of `check_guide`.

    Attributes:
        khat: Pareto shape of the importance weights p(y, v) / q(v). Below 0.7, q is close enough
            to the posterior for weighted draws to correct it. None where q has no density.
        probabilities: P_q(v < v*) of each latent entry in each simulation, [R, ...] by site; None
            without simulations.
        p_values: p-value of each latent entry for these probabilities being symmetric about 1/2,
            [...] by site. Small values mean that the guide is biased. For an exact guide at most
            5 % are below 0.05. They do not see a guide that is too narrow or too wide.
        caveat: why the p-values cannot be trusted, if the simulated fits had not converged.
    """

    khat: float | None
    probabilities: dict[str, np.ndarray] | None = None
    p_values: dict[str, np.ndarray] | None = None
    caveat: str = ""

    @property
    def biased_share(self) -> float | None:
        """Fraction of latent entries with a p-value below 0.05; by chance at most 0.05."""
        if self.p_values is None:
            return None
        return float(np.mean(np.concatenate([p.ravel() for p in self.p_values.values()]) < _LEVEL))

    def __str__(self) -> str:
        if self.khat is None:
            text = "PSIS k-hat: none, as q has no density"
        else:
            verdict = "close to" if self.khat < 0.7 else "far from"
            text = f"PSIS k-hat {self.khat:.2f}: q is {verdict} the posterior (limit 0.7)"
        if self.p_values is None:
            return text
        num = sum(p.size for p in self.p_values.values())
        return (
            f"{text}; VSBC: {self.biased_share:.0%} of {num} latent entries have p < 0.05 "
            f"(at most 5% by chance; blind to a wrong spread){self.caveat and '; '}{self.caveat}"
        )


def check_guide(
    key: PRNGKey,
    model: Model,
    guide: Model,
    params: Params | Fitted,
    *args: Any,
    num_weights: int = 1000,
    num_simulations: int = 50,
    steps: int = 1000,
    learning_rate: float = 0.02,
    num_draws: int = 200,
    **kwargs: Any,
) -> GuideCheck:
    """Run NumPyro's two diagnostics of a variational fit, at its hyperparameters.

    k-hat looks at the importance weights of this fit. VSBC (variational simulation-based
    calibration) checks whether the guide's marginals are biased over data sets from the model: it
    draws v and y from the model, fits the guide to y with the model's params fixed, and finds the
    rank of v among the guide's draws. A guide that is centred but too narrow passes: look at k-hat,
    or compare with NUTS. It costs `num_simulations` fits::

        check = dgp.check_guide(key, model, guide, fit.params, x, y)
        print(check)

    Args:
        key: random key.
        model: the model; ``model(x, None, *args[2:], **kwargs)`` must draw y.
        guide: its fitted guide.
        params: the fit's params, or its result.
        *args: the model's arguments, x and y by position.
        num_weights: number of importance weights for k-hat.
        num_simulations: data sets that VSBC simulates and fits, at least 2; 0 skips it.
        steps: optimiser steps of each fit, from the guide's own start.
        learning_rate: initial learning rate of these fits, which have the optimiser and objective
            of `fit`.
        num_draws: draws from each fitted guide.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if x or y is not given by position, a number is too small, the model has a
            ``batch_size`` or several observed sites, or the names or shapes of params are not
            the model's and the guide's.

    Warns:
        UserWarning: if losses of the simulated fits still fell at half of the steps, by more than
            0.25 nats in an eighth of the steps. P-values may then be too small.

    Source: Yao et al. 2018, "Yes, but Did It Work?: Evaluating Variational Inference".
    """
    check_key("check_guide", key)
    if len(args) < 2:
        raise ValueError(
            f"check_guide: got {len(args)} positional arguments of the model, wanted x and y by "
            "position"
        )
    check_count("check_guide", "num_weights", num_weights, 10)
    check_count("check_guide", "num_simulations", num_simulations, 2 if num_simulations else 0)
    check_count("check_guide", "steps", steps)
    check_count("check_guide", "num_draws", num_draws, 2)
    if kwargs.get("batch_size") is not None:
        raise ValueError("check_guide: got a batch_size, wanted all rows; leave it out")
    args, kwargs = call = checked_call("check_guide", model, guide, args, kwargs)
    data_sites = list(ModelSites.from_model(model, call).data_dims)
    if num_simulations and len(data_sites) != 1:
        raise ValueError(
            f"check_guide: the model observes {data_sites}, wanted one site for VSBC; pass "
            "num_simulations=0 for k-hat alone"
        )
    params = checked_params("check_guide", params, model, guide, call)
    key_weights, key_simulate = random.split(key)
    tail = khat(key_weights, guide, model, params, call, num_weights)
    if not num_simulations:
        return GuideCheck(tail)
    with TRACING:
        trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
    fixed = {n: params[n] for n, s in trace.items() if s["type"] == "param" and n in params}
    simulator = _hide_noise(freeze(model, fixed))
    new_guide = guide.with_model(freeze(model, fixed)) if isinstance(guide, LayerGuide) else guide
    loss: ELBO = numpyro.infer.Trace_ELBO()
    if isinstance(new_guide, LayerGuide):
        new_guide.setup(args[0], None, *args[2:], **kwargs)
        loss = new_guide.default_loss

    def as_second_argument(data: dict[str, Any], x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        return (x, data[data_sites[0]], *args), kwargs

    if jnp.issubdtype(key_simulate.dtype, jax.dtypes.prng_key):
        key_simulate = random.key_data(key_simulate)  # NumPyro reshapes it, as an old-style key
    optimizer, sums = _watched(guide_optimizer(new_guide, learning_rate, steps), steps)
    in_turn: Any = functools.partial(_without_lock, sums=sums)  # a function, not a name
    with TRACING, Waiting():
        found = vsbc_diagnostic(
            key_simulate, simulator, new_guide, optimizer, loss, args[0], None, *args[2:],
            observed_sites=data_sites, num_simulations=num_simulations, num_svi_steps=steps,
            num_samples=num_draws, simulated_data_to_args=as_second_argument,
            chain_method=in_turn, **kwargs,
        )  # fmt: skip
    arrays = lambda d: {n: np.asarray(a) for n, a in d.items()}  # noqa: E731
    probabilities = arrays(found.probabilities)
    p_values = {n: symmetry_p_values(p) for n, p in probabilities.items()}
    # At half of the steps, as a fall of the rates lowers losses too.
    falls = -np.diff(sums[-1] / np.maximum(np.bincount(_eighths(steps), minlength=8)[2:4], 1))
    fall, error = float(falls.mean()), float(falls.std()) / math.sqrt(num_simulations)
    caveat = ""
    if fall > max(_FALL, 2 * error):
        how_far = f"losses fell by {fall:.2g} nats in an eighth of the steps"
        caveat = f"its fits had not converged ({how_far}): raise steps"
        warnings.warn(f"check_guide: VSBC: {caveat}; p-values may be too small", stacklevel=2)
    return GuideCheck(tail, probabilities, p_values, caveat)


def _eighths(steps: int) -> np.ndarray:
    return 8 * np.arange(steps) // steps


def _watched(optimizer: Any, steps: int) -> tuple[Any, list[Any]]:
    """Return NumPyro's form of an optimiser, and a list of sums of losses, the last at its end.

    The sums are of the third and of the fourth eighth of the steps.
    """

    def update(updates: Any, state: Any, params: Any = None, **given: Any) -> Any:
        n, sums = state
        seen = jnp.asarray(_eighths(steps))[n] == jnp.arange(2, 4)
        return updates, (n + 1, sums + jnp.where(seen, given["value"], 0.0))

    def get_params(state: Any) -> Any:
        sums.append(state[1][1][-1][1])
        return inner(state)

    sums: list[Any] = []
    start = lambda params: (jnp.zeros((), jnp.int32), jnp.zeros(2))  # noqa: E731
    watch = optax.GradientTransformationExtraArgs(start, update)
    found: Any = optax_to_numpyro(optax.chain(optimizer, watch))
    inner, found.get_params = found.get_params, get_params
    return found, sums


def _without_lock(simulation: Callable[..., Any], sums: list[Any]) -> Callable[..., Any]:
    """Return the simulation of several data sets in turn, whose run needs no `TRACING`.

    The last of the `sums` that it traces becomes an array, of all data sets.
    """

    def run(arguments: Any) -> Any:
        one = lambda a: (simulation(a), sums[-1])  # noqa: E731
        program = jax.jit(functools.partial(jax.lax.map, one)).lower(arguments).compile()
        TRACING.release()
        try:
            found, sums[-1] = jax.block_until_ready(program(arguments))
            return found
        finally:
            TRACING.acquire()

    return run


def symmetry_p_values(probabilities: np.ndarray) -> np.ndarray:
    """Return p-values of columns [R, ...] being symmetric about 1/2, [...], by Yao's statistic.

    The statistic is the Kolmogorov-Smirnov distance between the p and the 1 - p. These depend on
    each other: if symmetric, the sign of p - 1/2 is a coin toss given its size, and R times the
    distance is the farthest that a random walk of these signs gets, from the largest size to the
    smallest. Its distribution is exact by reflection; equal sizes make it conservative. NumPyro's
    p-values take both for independent samples: too small, by a factor of two near 0.05.
    """
    d = np.asarray(probabilities, np.float64).reshape(len(probabilities), -1) - 0.5
    p_values = np.ones(d.shape[1])
    for i, signed in enumerate(d.T.round(9)):  # so that p and 1 - p have one size
        size = -np.sort(-np.abs(signed))
        walk = np.abs(np.cumsum(np.sign(signed[np.argsort(-np.abs(signed), kind="stable")])))
        farthest = walk[np.append(np.diff(size) < 0, True)].max()  # where no equal size follows
        if farthest:
            p_values[i] = walk_p_value(int(farthest), int(np.count_nonzero(signed)))
    return p_values.reshape(probabilities.shape[1:])


@functools.cache
def walk_p_value(farthest: int, steps: int) -> float:
    """Return the probability that a walk of fair steps of size 1 gets `farthest` from 0 or more."""
    # By reflection: P(max S >= a) = P(S >= a) + P(S > a) for the end S of a walk of n steps, where
    # (S + n) / 2 is binomial. Both sides alternate over the odd multiples of the distance.
    multiples = np.arange(1, steps + 1, 2) * farthest
    ends = binom.sf(np.ceil((steps + multiples) / 2) - 1, steps, 0.5)
    ends += binom.sf(np.floor((steps + multiples) / 2), steps, 0.5)
    return float(min(1.0, 2 * np.sum(ends * (-1.0) ** np.arange(len(ends)))))


def _hide_noise(model: Model) -> Model:
    """Return the model with its auxiliary sites, the hidden layers' noise, hidden from VSBC."""

    def hidden(*args: Any, **kwargs: Any) -> Any:
        key = numpyro.prng_key()
        inner = model if key is None else handlers.seed(model, key)
        is_auxiliary = lambda site: bool(site.get("infer", {}).get("is_auxiliary"))  # noqa: E731
        return handlers.block(inner, hide_fn=is_auxiliary)(*args, **kwargs)

    return hidden


def khat(
    key: PRNGKey, guide: Model, model: Model, params: Params, call: Call, num: int
) -> float | None:
    """Run NumPyro's `psis_diagnostic`, with draws of v where the model would integrate over q(v).

    Each weight has its own draw of the hidden layers' noise, for which no q(v) accounts: k-hat is
    larger. It is None if q(v) has no density, or v does not determine the mean.
    """
    is_point = isinstance(guide, AutoDelta | AutoLaplaceApproximation)
    if is_point or not getattr(guide, "has_density", True):
        return None
    drawn = guide.drawn() if isinstance(guide, LayerGuide) else guide
    posteriors: list[Any] = []

    def without_q(site: Any) -> dict[str, Any]:
        posteriors.append(handover_of(site).q)
        return with_handover(site, q=None) if is_layer(site) else {}

    program = handlers.infer_config(drawn, config_fn=without_q)
    with alone(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
        program(*call.args, **call.kwargs)
    if any(q is not None and not q.determines_mean for q in posteriors):
        return None
    with TRACING:  # in all of it: NumPyro runs the model as it is, for each chunk of draws
        found = psis_diagnostic(
            key, params, model, program, *call.args, num_particles=num, chunk_size=min(num, 100),
            **call.kwargs,
        )  # fmt: skip
    return float(found)
