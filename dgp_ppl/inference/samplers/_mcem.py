"""Hyperparameters by Monte Carlo EM over a moving window of a sampler's states."""

import dataclasses
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.primitives import Messenger
from tqdm.auto import tqdm

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._partition import Call, Partition, signature
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import is_layer, with_handover
from dgp_ppl.inference._checkpoint import Folder, effect, identity
from dgp_ppl.inference._optimizer import default_optimizer
from dgp_ppl.inference.samplers._mcmc import Chains, run_mcmc
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers._sghmc import SGHMC

__all__ = ["MCEMResult", "fit_mcem"]

_CHUNK = 200  # iterations in one call of the device


@dataclasses.dataclass(frozen=True)
class MCEMResult:
    """What `fit_mcem` returns.

    Attributes:
        params: constrained values of the model's params, a dict of arrays.
        chains: draws of the latent sites at these params.
        losses: the sampler's potential energy at every iteration, a minibatch's estimate in nats,
            [steps].
        seconds: wall-clock time, compilation included.
    """

    params: Params
    chains: Chains
    losses: np.ndarray
    seconds: float


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
    start: Params | None = None,
    progress: bool | str = True,
    sampler: Any = SGHMC,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    **kwargs: Any,
) -> MCEMResult:
    """Params and posterior draws by moving-window MCEM (Havasi et al. 2018, section 4).

    Every iteration makes a step of the sampler, and a step of the optimiser in all params of the
    model at one state drawn from the last `window` ones. Then params and the sampler's scales stay
    as they are, and draws are kept.

    Args:
        key: random key; the same key gives the same result.
        model: a NumPyro model with params.
        *args: its positional arguments.
        steps: iterations, of a gradient for each chain and one for the params.
        learning_rate: where the default optimiser starts: `fit`'s, Adam with a cosine decay.
        optimizer: any optax optimiser, in place of the default.
        window: states to draw from.
        num_samples: draws of every chain.
        thinning: steps of the sampler between draws.
        num_chains: chains, side by side all along; states are drawn from the windows of all. They
            share the params' path, and where they start, so that R-hat cannot tell all.
        expected: what params go up, given v: this share of E log p(y | f) over p(f | v), as in
            bounds, and for the rest log E p(y | f), the density that is sampled from, as in the
            paper; any share is a bound on the latter. At 0, what v leaves open of f explains
            residuals at no cost, and the noise can vanish: densities may come out better then, and
            means worse.
        start: values of some params of the model, or all, to start from; the model's own otherwise.
        progress: show a progress bar; a string is its label.
        sampler: a function from a model to its `SGHMC`, such as
            ``functools.partial(SGHMC, friction=0.1)``.
        checkpoint: a folder for this run alone: called again with the same arguments, a run that
            was killed goes on, and ends as if it had never been. None keeps nothing on disk.
        every: steps between checkpoints, at least.
        **kwargs: the model's keyword arguments.

    Raises:
        DataError: if `checkpoint` holds another run, or files that are not a run's.
        NonFiniteLossError: if the energy or a param is not finite.
        TypeError: if `key` is no random key, or a number is no integer.
        ValueError: if the model has no params, `start` has others, or values that they cannot have,
            a number is not positive, `expected` is no share, or the sampler makes no `SGHMC`, or
            one with control variates.
    """
    check_key("fit_mcem", key)
    if not 0 <= expected <= 1:
        raise ValueError(f"fit_mcem: expected is {expected}, wanted a share between 0 and 1")
    numbers = {
        "steps": steps, "window": window, "num_samples": num_samples, "thinning": thinning,
        "num_chains": num_chains, "every": every,
    }  # fmt: skip
    for name, value in numbers.items():
        check_count("fit_mcem", name, value)
    begun = time.perf_counter()
    key_params, key_init, key_em, key_run = random.split(key, 4)
    # The params come first, so that one compiled program serves all their values.
    kernel = sampler(partial(_given, model))
    if not isinstance(kernel, SGHMC):
        raise ValueError(
            f"fit_mcem: sampler makes {type(kernel).__name__}, wanted SGHMC, such as "
            "functools.partial(SGHMC, friction=0.1); for draws by another kernel give the params "
            "of this fit to run_mcmc"
        )
    if kernel.control_variates:
        raise ValueError(
            "fit_mcem: sampler makes an SGHMC that has control variates, whose gradient of all "
            "rows belongs to one value of the params; use them in a run at fixed params"
        )
    free, bijections = _params(key_params, model, start or {}, args, kwargs)
    optimizer = default_optimizer(learning_rate, steps) if optimizer is None else optimizer
    arguments = Partition.split(model, Call(args, kwargs))
    em = _EM(kernel, optimizer, bijections, arguments, expected)
    keys = random.split(key_init, num_chains)
    first = kernel.init(keys, steps, None, (em.params(free), *args), kwargs)
    states = jnp.zeros((window, *_flat(first.unconstrained).shape))
    state = _State(jnp.zeros((), int), key_em, first, states, free, optimizer.init(free))
    folder, done, parts, draws = None, 0, [], None
    if checkpoint is not None:
        about = identity(
            kernel, first, (key, start, args, kwargs), steps=steps, window=window,
            num_chains=num_chains, learning_rate=learning_rate, expected=expected,
            optimizer=effect(optimizer, free, steps),
        )  # fmt: skip
        folder, draws = Folder(Path(checkpoint) / "fit", about), Path(checkpoint) / "draws"
        done, parts, state = folder.read(state)
    losses = np.concatenate([np.zeros(0), *(losses for (losses,) in parts)])
    bar = tqdm(total=steps, initial=done, disable=not progress, leave=False, unit=" steps")
    bar.set_description("fit" if progress is True else str(progress), refresh=False)
    with bar:
        while len(losses) < steps:
            num = min(_CHUNK, steps - len(losses))
            state, new = em.advance(state, num)
            losses = np.concatenate([losses, np.asarray(new, np.float64)[:num]])
            _check(losses, em.params(state.free))
            bar.update(num)
            bar.set_postfix_str(f"potential energy {new[:num].mean():.5g} nats", refresh=False)
            if folder is not None and (len(losses) - done >= every or len(losses) == steps):
                folder.write(len(losses), state, [[losses[done:]]])
                done = len(losses)
    params = em.params(state.free)
    chains = run_mcmc(
        key_run, kernel, params, *args, num_warmup=0, num_samples=num_samples,
        thinning=thinning, num_chains=num_chains, start=state.sampler,
        extra_fields=("potential_energy", "temperature"), progress=progress,
        checkpoint=draws, every=every, **kwargs,
    )  # fmt: skip
    return MCEMResult(params, chains, losses, time.perf_counter() - begun)


def _check(losses: np.ndarray, params: Params) -> None:
    sound = lambda tree: all(np.isfinite(np.asarray(a)).all() for a in jax.tree.leaves(tree))  # noqa: E731
    bad = [n for n, value in params.items() if not sound(value)]
    finite = np.isfinite(losses)
    if finite.all() and not bad:
        return
    step = int(np.argmin(finite)) if not finite.all() else len(losses)
    site = f"param {bad[0]}" if bad else "the potential energy"
    raise NonFiniteLossError(
        f"fit_mcem: not finite at step {step}: {site}. Try a smaller learning_rate or step_size of "
        "the sampler, or standardised data (dgp_ppl.Standardizer)",
        step=step,
        site=site,
        result=None,
    )


class _State(NamedTuple):
    """After an iteration: the sampler's states, the last ones of the window [W, C, d], params."""

    i: Array
    key: PRNGKey
    sampler: Any
    window: Array
    free: Params
    optimizer: Any


class _EM:
    """The compiled iterations."""

    def __init__(
        self,
        sampler: Any,
        optimizer: Any,
        bijections: dict[str, Any],
        arguments: tuple[Partition, list[Any]],
        expected: float,
    ) -> None:
        self.sampler, self.optimizer, self.bijections = sampler, optimizer, bijections
        self.partition, self.data = arguments
        averaged = Potential(partial(_averaged, sampler.model))
        shares = ((averaged, expected), (sampler.potential, 1 - expected))
        self.energies = [(energy, share) for energy, share in shares if share]
        self._advance = jax.jit(self._steps)

    def params(self, free: Params) -> Params:
        """Constrained values."""
        return {n: jax.tree.map(self.bijections[n], a) for n, a in free.items()}

    def advance(self, state: _State, num: int) -> tuple[_State, np.ndarray]:
        """`num` iterations, and their potential energies."""
        state, energies = self._advance(state, num, self.data)
        return state, np.asarray(energies)

    def _steps(self, state: _State, num: Any, data: list[Any]) -> tuple[_State, Array]:
        args, kwargs = self.partition.join(data)

        def step(i: Any, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, energies = carry
            state = self._step(state, args, kwargs)
            return state, energies.at[i].set(jnp.mean(state.sampler.potential_energy))

        return lax.fori_loop(0, num, step, (state, jnp.zeros(_CHUNK)))

    def _step(self, state: _State, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _State:
        key, key_state, key_chain, key_energy = random.split(state.key, 4)
        given = (self.params(state.free), *args)
        sampler = self.sampler.sample(state.sampler, given, kwargs)
        size, chains = state.window.shape[:2]
        window = state.window.at[state.i % size].set(_flat(sampler.unconstrained))
        past = random.randint(key_state, (), 0, jnp.minimum(state.i + 1, size))
        chain = random.randint(key_chain, (), 0, chains)
        one = jax.tree.map(lambda a: a[0], sampler.unconstrained)
        latents = ravel_pytree(one)[1](window[past, chain])

        def energy(free: Params) -> Array:
            given = (self.params(free), *args)
            terms = [
                share * energy(key_energy, latents, given, kwargs).value
                for energy, share in self.energies
            ]
            return jnp.sum(jnp.stack(terms))

        gradient = jax.grad(energy)(state.free)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.free)
        free: Any = optax.apply_updates(state.free, updates)
        return _State(state.i + 1, key, sampler, window, free, optimizer)


def _flat(chains: Any) -> Array:
    """States of chains, each as a vector, [C, d]."""
    return jax.vmap(lambda u: ravel_pytree(u)[0])(chains)


class _Averaged(Messenger):
    """Makes `observe` average log p(y | f) over f given the draw of v, as under a guide."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and is_layer(msg):
            msg["infer"] = with_handover(msg, q=None, guided=True)


def _averaged(model: Model, *args: Any, **kwargs: Any) -> Any:
    with _Averaged():
        return model(*args, **kwargs)


def _given(model: Model, params: Params, *args: Any, **kwargs: Any) -> Any:
    """The model at params that come before its own arguments."""
    return handlers.substitute(model, data=params)(*args, **kwargs)


def _params(
    key: PRNGKey, model: Model, start: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Params, dict[str, Any]]:
    """The model's params without bounds, and the bijections to their own spaces."""
    laws: dict[str, Any] = {}

    def run() -> Params:
        sites = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
        found = {n: s for n, s in sites.items() if s["type"] == "param"}
        laws.update({n: s["kwargs"].get("constraint", constraints.real) for n, s in found.items()})
        return {n: s["value"] for n, s in found.items()}

    with handlers.block():
        own = jax.jit(run)()
    if not own:
        raise ValueError(
            "fit_mcem: the model has no params to learn; sample it by MCMC(dgp_ppl.SGHMC(model))"
        )
    if unknown := [n for n in start if n not in own]:
        raise ValueError(
            f"fit_mcem: start has {unknown}, wanted params of the model: {list(own)}; of a fit's "
            "params leave out the guide's"
        )
    bijections = {n: biject_to(law) for n, law in laws.items()}
    free = {}
    for name, value in (own | start).items():
        value = jax.tree.map(lambda a: jnp.asarray(a, float), value)
        (tree, kinds), (own_tree, own_kinds) = signature(value), signature(own[name])
        shapes, wanted = ([shape for shape, _ in k] for k in (kinds, own_kinds))
        if (tree, shapes) != (own_tree, wanted):
            raise ValueError(
                f"fit_mcem: start[{name!r}] has shapes {shapes}, wanted {wanted}, as the model's "
                "own at these arguments"
            )
        free[name] = jax.tree.map(bijections[name].inv, value)
        if name in start and not _within(laws[name], value, free[name]):
            raise ValueError(
                f"fit_mcem: start[{name!r}] is {value}, wanted finite values within the param's "
                f"constraint, {laws[name]}, and not at its edge"
            )
    return free, bijections


def _within(law: Any, value: Any, free: Any) -> bool:
    """Whether a param's value meets its constraint, and has a finite one without bounds."""
    met = [np.all(np.asarray(law(a))) for a in jax.tree.leaves(value)]
    return all(met) and all(np.isfinite(np.asarray(a)).all() for a in jax.tree.leaves(free))
