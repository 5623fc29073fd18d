"""Hyperparameters by Monte Carlo EM over a moving window of a sampler's states."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import random
from numpyro import handlers
from numpyro.distributions import biject_to, constraints

from dgp_ppl._checks import (
    check_counts,
    check_key,
    check_kind,
    check_positive,
    check_shapes,
    check_value,
    checked_call,
    params_of,
)  # fmt: skip
from dgp_ppl._errors import Interrupted, NonFiniteLossError, one_line
from dgp_ppl._partition import Call, alone, compiled
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.inference.programs._optimizer import default_optimizer
from dgp_ppl.inference.runs._checkpoint import folder_of
from dgp_ppl.inference.runs._identity import Identity, with_noise
from dgp_ppl.inference.runs._loop import Block, run_blocks
from dgp_ppl.inference.runs._pickling import Portable
from dgp_ppl.inference.runs._summary import Summarized, list_arrays, list_losses
from dgp_ppl.inference.samplers._chains import Chains
from dgp_ppl.inference.samplers._em import EMState, ExpectationMaximization, at_params, with_params
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC


@dataclasses.dataclass(frozen=True, repr=False)
class MCEMResult(Summarized, Portable):
    """The result of `fit_mcem`. It can be pickled.

    Attributes:
        params: constrained values of the model's params.
        chains: draws of the latent sites at these params.
        losses: the sampler's potential energy at every iteration, [steps]; a minibatch estimate, in
            nats.
        seconds: wall-clock time, including compilation.
    """

    params: Params
    chains: Chains
    losses: np.ndarray
    seconds: float

    def summary(self) -> list[str]:
        first = list_losses("potential energy", self.losses, self.seconds)
        chains, *others = repr(self.chains).splitlines()
        return [f"{first} nats", *list_arrays("params", self.params), f"chains: {chains}", *others]


def fit_mcem(
    key: PRNGKey,
    model: Model,
    *args: Any,
    steps: int = 6000,
    learning_rate: float = 0.03,
    optimizer: Any = None,
    window: int = 100,
    num_samples: int = 100,
    thinning: int = 50,
    num_chains: int = 1,
    expected: float = 0.5,
    start: Fitted | Params | None = None,
    progress: bool | str = True,
    sampler: Callable[[Model], SGHMC] = SGHMC,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    **kwargs: Any,
) -> MCEMResult:
    """Fit params and draw from the posterior by moving-window MCEM (Havasi et al. 2018, section 4).

    Each iteration makes one step of the sampler, and one step of the optimiser in the model's
    params at a state drawn from the last `window` states. After `steps` iterations the params and
    the sampler's scales stay fixed, and draws are kept. Nothing warns of too few steps: energies at
    the params' last nat of evidence vary by more. To be sure, take twice the steps::

        result = dgp.fit_mcem(key, model, x, y, z=z, batch_size=1000, num_chains=2)

    Args:
        key: random key; the same key gives the same result.
        model: a NumPyro model with params.
        *args: its positional arguments.
        steps: iterations.
        learning_rate: initial rate of the default optimiser, Adam with `fit`'s cosine decay.
        optimizer: an optax optimiser to use instead.
        window: number W of past states to draw from.
        num_samples: draws of every chain.
        thinning: steps of the sampler per draw.
        num_chains: number of chains. The M-step draws from the windows of all. Chains share their
            start and the path of the params, so R-hat may miss a lack of convergence.
        expected: weight of E log p(y | f) in the objective of the params, between 0 and 1; the rest
            is log E p(y | f), with expectations over p(f | v). The published objective is 0. At 0
            the variance of f given v can explain residuals, and the noise can vanish: predictive
            densities may improve while means worsen.
        start: initial values of some or all params, or a fit's result, whose params of a guide are
            left out; other params start at the model's initial values.
        progress: show a progress bar; a string is its label.
        sampler: a function from a model to its `SGHMC`, such as
            ``functools.partial(SGHMC, friction=0.1)``.
        checkpoint: folder for this run only. A call with the same arguments resumes a killed run
            and returns the result of an uninterrupted one. None writes nothing.
        every: least number of steps between checkpoints.
        **kwargs: the model's keyword arguments.

    Returns:
        The fitted params, and draws of the latent sites at these params.

    Raises:
        DataError: if `checkpoint` holds another run, or damaged or foreign files, is in use, or
            cannot be written; if the data are NaN or out of the support, as in `fit`.
        Interrupted: at Ctrl-C, a `KeyboardInterrupt`. Its `result` has the params and draws so far.
        NonFiniteLossError: if the energy or a param is not finite.
        TypeError: if `key` is not a random key, or a number is not an integer.
        ValueError: if the model has no params, `start` has unknown params or invalid values, a
            number is not positive, `expected` is outside [0, 1], or `sampler` does not make an
            `SGHMC`.
    """
    check_key("fit_mcem", key)
    if not isinstance(expected, Real) or not 0 <= expected <= 1:
        raise ValueError(
            f"fit_mcem: expected is {one_line(expected)}, wanted a number between 0 and 1"
        )
    numbers = {
        "steps": steps, "window": window, "num_samples": num_samples, "thinning": thinning,
        "num_chains": num_chains, "every": every,
    }  # fmt: skip
    check_counts("fit_mcem", **numbers)
    check_positive("fit_mcem", "learning_rate", learning_rate)
    wanted = "an optax optimiser, such as optax.adam(0.01), or None"
    check_kind("fit_mcem", "optimizer", optimizer, optax.GradientTransformation | None, wanted)
    check_kind("fit_mcem", "sampler", sampler, Callable, "a function that makes an SGHMC")
    begun = time.perf_counter()
    args, kwargs = call = checked_call("fit_mcem", model, None, args, kwargs)
    path = Path(checkpoint) if isinstance(checkpoint, str | os.PathLike) else None
    with folder_of("fit_mcem", path / "fit" if path else checkpoint) as folder:
        check_data("fit_mcem", model, call)
        key_params, key_init, key_em, key_run = random.split(key, 4)
        # The params are an argument of the model: one compiled program serves all their values.
        kernel: Any = sampler(partial(at_params, model))
        if not isinstance(kernel, SGHMC):
            raise ValueError(
                f"fit_mcem: sampler makes {type(kernel).__name__}, wanted SGHMC, such as "
                "functools.partial(SGHMC, friction=0.1); for draws by another kernel give the "
                "params of this fit to run_mcmc"
            )
        given: Params = {} if start is None else params_of("fit_mcem", start, "start")
        is_fit = not isinstance(start, Mapping | None)
        unconstrained, bijections, given = _initial_params(key_params, model, given, is_fit, call)
        optimizer = default_optimizer(learning_rate, steps) if optimizer is None else optimizer
        em = ExpectationMaximization(kernel, optimizer, bijections, call, expected)
        keys = random.split(key_init, num_chains)
        first = kernel.init(keys, steps, None, *with_params(em.params(unconstrained), call))
        state = em.init(key_em, first, window, unconstrained)
        if folder is not None:
            folder.identity = Identity(
                lambda: em.program.trace(state, em.data),
                lambda rounding: em.advance(with_noise(state, 0, rounding), 1)[0],
                (first.unconstrained, unconstrained), (key, given or None, args, kwargs),
                kernel=type(kernel).__name__, steps=steps, window=window, num_chains=num_chains,
                learning_rate=learning_rate, expected=expected,
            )  # fmt: skip

        def advance(state: EMState, done: int) -> Block:
            state, energies = em.advance(state, steps - done)
            _check_finite(energies, done, em.params(state.unconstrained))
            note = f"potential energy {energies.mean():.5g} nats"
            return Block(state, len(energies), [energies.astype(np.float64)], note)

        fit = run_blocks(
            advance, state, steps, label="fit", progress=progress, folder=folder, every=every
        )
        state, losses = fit.state, fit.columns[0] if fit.columns else np.zeros(0)
        params = em.params(state.unconstrained)
        try:
            if fit.interrupt is not None:
                raise fit.interrupt
            chains = run_mcmc(
                key_run, kernel, params, *args, num_warmup=0, num_samples=num_samples,
                thinning=thinning, num_chains=num_chains, start=state.sampler,
                extra_fields=("potential_energy", "temperature"), progress=progress,
                checkpoint=path and path / "draws", every=every, **kwargs,
            )  # fmt: skip
        except KeyboardInterrupt as error:
            is_ours = isinstance(error, Interrupted)
            chains = error.result if is_ours else Chains({}, state=state.sampler)
            raise Interrupted(
                f"fit_mcem: interrupted after {len(losses)} of {steps} iterations with "
                f"{chains.shape[1] if chains.samples else 0} of {num_samples} draws of each chain, "
                "which are the error's result. To go on, call fit_mcem "
                + ("with start=error.result: it begins" if path is None else "again: it resumes")
                + (" at its params" if path is None else " from the last checkpoint"),
                MCEMResult(params, chains, losses, time.perf_counter() - begun),
            ) from error
        return MCEMResult(params, chains, losses, time.perf_counter() - begun)


def _check_finite(energies: np.ndarray, done: int, params: Params) -> None:
    is_finite = lambda tree: all(np.isfinite(a).all() for a in jax.tree.leaves(tree))  # noqa: E731
    bad = [f"param {n}" for n, value in params.items() if not is_finite(value)]
    finite = np.isfinite(energies)
    if finite.all() and not bad:
        return
    step = done + (len(energies) if finite.all() else int(np.argmin(finite)))
    site = [*bad, "the potential energy"][0]
    raise NonFiniteLossError(
        f"fit_mcem: not finite at step {step}: {site}. Try a smaller learning_rate or step_size of "
        "the sampler, or standardised data (dgp_ppl.Standardizer)",
        step=step,
        site=site,
        result=None,
    )


def _initial_params(
    key: PRNGKey, model: Model, start: Params, is_result: bool, call: Call
) -> tuple[Params, dict[str, Any], Params]:
    """Return unconstrained params, their bijections, and `start` without params of a guide."""
    supports: dict[str, Any] = {}

    def run() -> Params:
        tracer = handlers.trace(handlers.seed(model, key))
        sites = tracer.get_trace(*call.args, **call.kwargs)
        params = {n: s for n, s in sites.items() if s["type"] == "param"}
        for name, site in params.items():
            supports[name] = site["kwargs"].get("constraint", constraints.real)
        return {n: s["value"] for n, s in params.items()}

    with alone():
        initial = compiled(run)()
    if not initial:
        raise ValueError(
            "fit_mcem: the model has no params to learn; sample it by MCMC(dgp_ppl.SGHMC(model))"
        )
    if is_result and start.keys() & initial.keys():
        start = {n: value for n, value in start.items() if n in initial}
    if unknown := [n for n in start if n not in initial]:
        raise ValueError(
            f"fit_mcem: start has {unknown}, wanted params of the model: {list(initial)}; leave "
            "out a guide's params"
        )
    bijections = {n: biject_to(support) for n, support in supports.items()}
    unconstrained = {}
    for name, value in (initial | start).items():
        check_shapes("fit_mcem: start", name, value, initial[name], shared=False)
        if name in start:
            check_value(f"fit_mcem: start[{name!r}]", value, supports[name])
        value = jax.tree.map(lambda a: jnp.asarray(a, float), value)
        unconstrained[name] = jax.tree.map(bijections[name].inv, value)
    return unconstrained, bijections, start
