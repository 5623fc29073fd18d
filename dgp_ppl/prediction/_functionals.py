"""Moments, densities, draws and quantiles of y under a stack of mixtures.

Each function takes the mixtures of S passes as `jax.vmap` stacks them: the leading axis of every
leaf is S. The predictive distribution of y weighs every pass by 1/S. B is the number of rows.
"""

from __future__ import annotations

import functools
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import logsumexp, ndtri
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._checks import bad_rows, is_traced
from dgp_ppl._partition import compiled
from dgp_ppl._typing import AnyArray, PRNGKey
from dgp_ppl.likelihoods import Mixture
from dgp_ppl.likelihoods._counts import BINOMIAL
from dgp_ppl.likelihoods._mixture import LatentMixture, briefly, holds_programs
from dgp_ppl.likelihoods._survival import density_test
from dgp_ppl.linalg._precision import double, single

QUANTILE_TOLERANCE = 1e-6
"""Width, in standard deviations of y, of the interval whose midpoint `quantiles` returns."""
_MOST_CLASSES = 2000
_LARGE_ERROR = 0.1  # of the mean, in predictive standard deviations
_ROUGH = 2.0  # sd of a log over draws, above which the mean of 20 draws is mostly too small
_AT_ONCE = 32  # classes in memory
_FINE = 0.999  # level above which float32 blurs the distance to 1


@briefly
def moments(mixtures: Mixture) -> Array:
    """Return mean and variance, `roughness`, and variance of passes' means, [B, 4, ...]."""
    means, var, rough = jax.vmap(lambda m: (*m.moments(), m.roughness))(mixtures)
    mean, between = means.mean(axis=0), means.var(axis=0)
    # Where a mean overflows, as of counts whose log rate is large, so does the variance.
    var = jnp.where(jnp.isinf(mean), jnp.inf, var.mean(axis=0) + between)
    return jnp.stack([mean, var, rough.max(axis=0), between], axis=1)


def moments_of_draws(draws: Any) -> tuple[Any, Any]:
    """Return the mean and variance over the first axis, with a warning."""
    mean, var = draws.mean(axis=0), draws.var(axis=0, ddof=1)
    error = ""
    if not is_traced(draws):
        error = f"; standard errors of means up to {float((var / len(draws)).max() ** 0.5):.2g}"
    warnings.warn(
        "NumPyro has no mean or variance of this likelihood: they come from "
        f"{len(draws):,} draws{error}. Quantiles and draws are also available",
        stacklevel=4,
    )
    return mean, var


def warn_of_draws(caller: str, kind: str, num: int) -> None:
    """Warn of probabilities that are counted."""
    warnings.warn(
        f"{caller}: no distribution function of {kind} is known: this is of {num:,} draws, and "
        f"probabilities have standard errors up to {0.5 / num**0.5:.2g}; raise num for less",
        stacklevel=4,
    )


def warn_if_rough(found: Any, passes: int, of_draws: bool) -> None:
    """Warn of `moments` that few draws of f, or few passes, decide."""
    if is_traced(found):
        return
    # Spread noise has a third of the error of random passes, or less.
    error = np.sqrt(found[:, 3] / passes) * (1.0 if of_draws else 1 / 3)
    if (large := error > _LARGE_ERROR * np.sqrt(found[:, 1])).any():
        share = (error / np.sqrt(found[:, 1]))[large].max()
        warnings.warn(
            f"predict: the mean of y in {bad_rows(large)} has a Monte Carlo error of up to "
            f"{share:.0%} of the predictive sd, from {passes} passes: raise num_samples",
            stacklevel=4,
        )
    if (rough := found[:, 2] > _ROUGH).any():
        warnings.warn(
            f"predict: the mean and variance of y in {bad_rows(rough)} are of few draws of several "
            "latents, under what grows as fast as exp(f), and mostly too small: take quantiles",
            stacklevel=4,
        )


@briefly
def log_density(mixtures: Mixture, y: Array, seen: Array | None = None) -> Array:
    """Return log p(y) in nats, [B]: the log of the mean density over passes."""
    values = log_density_by_pass(mixtures, y, seen)
    return logsumexp(values, axis=1) - jnp.log(values.shape[1])


@briefly
def log_density_by_pass(mixtures: Mixture, y: Array, seen: Array | None = None) -> Array:
    """Return log p(y | pass) in nats, [B, S]; `seen` says which entries of y count."""

    def one(mixture: Mixture) -> Array:
        return (mixture if seen is None else mixture.with_entries(seen)).log_prob(y)

    return jax.vmap(one, out_axes=1)(mixtures)


def supported(mixtures: Mixture, y: Array) -> Array:
    """Return which rows of y are in the support, [B]; all, if it is continuous."""
    if not mixtures.support.is_discrete:
        return jnp.ones(len(y))
    return jax.vmap(lambda m: m.components.support(y[None])[0])(mixtures).all(axis=0)


def dense(mixtures: Mixture, y: Array) -> Array:
    """Return which entries of y have a density and no probability, with y's shape."""
    test: Any = density_test
    found = jax.vmap(lambda mixture: test(mixture.components)(y))(mixtures)
    return found.reshape(-1, *y.shape)[0]  # the same for all passes and components


@partial(briefly, static_argnums=2)
def distribution_function(mixtures: Mixture, y: Array, classes: int | None = None) -> Array:
    """Return P(Y <= y) of every entry over all passes, [B, ...], given the number of classes."""
    support = mixtures.support
    if classes is not None:
        values = probabilities(mixtures, classes)
        counted = jnp.where(jnp.arange(classes) <= y[..., None], values, 0.0).sum(axis=-1)
        return jnp.clip(counted, 0.0, 1.0)
    starts_at_zero = _starts_at_zero(support)
    inside = jnp.floor(y) if support.is_discrete else y
    inside = jnp.maximum(inside, 0.0) if starts_at_zero else inside
    if support is constraints.unit_interval:
        inside = jnp.minimum(inside, 1.0)
    p = jax.vmap(lambda m: m.cdf(inside))(mixtures).mean(axis=0)
    return jnp.where(y < 0, 0.0, p) if starts_at_zero else p


def _starts_at_zero(support: Any) -> bool:
    low = getattr(support, "lower_bound", None)  # an array, for example, of DiscreteUniform
    reals = (constraints.positive, constraints.nonnegative, constraints.unit_interval)
    return support in reals or (bool(support.is_discrete) and isinstance(low, int) and low == 0)


def num_classes(mixtures: Mixture) -> int | None:
    """Return C if an entry of y is a class 0 ... C-1, else None, as for binomial counts."""
    support = mixtures.support
    if support is constraints.boolean:
        return 2
    low, high = (getattr(support, name, None) for name in ("lower_bound", "upper_bound"))
    if support.event_dim or not isinstance(low, int) or low or high is None:
        return None
    if isinstance(high, Tracer) or isinstance(mixtures.entries, BINOMIAL):
        return None
    most = int(np.max(np.asarray(high)))
    return most + 1 if most < _MOST_CLASSES else None


@partial(briefly, static_argnums=1)
def probabilities(mixtures: Mixture, num: int) -> Array:
    """Return p(y = c) of every entry over all passes, [B, ..., num]."""
    if mixtures.components.event_shape:
        mixtures = jax.vmap(lambda m: Mixture(m.log_weights, m.entries))(mixtures)
    shape = mixtures.entries.batch_shape[1:]
    one = lambda c: log_density(mixtures, jnp.full(shape, c))  # noqa: E731
    values = lax.map(one, jnp.arange(num), batch_size=_AT_ONCE)
    return jnp.exp(jnp.moveaxis(values, 0, -1))


@partial(compiled, static_argnums=2)  # not `briefly`: a class is never NaN
def class_quantiles(mixtures: Mixture, levels: Array, num: int) -> Array:
    """Return the least classes c with P(Y <= c) >= level over all passes, [B, len(levels), ...]."""
    below = jnp.cumsum(probabilities(mixtures, num), axis=-1)
    below = below / below[..., -1:]  # removes the rounding error
    enough = below >= levels.reshape((-1,) + (1,) * below.ndim) * (1 - 1e-6)
    return jnp.moveaxis(jnp.argmax(enough, axis=-1), 0, 1)


@compiled
def draws(mixtures: Mixture, passes: Array, key: PRNGKey) -> Array:
    """Draw y once from each of these passes, [B, len(passes), ...]."""

    def draw(index: Array, key: PRNGKey) -> Array:
        return jax.tree.map(lambda a: a[index], mixtures).sample(key)

    return jnp.moveaxis(jax.vmap(draw)(passes, random.split(key, len(passes))), 0, 1)


def quantiles(mixtures: Mixture, levels: AnyArray) -> Array:
    """Return quantiles of y over all passes, [B, len(levels), ...].

    The quantile is the smallest y with cdf(y) >= level: exact for integers, and for real y within
    half of `QUANTILE_TOLERANCE` of itself or of a standard deviation, whichever is less. Quantiles
    of integers have a derivative of 0.
    """
    is_fine = not is_traced(levels) and np.max(levels, initial=0.0) > _FINE
    if not is_fine or holds_programs(mixtures):
        dtype = mixtures.log_weights.dtype
        if is_fine and (blur := float(jnp.finfo(dtype).eps) / (1 - np.max(levels))) > 0.01:
            warnings.warn(
                f"quantile: this likelihood is computed in {dtype}, which blurs the "
                f"probability above level {np.max(levels):.10g} by {100 * blur:.2g} %; wanted a "
                "lower level, or jax.config.update('jax_enable_x64', True)",
                stacklevel=2,
            )
        return _quantiles(mixtures, jnp.asarray(levels, float), _constant_moments(mixtures))
    with jax.enable_x64(True):
        mixtures, levels = double((mixtures, np.asarray(levels, np.float64)))
        found = _quantiles(mixtures, levels, _constant_moments(mixtures))
    return single(found)


def _constant_moments(mixtures: Mixture) -> Array:
    try:
        return moments(jax.tree.map(lax.stop_gradient, mixtures))
    except NotImplementedError:
        rows, *others = mixtures.entries.batch_shape[1:]
        return jnp.full((rows, 3, *others), jnp.nan, mixtures.log_weights.dtype)


@briefly
def _quantiles(mixtures: Mixture, levels: Array, centre_var: Array) -> Array:
    found, order = _search(mixtures, levels, centre_var), jnp.argsort(levels)
    # Searches of two levels end within a tolerance each, which may exceed their distance.
    ordered = lax.cummax(found[order], axis=0)[jnp.argsort(order)]
    return jnp.moveaxis(ordered, 0, 1)


@jax.custom_jvp
def _search(mixtures: Mixture, levels: Array, centre_var: Array) -> Array:
    """Return quantiles of y over all passes, [len(levels), B, ...], given the `moments`."""
    support = mixtures.support
    centre, sd = centre_var[:, 0], jnp.sqrt(centre_var[:, 1])
    centre = jnp.where(jnp.isfinite(centre), centre, 0.0)
    sd = jnp.where(jnp.isfinite(sd), sd, 1 + jnp.abs(centre))
    # This dtype cannot distinguish levels closer to 0 or 1.
    eps = jnp.finfo(levels.dtype).eps
    levels = jnp.clip(levels, jnp.finfo(levels.dtype).tiny, 1 - 4 * eps)
    level = _by_level(levels, centre)
    guess = centre + sd * ndtri(level)  # exact for a Gaussian
    discrete = bool(support.is_discrete)
    low = jnp.full_like(guess, -1.0 if discrete else 0.0)
    if support in (constraints.unit_interval, constraints.boolean):
        ends = low, jnp.ones_like(guess)
    elif _starts_at_zero(support):
        ends = low, jnp.maximum(guess, 0) + sd + 1
    elif discrete or support.event_dim:
        raise NotImplementedError(support)
    else:  # the ends of a support may differ by row; beyond them the cdf is 0 or 1
        low = jnp.full_like(guess, -jnp.inf)
        ends = guess - sd, guess + sd
    width = 1.0 if discrete else QUANTILE_TOLERANCE * sd
    most = 1.0 if support is constraints.unit_interval else jnp.inf

    def search(ends: tuple[Array, Array], width: ArrayLike, rough: bool) -> Any:
        def cdf(y: Array) -> Array:
            if discrete:
                return jnp.where(y < 0, 0.0, _cdf(mixtures, jnp.maximum(y, 0.0), rough))
            return _cdf(mixtures, jnp.clip(y, low, most), rough)

        return _invert(cdf, level, *ends, jnp.broadcast_to(width, guess.shape), discrete)[:2]

    if discrete:
        ends = ends[0], jnp.ceil(ends[1])
    is_latent = isinstance(mixtures, LatentMixture) and mixtures.cdf_given is not None
    if is_latent and not mixtures.components.event_shape:  # exact nodes are many: first take few
        about = 1.0 if discrete else 1000 * width
        ends = search(ends, about, rough=True)
        if not discrete:
            ends = jnp.maximum(ends[0] - about, low), jnp.minimum(ends[1] + about, most)
    lower, upper = search(ends, width, rough=False)
    return upper if discrete else 0.5 * (lower + upper)


def _search_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # At a quantile F(y) = level, so that dF + F'(y) dy = dlevel.
    mixtures, levels, _ = primals
    y = _search(*primals)
    if mixtures.support.is_discrete:
        return y, jnp.zeros_like(y)
    leaves, treedef = jax.tree.flatten((mixtures, levels))
    changes = jax.tree.leaves(tangents[:2])
    # Constants stay constants: JAX has no derivative of some distribution functions in their shape.
    moving = [i for i, change in enumerate(changes) if not isinstance(change, SymbolicZero)]

    def excess(moved: list[Array]) -> Array:
        new = dict(zip(moving, moved, strict=True))
        tree = jax.tree.unflatten(treedef, [new.get(i, a) for i, a in enumerate(leaves)])
        return _cdf(tree[0], y) - _by_level(tree[1], y[0])

    _, rise = jax.jvp(excess, ([leaves[i] for i in moving],), ([changes[i] for i in moving],))
    _, density = jax.jvp(lambda y: _cdf(mixtures, y), (y,), (jnp.ones_like(y),))
    return y, -rise / density


_search.defjvp(_search_jvp, symbolic_zeros=True)


def _by_level(levels: Array, rows: Array) -> Array:
    return levels.reshape((-1,) + (1,) * rows.ndim)


def _cdf(mixtures: Mixture, y: Array, rough: bool = False) -> Array:
    """Return P(Y <= y), or about it, over all passes, at y [len(levels), B, ...]."""
    one = lambda m, y: m.rough_cdf(y) if rough else m.cdf(y)  # noqa: E731
    return jax.vmap(lambda y: jax.vmap(one, (0, None))(mixtures, y).mean(axis=0))(y)


class _Ends(NamedTuple):
    """Where a search for a quantile stands. It may move its ends apart 16 times."""

    lower: Array
    upper: Array
    at_lower: Array  # cdf - level on a Gaussian's scale; infinite as long as it is not known
    at_upper: Array
    moved: Array  # 1 if the last step moved the lower end, -1 the upper one
    tries: Array  # number of steps at which ends got values, or moved apart
    steps: Any


def _invert(
    cdf: Any, level: Array, lower: Array, upper: Array, tolerance: Array, discrete: bool
) -> tuple[Array, Array, Array]:
    """Invert a distribution function by the Illinois variant of false position.

    The search runs on the scale on which a Gaussian's distribution function is a straight line, and
    bisects at every fourth step. Half of bisection's evaluations do, and one evaluation can cost
    thousands of special functions a row. The initial ends move apart until the quantile is between
    them. Returns ends with cdf(lower) < level <= cdf(upper) up to rounding, at most `tolerance`
    apart, and the number of steps.
    """
    target, info = ndtri(level), jnp.finfo(level.dtype)
    # The rounding error of a level on this scale: within it, places cannot be distinguished.
    rounding = info.eps * level * jnp.sqrt(2 * jnp.pi) * jnp.exp(0.5 * jnp.square(target))
    slack = 0.0 if discrete else rounding

    def closest(largest: Array) -> Array:
        """Return the tolerance where ends are this large, far below a heavy tail's deviation."""
        relative = tolerance if discrete else QUANTILE_TOLERANCE * largest
        return jnp.maximum(jnp.minimum(tolerance, relative), 4 * info.eps * largest)

    def is_open(s: _Ends) -> tuple[Array, Array, Array]:
        """Return whether the quantile may lie below, or above, or the ends are too far apart."""
        largest = jnp.maximum(jnp.abs(s.lower), jnp.abs(s.upper))
        early = (s.moved == 0) & (s.tries < 18)
        below, above = early & (s.at_lower >= 0), early & (s.at_upper < 0)
        return below, above & ~below, s.upper - s.lower > closest(largest)

    def step(s: _Ends) -> _Ends:
        below, above, wide = is_open(s)
        width, rise = s.upper - s.lower, s.at_upper - s.at_lower
        share = jnp.where(((s.steps - s.tries) % 4 == 3) | ~(rise > 0), 0.5, -s.at_lower / rise)
        place = s.lower + share * width
        # Too close to an end, a step would gain nothing.
        least = 1.0 if discrete else 0.5 * closest(jnp.abs(place))
        place = jnp.clip(jnp.floor(place) if discrete else place, s.lower + least, s.upper - least)
        # The ends first as they are, then further apart, soon by factors, as about f by exp(f).
        apart = jnp.ldexp(jnp.maximum(width, closest(jnp.abs(s.upper))), s.tries - 1)
        apart = jnp.minimum(jnp.ceil(apart) if discrete else apart, info.max / 64)
        place = jnp.where(above, s.upper + jnp.where(jnp.isinf(s.at_upper), 0.0, apart), place)
        place = jnp.where(below, s.lower - jnp.where(jnp.isinf(s.at_lower), 0.0, apart), place)
        at = ndtri(jnp.clip(cdf(place), info.tiny, 1 - info.epsneg)) - target
        inside = ~(below | above)
        # Neither: this is the quantile. The least of the counts with this probability may be less.
        is_below, is_above = at < -slack, (at >= 0 if discrete else at > slack)
        # Illinois: halve the value at an end that stays twice, or it might never move.
        weight = jnp.where(s.moved == jnp.where(is_below, 1, -1), 0.5, 1.0)
        lower, upper = (below | inside & ~is_above), (above | inside & ~is_below)
        active = below | above | wide
        new = _Ends(
            jnp.where(lower, place, s.lower),
            jnp.where(upper, place, s.upper),
            jnp.where(below | inside & is_below, at, jnp.where(inside, weight, 1.0) * s.at_lower),
            jnp.where(above | inside & ~is_below, at, jnp.where(inside, weight, 1.0) * s.at_upper),
            jnp.where(inside, jnp.where(is_below, 1, -1), 0),
            s.tries + ~inside,
            s.steps,
        )  # fmt: skip
        kept = jax.tree.map(lambda a, b: jnp.where(active, a, b), new, s)
        return kept._replace(steps=s.steps + 1)

    unknown = jnp.full_like(lower, jnp.inf), jnp.full_like(upper, -jnp.inf)
    none = jnp.zeros(jnp.shape(lower), int)
    go_on = lambda s: jnp.any(functools.reduce(jnp.logical_or, is_open(s))) & (s.steps < 140)  # noqa: E731
    s = lax.while_loop(go_on, step, _Ends(lower, upper, *unknown, none, none, 0))
    # Comparisons with NaN are false, so the search would end somewhere.
    lower, upper = (jnp.where(jnp.isnan(s.at_lower + s.at_upper), jnp.nan, a) for a in s[:2])
    return lower, upper, s.steps
