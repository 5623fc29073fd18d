"""What a model says of every row of its data given each of many draws of its latent sites."""

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
from dgp_ppl.inferencedata._draws import NUMBERS, Draws, Given, Program
from dgp_ppl.inferencedata._sites import Sites

__all__ = ["Pointwise", "PointwiseResult"]

_ROWS = 100_000  # rows times passes that are worked on at once
_FEW = 10  # draws at once, of data whose rows are not known


@dataclasses.dataclass(frozen=True)
class PointwiseResult:
    """What a model says of a site of its data given each of C S draws, on the host.

    Attributes:
        log_likelihood: log p(y_n | draw) in nats, the noise of hidden layers integrated out by
            `passes` of them, [C, S, N].
        draws: a draw of y given each, [C, S, N, ...].
        error: root mean square over draws of the log-likelihood's Monte Carlo error, which the
            passes leave, in nats, [N]; zero where there is a single one.
        value: y itself, [N, ...]; None where the model was called without it.
        seen: where y was observed, of the shape of `log_likelihood`'s rows or of y.
    """

    log_likelihood: np.ndarray | None
    draws: np.ndarray
    error: np.ndarray
    value: np.ndarray | None
    seen: np.ndarray


class Pointwise:
    """A model to be evaluated at all rows of its data given each of many draws, chunk by chunk.

    Calls whose chunks can be of one length compile once together.

    Args:
        model: the model.
        params: the fit's params.
        kwargs: the model's keyword arguments.
        chunk_size: rows at once; None for as many as are quick.
    """

    def __init__(
        self, model: Model, params: Params, kwargs: dict[str, Any], chunk_size: int | None
    ) -> None:
        self.model, self.params, self.kwargs = model, params, kwargs
        self._most, self._size = chunk_size, 0
        self._programs: dict[Any, Program] = {}

    def __call__(
        self,
        key: PRNGKey,
        draws: Draws,
        args: tuple[Any, ...],
        sites: Sites,
        passes: int,
        *,
        own_rows: bool = True,
    ) -> dict[str, PointwiseResult]:
        """What the model says at these positional arguments of each site of data.

        `own_rows`: draws of latent sites of the data's rows are these rows'; else they are drawn
        from their priors in each pass, as those of new rows are.
        """
        num = math.prod(draws.shape)
        flat = {n: a.reshape(num, *a.shape[2:]) for n, a in draws.values.items()}
        of_rows = {n: flat.pop(n) for n in sites.rows if n in flat}
        shared = jax.tree.map(jnp.asarray, (flat, draws.laws))
        parts: list[dict[str, Any]] = []
        for rows, padding, own_args, kwargs in self._chunks(args, sites, num, passes):
            program, data = self._program(own_args, kwargs, tuple(flat), tuple(sites.data))
            own = {}
            if own_rows:
                own = {n: _pad(jnp.asarray(a[:, rows]), padding, 1) for n, a in of_rows.items()}
            whole = rows.stop is None
            count = None if whole else rows.stop - rows.start
            at_once = _FEW if count is None else _ROWS // max(1, passes * (count + padding))
            at_once = max(1, min(num, at_once))
            key_rows = random.fold_in(key, rows.start)
            keys = random.split(key_rows, num)
            found = _evaluate(program, passes, at_once, keys, *shared, own, self.params, data)
            of_draws, of_data = jax.tree.map(np.asarray, found)
            cut = partial(_cut, count=count)
            pairs = {n: (*of_draws[n], *of_data[n]) for n in sites.data}
            parts.append(
                {n: tuple(map(cut, arrays, (1, 1, 0, 0, 0))) for n, arrays in pairs.items()}
            )
        answers = {}
        for name in sites.data:
            columns = [[p[name][i] for p in parts] for i in range(5)]
            log_likelihood, y, error, value, seen = (
                _joined(c, axis=1 if i < 2 else 0) for i, c in enumerate(columns)
            )
            assert y is not None
            assert error is not None
            assert seen is not None
            by_chain = lambda a: a.reshape(*draws.shape, *a.shape[1:])  # noqa: E731
            likely = None if log_likelihood is None else by_chain(log_likelihood)
            answers[name] = PointwiseResult(likely, by_chain(y), error, value, seen)
        return answers

    def _chunks(
        self, args: tuple[Any, ...], sites: Sites, num: int, passes: int
    ) -> Iterator[tuple[slice, int, tuple[Any, ...], dict[str, Any]]]:
        """Rows, how many are added to them, and the arguments at these; all of one length."""
        total = sites.num_rows
        if total is not None and not self._size:  # later calls get as many rows, by padding
            quick = max(1, min(NUMBERS // num, _ROWS // min(passes, 10)))
            self._size = min(total, self._most or quick)
        size = self._size
        named = None if total is None else self._divided(args, sites, total, size)
        if total is None or named is None:
            yield slice(0, None), 0, args, self.kwargs
            return
        for start in range(0, total, size):
            stop = min(start + size, total)
            own, kwargs = self._part(args, total, start, size, named)
            yield slice(start, stop), size - (stop - start), own, kwargs

    def _part(
        self, args: tuple[Any, ...], total: int, start: int, size: int, named: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments at some rows; `named` takes keyword arguments for rows too."""

        def rows(a: Any) -> Any:
            if not isinstance(a, jax.Array | np.ndarray) or a.shape[:1] != (total,):
                return a
            part = a[start : start + size]
            return _pad(jnp.asarray(part), size - len(part), 0)

        kwargs = {n: rows(a) for n, a in self.kwargs.items()} if named else self.kwargs
        return tuple(map(rows, args)), kwargs

    def _divided(self, args: tuple[Any, ...], sites: Sites, total: int, size: int) -> bool | None:
        """Whether rows are in keyword arguments too; None if the model is not to be divided.

        A model may have its data in neither, or make arrays for all of its rows: it is asked, on
        shapes alone, whether it takes `size` rows.
        """
        if size == total:
            return False
        for named in (False, True):
            try:
                found = Sites.from_model(
                    self.model, Call(*self._part(args, total, 0, size, named)), sites.data
                )
            except Exception:  # whatever such a model raises
                continue
            if found.num_rows == size:
                return named
        return None

    def _program(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        latent: tuple[str, ...],
        data: tuple[str, ...],
    ) -> tuple[Program, list[Any]]:
        """What was compiled for such arguments before, and their arrays."""
        partition, arrays = Partition.split(self.model, Call(args, kwargs))
        own = Program(self.model, None, partition, latent, data)
        which = (partition.treedef, partition.static, latent, data)
        return self._programs.setdefault(which, own), arrays


def _pad(a: Array, count: int, axis: int) -> Array:
    """More rows, by repeating the last one."""
    width = [(0, count if i == axis else 0) for i in range(a.ndim)]
    return jnp.pad(a, width, mode="edge")


def _cut(a: Any, axis: int, count: int | None) -> Any:
    if a is None or a.ndim <= axis:
        return a
    return a[(slice(None),) * axis + (slice(count),)]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _evaluate(
    program: Program,
    passes: int,
    at_once: int,
    keys: Array,
    values: dict[str, Array],
    laws: dict[str, Any],
    of_rows: dict[str, Array],
    params: Params,
    data: list[Any],
) -> Any:
    args, kwargs = program.call(data)

    def trace(key: PRNGKey, values: dict[str, Array], laws: dict[str, Any]) -> Any:
        model = handlers.seed(Given(whole_plates(program.model), values, laws), key)
        model = handlers.substitute(model, data=params)
        return handlers.trace(model).get_trace(*args, **kwargs)

    def given(inputs: Any) -> Any:
        key, values, laws = inputs

        def once(key: PRNGKey) -> Any:
            key_model, key_draw = random.split(key)
            sites = trace(key_model, values, laws)
            keys = random.split(key_draw, len(program.data))
            return {n: _told(sites[n], k) for n, k in zip(program.data, keys, strict=True)}

        told = jax.vmap(once)(random.split(key, passes))
        return {n: (*_log_mean(likely), y[0]) for n, (likely, y) in told.items()}

    inputs = (keys, values | of_rows, laws)
    of_draws = _map_in_parts(given, inputs, len(keys), at_once)
    sites = trace(*jax.tree.map(lambda a: a[0], inputs))
    found = {n: (likely, y) for n, (likely, _, y) in of_draws.items()}
    errors = {n: jnp.sqrt(jnp.mean(squares, axis=0)) for n, (_, squares, _) in of_draws.items()}
    return found, {n: (errors[n], *_as_given(sites[n])) for n in program.data}


def _log_mean(terms: Array | None) -> tuple[Array | None, Array]:
    """The log of the mean of p over passes, and its squared Monte Carlo error."""
    if terms is None:
        return None, jnp.zeros(())
    mean = logsumexp(terms, axis=0) - math.log(len(terms))
    if len(terms) == 1:
        return mean, jnp.zeros_like(mean)
    return mean, jnp.var(jnp.exp(terms - mean), axis=0, ddof=1) / len(terms)


def _joined(parts: list[Any], axis: int) -> Any:
    """Chunks as one array; what has no rows is the same in each."""
    first = parts[0]
    if first is None or first.ndim <= axis or len(parts) == 1:
        return first
    return np.concatenate(parts, axis=axis)


def _map_in_parts(function: Any, inputs: Any, num: int, at_once: int) -> Any:
    """As `lax.map` with a batch size, whose remainder would be compiled as a program of its own."""
    if at_once >= num:
        return jax.vmap(function)(inputs)
    size = -(-num // (-(-num // at_once)))  # parts as equal as they can be
    extra = -num % size
    rows = jnp.concatenate([jnp.arange(num), jnp.full(extra, num - 1)]).reshape(-1, size)
    part = lambda rows: jax.vmap(function)(jax.tree.map(lambda a: a[rows], inputs))  # noqa: E731
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:num], lax.map(part, rows))


def _told(site: Any, key: PRNGKey) -> tuple[Array | None, Array]:
    """The log-likelihood of a site's value, and another draw."""
    law = site["fn"]
    drawn = law.sample(key)
    if not site["is_observed"]:
        return None, drawn
    return log_density(law, site["value"]), drawn


def _as_given(site: Any) -> tuple[Array | None, Array]:
    """A site's value, and where it was observed: [N], or of each of a row's entries."""
    law = site["fn"]
    inner = law.base_dist if isinstance(law, dist.Independent) else law
    mask = law.obs_mask if isinstance(law, Observed) else getattr(law, "_mask", None)
    entries = getattr(inner, "_mask", None) if mask is None else None
    seen = jnp.asarray(True if mask is None else mask)
    if entries is not None and len(law.event_shape):
        seen = jnp.broadcast_to(entries, law.shape())
    # A mask of an `observe`, or inside of `.to_event`, can be one of entries; others are of rows.
    shape = seen.shape if seen.ndim > len(law.batch_shape) else law.batch_shape
    return (site["value"] if site["is_observed"] else None), jnp.broadcast_to(seen, shape)
