"""Fits of a study's outputs, and compiled programs of their predictions.

A program is compiled once for all fits whose arrays have the same shapes. Codes are of
`Space.encode`; what is computed of y is in the units of the standardised target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Array

from dgp_ppl._partition import Call, CallArrays, Partition, compiled, default_floats
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.comparison import Fitted, Setting, Task
from dgp_ppl.design._criteria import CRITERIA
from dgp_ppl.linalg._precision import double, precision_of
from dgp_ppl.standardize import Standardizer

_PASSES = 32  # of predictions that are not the same in each pass
_STARTS, _STEPS, _RATE = 8, 60, 0.05  # of ascents by Adam in the unit cube


@dataclasses.dataclass(frozen=True)
class Program:
    """What does not depend on the numbers of a fit: the static argument of compiled programs."""

    kind: type[Fitted]
    partition: Partition
    passes: int

    def prediction(self, arrays: Arrays, key: PRNGKey, codes: Array) -> Any:
        """Return the prediction at these codes; it can be traced."""
        call, result = self.partition.join(arrays.data), SimpleNamespace(params=arrays.params)
        guide, draws = self.partition.guide_with(arrays.data), arrays.draws or None
        fitted: Any = partial(self.kind, self.partition.model, guide, call.kwargs, draws=draws)
        x = (codes - arrays.x_loc) / arrays.x_scale
        return fitted(result=result).predict(key, x, num_samples=self.passes)

    def moments(self, arrays: Arrays, key: PRNGKey, code: Array) -> tuple[Array, Array]:
        """Return mean and variance of f in each pass at one input, [S, 1]. Inputs share noise."""
        mixtures = next(self.prediction(arrays, key, code[None]).f.components())[1]
        return jax.vmap(type(mixtures).moments)(mixtures)


class Arrays(NamedTuple):
    """The numbers of a fit, and the location and the scale of the codes that it was fitted to."""

    params: Params
    draws: dict[str, Array]
    data: CallArrays
    x_loc: Any
    x_scale: Any


@dataclasses.dataclass(frozen=True)
class Emulator:
    """The fit of one output."""

    fitted: Fitted
    scale: Standardizer
    program: Program
    arrays: Arrays

    @classmethod
    def fit(
        cls, method: Callable[[Task], Fitted], key: PRNGKey, codes: np.ndarray, y: np.ndarray
    ) -> Emulator:
        """Fit a method of `compare` to values y, [N], at codes, [N, E]."""
        scale = Standardizer.fit(codes, y)
        fitted = method(Task(key, scale.inputs(codes), scale.outputs(y), Setting()))
        # It checks the fit, lets the guide find the model's sites, and spaces the draws.
        some = scale.inputs(np.concatenate([codes[:8], codes.mean(axis=0)[None]]))
        prediction = fitted.predict(key, some, num_samples=_PASSES)
        mixtures = next(prediction.f.components())[1]
        moments = jax.vmap(type(mixtures).moments)(mixtures)
        # All passes are equal through one layer with one set of params.
        passes = _PASSES if any(np.ptp(a, axis=0).any() for a in moments) else 1
        partition, data = Partition.split(fitted.model, Call((), fitted.kwargs), fitted.guide)
        draws, params = prediction.draws, fitted.result.params
        arrays = Arrays(params, draws, data, scale.x_loc, scale.x_scale)
        return cls(fitted, scale, Program(type(fitted), partition, passes), arrays)

    def standard(self, y: Any) -> Any:
        return (y - self.scale.y_loc) / self.scale.y_scale


def search(
    criterion: str,
    outputs: Sequence[Emulator],
    constraints: Sequence[Emulator],
    key: PRNGKey,
    codes: np.ndarray,
    free: np.ndarray,
    new: np.ndarray,
    about: dict[str, Any],
) -> tuple[np.ndarray, ...]:
    """Score a pool of inputs; and go on from the best by gradients.

    Args:
        criterion: name of the criterion.
        outputs: fits of each y, over which the criterion is summed.
        constraints: fits of each constraint.
        key: random key of the passes.
        codes: codes of the pool, [C, E].
        free: which entries of a code may move, [E].
        new: which of the pool may be chosen, [C].
        about: what the criterion knows.

    Returns:
        Scores of the pool and of T better inputs, [C + T]; the parts of them that are log
        probabilities of the constraints; the codes of the better ones, [T, E]; and the places in
        the pool from which they come, [T].
    """
    emulators = outputs, constraints
    static = criterion, *(tuple(e.program for e in some) for some in emulators)
    with precision_of([e.arrays[:2] for some in emulators for e in some]):
        arrays = tuple([_in_precision(e.arrays) for e in some] for some in emulators)
        about = {n: jnp.asarray(a, float) for n, a in about.items()}
        found = _search(static, arrays, key, default_floats(codes), free, new, about)
        return tuple(map(np.asarray, found))


def _in_precision(arrays: Arrays) -> Arrays:
    return double(arrays) if jnp.result_type(float) == np.float64 else arrays


@partial(compiled, static_argnums=0)
def _search(
    static: tuple[str, tuple[Program, ...], tuple[Program, ...]],
    arrays: tuple[list[Arrays], list[Arrays]], key: PRNGKey, codes: Array, free: Array, new: Array,
    about: dict[str, Array],
) -> tuple[Array, ...]:  # fmt: skip
    criterion, outputs, constraints = static

    def weight(code: Array) -> Array:
        total = jnp.zeros(())
        for program, own, limit in zip(constraints, arrays[1], about["limits"], strict=True):
            means, variances = program.moments(own, key, code)
            z = (limit - means) / jnp.sqrt(variances)
            total = total + logsumexp(log_ndtr(z)) - jnp.log(z.size)
        return total

    def score(code: Array) -> Array:
        if criterion not in CRITERIA:
            return weight(code)
        nearest = jnp.argmin(jnp.square(about["runs"] - code[None]).sum(axis=1))
        scores = []
        for program, own, values in zip(outputs, arrays[0], about["values"], strict=True):
            known = about | {"nearest": values[nearest]}
            means, variances = program.moments(own, key, code)
            scores += [CRITERIA[criterion](about["sign"] * means, variances, known)[0]]
        return logsumexp(jnp.stack(scores)) + weight(code)

    scores, best, start = _ascend(score, codes, free, new)
    return scores, jax.vmap(weight)(jnp.concatenate([codes, best])), best, start


def _ascend(
    score: Callable[[Array], Array], codes: Array, free: Array, new: Array
) -> tuple[Array, Array, Array]:
    """Return scores, better codes and where they come from, as `search` does."""
    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS), eps=1e-12)
    ascent = jax.vmap(jax.value_and_grad(score))

    def step(state: Any, _: None) -> tuple[Any, None]:
        code, moved, best, highest = state
        value, slope = ascent(code)
        best = jnp.where((value > highest)[:, None], code, best)
        slope = jnp.where(jnp.isfinite(slope) & free[None], slope, 0.0)
        change, moved = optimizer.update(-slope, moved)
        return (jnp.clip(code + change, 0.0, 1.0), moved, best, jnp.fmax(value, highest)), None

    scores = jax.vmap(score)(codes)
    start = lax.top_k(jnp.where(new, scores, -jnp.inf), _STARTS)[1]
    state = codes[start], optimizer.init(codes[start]), codes[start], scores[start]
    (_, _, best, highest), _ = lax.scan(step, state, None, length=_STEPS)
    return jnp.concatenate([scores, highest]), best, start


def search_draws(
    emulator: Emulator,
    num: int,
    sign: float,
    key: PRNGKey,
    codes: np.ndarray,
    free: np.ndarray,
    new: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Look for the lowest value of sign · f for each of `num` draws of f; see `search`.

    Returns:
        Values of the pool and of T better inputs, negated, [num, C + T]; the codes of the better
        ones, [num, T, E]; and where they come from, [num, T].
    """
    with precision_of(emulator.arrays[:2]):
        arrays, keys = _in_precision(emulator.arrays), random.split(key, num)
        given = arrays, keys, default_floats(codes), free, new, sign
        return tuple(map(np.asarray, _search_draws(emulator.program, *given)))


@partial(compiled, static_argnums=0)
def _search_draws(
    program: Program, arrays: Arrays, keys: PRNGKey, codes: Array, free: Array, new: Array,
    sign: Array,
) -> tuple[Array, ...]:  # fmt: skip
    def of_draw(key: PRNGKey) -> tuple[Array, ...]:
        def score(code: Array) -> Array:
            f = program.prediction(arrays, key, code[None]).function_draws(key, 1, "path")
            return -sign * f[0, 0]

        return _ascend(score, codes, free, new)

    return jax.vmap(of_draw)(keys)


def joint_draws(
    emulator: Emulator, num: int, key: PRNGKey, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return joint draws of f, [K, N], with the moments of the prediction; and its mean, [N]."""
    with precision_of(emulator.arrays[:2]):
        arrays = _in_precision(emulator.arrays)
        found = _joint_draws((emulator.program, num), arrays, key, default_floats(codes))
        draws, means, variances = (np.asarray(a, np.float64) for a in found)
    mean, var = means.mean(axis=1), variances.mean(axis=1) + means.var(axis=1)
    off = draws - draws.mean(axis=0)
    least = np.finfo(np.float32).tiny
    return mean + off * np.sqrt(var / np.maximum(np.square(off).mean(axis=0), least)), mean


@partial(compiled, static_argnums=0)
def _joint_draws(
    static: tuple[Program, int], arrays: Arrays, key: PRNGKey, codes: Array
) -> tuple[Array, Array, Array]:
    program, num = static
    draws = program.prediction(arrays, key, codes).function_draws(key, num)
    means, variances = jax.vmap(lambda code: program.moments(arrays, key, code))(codes)
    return draws, means[..., 0], variances[..., 0]
