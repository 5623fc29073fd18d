"""A training loop for NumPyro's SVI that stays on the device."""

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState
from tqdm.auto import tqdm

from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.mean_field import MeanField

__all__ = ["FitResult", "cosine_schedule", "evaluate", "fit"]


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a fit returns.

    Attributes:
        params: constrained values of all params, a dict of arrays.
        losses: the loss (minus the ELBO, in nats) before every step of this call, [steps].
        num_data: N of the data plate; of the observed site if the model has no plate.
        state: NumPyro's SVI state after the last step: optimiser state and random key.
        seconds: wall-clock time of the steps, compilation included.
        optimizer: the optax optimiser that made the state.
    """

    params: Params
    losses: np.ndarray
    num_data: int
    state: SVIState
    seconds: float
    optimizer: Any = dataclasses.field(repr=False)

    @property
    def elbo_per_datum(self) -> np.ndarray:
        """The ELBO estimates of every step, in nats per data point, [steps]."""
        return -self.losses / self.num_data


def cosine_schedule(learning_rate: float, steps: int) -> Callable[[Any], Any]:
    """Cosine decay from `learning_rate` to 3 % of it over `steps`: an optax schedule."""
    import optax

    return optax.cosine_decay_schedule(learning_rate, max(steps, 1), alpha=0.03)


def fit(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    steps: int = 6000,
    learning_rate: float = 3e-2,
    optimizer: Any = None,
    loss: ELBO | None = None,
    start: FitResult | Params | None = None,
    progress: bool | str = True,
    **kwargs: Any,
) -> FitResult:
    """Fit a guide to a model by SVI: chunks of steps are scanned on the device.

    The model's own arguments follow `guide`, by position or by keyword.

    Args:
        key: random key; the same key gives the same fit.
        model: a NumPyro model.
        guide: its guide, such as `MeanField(model)`.
        *args: the model's positional arguments.
        steps: number of optimiser steps.
        learning_rate: where the default optimiser starts: Adam with one cosine decay to 3 % of it.
        optimizer: any optax optimiser, in place of the default.
        loss: the objective; by default `TraceMeanField_ELBO()`.
        start: params to start from, or an earlier `FitResult`. With the earlier result and its own
            `optimizer` the fit goes on exactly where it stopped (`key` is then not used): two calls
            of n steps equal one of 2n. With another optimiser, or the default's new schedule, it
            starts afresh from the result's params.
        progress: show a progress bar with the ELBO per datum and steps per second; a string is
            its label.
        **kwargs: the model's keyword arguments.

    Returns:
        Params, losses, and the state to go on from.

    Raises:
        NonFiniteLossError: at the first loss that is not finite, with the step, the site, and the
            last finite state as its `result`.
        ValueError: if `steps` or `learning_rate` is not positive.
    """
    import optax

    if steps < 1:
        raise ValueError(f"fit: steps is {steps}, wanted at least 1")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"fit: learning_rate is {learning_rate}, wanted a positive number")
    if optimizer is None:
        optimizer = optax.adam(cosine_schedule(learning_rate, steps))
    loop = _Loop(SVI(model, guide, optimizer, loss or TraceMeanField_ELBO()), args, kwargs)
    begun = time.perf_counter()
    state, num_data = loop.init(key, start.params if isinstance(start, FitResult) else start)
    if isinstance(start, FitResult) and optimizer is start.optimizer:
        state = start.state
    run = partial(_run, loop, steps=steps, num_data=num_data, progress=progress)
    state, losses, failed = run(state)
    result = FitResult(
        loop.params(state), losses, num_data, state, time.perf_counter() - begun, optimizer
    )
    if failed is None:
        return result
    step, bad = len(losses), failed
    site = loop.culprit(bad)
    kept = f"the state before it, after {step - 1} steps, is the error's result" if step else ""
    raise NonFiniteLossError(
        f"the loss is not finite at step {step} (of {steps}); first not finite: {site}. Try a "
        "smaller learning_rate, standardised data (dgp_ppl.initialize.Standardizer), or float64 "
        f"(jax_enable_x64){'; ' + kept if kept else ''}",
        step=step,
        site=site,
        result=result if step else None,
    )


def evaluate(
    key: PRNGKey,
    model: Model,
    guide: Model,
    params: Params,
    *args: Any,
    loss: ELBO | None = None,
    num_draws: int = 20,
    **kwargs: Any,
) -> tuple[float, float]:
    """The ELBO at fixed params, in nats: mean and standard error of `num_draws` estimates.

    The arguments after `params` are the model's. One draw is in memory at a time.
    """
    objective = loss or TraceMeanField_ELBO()
    arguments = _Arguments(args, kwargs)

    def losses(keys: jax.Array, params: Params, data: list[Any]) -> jax.Array:
        args, kwargs = arguments.join(data)
        return lax.map(lambda k: objective.loss(k, params, model, guide, *args, **kwargs), keys)

    values = -np.asarray(jax.jit(losses)(random.split(key, num_draws), params, arguments.data))
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(num_draws))


def _run(
    loop: "_Loop", state: SVIState, *, steps: int, num_data: int, progress: bool | str
) -> tuple[SVIState, np.ndarray, SVIState | None]:
    """All steps, or those up to the first loss that is not finite.

    Returns the last sound state, the losses up to there, and the state whose loss failed, if any.
    """
    chunk = min(steps, max(10, min(200, steps // 20)))
    losses = np.zeros(0)
    before: tuple[SVIState, int] | None = None  # the chunk before, and its number of steps
    bar = tqdm(total=steps, disable=not progress, leave=False, unit=" steps")
    bar.set_description("fit" if progress is True else str(progress), refresh=False)
    with bar:
        while len(losses) < steps:
            num = min(chunk, steps - len(losses))
            after, new = loop.advance(state, num, chunk)
            finite = np.isfinite(new)
            if not finite.all():
                first = int(np.argmin(finite))
                failed = loop.advance(state, first, chunk)[0]
                losses = np.concatenate([losses, new[:first]])
                # Replay to the state whose own loss was the last finite one.
                if first:
                    state = loop.advance(state, first - 1, chunk)[0]
                elif before is not None:
                    state = loop.advance(before[0], before[1] - 1, chunk)[0]
                return state, losses, failed
            losses = np.concatenate([losses, new])
            before, state = (state, num), after
            bar.update(num)
            bar.set_postfix_str(f"ELBO/datum {-new.mean() / num_data:.4f}", refresh=False)
    return state, losses, None


class _Arguments:
    """A model's arguments, with arrays to be traced by `jax.jit` apart from all else."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves, self._treedef = jax.tree.flatten((args, kwargs))
        dynamic = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
        self._static = [None if d else leaf for d, leaf in zip(dynamic, leaves, strict=True)]
        self.data = [jnp.asarray(a) if d else None for d, a in zip(dynamic, leaves, strict=True)]

    def join(self, data: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's args and kwargs, with these arrays."""
        leaves = [s if d is None else d for s, d in zip(self._static, data, strict=True)]
        return jax.tree.unflatten(self._treedef, leaves)


class _Loop:
    """The compiled pieces of a fit."""

    def __init__(self, svi: SVI, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.svi, self.arguments = svi, _Arguments(args, kwargs)
        self._advance = jax.jit(self._scan, static_argnums=3)

    def init(self, key: PRNGKey, params: Params | None) -> tuple[SVIState, int]:
        """The first state, and N; `params` replace the initial values of the same names."""
        sizes: dict[str, int] = {}
        observed = 1

        # Automatic guides keep what their first call finds: that must not be a tracer.
        args, kwargs = self.arguments.join(self.arguments.data)
        guide = self.svi.guide
        with handlers.block(), handlers.seed(rng_seed=key):
            if isinstance(guide, MeanField):
                guide.setup(*args, **kwargs)
            elif isinstance(guide, AutoGuide):
                guide(*args, **kwargs)

        def start(key: PRNGKey, data: list[Any], params: Params | None) -> SVIState:
            args, kwargs = self.arguments.join(data)
            state = self.svi.init(key, *args, init_params=params, **kwargs)
            plain = handlers.seed(self.svi.model, key)
            for name, site in handlers.trace(plain).get_trace(*args, **kwargs).items():
                if site["type"] == "plate":
                    sizes[name] = site["args"][0]
                elif site["type"] == "sample" and site["is_observed"]:
                    nonlocal observed
                    observed = (*jnp.shape(site["value"]), 1)[0]
            return state

        state = jax.jit(start)(key, self.arguments.data, params)
        return state, sizes.get("data", max(sizes.values(), default=observed))

    def advance(self, state: SVIState, num: int, chunk: int) -> tuple[SVIState, np.ndarray]:
        """`num` <= `chunk` steps in one compiled loop, and their losses."""
        state, losses = self._advance(state, num, self.arguments.data, chunk)
        return state, np.asarray(losses, np.float64)[:num]

    def _scan(
        self, state: SVIState, num: Any, data: list[Any], chunk: int
    ) -> tuple[SVIState, jax.Array]:
        args, kwargs = self.arguments.join(data)

        def step(i: Any, carry: tuple[SVIState, jax.Array]) -> tuple[SVIState, jax.Array]:
            state, losses = carry
            state, value = self.svi.update(state, *args, **kwargs)
            return state, losses.at[i].set(value)

        return lax.fori_loop(0, num, step, (state, jnp.zeros(chunk)))

    def params(self, state: SVIState) -> Params:
        return self.svi.get_params(state)

    def culprit(self, state: SVIState) -> str:
        """The first param or site that is not finite in the loss of this state."""
        params = self.params(state)
        for name, value in params.items():
            if not np.isfinite(np.asarray(value)).all():
                return f"param {name}"
        args, kwargs = self.arguments.join(self.arguments.data)
        key_model, key_guide = random.split(random.split(state.rng_key)[1])
        guide = handlers.substitute(handlers.seed(self.svi.guide, key_guide), data=params)
        drawn = handlers.trace(guide).get_trace(*args, **kwargs)
        model = handlers.substitute(
            handlers.replay(handlers.seed(self.svi.model, key_model), drawn), data=params
        )
        for name, site in handlers.trace(model).get_trace(*args, **kwargs).items():
            if site["type"] != "sample":
                continue
            terms = [site["fn"].log_prob(site["value"])]
            if name in drawn:
                try:
                    terms.append(kl_divergence(drawn[name]["fn"], site["fn"]))
                except NotImplementedError:
                    terms.append(drawn[name]["fn"].log_prob(site["value"]))
            if not all(np.isfinite(np.asarray(t)).all() for t in terms):
                return f"site {name}"
        return "the loss itself (every site is finite)"
