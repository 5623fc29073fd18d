"""Fits of models whose loss is not random, by L-BFGS in float64."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import check_count, check_key, checked_call
from dgp_ppl._errors import Interrupted
from dgp_ppl._partition import Call, CallArrays, compiled
from dgp_ppl._progress import Progress
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.svi._choice import first_states
from dgp_ppl.inference.svi._loop import Failure, TrainingLoop, loss_at
from dgp_ppl.inference.svi._result import FitResult
from dgp_ppl.inference.svi._setup import Problem, Start, non_finite_loss, refuse_tracing
from dgp_ppl.linalg._precision import double, single
from dgp_ppl.linalg._threads import one_blas_thread

_RACE = 75  # iterations of each of several starts: after 20, long lengthscales look too good
_LEAST_GAIN = 1e-9  # of an iteration, relative to the loss
_WINDOW, _LEAST_GAINS = 20, 1e-4  # iterations, and their least gain in nats per row
_FEW_STEPS = 100  # below this number the last one is no surprise
_MEMORY = 20  # iterations whose gradients make the curvature


def minimize(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    *args: Any,
    steps: int = 1000,
    loss: ELBO | None = None,
    start: Start | Sequence[Start] = None,
    progress: bool | str = True,
    **kwargs: Any,
) -> FitResult:
    """Fit a model whose loss is not random by L-BFGS, in float64 whatever JAX's default is.

    For collapsed bounds such as `models.sgpr`, marginal likelihoods, and modes by `AutoDelta`. It
    takes a tenth of the steps of `fit`, each with all rows::

        minimize(key, models.sgpr, None, x, y, z=z, start=[{"noise": 0.3}, {"noise": 0.01}])

    Args:
        key: random key of the guide's first values.
        model: a NumPyro model.
        guide: its guide; None for a model without latent sites.
        *args: the model's positional arguments. Arrays of floats become float64.
        steps: most iterations. It ends when one gains less than 1e-9 of the loss, or the last 20
            less than 1e-4 nats per row.
        loss: the objective instead of the guide's; see `fit`.
        start: params to start from, or a list of starts, as in `fit`. Each of a list gets 75
            iterations, and the one whose loss is lowest then goes on.
        progress: show a progress bar, as in `fit`.
        **kwargs: the model's keyword arguments.

    Returns:
        Params, NumPy's arrays in float64; the state, in JAX's default precision; and the loss
        after each iteration. Keep the params as they are: a q(v) that `jnp.asarray` rounds to
        float32 means another function, because its factor has other jitter.

    Raises:
        DataError: as in `fit`.
        Interrupted: at Ctrl-C; its `result` has the params of the last iteration.
        NonFiniteLossError: if the loss is not finite at any start.
        TypeError: as in `fit`.
        ValueError: if two random keys give two losses; and as in `fit`.

    Source: Byrd, Lu, Nocedal & Zhu (1995); SciPy's implementation.
    """
    refuse_tracing("minimize", key, args, kwargs, start)
    check_key("minimize", key)
    check_count("minimize", "steps", steps)
    begun, interrupt = time.perf_counter(), None
    with jax.enable_x64(True), one_blas_thread():
        call = checked_call("minimize", model, guide, args, kwargs)
        call = Call(*double(tuple(call)))
        problem = Problem.set_up(
            "minimize", key, model, _no_latent_site if guide is None else guide, call,
            steps=1000, learning_rate=0.1, optimizer=None, loss=loss, start=start,
        )  # fmt: skip
        starts = double(problem.starts)
        states = first_states(problem.loop, key, problem.data, starts)
        descents = [_Descent(problem, key, state) for state in states]
        ends = np.array([d.losses[0] for d in descents])
        ends[np.isnan(ends)] = np.inf
        if np.isinf(ends).all():
            failure = Failure(0, states[0], states[0], problem.data)
            raise non_finite_loss(problem.loop, failure, call, steps, None)
        descents[0].check_exact(random.fold_in(key, 1))
        best = descents[int(np.argmin(ends))]
        try:
            with Progress(progress, steps, "minimize") as bar:
                if len(descents) > 1:
                    for i in np.flatnonzero(np.isfinite(ends)):
                        descents[i].run(min(_RACE, steps))
                        ends[i] = descents[i].losses[-1]
                        best = descents[int(np.argmin(ends))]
                bar.update(len(best.losses) - 1)
                best.run(steps, bar)
        except KeyboardInterrupt as error:
            interrupt = error
        state = best.state()
        params = jax.tree.map(np.asarray, problem.loop.params(state))
    state = single(state)
    result = FitResult(
        params, np.array(best.losses[1:]), problem.num_data, state, time.perf_counter() - begun,
        problem.optimizer, interrupted=interrupt is not None,
        start_losses=ends if len(descents) > 1 else None,
    )  # fmt: skip
    if interrupt is not None:
        raise Interrupted(
            f"minimize: interrupted after {len(result.losses)} of {steps} steps; the fit so far is "
            "the error's result. To go on, call minimize with start=error.result",
            result,
        ) from interrupt
    if len(result.losses) >= steps >= _FEW_STEPS:
        warnings.warn(f"minimize: loss still falls after {steps} steps; raise steps", stacklevel=2)
    return result


class _Descent:
    """Iterations of L-BFGS from one state of a fit.

    Attributes:
        losses: the loss at the start and after each iteration.
    """

    def __init__(self, problem: Problem, key: PRNGKey, state: SVIState) -> None:
        self._loop, self._data, self._key, self._begun = problem.loop, problem.data, key, state
        self._num_data = problem.num_data
        self._like = double(self._loop.unconstrained(state))
        self._at = np.asarray(ravel_pytree(self._like)[0])
        self.losses = [self._evaluate(self._at)[0]]
        self._worst, self._is_slow = self.losses[0], False

    def _evaluate(self, at: np.ndarray, key: Any = None) -> tuple[float, np.ndarray]:
        key = self._key if key is None else key
        value, gradient = _program(self._loop)(at, self._like, key, self._data)
        return float(value), np.asarray(gradient)

    def check_exact(self, key: PRNGKey) -> None:
        """Raise unless another key gives the same loss."""
        other = self._evaluate(self._at, key)[0]
        if not np.isclose(other, self.losses[0], rtol=1e-9, equal_nan=True):
            raise ValueError(
                f"minimize: two random keys give losses {self.losses[0]:.6g} and {other:.6g}, "
                "wanted a guide that draws nothing, such as AutoDelta, or a model without latent "
                "sites; use fit for others"
            )

    def run(self, steps: int, bar: Progress | None = None) -> None:
        """Go on up to so many iterations in all, or to the minimum."""
        from scipy import optimize

        def function(at: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._evaluate(at)
            if np.isfinite(value) and np.isfinite(gradient).all():
                self._worst = max(self._worst, value)
                return value, gradient
            return self._worst + 1, np.zeros_like(at)  # the line search turns back

        def note(intermediate_result: Any) -> None:
            self._at = np.array(intermediate_result.x)
            self.losses.append(float(intermediate_result.fun))
            if bar is not None:
                bar.update(1, f"ELBO/datum {-self.losses[-1] / self._num_data:.4f}")
            first, *others = self.losses[-_WINDOW - 1 :]
            gain = first - others[-1]
            if len(others) == _WINDOW and gain < _LEAST_GAINS * self._num_data:
                self._is_slow = True
                raise StopIteration

        while (left := steps + 1 - len(self.losses)) > 0:
            before = len(self.losses)
            options = {
                "maxiter": left, "maxfun": 20 * steps, "maxcor": _MEMORY, "ftol": _LEAST_GAIN,
                "gtol": 1e-6,
            }  # fmt: skip
            found = optimize.minimize(
                function, self._at, jac=True, method="L-BFGS-B", callback=note, options=options
            )
            # A line search that failed may succeed along the gradient.
            if found.success or self._is_slow or len(self.losses) == before:
                return

    def state(self) -> SVIState:
        """Return the state of the last iteration."""
        params = ravel_pytree(self._like)[1](jnp.asarray(self._at))
        return self._begun._replace(optim_state=_first_state(self._loop)(params))


@lru_cache(maxsize=32)
def _first_state(loop: TrainingLoop) -> Any:
    """Return the program of the optimizer's first state; `jax.jit` keeps none of a method."""
    return jax.jit(loop.svi.optim.init)


@lru_cache(maxsize=32)
def _program(loop: TrainingLoop) -> compiled:
    """Return the program of a loop's loss and gradient at unconstrained params in one vector."""

    def value(at: Any, like: Any, key: Any, data: CallArrays) -> Any:
        constrained: Any = loop.svi.constrain_fn
        params = constrained(ravel_pytree(like)[1](at))
        return loss_at(loop.partition, loop.svi.loss, key, params, data)

    return compiled(jax.value_and_grad(value))


def _no_latent_site(*args: Any, **kwargs: Any) -> None:
    """Guide a model without latent sites."""
