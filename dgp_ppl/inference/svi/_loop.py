"""The loop of a fit, or of many fits in one program: steps in chunks on the device."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax, random
from jax.extend.core import ClosedJaxpr
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import SVI
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import GivenParams, check_value, short_list
from dgp_ppl._partition import TRACING, CallArrays, Partition, compiled
from dgp_ppl._progress import Progress
from dgp_ppl._static_key import Keyed, shared
from dgp_ppl._typing import Params
from dgp_ppl.core._minibatch import padded
from dgp_ppl.inference.runs._blocks import PassProgram, StepProgram
from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.runs._identity import Identity, with_noise
from dgp_ppl.inference.runs._summary import program_name
from dgp_ppl.inference.svi._ending import has_settled
from dgp_ppl.inference.svi._feed import Feed, at_step
from dgp_ppl.linalg._precision import in_precision_of_argument

MOST_STEPS = 200  # steps in one call of the device, at most


class TrainingLoop:
    """The compiled pieces of a fit. They serve all data of the same shapes.

    The methods take the arrays of `Partition.split`, or of a `Feed`: the arrays of several steps,
    of which step i of a chunk takes entry i.
    """

    num_fits = 1

    def __init__(self, partition: Partition, svi: SVI) -> None:
        self.partition, self.svi = partition, svi
        self._steps = StepProgram(self.run_chunk)
        self._start = compiled(self.first_state, static_argnames="each")
        self.constraints: dict[str, Any] = {}  # of params that a start gave, by name

    def init(self, key: Any, data: CallArrays, params: Params, *, each: bool = False) -> SVIState:
        """Return the first state; `params` replace the initial values of the same names.

        `each` says that params have a leading axis of fits.

        Raises:
            ValueError: if params have another shape or are outside of their constraint, or the
                programs have none of them.
        """
        for name, value in params.items():
            check_value(f"start[{name!r}]", value, nan=True)
        state = self._start(key, data, params, each=each)
        for name, value in params.items():
            check_value(f"start[{name!r}]", value, self.constraints.get(name), nan=True)
        return state

    def advance(self, state: SVIState, data: CallArrays, num: int) -> tuple[SVIState, np.ndarray]:
        """Run `num` <= 200 steps in compiled loops; returns the state and the losses, [R, num]."""
        state, parts = self._steps(state, num, data)
        losses = [np.atleast_2d(np.asarray(part, np.float64))[:, :done] for part, done in parts]
        return state, np.concatenate(losses, axis=1) if losses else np.zeros((self.num_fits, 0))

    def identity(
        self, states: Sequence[SVIState], data: CallArrays, arguments: Any, **others: Any
    ) -> Identity:
        """Return what a fit from these first states is known by."""
        begin = jax.jit(self.svi.optim.init)

        def step(rounding: float) -> Any:
            # At its first params q is often the prior, and hidden layers do not show in the loss.
            params = with_noise(self.unconstrained(states[0]), 0.1, rounding)
            return self.advance(states[0]._replace(optim_state=begin(params)), data, 1)

        loss = type(self.svi.loss).__name__
        traced = lambda: self.trace(states[0], data)  # noqa: E731
        return Identity(traced, step, states, arguments, loss=loss, **others)

    def trace(self, state: SVIState, data: CallArrays) -> ClosedJaxpr:
        """Return the traced program of the steps."""
        return self._steps.trace(state, data)

    def params(self, state: SVIState) -> Params:
        """Return the constrained params of a state."""
        return self.svi.get_params(state)

    def unconstrained(self, state: SVIState) -> Params:
        """Return the params that the optimiser moves."""
        return self.svi.optim.get_params(state.optim_state)

    def part(self, state: SVIState, number: int) -> SVIState:
        """Return the state of one of the fits."""
        return state

    def part_of_data(self, data: CallArrays, number: int) -> CallArrays:
        """Return the arrays of one of the fits."""
        return data

    def select(self, states: Sequence[SVIState], best: np.ndarray) -> SVIState:
        """Return the state of number ``best[i]`` for each fit i."""
        return states[int(best[0])]

    def first_state(
        self, key: Any, data: CallArrays, params: Params, *, each: bool = False
    ) -> SVIState:
        """Return the first state; a program that can be traced, as `run_chunk`."""
        data = at_step(data, 0)
        call = self.partition.join(data)
        svi, guide = self._with_arrays(data), self.partition.guide
        svi.model, svi.guide = (
            GivenParams(program, params, "start", missing=lambda name: True)
            for program in (svi.model, svi.guide)
        )
        with padded(data.num_rows):
            state = svi.init(key, *call.args, **call.kwargs)
        self.svi.constrain_fn = svi.constrain_fn
        self.constraints |= svi.model.constraints | svi.guide.constraints
        names = self.unconstrained(state).keys()
        if params and names and not params.keys() & names:
            raise ValueError(
                f"start has {short_list(sorted(params))}, none of them a param of the model or of "
                f"{program_name(guide)}, wanted some of {short_list(sorted(names))}"
            )
        return state

    def run_chunk(
        self, state: SVIState, num: Any, first: Any, data: CallArrays
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

        with padded(data.num_rows):
            return lax.fori_loop(0, num, step, (state, jnp.zeros(MOST_STEPS)))

    def _with_arrays(self, data: CallArrays) -> SVI:
        """Return the SVI with the guide's arrays in place."""
        svi = copy.copy(self.svi)
        svi.guide = self.partition.guide_with(data)
        return svi

    def terms(self, state: SVIState, data: CallArrays) -> list[tuple[str, Any, np.ndarray]]:
        """Return the distribution, and the log density or KL, of each site in this state's loss."""
        # Values out of support are looked for here, so NumPyro need not warn of them.
        with TRACING, numpyro.validation_enabled(False), padded(data.num_rows):
            found = self._terms(state, self.params(state), data)
            return [(name, fn, np.asarray(terms)) for name, fn, terms in found]

    def _terms(
        self, state: SVIState, params: Params, data: CallArrays
    ) -> Iterator[tuple[str, Any, jax.Array]]:
        args, kwargs = self.partition.join(data)
        key_model, key_guide = random.split(random.split(state.rng_key)[1])
        seeded = handlers.seed(self.partition.guide_with(data), key_guide)
        guide = handlers.substitute(seeded, data=params)
        drawn = handlers.trace(guide).get_trace(*args, **kwargs)
        model = handlers.replay(handlers.seed(self.partition.model, key_model), drawn)
        trace = handlers.trace(handlers.substitute(model, data=params))
        for name, site in trace.get_trace(*args, **kwargs).items():
            if site["type"] != "sample":
                continue
            yield name, site["fn"], site["fn"].log_prob(site["value"])
            if name in drawn:
                try:
                    yield name, site["fn"], kl_divergence(drawn[name]["fn"], site["fn"])
                except NotImplementedError:
                    with contextlib.suppress(NotImplementedError):  # q has no density
                        yield name, site["fn"], drawn[name]["fn"].log_prob(site["value"])


class ManyFits(TrainingLoop):
    """The loop of many fits in one program, by `jax.vmap` of the loop of one."""

    def __init__(self, one: TrainingLoop, stacked: tuple[bool, ...], num_fits: int) -> None:
        super().__init__(one.partition, one.svi)
        self.one, self.stacked, self.num_fits = one, stacked, num_fits
        self.constraints = one.constraints

    def first_state(
        self, key: Any, data: CallArrays, params: Params, *, each: bool = False
    ) -> SVIState:
        axes = 0, self._axes(data), 0 if each else None
        return jax.vmap(self.one.first_state, in_axes=axes)(key, data, params)

    def run_chunk(
        self, state: SVIState, num: Any, first: Any, data: CallArrays
    ) -> tuple[SVIState, jax.Array]:
        steps = lambda state, data: self.one.run_chunk(state, num, first, data)  # noqa: E731
        return jax.vmap(steps, in_axes=(0, self._axes(data)))(state, data)

    def _axes(self, data: CallArrays) -> CallArrays:
        return jax.tree.structure(data).unflatten([0 if s else None for s in self.stacked])

    def params(self, state: SVIState) -> Params:
        return jax.vmap(self.one.params)(state)

    def part(self, state: SVIState, number: int) -> SVIState:
        return jax.tree.map(lambda a: a[number], state)

    def part_of_data(self, data: CallArrays, number: int) -> CallArrays:
        leaves, treedef = jax.tree.flatten(data)
        pairs = zip(leaves, self.stacked, strict=True)
        return treedef.unflatten([a[number] if s else a for a, s in pairs])

    def select(self, states: Sequence[SVIState], best: np.ndarray) -> SVIState:
        return _selected(states, best)


@jax.jit
def _selected(trees: Sequence[Any], best: jax.Array) -> Any:
    """Return the leaves of a tree for each fit, stacked along the first axis of all leaves."""
    return jax.tree.map(lambda *each: jnp.stack(each)[best, jnp.arange(len(best))], *trees)


def training_loop(partition: Partition, optimizer: Any, loss: ELBO) -> TrainingLoop:
    """Return the loop of one fit; equal arguments share a compiled one."""
    return shared(_training_loop, partition, Keyed(optimizer), Keyed(loss))


@lru_cache(maxsize=32)
def _training_loop(partition: Partition, optimizer: Keyed, loss: Keyed) -> TrainingLoop:
    svi = SVI(partition.model, partition.guide, optimizer.value, loss.value)
    return TrainingLoop(partition, svi)


many_fits = lru_cache(maxsize=32)(ManyFits)


class Failure(NamedTuple):
    """A fit whose loss is not finite."""

    step: int  # from 0
    state: SVIState  # before this step
    kept: SVIState  # the last state whose own loss is finite
    data: CallArrays  # of the step


class Outcome(NamedTuple):
    """What the steps of R fits led to; of their first states alone, where they begin."""

    state: SVIState  # at the end; of a fit that failed, it means nothing
    losses: np.ndarray  # [R, steps]
    failures: dict[int, Failure] = {}  # noqa: RUF012 - by number; never changed
    interrupt: KeyboardInterrupt | None = None  # Ctrl-C, which ended the steps early
    # Start, arrays and length of the last chunk of steps.
    before: tuple[SVIState, CallArrays, int] | None = None
    ends: np.ndarray | None = None  # losses at the end of the trials of S starts, [R, S]
    skipped: int = 0  # steps at full rates that `has_settled` made needless


def chunk_length(steps: int) -> int:
    """Return the number of steps in one call of the device."""
    return max(10, min(MOST_STEPS, steps // 20))  # short enough for a progress bar that moves


def run_steps(
    loop: TrainingLoop,
    begun: Outcome,
    arrays: CallArrays | Feed,
    *,
    steps: int,
    num_data: int | np.ndarray,
    progress: bool | str,
    label: str = "fit",
    held: int = 0,
    until: int | None = None,
    folder: RunFolder | None = None,
    every: int = 1,
) -> Outcome:
    """Run the steps that are left, or the steps up to an interrupt.

    A fit whose loss is not finite fails, and does not stop the other fits. With a folder, of one
    fit, the steps write to it after at least `every` steps. `until` stops before the end of all
    `steps`. The optimiser holds its rates for `held` steps: once the losses have settled, the rest
    of these are skipped.
    """
    chunk = grid = chunk_length(steps)  # the losses are judged at multiples of `grid`
    if isinstance(arrays, Feed):
        chunk = min(chunk, arrays.length)
    state, losses, failures, _, before, ends, _ = begun
    num_fits = loop.num_fits
    skipped = int(np.ravel(state.optim_state[0])[0]) - losses.shape[1] if held else 0
    if folder is not None:
        chunk = min(chunk, every)

    def failure(number: int, first: int, data: CallArrays) -> Failure:
        """Run the steps of this chunk again, up to the first one whose loss is not finite."""
        failed = kept = loop.advance(state, data, first)[0]
        if first:
            kept = loop.advance(state, data, first - 1)[0]
        elif before is not None:
            kept = loop.advance(before[0], before[1], before[2] - 1)[0]
        own = loop.part_of_data(at_step(data, first), number)
        step = losses.shape[1] + first
        return Failure(step, loop.part(failed, number), loop.part(kept, number), own)

    last = steps if until is None else until
    interrupt = None
    try:
        with Progress(progress, last - skipped, label, done=losses.shape[1]) as bar:
            while (done := losses.shape[1]) < last - skipped and len(failures) < num_fits:
                is_held = done + skipped < held and until is None
                if is_held and not done % grid and has_settled(losses, num_data):
                    state, skipped = _forward(state, done, held), held - done
                    bar.total = last - skipped
                num = min(chunk, last - skipped - done, grid - done % grid if held else chunk)
                data = arrays.at(done) if isinstance(arrays, Feed) else arrays
                after, new = loop.advance(state, data, num)
                finite = np.isfinite(new)
                found = {
                    i: failure(i, int(np.argmin(finite[i])), data)
                    for i in np.flatnonzero(~finite.all(axis=1)).tolist()
                    if i not in failures
                }
                ended, longer = (state, data, num), np.concatenate([losses, new], axis=1)
                # An interrupt never falls between assignments of one statement.
                before, state, losses, failures = ended, after, longer, failures | found
                sound = [i for i in range(num_fits) if i not in failures]
                bounds = -new / np.asarray(num_data)[..., None]
                note = f"ELBO/datum {bounds[sound].mean():.4f}" if sound else "failed"
                failed = f", {len(failures)} failed" if failures and num_fits > 1 else ""
                bar.update(num, note + failed)
                if folder is not None and not failures:
                    # Before the end, keep the state before the chunk: its own loss is finite.
                    is_end = done + num + skipped == steps
                    at, kept = (steps, state) if is_end else (done, before[0])
                    if is_end or at - folder.steps >= every:
                        trials = [] if ends is None else [ends[0, : 0 if folder.steps else None]]
                        folder.write(at, kept, [[losses[0, folder.steps : at], *trials]])
    except KeyboardInterrupt as error:
        interrupt = error
    return Outcome(state, losses, failures, interrupt, before, ends, skipped)


@jax.jit
def _forward(state: SVIState, done: Any, held: Any) -> SVIState:
    """Return the state of an optimiser that has done so many steps, as if it had done `held`."""

    def moved(a: jax.Array) -> jax.Array:
        is_count = jnp.issubdtype(a.dtype, jnp.integer)
        return jnp.where(a == done, held, a).astype(a.dtype) if is_count else a

    return state._replace(optim_state=jax.tree.map(moved, state.optim_state))


@in_precision_of_argument(2)
@PassProgram
def losses_of(
    program: tuple[Partition, Keyed], each: tuple[jax.Array, jax.Array], params: Params, data: Any
) -> Any:
    """Return the loss for a random key and the number of its step."""
    partition, loss = program
    key, number = each
    return loss_at(partition, loss.value, key, params, at_step(data, number))


def loss_at(partition: Partition, loss: ELBO, key: Any, params: Params, data: CallArrays) -> Any:
    """Return a loss at constrained params, given the arrays of one step."""
    call, guide = partition.join(data), partition.guide_with(data)
    with padded(data.num_rows):
        return loss.loss(key, params, partition.model, guide, *call.args, **call.kwargs)
