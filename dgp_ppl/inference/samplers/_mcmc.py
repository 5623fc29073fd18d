"""Runs of a NumPyro MCMC kernel that can be killed and gone on with."""

import dataclasses
import math
import os
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array
from numpyro.infer.mcmc import MCMC, MCMCKernel
from tqdm.auto import tqdm

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference._checkpoint import Folder, identity
from dgp_ppl.inference.samplers._sghmc import SGHMC
from dgp_ppl.inference.samplers._vectorized import VectorizedKernel

__all__ = ["Chains", "run_mcmc"]


@dataclasses.dataclass(frozen=True)
class Chains:
    """Draws of a Markov chain Monte Carlo run.

    Attributes:
        samples: draws of the latent sites, [C, S, ...] each.
        fields: other fields of the kernel's state at each draw, [C, S].
        state: the kernel's state after the last step, of all chains.
        steps: steps of each chain, warm-up included.
        seconds: wall-clock time, of this call alone.
    """

    samples: dict[str, np.ndarray]
    fields: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    state: Any = dataclasses.field(default=None, repr=False)
    steps: int = 0
    seconds: float = 0.0

    @staticmethod
    def from_mcmc(mcmc: MCMC) -> "Chains":
        """What a run of NumPyro's `MCMC` holds."""
        last: Any = mcmc.last_state
        if last is None:
            raise ValueError("Chains.from_mcmc: this MCMC has not run yet; call its run(...) first")
        samples, fields = (
            {n: np.asarray(a) for n, a in get(group_by_chain=True).items()}
            for get in (mcmc.get_samples, mcmc.get_extra_fields)
        )
        if mcmc.num_chains == 1:  # whose state NumPyro keeps without an axis for the chains
            last = jax.tree.map(lambda a: a[None], last)
        steps = mcmc.num_warmup + mcmc.num_samples
        return Chains(samples, fields, last, steps, 0.0)

    @property
    def shape(self) -> tuple[int, int]:
        """Chains C, and draws S of each."""
        chains, draws = next(iter(self.samples.values())).shape[:2]
        return chains, draws

    def spaced(self, num: int) -> "Chains":
        """`num` draws of every chain, evenly spaced; all of them if there are no more."""
        total = self.shape[1]
        kept = np.linspace(0, total - 1, min(num, total)).round().astype(int)
        part = lambda draws: {n: a[:, kept] for n, a in draws.items()}  # noqa: E731
        return dataclasses.replace(self, samples=part(self.samples), fields=part(self.fields))

    def get_samples(self, group_by_chain: bool = False) -> dict[str, np.ndarray]:
        """As NumPyro's MCMC has them: [S, ...], chain after chain, or [C, S, ...]."""
        if group_by_chain:
            return self.samples
        return {n: a.reshape(-1, *a.shape[2:]) for n, a in self.samples.items()}

    def get_extra_fields(self, group_by_chain: bool = False) -> dict[str, np.ndarray]:
        """As NumPyro's MCMC has them."""
        if group_by_chain:
            return self.fields
        return {n: a.reshape(-1, *a.shape[2:]) for n, a in self.fields.items()}


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
    """Run a kernel's chains side by side, keeping what is done.

    What NumPyro's ``MCMC(kernel, chain_method="vectorized")`` does, with a folder that lets a run
    that was killed go on: called again with the same arguments, it ends with the same draws as if
    it had never been. Draws are moved to the host as they come, and values of latent sites are
    constrained, and thinned steps dropped, before anything else is done with them.

    Args:
        key: random key; the same key gives the same draws.
        sampler: a NumPyro `MCMCKernel`: `SGHMC`, or NumPyro's `NUTS`, `HMC`, `DiscreteHMCGibbs`,
            `MixedHMC`, `HMCECS`, `BarkerMH`, `SA`, or of an even number of chains `AIES` and `ESS`.
            Of other kernels' chains each is begun alone, and a step of one is mapped over all.
        *args: the model's positional arguments.
        num_warmup: steps of warm-up, of which nothing is kept.
        num_samples: draws of every chain.
        thinning: steps from draw to draw.
        num_chains: chains C.
        init_params: unconstrained values to start from, with a leading axis for the chains if
            there are several.
        start: a kernel's state of all chains to start from, an earlier run's `Chains.state`: goes
            on as if the two were one (`key` is then not used). Give num_warmup=0.
        extra_fields: fields of the kernel's state to keep besides its default ones, and
            ``temperature`` of `SGHMC`; parts of them are named with dots. What an ensemble sampler
            has of all chains together is repeated for each.
        checkpoint: a folder for this run alone; None keeps nothing on disk.
        every: steps between checkpoints, at least.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments.

    Raises:
        DataError: if `checkpoint` holds another run, or files that are not a run's.
        TypeError: if `key` is no random key, or a number is no integer.
        ValueError: if a number is not positive, `start` is of another kernel, model or number of
            chains, the kernel's state has none of `extra_fields`, or an ensemble sampler's number
            of chains is odd.

    Warns:
        UserWarning: if more than 1 % of the draws of `SGHMC` diverge, or their mean temperature is
            outside 0.8 to 1.25 by more than chance.
    """
    check_key("run_mcmc", key)
    check_count("run_mcmc", "num_warmup", num_warmup, 0)
    for name, value in (
        ("num_samples", num_samples),
        ("thinning", thinning),
        ("num_chains", num_chains),
        ("every", every),
    ):
        check_count("run_mcmc", name, value)
    if start is not None and num_warmup:
        raise ValueError(f"run_mcmc: num_warmup is {num_warmup}, wanted 0 where start is given")
    begun = time.perf_counter()
    if init_params is not None and num_chains == 1:
        init_params = jax.tree.map(lambda a: jnp.asarray(a)[None], init_params)
    several = VectorizedKernel(sampler, num_chains)
    state = several.init(key, num_warmup, init_params, args, kwargs, start)
    watched = ("temperature",) if isinstance(sampler, SGHMC) else ()
    extra = dict.fromkeys((*sampler.default_fields[1:], *watched, *extra_fields))
    fields = (sampler.sample_field, *extra)
    several.fields(state, fields)  # an unknown one is said before anything is run
    folder = None
    if checkpoint is not None:
        about = identity(
            several.kernel, state, (key, init_params, start, args, kwargs), num_warmup=num_warmup,
            thinning=thinning, num_chains=num_chains, fields=list(fields),
        )  # fmt: skip
        folder = Folder(checkpoint, about)
    steps, kept, state = (0, [], state) if folder is None else folder.read(state)
    chunk = _STEPS if folder is None else min(_STEPS, every)
    most = max(1, chunk // thinning)
    run = _Run(several, args, kwargs, fields, state, most)
    total = num_warmup + num_samples * thinning
    unsaved: list[Any] = []
    saved = steps
    bar = tqdm(total=total, initial=steps, disable=not progress, leave=False, unit=" steps")
    bar.set_description("sample" if progress is True else str(progress), refresh=False)
    with bar:
        while steps < total:
            if steps < num_warmup:
                done = min(num_warmup - steps, chunk)
                state, _ = run.advance(state, 1, done)
            else:
                num = min((total - steps) // thinning, most)
                state, values = run.advance(state, num, thinning)
                unsaved.append([np.asarray(a)[:num] for a in values])
                done = num * thinning
            steps += done
            bar.update(done)
            bar.set_postfix_str(several.diagnostics(state), refresh=False)
            if folder is not None and (steps - saved >= every or steps >= total):
                folder.write(steps, state, unsaved)
                kept, unsaved, saved = kept + unsaved, [], steps
    whole = [np.concatenate(c)[:num_samples] for c in zip(*kept, *unsaved, strict=True)]
    samples, others = run.named([np.moveaxis(a, 0, 1) for a in whole])
    if isinstance(sampler, SGHMC):
        _warn_of_trouble(sampler, others, state, thinning)
    return Chains(samples, others, state, steps, time.perf_counter() - begun)


_STEPS = 200  # at most, in one call of the device, where a draw does not take more
_DIVERGING = 0.01  # of draws, at most
_TEMPERATURES = (0.8, 1.25)


class _Run:
    """The compiled steps of a kernel's chains on some data."""

    def __init__(
        self,
        several: VectorizedKernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        fields: tuple[str, ...],
        state: Any,
        most: int,
    ) -> None:
        self.several, self.fields, self.most = several, fields, most
        model = getattr(several.kernel, "model", None)
        self.partition, self.data = Partition.split(model, Call(args, kwargs))
        self._advance = jax.jit(self._steps)
        shapes = jax.eval_shape(self._drawn, jax.eval_shape(self._empty, state), self.data)
        self._structure = jax.tree.structure(shapes)

    def advance(self, state: Any, num: int, thinning: int) -> tuple[Any, list[Array]]:
        """`num` draws, `thinning` steps apart: the state after them, and arrays that begin so."""
        return self._advance(state, num, thinning, self.data)

    def named(self, columns: list[np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Latent sites, and other fields by name, of `advance`'s arrays."""
        samples, *others = jax.tree.unflatten(self._structure, columns)
        return samples, dict(zip(self.fields[1:], others, strict=True))

    def _steps(
        self, state: Any, num: Any, thinning: Any, data: list[Any]
    ) -> tuple[Any, list[Array]]:
        args, kwargs = self.partition.join(data)

        def step(_: Any, state: Any) -> Any:
            return self.several.sample(state, args, kwargs)

        def draw(i: Any, carry: Any) -> Any:
            state, kept = carry
            state = lax.fori_loop(0, thinning, step, state)
            return state, jax.tree.map(lambda k, a: k.at[i].set(a), kept, self._of(state))

        state, kept = lax.fori_loop(0, num, draw, (state, self._empty(state)))
        return state, jax.tree.leaves(self._drawn(kept, data))

    def _of(self, state: Any) -> list[Any]:
        return self.several.fields(state, self.fields)

    def _empty(self, state: Any) -> list[Any]:
        return jax.tree.map(lambda a: jnp.zeros((self.most, *a.shape), a.dtype), self._of(state))

    def _drawn(self, kept: list[Any], data: list[Any]) -> list[Any]:
        """Latent sites in their own spaces, and the other fields."""
        args, kwargs = self.partition.join(data)
        constrain = jax.vmap(jax.vmap(self.several.kernel.postprocess_fn(args, kwargs)))
        return [constrain(kept[0]), *kept[1:]]


def _warn_of_trouble(
    kernel: SGHMC, fields: dict[str, np.ndarray], state: Any, thinning: int
) -> None:
    """Say, once, if draws are those of a chain that is unstable, or not there yet."""
    diverging, heat = (float(np.mean(fields[n])) for n in ("diverging", "temperature"))
    # A draw's is a mean of d squares of normals, of which friction leaves so much to the next one.
    left = (1 - kernel.friction) ** (2 * thinning * kernel.num_steps)
    values = state.momentum.shape[-1] * fields["temperature"].size
    error = math.sqrt(2 / values * (1 + left) / (1 - left))
    low, high = _TEMPERATURES
    signs = [f"{diverging:.2g} of the draws diverge"] if diverging > _DIVERGING else []
    if not low - 4 * error < heat < high + 4 * error:
        signs.append(f"their mean kinetic temperature is {heat:.2f}, wanted about 1")
    if signs:
        warnings.warn(
            f"run_mcmc: these draws are not the posterior's: {' and '.join(signs)}. Try a longer "
            "num_warmup (of fit_mcem more steps), or SGHMC with a smaller step_size than "
            f"{kernel.step_size:g}",
            UserWarning,
            stacklevel=3,
        )
