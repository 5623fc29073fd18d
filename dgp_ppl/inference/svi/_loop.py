"""The loop of a fit: steps in chunks on the device, and what went wrong in a step."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax, random
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import SVI
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._partition import Partition
from dgp_ppl._progress import Progress
from dgp_ppl._typing import Model, Params
from dgp_ppl.inference.runs._blocks import PassProgram, StepProgram
from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.svi._feed import Feed, at_step

__all__ = [
    "MOST_STEPS", "Outcome", "TrainingLoop", "cached_loop", "chunk_length", "losses_of",
    "run_steps", "training_loop",
]  # fmt: skip

MOST_STEPS = 200  # steps in one call of the device, at most


class TrainingLoop:
    """The compiled pieces of a fit. They serve all data of the same shapes.

    The methods take the arrays of the model and the guide as `data`, from `Partition.split`, or
    from a `Feed`: those of several steps, of which step i of a chunk takes the i-th.
    """

    def __init__(self, svi: SVI, partition: Partition) -> None:
        self.svi, self.partition = svi, partition
        self._steps = StepProgram(self.run_chunk)
        self._start = jax.jit(self.first_state)

    def init(self, key: Any, data: list[Any], params: Params | None) -> SVIState:
        """Return the first state; `params` replace the initial values of the same names."""
        return self._start(key, data, params)

    def advance(self, state: SVIState, data: list[Any], num: int) -> tuple[SVIState, np.ndarray]:
        """Run `num` <= 200 steps in compiled loops; returns the state and their losses."""
        state, parts = self._steps(state, num, data)
        losses = [np.asarray(part, np.float64)[:done] for part, done in parts]
        return state, np.concatenate([*losses, np.zeros(0)])

    def params(self, state: SVIState) -> Params:
        """Return the constrained params of a state."""
        return self.svi.get_params(state)

    def unconstrained(self, state: SVIState) -> Params:
        """Return the params that the optimiser moves."""
        return self.svi.optim.get_params(state.optim_state)

    def mean_loss(self, loss: ELBO, keys: jax.Array, params: Params, data: list[Any]) -> float:
        """Return the mean over keys of a loss at constrained params."""
        program = (self.svi.model, self.svi.guide, loss, self.partition)
        return float(losses_of(program, (keys, np.arange(len(keys))), params, data).mean())

    def first_non_finite(self, state: SVIState, data: list[Any]) -> str:
        """Return the first param or site that is not finite in the loss of this state."""
        params = self.params(state)
        for name, value in params.items():
            if not all(np.isfinite(np.asarray(a)).all() for a in jax.tree.leaves(value)):
                return f"param {name}"
        # Values out of support are looked for here, so NumPyro need not warn of them.
        with numpyro.validation_enabled(False):
            for name, terms in self._terms(state, params, data):
                if not np.isfinite(np.asarray(terms)).all():
                    return f"site {name}"
        return "the loss itself (every site is finite)"

    def first_state(self, key: Any, data: list[Any], params: Params | None) -> SVIState:
        """Return the first state; a program that can be traced, as `run_chunk`."""
        data = at_step(data, 0)
        call = self.partition.join(data)
        svi = self._with_arrays(data)
        state = svi.init(key, *call.args, init_params=params, **call.kwargs)
        self.svi.constrain_fn = svi.constrain_fn
        return state

    def run_chunk(
        self, state: SVIState, num: Any, first: Any, data: list[Any]
    ) -> tuple[SVIState, jax.Array]:
        """Run steps; returns the state, and an array whose first `num` entries are losses.

        `first` is the number of the first step among those that `data` are for.
        """
        svi = self._with_arrays(at_step(data, 0))

        def step(i: Any, carry: tuple[SVIState, jax.Array]) -> tuple[SVIState, jax.Array]:
            state, losses = carry
            call = self.partition.join(at_step(data, first + i))
            state, value = svi.update(state, *call.args, **call.kwargs)
            return state, losses.at[i].set(value)

        return lax.fori_loop(0, num, step, (state, jnp.zeros(MOST_STEPS)))

    def _with_arrays(self, data: list[Any]) -> SVI:
        """Return the SVI with the guide's arrays in place."""
        svi = copy.copy(self.svi)
        svi.guide = self.partition.guide(svi.guide, data)
        return svi

    def _terms(
        self, state: SVIState, params: Params, data: list[Any]
    ) -> Iterator[tuple[str, jax.Array]]:
        """Yield the log density and the KL of every site in this state's loss."""
        args, kwargs = self.partition.join(data)
        key_model, key_guide = random.split(random.split(state.rng_key)[1])
        seeded = handlers.seed(self._with_arrays(data).guide, key_guide)
        guide = handlers.substitute(seeded, data=params)
        drawn = handlers.trace(guide).get_trace(*args, **kwargs)
        model = handlers.replay(handlers.seed(self.svi.model, key_model), drawn)
        trace = handlers.trace(handlers.substitute(model, data=params))
        for name, site in trace.get_trace(*args, **kwargs).items():
            if site["type"] != "sample":
                continue
            yield name, site["fn"].log_prob(site["value"])
            if name in drawn:
                try:
                    yield name, kl_divergence(drawn[name]["fn"], site["fn"])
                except NotImplementedError:
                    yield name, drawn[name]["fn"].log_prob(site["value"])


def training_loop(
    model: Model, guide: Model, optimizer: Any, loss: ELBO, partition: Partition
) -> TrainingLoop:
    """Return a loop for these arguments; equal arguments share a compiled one."""
    key = (model, guide, optimizer, loss, partition)
    try:
        hash(key)
    except TypeError:
        return TrainingLoop(SVI(model, guide, optimizer, loss), partition)
    # No later call can have the partition of a user's model: the cache would only keep it alive.
    return cached_loop(*key) if partition.token is None else cached_loop.__wrapped__(*key)


@lru_cache(maxsize=32)
def cached_loop(
    model: Model, guide: Model, optimizer: Any, loss: ELBO, partition: Partition
) -> TrainingLoop:
    """Return a loop for these arguments, and keep it for the next call."""
    return TrainingLoop(SVI(model, guide, optimizer, loss), partition)


class Outcome(NamedTuple):
    """What the steps of a fit led to; of its first state alone, where it begins.

    Attributes:
        state: the last state with a finite loss.
        losses: the losses up to there.
        failed: the state whose loss is not finite, or None.
        data: the arrays of the step of `failed`.
        interrupt: the interrupt (Ctrl-C) that ended the steps early, or None.
        before: start, arrays and length of the last chunk of steps, or None.
        ends: of several starts: the losses at the end of their trials, [S].
    """

    state: SVIState
    losses: np.ndarray = np.zeros(0)
    failed: SVIState | None = None
    data: list[Any] = []  # noqa: RUF012 - never changed
    interrupt: KeyboardInterrupt | None = None
    before: tuple[SVIState, list[Any], int] | None = None
    ends: np.ndarray | None = None


def chunk_length(steps: int) -> int:
    """Return the number of steps in one call of the device."""
    return max(10, min(MOST_STEPS, steps // 20))  # short enough for a progress bar that moves


def run_steps(
    loop: TrainingLoop,
    begun: Outcome,
    arrays: list[Any] | Feed,
    *,
    steps: int,
    num_data: int,
    progress: bool | str,
    until: int | None = None,
    folder: RunFolder | None = None,
    every: int = 1,
) -> Outcome:
    """Run the steps that are left, or those up to an interrupt or a loss that is not finite.

    With a folder the steps go on from its state, and write to it after at least `every` steps.

    Args:
        loop: the fit's loop.
        begun: what the steps so far led to.
        arrays: the fit's arrays.
        steps: number of steps of the fit.
        num_data: rows N of the data plate.
        progress: see `fit`.
        until: number of the step to stop at; None runs all.
        folder: the folder of the fit.
        every: see `fit`.
    """
    chunk = chunk_length(steps)
    if isinstance(arrays, Feed):
        chunk = min(chunk, arrays.length)
    (state, losses, *_), before, saved = begun, begun.before, 0
    if folder is not None:
        chunk = min(chunk, every)
        saved, parts, state = folder.read(state)
        if saved:
            losses, before = np.concatenate([part[0] for part in parts]), None
    last = steps if until is None else until
    try:
        with Progress(progress, last, "fit", done=len(losses)) as bar:
            while len(losses) < last:
                num = min(chunk, last - len(losses))
                data = arrays.at(len(losses)) if isinstance(arrays, Feed) else arrays
                after, new = loop.advance(state, data, num)
                finite = np.isfinite(new)
                if not finite.all():
                    first = int(np.argmin(finite))
                    failed = loop.advance(state, data, first)[0]
                    # Run the steps again up to the last state whose own loss is finite.
                    if first:
                        state = loop.advance(state, data, first - 1)[0]
                    elif before is not None:
                        state = loop.advance(before[0], before[1], before[2] - 1)[0]
                    losses = np.concatenate([losses, new[:first]])
                    return begun._replace(
                        state=state, losses=losses, failed=failed, data=at_step(data, first)
                    )
                all_losses = np.concatenate([losses, new])
                # An interrupt never falls between assignments of one statement.
                before, state, losses = (state, data, num), after, all_losses
                bar.update(num, f"ELBO/datum {-new.mean() / num_data:.4f}")
                if folder is not None:
                    # Before the end, keep the state before the chunk: its own loss is finite.
                    ended = len(losses) == steps
                    at, kept = (steps, state) if ended else (len(losses) - num, before[0])
                    if ended or at - saved >= every:
                        ends = [] if begun.ends is None else [begun.ends[: 0 if saved else None]]
                        folder.write(at, kept, [[losses[saved:at], *ends]])
                        saved = at
    except KeyboardInterrupt as interrupt:
        return begun._replace(state=state, losses=losses, interrupt=interrupt, before=before)
    return begun._replace(state=state, losses=losses, before=before)


@PassProgram
def losses_of(
    program: Any, each: tuple[jax.Array, jax.Array], params: Params, data: list[Any]
) -> jax.Array:
    """Return the loss of (model, guide, loss, partition) for a key and the number of its block."""
    model, guide, loss, partition = program
    key, number = each
    data = at_step(data, number)
    args, kwargs = partition.join(data)
    return loss.loss(key, params, model, partition.guide(guide, data), *args, **kwargs)
