"""The pointwise log-likelihood and predictive draws, given draws of a model's latent sites."""

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Observed, log_density, whole_plates
from dgp_ppl.inferencedata._draws import MAX_NUMBERS, Draws, SetDraws, StaticCall
from dgp_ppl.inferencedata._sites import ModelSites

__all__ = ["PointwiseEvaluator", "PointwiseResult"]

_MAX_ROWS = 100_000  # rows times passes at once
_DRAWS_AT_ONCE = 10  # if the number of rows is unknown


@dataclasses.dataclass(frozen=True)
class PointwiseResult:
    """The log-likelihood and draws of a data site, given C S draws of the latent sites.

    Attributes:
        log_likelihood: log p(y_n | draw) in nats, [C, S, N], with the noise of hidden layers
            integrated out by Monte Carlo; None where the model was called without y.
        draws: a draw of y given each draw, [C, S, N, ...].
        error: Monte Carlo error of the log-likelihood in nats, [N]: root mean square over draws.
            Zero for a single pass.
        value: y, [N, ...]; None where the model was called without it.
        seen: where y was observed, with the shape of the log-likelihood's rows or of y.
    """

    log_likelihood: np.ndarray | None
    draws: np.ndarray
    error: np.ndarray
    value: np.ndarray | None
    seen: np.ndarray


class PointwiseEvaluator:
    """Evaluates a model at all rows of its data given draws of its latent sites, in chunks.

    Chunks are padded to one length, also between calls, so that all calls share one compilation.

    Args:
        model: the model.
        params: the fit's params.
        chunk_size: rows at once; None derives it from the number of draws and passes.
    """

    def __init__(self, model: Model, params: Params, chunk_size: int | None) -> None:
        self.model, self.params = model, params
        self._max_size, self._size = chunk_size, 0
        self._static_calls: dict[Any, StaticCall] = {}

    def __call__(
        self,
        key: PRNGKey,
        draws: Draws,
        call: Call,
        sites: ModelSites,
        passes: int,
        *,
        use_row_draws: bool = True,
    ) -> dict[str, PointwiseResult]:
        """Evaluate every data site.

        Args:
            key: random key.
            draws: draws of the latent sites.
            call: the model's arguments.
            sites: the model's sites at these arguments.
            passes: draws of the hidden layers' noise for each draw.
            use_row_draws: use the draws of latent sites of the data's rows. False draws these sites
                from their priors in each pass, as for new rows.
        """
        num = math.prod(draws.shape)
        values = {n: a.reshape(num, *a.shape[2:]) for n, a in draws.values.items()}
        row_values = {n: values.pop(n) for n in sites.row_sites if n in values}
        shared = jax.tree.map(jnp.asarray, (values, draws.conditionals))
        parts: list[dict[str, Any]] = []
        for rows, padding, chunk in self._chunks(call, sites, num, passes):
            static, data = self._static_call(chunk, tuple(values), tuple(sites.data_dims))
            row_draws = {}
            if use_row_draws:
                row_draws = {
                    n: _pad(jnp.asarray(a[:, rows]), padding, 1) for n, a in row_values.items()
                }
            count = None if rows.stop is None else rows.stop - rows.start
            at_once = _DRAWS_AT_ONCE
            if count is not None:
                at_once = _MAX_ROWS // max(1, passes * (count + padding))
            at_once = max(1, min(num, at_once))
            keys = random.split(random.fold_in(key, rows.start), num)
            found = _evaluate(static, passes, at_once, keys, *shared, row_draws, self.params, data)
            by_draw, by_row = jax.tree.map(np.asarray, found)
            cut = partial(_cut, count=count)
            arrays = {n: (*by_draw[n], *by_row[n]) for n in sites.data_dims}
            parts.append({n: tuple(map(cut, a, (1, 1, 0, 0, 0))) for n, a in arrays.items()})
        results = {}
        for name in sites.data_dims:
            columns = [[p[name][i] for p in parts] for i in range(5)]
            log_likelihood, y, error, value, seen = (
                _concatenate(c, axis=1 if i < 2 else 0) for i, c in enumerate(columns)
            )
            assert y is not None
            assert error is not None
            assert seen is not None
            by_chain = lambda a: a.reshape(*draws.shape, *a.shape[1:])  # noqa: E731
            if log_likelihood is not None:
                log_likelihood = by_chain(log_likelihood)
            results[name] = PointwiseResult(log_likelihood, by_chain(y), error, value, seen)
        return results

    def _chunks(
        self, call: Call, sites: ModelSites, num: int, passes: int
    ) -> Iterator[tuple[slice, int, Call]]:
        """Iterate over rows, the number of rows of padding, and the arguments at both."""
        total = sites.num_rows
        if total is not None and not self._size:  # later calls are padded to the same size
            default = max(1, min(MAX_NUMBERS // num, _MAX_ROWS // min(passes, 10)))
            self._size = min(total, self._max_size or default)
        size = self._size
        with_kwargs = None if total is None else self._divisible(call, sites, total, size)
        if total is None or with_kwargs is None:
            yield slice(0, None), 0, call
            return
        for start in range(0, total, size):
            stop = min(start + size, total)
            chunk = self._chunk(call, total, start, size, with_kwargs)
            yield slice(start, stop), size - (stop - start), chunk

    def _chunk(self, call: Call, total: int, start: int, size: int, with_kwargs: bool) -> Call:
        """Return the arguments at some rows; `with_kwargs` divides keyword arguments too."""

        def rows(a: Any) -> Any:
            if not isinstance(a, jax.Array | np.ndarray) or a.shape[:1] != (total,):
                return a
            part = a[start : start + size]
            return _pad(jnp.asarray(part), size - len(part), 0)

        kwargs = {n: rows(a) for n, a in call.kwargs.items()} if with_kwargs else call.kwargs
        return Call(tuple(map(rows, call.args)), kwargs)

    def _divisible(self, call: Call, sites: ModelSites, total: int, size: int) -> bool | None:
        """Return whether rows are in keyword arguments too; None if the model cannot be divided.

        A model may close over its data, or build arrays for all rows. Tracing its shapes shows
        whether it accepts `size` rows.
        """
        if size == total:
            return False
        for with_kwargs in (False, True):
            chunk = self._chunk(call, total, 0, size, with_kwargs)
            try:
                found = ModelSites.from_model(self.model, chunk, sites.data_dims)
            except Exception:  # such a model may raise anything
                continue
            if found.num_rows == size:
                return with_kwargs
        return None

    def _static_call(
        self, call: Call, latent: tuple[str, ...], data: tuple[str, ...]
    ) -> tuple[StaticCall, list[Any]]:
        """Return the static part of a call, from an earlier call if possible, and its arrays."""
        partition, arrays = Partition.split(self.model, call)
        static = StaticCall(self.model, None, partition, latent, data)
        which = (partition.treedef, partition.static, latent, data)
        return self._static_calls.setdefault(which, static), arrays


def _pad(a: Array, count: int, axis: int) -> Array:
    """Append `count` copies of the last row."""
    width = [(0, count if i == axis else 0) for i in range(a.ndim)]
    return jnp.pad(a, width, mode="edge")


def _cut(a: Any, axis: int, count: int | None) -> Any:
    """Keep the first `count` rows; arrays without this axis have no rows."""
    if a is None or a.ndim <= axis:
        return a
    return a[(slice(None),) * axis + (slice(count),)]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _evaluate(
    static: StaticCall,
    passes: int,
    at_once: int,
    keys: Array,
    values: dict[str, Array],
    conditionals: dict[str, Any],
    row_values: dict[str, Array],
    params: Params,
    data: list[Any],
) -> Any:
    """Evaluate the data sites given each draw, `at_once` draws at a time.

    Returns:
        By site: (log-likelihood, draws of y), [S, N, ...] each, and (Monte Carlo error, value,
        seen), [N, ...] each.
    """
    call = static.partition.join(data)

    def trace(key: PRNGKey, values: dict[str, Array], conditionals: dict[str, Any]) -> Any:
        model = SetDraws(whole_plates(static.model), values, conditionals)
        model = handlers.substitute(handlers.seed(model, key), data=params)
        return handlers.trace(model).get_trace(*call.args, **call.kwargs)

    def evaluate(inputs: Any) -> Any:
        key, values, conditionals = inputs

        def one_pass(key: PRNGKey) -> Any:
            key_model, key_draw = random.split(key)
            sites = trace(key_model, values, conditionals)
            keys = random.split(key_draw, len(static.data))
            return {
                n: _log_likelihood_and_draw(sites[n], k)
                for n, k in zip(static.data, keys, strict=True)
            }

        found = jax.vmap(one_pass)(random.split(key, passes))
        return {n: (*_log_mean(terms), y[0]) for n, (terms, y) in found.items()}

    inputs = (keys, values | row_values, conditionals)
    found = _map_in_parts(evaluate, inputs, len(keys), at_once)
    sites = trace(*jax.tree.map(lambda a: a[0], inputs))
    by_draw = {n: (log_likelihood, y) for n, (log_likelihood, _, y) in found.items()}
    errors = {n: jnp.sqrt(jnp.mean(squares, axis=0)) for n, (_, squares, _) in found.items()}
    return by_draw, {n: (errors[n], *_value_and_seen(sites[n])) for n in static.data}


def _log_mean(terms: Array | None) -> tuple[Array | None, Array]:
    """Return the log of the mean of p over passes, and its squared Monte Carlo error."""
    if terms is None:
        return None, jnp.zeros(())
    mean = logsumexp(terms, axis=0) - math.log(len(terms))
    if len(terms) == 1:
        return mean, jnp.zeros_like(mean)
    return mean, jnp.var(jnp.exp(terms - mean), axis=0, ddof=1) / len(terms)


def _concatenate(parts: list[Any], axis: int) -> Any:
    """Join the chunks; arrays without rows are the same in each chunk."""
    first = parts[0]
    if first is None or first.ndim <= axis or len(parts) == 1:
        return first
    return np.concatenate(parts, axis=axis)


def _map_in_parts(function: Any, inputs: Any, num: int, at_once: int) -> Any:
    """Map over parts of equal size; `lax.map` would compile the remainder separately."""
    if at_once >= num:
        return jax.vmap(function)(inputs)
    size = -(-num // (-(-num // at_once)))
    extra = -num % size
    rows = jnp.concatenate([jnp.arange(num), jnp.full(extra, num - 1)]).reshape(-1, size)
    part = lambda rows: jax.vmap(function)(jax.tree.map(lambda a: a[rows], inputs))  # noqa: E731
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:num], lax.map(part, rows))


def _log_likelihood_and_draw(site: Any, key: PRNGKey) -> tuple[Array | None, Array]:
    """Return the log-likelihood of a site's value, if it was observed, and a new draw."""
    draw = site["fn"].sample(key)
    if not site["is_observed"]:
        return None, draw
    return log_density(site["fn"], site["value"]), draw


def _value_and_seen(site: Any) -> tuple[Array | None, Array]:
    """Return a site's value, and a mask of where it was observed: of rows, or of their entries."""
    fn = site["fn"]
    base = fn.base_dist if isinstance(fn, dist.Independent) else fn
    mask = fn.obs_mask if isinstance(fn, Observed) else getattr(fn, "_mask", None)
    entry_mask = getattr(base, "_mask", None) if mask is None else None
    seen = jnp.asarray(True if mask is None else mask)
    if entry_mask is not None and len(fn.event_shape):
        seen = jnp.broadcast_to(entry_mask, fn.shape())
    # A mask of an `observe`, or one inside `.to_event`, may mask entries. Others mask rows.
    shape = seen.shape if seen.ndim > len(fn.batch_shape) else fn.batch_shape
    return (site["value"] if site["is_observed"] else None), jnp.broadcast_to(seen, shape)
