"""Params and latent sites inside a likelihood, which is called again outside of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from dgp_ppl._errors import one_line
from dgp_ppl._partition import alone

_LIMITS: Any = dist.constraints
_OF_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
_HUGE = 1e30  # nats; quadrature takes the lowest number for the log of 0
_BOUNDED = _LIMITS.positive, _LIMITS.nonnegative, _LIMITS.unit_interval, _LIMITS.simplex

Likelihood = Callable[[Array], dist.Distribution]


def call_likelihood(likelihood: Likelihood, f: Array) -> tuple[dist.Distribution, Likelihood]:
    """Call a likelihood in a model, and return its value, and the likelihood with its sites fixed.

    Objectives evaluate densities after the model has run. A call to `numpyro.param` in the
    likelihood would then return its initial value, which is not what the objective differentiates.
    """
    recorder = _SiteRecorder()
    try:
        with recorder:
            distribution = likelihood(f)
    except _OF_TRACED as error:
        raise _needs_numbers() from error
    except ValueError as error:
        if "got invalid" in str(error):  # NumPyro's check of values that are known
            error = ValueError(f"observe: the likelihood's {error} Wanted, say, a positive scale")
        raise error from None
    for name, limit, value in bounded_arguments(distribution):
        if value is f:
            raise ValueError(
                f"observe: {name} is f, which is any number, wanted {limit}: apply a link, such as "
                "jax.nn.sigmoid, softmax or jnp.exp, or pass logits"
            )
    if getattr(jax.tree.map(lambda a: a, distribution), "support", ...) is None:
        raise TypeError(
            f"observe: {type(distribution).__name__} loses its support in jax.jit, wanted a "
            "distribution that keeps it: give a subclass the property `support`"
        )
    if not recorder.values:
        return distribution, likelihood
    return distribution, _WithSites(likelihood, recorder.values)


def bounded_arguments(distribution: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield a description, the constraint and the value of each argument that has limits."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    for name, limit in getattr(distribution, "arg_constraints", {}).items():
        value = getattr(distribution, name, None)
        if limit in _BOUNDED and value is not None:
            yield f"{name} of {type(distribution).__name__}", limit, value


def out_of_limits(likelihood: Likelihood, f: Array) -> dict[str, Array]:
    """Return whether arguments with limits, by description, leave them 4 off 0 and off the mean f.

    A 0 is no fault: it is the exponential of a low f in float32.
    """
    centre = f.mean(axis=0)
    tried = jnp.stack([jnp.full_like(f, c + a) for c in (0.0, centre) for a in (-4.0, 4.0)])
    found = {}
    for what, limit, value in bounded_arguments(likelihood(tried)):
        most = 1 + 1e-6 if limit is _LIMITS.unit_interval else jnp.inf
        if jnp.shape(value)[:2] == tried.shape[:2]:  # else it does not depend on f
            inside = ((value >= 0) & (value <= most)).reshape(2, -1).all(axis=1)
            found[f"{what} leaves its limits, {limit},"] = ~inside.any() & jnp.isfinite(f).all()
    return found


def is_impossible(given: Any, value: Array) -> Array:
    """Return where y, [N, ...], has no finite density at any of many f; `given` is of [T, N, ...].

    Windows that move with f reach what lies between them.
    """
    log_p = given.log_prob(value)
    possible = jnp.any((jnp.abs(log_p) < _HUGE) & given.support(value), axis=0)
    ends = [jnp.asarray(getattr(given.support, n, jnp.nan)) for n in ("lower_bound", "upper_bound")]
    if any(end.ndim > value.ndim for end in ends):
        low, high = jnp.broadcast_arrays(*ends)
        least, most = jnp.nanmin(low, axis=0), jnp.nanmax(high, axis=0)
        possible = possible | (~(value < least) & ~(value > most))
    return ~possible


def check_nodes(likelihood: Likelihood, f: Array, batch_shape: tuple[int, ...]) -> None:
    """Raise unless a likelihood takes many values of f for each row, [Q, N, ...]."""
    num = max(f.shape) + 1  # as no axis of f, which it could be taken for
    many, wanted = jax.ShapeDtypeStruct((num, *f.shape), f.dtype), (num, *batch_shape)
    why = None
    try:
        with alone():  # sites in it are the model's own, made once
            found = jax.eval_shape(lambda f: jnp.zeros(likelihood(f).batch_shape), many).shape
        has = f"batch shape {found}"
    except _OF_TRACED as error:
        raise _needs_numbers() from error
    except Exception as error:  # users' code may raise any
        found, why, has = None, error, f"an error ({type(error).__name__}: {one_line(error)})"
    if found != wanted:
        raise ValueError(
            f"observe: for f of shape {many.shape}, {num} values for each row, the likelihood has "
            f"{has}, wanted batch shape {wanted}: index f from its end, as in f[..., 0], and let "
            "arrays of one entry per row broadcast"
        ) from why


def _needs_numbers() -> TypeError:
    return TypeError(
        "observe: the likelihood takes a number of Python or NumPy from a traced array such as f, "
        "or branches on it, wanted operations of jax.numpy, such as jnp.where and jnp.exp"
    )


class _WithSites:
    """A likelihood whose params and latent sites have given values."""

    def __init__(self, likelihood: Likelihood, values: dict[str, Any]) -> None:
        self.likelihood, self.values = likelihood, values

    def __call__(self, f: Array) -> dist.Distribution:
        with alone(), handlers.substitute(data=self.values):
            return self.likelihood(f)


class _SiteRecorder(Messenger):
    """Keeps the values of params and latent sites, by the names that the likelihood uses."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def process_message(self, msg: Any) -> None:
        # An outer handler, such as scope, may rename the site later.
        self._names[id(msg)] = msg["name"]

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "param" or (msg["type"] == "sample" and not msg["is_observed"]):
            self.values[self._names[id(msg)]] = msg["value"]
