"""Run any NumPyro MCMC kernel, with checkpoints from which a killed run resumes."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import re
import time
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array
from numpyro.infer import HMC, NUTS
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import ParamInfo

from dgp_ppl._checks import as_array, check_count, check_counts, check_key, check_kind, checked_call
from dgp_ppl._errors import Interrupted
from dgp_ppl._partition import TRACING, Call, CallArrays, Partition, compiled
from dgp_ppl._static_key import Keyed, shared
from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.inference.runs._blocks import blocks, runs_on_cpu
from dgp_ppl.inference.runs._checkpoint import folder_of
from dgp_ppl.inference.runs._identity import Identity, with_noise
from dgp_ppl.inference.runs._loop import Block, run_blocks
from dgp_ppl.inference.samplers._chains import Chains, run_lines
from dgp_ppl.inference.samplers._kernel import ModelKernel, refuse_discrete
from dgp_ppl.inference.samplers._vectorized import VectorizedKernel, check_start, plain_settings

_STEPS_PER_CALL = 200  # of the device, unless a single draw takes more


def run_mcmc(
    key: PRNGKey,
    sampler: MCMCKernel,
    *args: Any,
    num_warmup: int,
    num_samples: int,
    thinning: int = 1,
    num_chains: int = 1,
    init_params: Any = None,
    start: Any = None,
    extra_fields: tuple[str, ...] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    progress: bool | str = True,
    **kwargs: Any,
) -> Chains:
    """Run several chains in one program, and resume the run after an interruption.

    NumPyro's ``MCMC(kernel, chain_method="vectorized")`` makes the same draws. With a checkpoint
    folder, a call with the same arguments continues a killed run and returns the draws of an
    uninterrupted one. Draws move to the host as they are made. Deterministic sites are computed for
    the draws that are kept, not for thinned steps. A later call with an equal sampler, as many
    chains and steps, and data of the same shapes compiles nothing. With a checkpoint, kernels of
    NumPyro compile again, and those other than `HMC` and `NUTS` do at each call::

        chains = dgp.run_mcmc(
            key, dgp.SGHMC(model), x, y, z=z, num_warmup=2000, num_samples=100, thinning=50
        )

    Args:
        key: random key; the same key gives the same draws.
        sampler: a NumPyro `MCMCKernel`: `SGHMC`, `AdjustedMCLMC`, `ParallelTempering` or
            `BlackJAXKernel`, or NumPyro's `NUTS`, `HMC`, `DiscreteHMCGibbs`,
            `MixedHMC`, `HMCECS`, `BarkerMH` or `SA`; or `AIES` or `ESS` with an even number of
            chains. Other kernels are initialised chain by chain, and their step is mapped over the
            chains.
        *args: the model's positional arguments.
        num_warmup: steps of warm-up, which are dropped.
        num_samples: draws S of every chain.
        thinning: steps per draw.
        num_chains: chains C.
        init_params: unconstrained initial values of latent sites; with several chains a leading
            axis of size C.
        start: the kernel's state to continue from, such as `Chains.state` of an earlier run. `key`
            is then unused, and `num_warmup` must be 0.
        extra_fields: fields of the kernel's state to keep, besides its default fields. Dots name
            nested fields. A field that an ensemble sampler has once for all chains is repeated for
            each.
        checkpoint: folder for this run only; None writes nothing.
        every: least number of steps between checkpoints.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments.

    Returns:
        The draws of all chains, [C, S, ...] per site.

    Raises:
        DataError: if `checkpoint` holds another run, or damaged or foreign files, is in use, or
            cannot be written; if the data are NaN or out of the support, as in `fit`.
        Interrupted: at Ctrl-C, a `KeyboardInterrupt`. Its `result` has the draws so far.
        TypeError: if `key` is not a random key, or a number is not an integer.
        ValueError: if a number is not positive, `start` belongs to another kernel, model or number
            of chains, the kernel's state lacks one of `extra_fields`, or an ensemble sampler's
            number of chains is odd.

    Warns:
        UserWarning: if a site's draws are not finite or constant, the step size is below 1e-5, all
            trajectories have 1,023 steps, acceptance is above 0.998, or many draws diverge; of
            `SGHMC`, if the mean temperature is outside 0.8 to 1.25 by more than chance.
    """
    check_key("run_mcmc", key)
    check_count("run_mcmc", "num_warmup", num_warmup, 0)
    counts = {"num_samples": num_samples, "thinning": thinning, "num_chains": num_chains}
    check_counts("run_mcmc", every=every, **counts)
    if start is not None and num_warmup:
        raise ValueError(f"run_mcmc: num_warmup is {num_warmup}, wanted 0 where start is given")
    check_kind("run_mcmc", "extra_fields", extra_fields, list | tuple, "a tuple of names")
    check_kind("run_mcmc", "sampler", sampler, MCMCKernel, "an MCMCKernel, such as NUTS(model)")
    begun, call, model = time.perf_counter(), Call(args, kwargs), getattr(sampler, "model", None)
    if model is not None:
        args, kwargs = call = checked_call("run_mcmc", model, None, args, kwargs)
    with folder_of("run_mcmc", checkpoint) as folder:
        if start is None and model is not None:
            _, sites = check_data("run_mcmc", model, call)
            drawn = {n: s for n, s in sites.items() if s["type"] == "sample"}
            latent = {n: s for n, s in drawn.items() if not s["is_observed"]}
            # With funsor, NumPyro's samplers sum discrete sites out.
            if type(sampler) in (HMC, NUTS) and importlib.util.find_spec("funsor") is None:
                refuse_discrete(type(sampler).__name__, latent)
            init_params = _first_values(init_params, [*latent], isinstance(sampler, ModelKernel))
        if init_params is not None and num_chains == 1:
            init_params = jax.tree.map(lambda a: jnp.asarray(a)[None], init_params)
        fields = (sampler.sample_field, *sampler.default_fields, *extra_fields)
        fields = tuple(dict.fromkeys(fields))
        partition, data = Partition.split(model, call)
        anew = type(sampler) in (HMC, NUTS) and folder is None
        made_from = (
            Keyed(copy.copy(sampler)), num_chains, partition, fields,
            max(1, _STEPS_PER_CALL // thinning), num_warmup if anew else None,
        )  # fmt: skip
        is_shared = anew or isinstance(sampler, ModelKernel)
        program = shared(_program, *made_from) if is_shared else _program.__wrapped__(*made_from)
        kernel = program.kernel
        state = program.first(key, num_warmup, init_params, call, data, start)
        kernel.fields(state, fields)  # raises for an unknown field before anything is run
        chunk = _STEPS_PER_CALL if folder is None else min(_STEPS_PER_CALL, every)
        most = max(1, chunk // thinning)
        total = num_warmup + num_samples * thinning
        if folder is not None:
            folder.identity = Identity(
                lambda: (program.trace(state, data), plain_settings(kernel.kernel)),
                lambda rounding: program.advance(with_noise(state, 0, rounding), 1, 1, data)[0],
                _what_starts(state), (key, init_params, start, args, kwargs),
                kernel=type(sampler).__name__, num_warmup=num_warmup, thinning=thinning,
                num_chains=num_chains, fields=list(fields),
            )  # fmt: skip

        def advance(state: Any, steps: int) -> Block:
            if steps < num_warmup:
                done, columns = min(num_warmup - steps, chunk), None
                state, _ = program.advance(state, 1, done, data)
            else:
                num = min((total - steps) // thinning, most)
                state, columns = program.advance(state, num, thinning, data)
                done = num * thinning
            return Block(state, done, columns, kernel.diagnostics(state))

        run = run_blocks(
            advance, state, total, label="sample", progress=progress, folder=folder, every=every
        )
    samples, others = {}, {}
    if run.columns:
        columns = [np.moveaxis(a[:num_samples], 0, 1) for a in run.columns]
        samples, others = program.by_name(columns, state, data)
    chains = Chains(samples, others, run.state, run.steps, time.perf_counter() - begun)
    if run.interrupt is not None:
        raise Interrupted(_how_to_go_on(chains, num_warmup, num_samples, checkpoint), chains) from (
            run.interrupt
        )
    if bad := [line for line in run_lines(chains) if line.verdict == "bad"]:
        cure = bad[0].advice
        warnings.warn(
            "run_mcmc: these draws are not from the posterior: "
            f"{'; '.join(line.value for line in bad)}. {cure[:1].upper()}{cure[1:]}",
            stacklevel=2,
        )
    return chains


def _first_values(given: Any, latent: list[str], completes: bool) -> Any:
    """Return first values as arrays; raise unless they are of latent sites of the model."""
    wanted = "a dict of unconstrained values by latent site"
    check_kind("run_mcmc", "init_params", given, Mapping | None, wanted)
    if unknown := [n for n in given or () if n not in latent]:
        raise ValueError(f"run_mcmc: init_params has {unknown}, wanted some of {latent}")
    if given and not completes and (missing := [n for n in latent if n not in given]):
        raise ValueError(
            f"run_mcmc: init_params lacks {missing}, wanted all of {latent}: samplers of NumPyro "
            "draw no others"
        )
    name = "init_params[{!r}]"
    return given and {n: as_array("run_mcmc", name.format(n), a) for n, a in given.items()}


def _what_starts(state: Any) -> list[Any]:
    """Return a first state without densities and gradients, which differ between machines."""
    names = re.compile("grad|energy|density|likelihood|^adaptation$")  # the last is SGHMC's
    return [
        a
        for path, a in jax.tree_util.tree_leaves_with_path(state)
        if not any(names.search(getattr(key, "name", "")) for key in path)
    ]


def _how_to_go_on(chains: Chains, num_warmup: int, num_samples: int, checkpoint: Any) -> str:
    num = chains.shape[1] if chains.samples else 0
    start = (
        f"run_mcmc: interrupted after {chains.steps} steps with {num} of {num_samples} draws of "
        "each chain, which are the error's result. To go on, call run_mcmc "
    )
    if checkpoint is not None:
        return f"{start}again with the same arguments: it resumes from the last checkpoint"
    if chains.steps < num_warmup:
        return f"{start}again: a warm-up goes on only from a checkpoint"
    return f"{start}with start=error.result.state and num_warmup=0 for {num_samples - num} draws"


class _Program:
    """The compiled steps of all chains, of any data of the same shapes.

    NumPyro's HMC sets up its sampling in `init`, where it may close over the data. With
    `num_warmup` each program runs `init` itself, and XLA leaves out what its steps do not need.
    """

    def __init__(
        self, sampler: MCMCKernel, num_chains: int, partition: Partition, fields: tuple[str, ...],
        most: int, num_warmup: int | None,
    ) -> None:  # fmt: skip
        self.kernel, self.partition = VectorizedKernel(sampler, num_chains), partition
        self.fields, self.most, self.num_warmup = fields, most, num_warmup
        self._begun = compiled(self._begin)
        self._counted = compiled(self._draws)
        self._static = compiled(self._draws, static_argnums=(1, 2))

    def first(
        self, key: PRNGKey, num_warmup: int, init_params: Any, call: Call, data: CallArrays,
        start: Any,
    ) -> Any:  # fmt: skip
        """Return the first state of all chains; or `start`, if it is one of kernel and model."""
        # Kernels of NumPyro run the model as they are; ours take the lock where they do.
        with contextlib.nullcontext() if isinstance(self.kernel.kernel, ModelKernel) else TRACING:
            if self.num_warmup is None:
                return self.kernel.init(key, num_warmup, init_params, call, start)
            if start is not None:
                check_start(start, self._begun.trace(key, init_params, data).out_info)
                return start
            state = self._begun(key, init_params, data)
            values = state.z, state.z_grad, state.potential_energy
            if all(np.isfinite(a).all() for a in jax.tree.leaves(values)):
                return state
            # Outside of a program NumPyro says what is wrong.
            return self.kernel.anew().init(key, num_warmup, init_params, call)

    def advance(
        self, state: Any, num: int, thinning: int, data: CallArrays
    ) -> tuple[Any, list[np.ndarray]]:
        """Make `num` draws, `thinning` steps apart; return the state and columns of the draws."""
        program = self._counted if (on_cpu := runs_on_cpu(state)) else self._static
        calls = [(num, thinning)] if on_cpu else [(n, thinning) for n in blocks(num)]
        if num == 1 and not on_cpu:  # all of the warm-up, and draws that are far apart
            calls = [(1, steps) for steps in blocks(thinning)]
        parts: list[tuple[list[Array], int]] = []
        for length, steps in calls:
            state, kept = program(state, length, steps, data)
            columns = jax.tree.leaves(kept)
            parts = [(columns, length)] if num == 1 else [*parts, (columns, length)]
        kept = [[np.asarray(a)[:length] for a in columns] for columns, length in parts]
        return state, [np.concatenate(c) for c in zip(*kept, strict=True)]

    def trace(self, state: Any, data: CallArrays) -> ClosedJaxpr:
        """Return the traced program; on a CPU it is the one of all steps and draws."""
        program = self._counted if runs_on_cpu(state) else self._static
        return program.trace(state, 1, 1, data).jaxpr

    def by_name(self, columns: list[Any], state: Any, data: CallArrays) -> tuple[Any, Any]:
        """Return latent sites and other fields by name, from the arrays of `advance`."""
        _, kept = self._counted.trace(state, 1, 1, data).out_info
        samples, *others = jax.tree.unflatten(jax.tree.structure(kept), columns)
        return samples, dict(zip(self.fields[1:], others, strict=True))

    def _begin(self, key: PRNGKey, init_params: Any, data: CallArrays) -> Any:
        call = self.partition.join(data)
        return self.kernel.anew().init(key, self.num_warmup or 0, init_params, call)

    def _draws(self, state: Any, num: Any, thinning: Any, data: CallArrays) -> tuple[Any, Any]:
        call, kernel = self.partition.join(data), self.kernel
        if self.num_warmup is not None:
            kernel = kernel.anew()
            given = ParamInfo(state.z, state.potential_energy, state.z_grad)
            kernel.kernel.init(state.rng_key, self.num_warmup, given, *call)

        def step(_: Any, state: Any) -> Any:
            return kernel.sample(state, call)

        def draw(i: Any, carry: Any) -> Any:
            state, kept = carry
            state = lax.fori_loop(0, thinning, step, state)
            values = kernel.fields(state, self.fields)
            return state, jax.tree.map(lambda k, a: k.at[i].set(a), kept, values)

        values = kernel.fields(state, self.fields)
        kept = jax.tree.map(lambda a: jnp.zeros((self.most, *a.shape), a.dtype), values)
        state, kept = lax.fori_loop(0, num, draw, (state, kept))
        # The latent sites are constrained, and deterministic sites are added.
        constrain = jax.vmap(jax.vmap(kernel.kernel.postprocess_fn(*call)))
        return state, [constrain(kept[0]), *kept[1:]]


_program = lru_cache(maxsize=32)(lambda sampler, *others: _Program(sampler.value, *others))
