"""The optimisers of fits: the default, and the one of implicit posteriors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from dgp_ppl._checks import check_count, check_kind, check_positive
from dgp_ppl._errors import one_line
from dgp_ppl._typing import Params
from dgp_ppl.inference.programs._natural import gaussian_pairs, natural_gradient

_RISE, _HOLD = 20, 0.6  # of natural steps: number of smaller steps, and share before the decay


class _RecordedOptimizer(optax.GradientTransformationExtraArgs):
    """An optimiser that is pickled as the call that made it: optax's functions cannot be."""

    call: Any

    def __reduce__(self) -> Any:
        maker, args, kwargs = self.call
        return partial(maker, **kwargs), args


def _recorded(maker: Callable[..., Any]) -> Callable[..., Any]:
    """Return the maker of an optimiser, which records its calls and makes equal ones once."""

    @lru_cache(maxsize=64)
    def make(*args: Any, **kwargs: Any) -> _RecordedOptimizer:
        found = _RecordedOptimizer(*optax.with_extra_args_support(maker(*args, **kwargs)))
        found.call = checked, args, kwargs
        return found

    @wraps(maker)
    def checked(learning_rate: Any, steps: Any, *args: Any, **kwargs: Any) -> _RecordedOptimizer:
        check_positive(maker.__name__, "learning_rate", learning_rate)
        check_count(maker.__name__, "steps", steps)
        options = {n: a.item() if getattr(a, "ndim", None) == 0 else a for n, a in kwargs.items()}
        try:
            return make(float(learning_rate), int(steps), *args, **options)
        except (OverflowError, TypeError, ValueError) as error:
            why = f"{maker.__name__}: {one_line(error)}"
            raise TypeError(f"{why}; wanted numbers and frozensets of names") from error

    return checked


def _is_period(name: str) -> bool:
    return name.removesuffix("_auto_loc").endswith(".period")  # a param, or a site with a prior


def cosine_schedule(
    learning_rate: float, steps: int, hold: float = 0.0, last: float = 0.03
) -> Callable[[Any], Any]:
    """Return an optax schedule: a cosine decay to 3 %, after a share of steps at the full rate."""
    begin = int(hold * steps)
    decay = optax.cosine_decay_schedule(learning_rate, max(steps - begin, 1), alpha=last)
    return lambda count: decay(jnp.maximum(count - begin, 0))


@_recorded
def default_optimizer(
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    rates: tuple[tuple[str, float], ...] = (),
    rows: frozenset[str] = frozenset(),
    natural: frozenset[str] | None = frozenset(),
    *,
    b1: float = 0.95,
    b2: float = 0.99,
    share: float = 0.3,
    hyper_factor: float = 1.0,
    row_share: float = 0.5,
    period_share: float = 0.1,
    hold: float = 0.0,
    step_size: float = 0.1,
) -> Any:
    """Make Adam with a cosine decay, shares of the rate for some params, and natural steps.

    The gradient of a bound has little noise, and its scale falls by orders of magnitude during a
    fit. So a shorter memory of squares than Adam's usual 1,000 steps, with more momentum, makes
    more progress in the same number of steps. The hyperparameters move more slowly than q(v): at
    the rate of q(v) they may reach regions that the fit does not leave again.
    `benchmarks/optimizers.py` measures these choices.

    The period of a kernel moves at a tenth of the hyperparameters' rate. The bound has a peak there
    whose width is the period by the number of cycles, and fits that leave the peak do not find it
    again: of 24 fits of 30 or 60 cycles that started in it, 3 stayed at the full rate, and all at a
    tenth of it (`benchmarks/period.py`).

    Args:
        learning_rate: initial learning rate of the guide's params.
        steps: number of steps.
        slow: names of the model's own params. They move at `share` of the rate.
        rates: pairs of a prefix of names and their share of the rate.
        rows: names of params whose leading axis is the rows of the data. They move at `row_share`
            of the rate, by an Adam that counts the steps of each row. At a higher rate, latent
            inputs can give up dimensions before the layers use them. At a lower rate, fits in
            minibatches fall behind.
        natural: names of Gaussians' means and factors, which take natural steps; None for all.
        b1: decay of the mean of gradients.
        b2: decay of the mean of squared gradients.
        share: share of the rate for `slow`.
        hyper_factor: multiple of this share for hyperparameters: `slow` but inducing inputs, whose
            names end in ".z", and periods.
        row_share: share of the rate for `rows`.
        period_share: share of the hyperparameters' rate for the periods of kernels.
        hold: share of the steps at the full rates, before they decay to 0. Without it they decay
            to 3 %.
        step_size: size of the natural steps. It rises over 20 steps, and decays over the last 40 %.

    Returns:
        An optax optimiser of a dict of params.
    """
    for name, given in {"slow": slow, "rows": rows, "natural": natural or slow}.items():
        check_kind("default_optimizer", name, given, frozenset, "a frozenset of names")
    last = 0.0 if hold else 0.03
    schedule = partial(cosine_schedule, steps=steps, hold=hold, last=last)

    def adam(rate: float) -> optax.GradientTransformation:
        return optax.adam(schedule(rate), b1=b1, b2=b2)

    def group(name: str, gaussians: Any) -> str:
        if name in gaussians:
            return "natural"
        if name in rows:
            return "rows"
        if _is_period(name):
            return "period"
        if name in slow:
            return "inducing" if name.endswith(".z") else "model"
        return next((start for start, _ in rates if name.startswith(start)), "guide")

    def label(params: Params) -> dict[str, str]:
        pairs = gaussian_pairs(params)
        found = {*pairs, *pairs.values()} if natural is None else natural
        return {name: group(name, found) for name in params}

    size = cosine_schedule(step_size, steps, _HOLD)
    parts: dict[Hashable, Any] = {
        "natural": natural_gradient(
            lambda n: jnp.minimum((n + 1) / _RISE, 1) * size(n), bounded=True
        ),
        "guide": adam(learning_rate),
        "model": adam(hyper_factor * share * learning_rate),
        "inducing": adam(share * learning_rate),
        "period": adam(period_share * share * learning_rate),
        "rows": optax.chain(
            scale_by_row_adam(b1, b2),
            optax.scale_by_learning_rate(schedule(row_share * learning_rate)),
        ),
        **{start: adam(part * learning_rate) for start, part in rates},
    }
    return optax.partition(parts, label)


def natural_adam(
    learning_rate: float, steps: int, slow: Iterable[str] = (), *, step_size: float = 0.5
) -> Any:
    """Make `default_optimizer` with natural steps for all Gaussians, such as for stock SVI.

    A natural step follows the geometry of the Gaussian, and not of its params: of `MeanField`'s
    q(v), or of NumPyro's `AutoMultivariateNormal`. A fit of q(v) needs a tenth of Adam's steps::

        optimizer = dgp.inference.natural_adam(0.1, 1000)
        svi = SVI(model, guide, optimizer, TraceMeanField_ELBO())

    Args:
        learning_rate: initial learning rate of all other params, which Adam moves.
        steps: number of steps.
        slow: names of the model's own params. They move at 0.3 of the rate.
        step_size: size of the natural steps, 0 to 1. Noisy gradients need smaller ones.

    Source: Salimbeni et al. (2018), "Natural gradients in practice: non-conjugate variational
    inference in Gaussian process models".
    """
    check_positive("natural_adam", "learning_rate", learning_rate)
    check_count("natural_adam", "steps", steps)
    check_positive("natural_adam", "step_size", step_size, most=1)
    rate, size, names = float(learning_rate), float(step_size), frozenset(slow)
    return default_optimizer(rate, steps, names, natural=None, step_size=size)


@_recorded
def adversarial_optimizer(
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    discriminator: float = 0.1,
    generator: float = 0.01,
    share: float = 0.3,
) -> Any:
    """Make the optimiser of `AdversarialELBO`: Adam with a learning rate for each part.

    All rates follow one cosine decay to 3 %. Both networks have little momentum (b1 = 0.5), because
    each one's target moves with the other. The discriminator's rate is ten times the generator's.
    At equal rates the generator would reach values that the discriminator has not learned yet, and
    the loss would fall below every bound.

    Args:
        learning_rate: initial rate of the generator's affine part, and of the guides of other
            latent sites.
        steps: number of steps of the fit.
        slow: names of the model's params.
        discriminator: multiple of the rate for the discriminator.
        generator: multiple of the rate for the generator's network and directions.
        share: multiple of the rate for the model's params.

    Returns:
        An `optax` gradient transformation.
    """

    def adam(rate: float, b1: float) -> Any:
        return optax.adam(cosine_schedule(rate * learning_rate, steps), b1=b1, b2=0.99)

    def part(name: str) -> str:
        if name.startswith("implicit.discriminator."):
            return "discriminator"
        if name.startswith("implicit.generator.") or name.endswith(".directions"):
            return "generator"  # these params shape the discriminator's inputs
        if _is_period(name):
            return "period"
        return "model" if name in slow else "guide"

    def label(params: Params) -> dict[str, str]:
        return {n: part(n) for n in params}

    parts: Any = {
        "discriminator": adam(discriminator, 0.5),
        "generator": adam(generator, 0.5),
        "guide": adam(1.0, 0.95),
        "model": adam(share, 0.95),
        "period": adam(0.1 * share, 0.95),
    }
    return optax.partition(parts, label)


class _RowAdamState(NamedTuple):
    """By param: the visits of each row, and its means of gradients and squared gradients."""

    count: Any
    mu: Any
    nu: Any


def scale_by_row_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Return Adam for params with a row per datum, which moves only the rows of the minibatch.

    Plain Adam keeps moving a row by its momentum in all steps between two visits. Here a row counts
    its own steps, and is visited if any entry of its gradient is not zero.
    """

    def init(params: Any) -> _RowAdamState:
        counts = jax.tree.map(lambda a: jnp.zeros(a.shape[:1]), params)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return _RowAdamState(counts, zeros, zeros)

    def one(g: Array, count: Array, mu: Array, nu: Array) -> tuple[Array, ...]:
        def like(a: Array) -> Array:
            return a.reshape(a.shape + (1,) * (g.ndim - 1))

        seen = jnp.any(g.reshape(len(g), -1) != 0, axis=1)
        count = count + seen
        mu = jnp.where(like(seen), b1 * mu + (1 - b1) * g, mu)
        nu = jnp.where(like(seen), b2 * nu + (1 - b2) * jnp.square(g), nu)
        steps = like(jnp.maximum(count, 1.0))
        move = mu / (1 - b1**steps) / (jnp.sqrt(nu / (1 - b2**steps)) + eps)
        return jnp.where(like(seen), move, 0.0), count, mu, nu

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, _RowAdamState]:
        trees = (updates, state.count, state.mu, state.nu)
        leaves = [one(*leaf) for leaf in zip(*map(jax.tree.leaves, trees), strict=True)]
        parts = [[leaf[i] for leaf in leaves] for i in range(len(trees))]
        moves, *new = map(partial(jax.tree.unflatten, jax.tree.structure(updates)), parts)
        return moves, _RowAdamState(*new)

    return optax.GradientTransformation(init, update)
