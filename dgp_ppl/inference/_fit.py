"""A training loop for NumPyro's SVI that stays on the device."""

import copy
import dataclasses
import math
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax, random
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.elbo import ELBO, RenyiELBO
from numpyro.infer.svi import SVIState
from tqdm.auto import tqdm

from dgp_ppl._checks import check_count
from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference._guide_optimizer import guide_optimizer
from dgp_ppl.inference.guides import LayerGuide

_CHUNK = 200  # steps in one call of the device, at most
_DRAWS = 100  # of a bound, to tell which params are better
_DEFAULT_LOSS = TraceMeanField_ELBO()

__all__ = ["FitResult", "evaluate", "fit"]


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a fit returns.

    Attributes:
        params: constrained values of all params, a dict of arrays.
        losses: the loss (minus the ELBO, in nats) before every step of this call, [steps].
        num_data: N of the data plate; of the observed site if the model has no plate.
        state: NumPyro's SVI state of these params, to go on from: optimiser state and random key.
        seconds: wall-clock time of the steps, compilation included.
        optimizer: the optax optimiser that made the state.
        reverted: whether `keep_best` returned to where the fit began.
    """

    params: Params
    losses: np.ndarray
    num_data: int
    state: SVIState
    seconds: float
    optimizer: Any = dataclasses.field(repr=False)
    reverted: bool = False

    @property
    def elbo_per_datum(self) -> np.ndarray:
        """The ELBO estimates of every step, in nats per data point, [steps]."""
        return -self.losses / self.num_data


def fit(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    steps: int = 6000,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    start: FitResult | Params | None = None,
    keep_best: bool = False,
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
        learning_rate: where the default optimiser starts: Adam (b1 = 0.95, b2 = 0.99) with one
            cosine decay to 3 % of it. The model's own params (hyperparameters, inducing inputs)
            are moved at 0.3 of the guide's rate. A fit that goes on from `start` moves at 0.1 of
            this with `GlobalInducing` and at 0.01 with `Diffusion` (whose chain moves at 0.1 in any
            fit): see `LayerGuide.rate`.
        optimizer: any optax optimiser, in place of the default. (Some guides have a default of
            their own: see `LayerGuide.optimizer`.)
        loss: the objective; by default the guide's, which is `TraceMeanField_ELBO()` for most.
        start: params to start from, or an earlier `FitResult`. With the earlier result and its own
            `optimizer` the fit goes on exactly where it stopped (`key` is then not used): two calls
            of n steps equal one of 2n. With another optimiser, or the default's new schedule, it
            starts afresh from the result's params.
        keep_best: return the params that the fit began with if the objective is better there
            than at its end, by 100 draws with the same keys for both: of `loss` if it is given,
            else of the guide's `LayerGuide.bound_loss`. A noisy fit, such as that of a `Diffusion`
            on a base which is nearly exact, can lose more than it gains.
        progress: show a progress bar with the ELBO per datum and steps per second; a string is
            its label.
        **kwargs: the model's keyword arguments.

    Returns:
        Params, losses, and the state to go on from.

    Raises:
        NonFiniteLossError: at the first loss that is not finite, with the step, the site, and the
            last finite state as its `result`.
        TypeError: if `steps` is no integer; for a `RenyiELBO` with a guide of layers.
        ValueError: if `steps` or `learning_rate` is not positive.
    """
    check_count("fit", "steps", steps)
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"fit: learning_rate is {learning_rate}, wanted a positive number")
    go_on = isinstance(start, FitResult) and optimizer is start.optimizer
    begun = time.perf_counter()
    _set_up(key, guide, args, kwargs)
    partition, data = Partition.split(model, Call(args, kwargs), guide)
    num_data, own = _survey(key, model, partition, data)
    if optimizer is None:
        optimizer = guide_optimizer(guide, learning_rate, steps, own, goes_on=start is not None)
    objective = _checked("fit", guide, loss) or _default_loss(guide)
    loop = _Loop.cached(model, guide, optimizer, objective, partition)
    state = loop.init(key, data, start.params if isinstance(start, FitResult) else start)
    if go_on and isinstance(start, FitResult):
        state = start.state
    first = state
    state, losses, failed = _run(
        loop, state, data, steps=steps, num_data=num_data, progress=progress
    )
    reverted = False
    if keep_best and failed is None:
        keys, wanted = random.split(key, _DRAWS), loss or _bound_loss(guide)
        before, after = (loop.objective(wanted, keys, s, data) for s in (first, state))
        if reverted := before < after or not math.isfinite(after):
            state = first._replace(rng_key=state.rng_key)
    seconds = time.perf_counter() - begun
    result = FitResult(loop.params(state), losses, num_data, state, seconds, optimizer, reverted)
    if failed is None:
        return result
    step, bad = len(losses), failed
    site = loop.culprit(bad, data)
    kept = f"the state before it, after {step - 1} steps, is the error's result" if step else ""
    raise NonFiniteLossError(
        f"the loss is not finite at step {step} (of {steps}); first not finite: {site}. Try a "
        "smaller learning_rate, standardised data (dgp_ppl.Standardizer), or float64 "
        f"(jax_enable_x64){'; ' + kept if kept else ''}",
        step=step,
        site=site,
        result=result if step else None,
    )


def _default_loss(guide: Model) -> ELBO:
    return guide.default_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def _bound_loss(guide: Model) -> ELBO:
    return guide.bound_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def _checked(caller: str, guide: Model, loss: ELBO | None) -> ELBO | None:
    """The loss, unless it makes weights of the draws of a guide that integrates over them."""
    if isinstance(loss, RenyiELBO) and isinstance(guide, LayerGuide):
        raise TypeError(
            f"{caller}: loss is a RenyiELBO, which takes log p(v) - log q(v) for the weight of a "
            f"draw of v, and {type(guide).__name__} has v integrated out of p(y | v): the value "
            "would be no bound, and above the evidence; wanted dgp_ppl.ImportanceWeighted(K)"
        )
    return loss


def _survey(
    key: PRNGKey, model: Model, partition: Partition, data: list[Any]
) -> tuple[int, frozenset[str]]:
    """N (of the plate ``data``, else the largest plate, else an observed site); param names."""
    sizes: dict[str, int] = {}
    params: set[str] = set()
    observed = 1

    def run(data: list[Any]) -> None:
        nonlocal observed
        args, kwargs = partition.join(data)
        program = handlers.trace(handlers.seed(model, key))
        for name, site in program.get_trace(*args, **kwargs).items():
            if site["type"] == "param":
                params.add(name)
            elif site["type"] == "plate":
                sizes[name] = site["args"][0]
            elif site["type"] == "sample" and site["is_observed"]:
                observed = (*jnp.shape(site["value"]), 1)[0]

    with handlers.block():
        jax.eval_shape(run, data)
    num_data = sizes.get("data", max(sizes.values(), default=observed))
    return max(1, num_data), frozenset(params)


def _set_up(key: PRNGKey, guide: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let an automatic guide look at the model: what it keeps of that must not be a tracer."""
    with handlers.block(), handlers.seed(rng_seed=key):
        if isinstance(guide, LayerGuide):
            guide.setup(*args, **kwargs)
        elif isinstance(guide, AutoGuide):
            guide(*args, **kwargs)


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

    By the guide's `LayerGuide.bound_loss` unless told another: of an `Implicit` guide that is not
    the loss of its fit, which is no bound. The arguments after `params` are the model's. One draw
    is in memory at a time.

    Raises:
        TypeError: for a `RenyiELBO` with a guide of layers.
    """
    _set_up(key, guide, args, kwargs)
    partition, data = Partition.split(model, Call(args, kwargs), guide)
    objective = _checked("evaluate", guide, loss) or _bound_loss(guide)
    program = (model, guide, objective, partition)
    values = -np.asarray(_compiled_losses(program, random.split(key, num_draws), params, data))
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(num_draws))


def _losses(program: Any, keys: jax.Array, params: Params, data: list[Any]) -> jax.Array:
    model, guide, loss, partition = program
    args, kwargs = partition.join(data)
    guide = partition.guide(guide, data)
    return lax.map(lambda k: loss.loss(k, params, model, guide, *args, **kwargs), keys)


_compiled_losses = jax.jit(_losses, static_argnums=0)


def _run(
    loop: "_Loop",
    state: SVIState,
    data: list[Any],
    *,
    steps: int,
    num_data: int,
    progress: bool | str,
) -> tuple[SVIState, np.ndarray, SVIState | None]:
    """All steps, or those up to the first loss that is not finite.

    Returns the last sound state, the losses up to there, and the state whose loss failed, if any.
    """
    chunk = max(10, min(_CHUNK, steps // 20))  # a progress bar that moves, at little cost
    losses = np.zeros(0)
    before: tuple[SVIState, int] | None = None  # the chunk before, and its number of steps
    bar = tqdm(total=steps, disable=not progress, leave=False, unit=" steps")
    bar.set_description("fit" if progress is True else str(progress), refresh=False)
    with bar:
        while len(losses) < steps:
            num = min(chunk, steps - len(losses))
            after, new = loop.advance(state, data, num)
            finite = np.isfinite(new)
            if not finite.all():
                first = int(np.argmin(finite))
                failed = loop.advance(state, data, first)[0]
                losses = np.concatenate([losses, new[:first]])
                # Replay to the state whose own loss was the last finite one.
                if first:
                    state = loop.advance(state, data, first - 1)[0]
                elif before is not None:
                    state = loop.advance(before[0], data, before[1] - 1)[0]
                return state, losses, failed
            losses = np.concatenate([losses, new])
            before, state = (state, num), after
            bar.update(num)
            bar.set_postfix_str(f"ELBO/datum {-new.mean() / num_data:.4f}", refresh=False)
    return state, losses, None


class _Loop:
    """The compiled pieces of a fit, which serve all data of the same shapes."""

    def __init__(self, svi: SVI, partition: Partition) -> None:
        self.svi, self.partition = svi, partition
        self._advance = jax.jit(self._scan)
        self._start = jax.jit(self._first_state)

    @staticmethod
    def cached(
        model: Model, guide: Model, optimizer: Any, loss: ELBO, partition: Partition
    ) -> "_Loop":
        """The loop of these; one that was compiled before where everything compares equal."""
        key = (model, guide, optimizer, loss, partition)
        try:
            hash(key)
        except TypeError:
            return _Loop(SVI(model, guide, optimizer, loss), partition)
        return _cached_loop(*key)

    def init(self, key: PRNGKey, data: list[Any], params: Params | None) -> SVIState:
        """The first state; `params` replace the initial values of the same names."""
        return self._start(key, data, params)

    def _first_state(self, key: PRNGKey, data: list[Any], params: Params | None) -> SVIState:
        args, kwargs = self.partition.join(data)
        svi = self._holding(data)
        state = svi.init(key, *args, init_params=params, **kwargs)
        self.svi.constrain_fn = svi.constrain_fn
        return state

    def _holding(self, data: list[Any]) -> SVI:
        """The SVI of the guide with its arrays."""
        svi = copy.copy(self.svi)
        svi.guide = self.partition.guide(svi.guide, data)
        return svi

    def advance(self, state: SVIState, data: list[Any], num: int) -> tuple[SVIState, np.ndarray]:
        """`num` <= _CHUNK steps in one compiled loop, and their losses."""
        state, losses = self._advance(state, num, data)
        return state, np.asarray(losses, np.float64)[:num]

    def _scan(self, state: SVIState, num: Any, data: list[Any]) -> tuple[SVIState, jax.Array]:
        args, kwargs = self.partition.join(data)
        svi = self._holding(data)

        def step(i: Any, carry: tuple[SVIState, jax.Array]) -> tuple[SVIState, jax.Array]:
            state, losses = carry
            state, value = svi.update(state, *args, **kwargs)
            return state, losses.at[i].set(value)

        return lax.fori_loop(0, num, step, (state, jnp.zeros(_CHUNK)))

    def params(self, state: SVIState) -> Params:
        return self.svi.get_params(state)

    def objective(self, loss: ELBO, keys: jax.Array, state: SVIState, data: list[Any]) -> float:
        """The mean over keys of a loss at a state's params."""
        program = (self.svi.model, self.svi.guide, loss, self.partition)
        return float(_compiled_losses(program, keys, self.params(state), data).mean())

    def culprit(self, state: SVIState, data: list[Any]) -> str:
        """The first param or site that is not finite in the loss of this state."""
        params = self.params(state)
        for name, value in params.items():
            if not all(np.isfinite(np.asarray(a)).all() for a in jax.tree.leaves(value)):
                return f"param {name}"
        # Not to be warned of values out of support as well: that is what is being looked for.
        with numpyro.validation_enabled(False):
            for name, terms in self._terms(state, params, data):
                if not np.isfinite(np.asarray(terms)).all():
                    return f"site {name}"
        return "the loss itself (every site is finite)"

    def _terms(
        self, state: SVIState, params: Params, data: list[Any]
    ) -> Iterator[tuple[str, jax.Array]]:
        """Every site of the model, with its log density or KL in the loss of this state."""
        args, kwargs = self.partition.join(data)
        key_model, key_guide = random.split(random.split(state.rng_key)[1])
        own = self._holding(data).guide
        guide = handlers.substitute(handlers.seed(own, key_guide), data=params)
        drawn = handlers.trace(guide).get_trace(*args, **kwargs)
        seeded = handlers.replay(handlers.seed(self.svi.model, key_model), drawn)
        trace = handlers.trace(handlers.substitute(seeded, data=params))
        for name, site in trace.get_trace(*args, **kwargs).items():
            if site["type"] != "sample":
                continue
            yield name, site["fn"].log_prob(site["value"])
            if name in drawn:
                try:
                    yield name, kl_divergence(drawn[name]["fn"], site["fn"])
                except NotImplementedError:
                    yield name, drawn[name]["fn"].log_prob(site["value"])


@lru_cache(maxsize=32)
def _cached_loop(
    model: Model, guide: Model, optimizer: Any, loss: ELBO, partition: Partition
) -> _Loop:
    return _Loop(SVI(model, guide, optimizer, loss), partition)
