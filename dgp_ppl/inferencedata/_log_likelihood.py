"""The pointwise log-likelihood and predictive draws, given draws of a model's latent sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._partition import Call, CallArrays, Partition, compiled
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core._minibatch import whole_plates
from dgp_ppl.inference.programs._data import seen_where
from dgp_ppl.inference.programs._rows import rows_of_minibatch
from dgp_ppl.inferencedata._draws import Draws, SetDraws
from dgp_ppl.inferencedata._loo_bias import LooBias, PassSums, loo_bias
from dgp_ppl.inferencedata._sites import ModelSites
from dgp_ppl.likelihoods import log_density
from dgp_ppl.likelihoods._survival import density_test
from dgp_ppl.linalg._precision import in_precision_of_argument

PASSES_AT_ONCE = 10
"""Passes that are evaluated together, in one block."""


_MAX_NUMBERS = 4_000_000  # draws times rows on the device at once
_MAX_ROWS = 100_000  # rows times passes at once
_MAX_PASSES = 160  # that the evaluator chooses
_DRAWS_AT_ONCE = 10  # if the number of rows is unknown


@dataclasses.dataclass(frozen=True)
class PointwiseResult:
    """The log-likelihood and draws of a data site, given C S draws of the latent sites."""

    # Its values log p(y_n | draw) in nats, [C, S, N], with hidden layers' noise integrated out by
    # Monte Carlo, without LOO's correction; None where the model was called without y.
    log_likelihood: np.ndarray | None
    draws: np.ndarray  # a draw of y given each draw, [C, S, N, ...]
    # Monte Carlo error of the log-likelihood in nats, [N]: root mean square over draws. Zero for a
    # single pass.
    error: np.ndarray
    loo: LooBias | None  # LOO, its correction and its bias by row; None without a log-likelihood
    value: np.ndarray | None  # y, [N, ...]; None where the model was called without it
    seen: np.ndarray  # where y was observed, with the shape of the log-likelihood's rows or of y
    dense: np.ndarray  # where its probability is a density, with y's shape, or one for all
    factor: np.ndarray  # of `handlers.scale`: one for all, or with the log-likelihood's rows


class PointwiseEvaluator:
    """Evaluates a model at all rows given draws, in blocks of one size, which compile once."""

    def __init__(self, model: Model, params: Params, chunk_size: int | None) -> None:
        self.model, self.params = model, params
        self._max_size, self._size, self._at_once = chunk_size, 0, 0  # rows, draws

    def __call__(
        self, key: PRNGKey, draws: Draws, call: Call, sites: ModelSites, passes: int, *,
        use_row_draws: bool = True, scored: bool = True,
    ) -> dict[str, PointwiseResult]:  # fmt: skip
        """Evaluate data sites with so many draws of noise; rows are new if not `use_row_draws`.

        Without `scored` there are draws of y alone.
        """
        num = math.prod(draws.shape)
        values = {n: a.reshape(num, *a.shape[2:]) for n, a in draws.values.items()}
        row_values = {n: values.pop(n) for n in sites.row_sites if n in values}
        row_values = row_values if use_row_draws else {}
        parts: list[tuple[slice, Any]] = []
        for rows, padding, chunk in self._chunks(call, sites, num, passes):
            partition, data = Partition.split(self.model, chunk)
            local = {n: _pad(a[:, rows], padding, 1) for n, a in row_values.items()}
            block, at_once = min(passes, PASSES_AT_ONCE), _DRAWS_AT_ONCE
            if rows.stop is not None:
                at_once = _MAX_ROWS // max(1, block * (rows.stop - rows.start + padding))
            # A later call with fewer draws pads them, and shares the program.
            self._at_once = max(1, min(at_once, max(self._at_once, num)))
            static = partition, (*sites.data_dims,), block, scored and sites.tied
            own = static, passes, random.fold_in(key, rows.start)
            program = lambda each, own=own, data=data: _evaluate(  # noqa: E731
                *own, each, self.params, data
            )
            each = np.arange(num), values | local, draws.conditionals
            sums, y, constant = _in_blocks(program, each, self._at_once)
            by_draw, by_row = {}, {}
            for name in sites.data_dims:
                log_p, error, loo = None, np.zeros(()), ()
                if scored and name in sums:
                    log_p, error, loo = _scores(sums[name], passes)
                by_draw[name] = (log_p, y[name])
                by_row[name] = (error, *constant[name], *loo)
            parts.append((rows, jax.tree.map(np.asarray, (by_draw, by_row))))
        results = {}
        for name in sites.data_dims:
            of_draws = [by_draw[name] for _, (by_draw, _) in parts]
            of_rows = [by_row[name] for _, (_, by_row) in parts]
            counts = [None if r.stop is None else r.stop - r.start for r, _ in parts]
            log_likelihood, y = (_joined(c, counts, 1) for c in zip(*of_draws, strict=True))
            error, value, seen, dense, factor, *loo = (
                _joined(c, counts, 0) for c in zip(*of_rows, strict=True)
            )
            by_chain = lambda a: a.reshape(*draws.shape, *a.shape[1:])  # noqa: E731
            bias = None
            if log_likelihood is not None:
                kept = seen.any(axis=-1) if seen.ndim > log_likelihood.ndim - 1 else seen
                elpd, correction, left = loo
                bias = LooBias(elpd, correction, left, kept)
                log_likelihood = by_chain(log_likelihood)
            results[name] = PointwiseResult(
                log_likelihood, by_chain(y), error, bias, value, seen, dense, factor
            )
        return results

    def with_enough_passes(
        self, key: PRNGKey, draws: Draws, call: Call, sites: ModelSites, *, use_row_draws: bool
    ) -> tuple[dict[str, PointwiseResult], int]:
        """Evaluate with more and more passes, until LOO has little bias; also returns them."""
        passes = PASSES_AT_ONCE
        while True:
            results = self(key, draws, call, sites, passes, use_row_draws=use_row_draws)
            times = max([r.loo.wanted_factor for r in results.values() if r.loo is not None] or [1])
            if times == 1 or passes == _MAX_PASSES:
                return results, passes
            passes = min(times * passes, _MAX_PASSES)

    def _chunks(
        self, call: Call, sites: ModelSites, num: int, passes: int
    ) -> Iterator[tuple[slice, int, Call]]:
        """Iterate over rows, the number of rows of padding, and the arguments at both."""
        total = sites.num_rows
        if total is not None and not self._size:  # later calls are padded to the same size
            block = min(passes, PASSES_AT_ONCE)
            default = max(1, min(_MAX_NUMBERS // num, _MAX_ROWS // block))
            self._size = min(total, self._max_size or default)
        size = self._size
        by_row = None if total in (None, size) else self._divisible(call, sites, total, size)
        if total is None or (by_row is None and size != total):
            yield slice(0, None), 0, call
            return
        for start in range(0, total, size):
            stop = min(start + size, total)
            chunk = call if by_row is None else _chunk(call, by_row, start, size)
            yield slice(start, stop), size - (stop - start), chunk

    def _divisible(self, call: Call, sites: ModelSites, total: int, size: int) -> Call | None:
        """Return which arguments have rows; None if the model cannot be divided.

        A model may close over its data, or build arrays for all rows. Tracing its shapes shows
        whether it accepts `size` rows.
        """

        def is_long(a: Any) -> bool:
            return isinstance(a, jax.Array | np.ndarray) and a.shape[:1] == (total,)

        args, none = tuple(map(is_long, call.args)), dict.fromkeys(call.kwargs, False)
        options = [Call(args, none), Call(args, {n: is_long(a) for n, a in call.kwargs.items()})]
        if args and args[0] and (rows := rows_of_minibatch(self.model, call)) is not None:
            options = [Call(rows.args, rows.kwargs)]  # others may be as long as x by chance
        for by_row in options:
            chunk = _chunk(call, by_row, 0, size)
            try:
                found = ModelSites.from_model(self.model, chunk, sites.data_dims)
            except Exception:  # such a model may raise anything
                continue
            if found.num_rows == size:
                return by_row
        return None


def _chunk(call: Call, by_row: Call, start: int, size: int) -> Call:
    """Return the arguments at some rows, which those have that `by_row` says."""

    def rows(a: Any, has_rows: Any) -> Any:
        if has_rows is not True:
            return a
        part = a[start : start + size]
        return _pad(np.asarray(part), size - len(part), 0)

    kwargs = {n: rows(a, by_row.kwargs[n]) for n, a in call.kwargs.items()}
    return Call(tuple(map(rows, call.args, by_row.args)), kwargs)


def _pad(a: np.ndarray, count: int, axis: int) -> np.ndarray:
    """Append `count` copies of the last row."""
    return np.pad(a, [(0, count if i == axis else 0) for i in range(a.ndim)], mode="edge")


def _in_blocks(program: Any, each: Any, at_once: int) -> Any:
    """Run a program of `at_once` draws for all draws; return its results on the host.

    The last block is padded with the last draw, so that it shares the compilation.
    """
    num, parts, constants = len(each[0]), [], []
    for start in range(0, num, at_once):
        extra = max(0, start + at_once - num)
        block = jax.tree.map(lambda a: _pad(a[start : start + at_once], extra, 0), each)  # noqa: B023
        *by_draw, constant = jax.tree.map(np.asarray, program(block))
        parts.append(by_draw)
        constants.append(constant)
    return *jax.tree.map(lambda *a: np.concatenate(a)[:num], *parts), constants[0]


@in_precision_of_argument(4)
@partial(compiled, static_argnums=0)
def _evaluate(
    static: tuple[Partition, tuple[str, ...], int, bool], passes: Array, key: PRNGKey, each: Any,
    params: Params, data: CallArrays,
) -> Any:  # fmt: skip
    """Return sums over passes and a draw of y for each draw, and `_about_value`, by site."""
    # Passes that are evaluated together; and whether draws of y are of each row given all others.
    partition, names, block, leaves_out = static
    call = partition.join(data)
    # The number of passes is not static, so that all numbers share a compilation.

    def trace(key: PRNGKey, values: dict[str, Array], conditionals: dict[str, Any]) -> Any:
        model = SetDraws(whole_plates(partition.model), values, conditionals)
        model = handlers.substitute(handlers.seed(model, key), data=params)
        return handlers.trace(model).get_trace(*call.args, **call.kwargs)

    def evaluate(key: PRNGKey, values: dict[str, Array], conditionals: dict[str, Any]) -> Any:

        def one_pass(key: PRNGKey) -> Any:
            key_model, key_draw = random.split(key)
            sites = trace(key_model, values, conditionals)
            keys = random.split(key_draw, len(names))
            terms, draws = {}, {}
            for name, k in zip(names, keys, strict=True):
                site = sites[name]
                fn = left = site["fn"]
                if site["is_observed"]:
                    # Rows of a `local` process depend on each other, and LOO leaves one out.
                    if hasattr(fn, "left_out"):
                        left = fn.left_out(site["value"])
                    terms[name] = log_density(left, site["value"])
                draws[name] = (left if leaves_out else fn).sample(k)
            return terms, draws

        def add_block(i: Array, found: Any) -> Any:
            index = i * block + jnp.arange(block)
            sums, first = found
            terms, draws = jax.vmap(lambda j: one_pass(random.fold_in(key, j)))(index)
            sums = {n: s.add(terms[n], index, passes) for n, s in sums.items()}
            # The draw of y is the first pass's.
            first = {n: jnp.where(index[0] == 0, draws[n][0], y) for n, y in first.items()}
            return sums, first

        terms, draws = jax.eval_shape(one_pass, key)
        sums = {n: PassSums.empty(a.shape, a.dtype) for n, a in terms.items()}
        start = sums, {n: jnp.zeros(y.shape, y.dtype) for n, y in draws.items()}
        return lax.fori_loop(0, (passes + block - 1) // block, add_block, start)

    number, *inputs = each
    inputs = (jax.vmap(partial(random.fold_in, key))(number), *inputs)
    sites = trace(*jax.tree.map(lambda a: a[0], inputs))
    return *jax.vmap(evaluate)(*inputs), {n: _about_value(sites[n]) for n in names}


@compiled
def _scores(sums: PassSums, passes: Array) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """Return a site's log-likelihood given each draw, its error by row, and LOO."""
    log_likelihood, squares = sums.log_mean(passes)
    return log_likelihood, jnp.sqrt(jnp.mean(squares, axis=0)), loo_bias(sums, passes)


def _joined(parts: Sequence[Any], counts: Sequence[int | None], axis: int) -> Any:
    """Join the first rows of all chunks; arrays without rows are the same in each chunk."""
    if parts[0] is None or parts[0].ndim <= axis:
        return parts[0]
    before = (slice(None),) * axis
    kept = [a[(*before, slice(count))] for a, count in zip(parts, counts, strict=True)]
    return np.concatenate(kept, axis=axis)


def _about_value(site: Any) -> tuple[Array | None, Array, Array, Array]:
    """Return a site's value, where it was observed (rows, or entries), `dense` and `factor`."""
    fn, value = site["fn"], site["value"] if site["is_observed"] else None
    test = density_test(fn)
    dense = True if test is None or value is None else test(value)
    seen = seen_where(fn)
    # A mask of an `observe`, or one inside `.to_event`, may mask entries. Others mask rows.
    shape = seen.shape if seen.ndim > len(fn.batch_shape) else fn.batch_shape
    factor = jnp.asarray(1.0 if site["scale"] is None else site["scale"])
    return value, jnp.broadcast_to(seen, shape), jnp.asarray(dense), factor
