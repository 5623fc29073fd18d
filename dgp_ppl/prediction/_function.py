"""A fitted model as a function of its inputs: distribution, draws, gradient, or of one row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to

from dgp_ppl._checks import as_array, check_count, check_inputs, check_key, check_kind, is_traced
from dgp_ppl._partition import CallArrays, compiled, default_floats
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.core._inducing import cholesky_factor
from dgp_ppl.inference import MeanField
from dgp_ppl.inference.programs._natural import gaussian_pairs, natural_gradient
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.linalg._precision import double, in_precision_of_argument, is_double, precision_of
from dgp_ppl.prediction import _functionals as functionals
from dgp_ppl.prediction._arrays import BLOCK, block, namespace
from dgp_ppl.prediction._passes import ForwardPass
from dgp_ppl.prediction._pool import PooledPrediction
from dgp_ppl.prediction._prediction import Prediction


def function(prediction: Prediction) -> Function:
    """Return the function of a fitted model, without noise, to be called at any inputs.

    >>> import jax, jax.numpy as jnp, dgp_ppl as dgp
    >>> x = jnp.linspace(-1, 1, 5)[:, None]
    >>> f = dgp.function(dgp.predict(jax.random.key(0), dgp.models.svgp, None, {}, x, z=x))
    >>> f(jnp.zeros((3, 1))).mean.shape
    (3,)
    >>> f.draws(jax.random.key(1), 7)(jnp.zeros((3, 1))).shape
    (7, 3)

    It can be called while JAX traces x, so an emulator is part of another NumPyro model::

        def calibration(y, emulator):
            theta = numpyro.sample("theta", dist.Uniform(0, 1).expand([2]).to_event(1))
            f = emulator(jnp.concatenate([settings, jnp.tile(theta, (len(y), 1))], axis=1))
            numpyro.sample("y", dist.Normal(f.mean, jnp.sqrt(f.var + noise**2)), obs=y)

    Of a fit in float64, such as of `models.exact`, the other program runs in float64 too.

    Args:
        prediction: a prediction at any inputs, as `predict` and `pool` make it.

    Raises:
        TypeError: if it is no `Prediction`.
        ValueError: if the model takes arguments that have an entry for each row of x.
    """
    check_kind("function", "prediction", prediction, Prediction, "what predict returns")
    members = getattr(prediction, "members", (prediction,))
    if any(any(jax.tree.leaves(m.by_row)) for m in members):
        raise ValueError(
            "function: the model has arguments with an entry for each row of x, wanted a model of "
            "x alone; call predict at each x"
        )
    return Function(prediction)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Function(Summarized):
    """The function of a fitted model; see `function`.

    Attributes:
        prediction: a prediction of the model at some inputs.
    """

    prediction: Prediction

    def summary(self) -> list[str]:
        width = self.prediction.x.shape[1]
        return [f"f of {width} inputs, a mixture of {self.prediction.num_samples} distributions"]

    def __call__(self, x: ArrayLike) -> Prediction:
        """Return the distribution of f at x, [N, D], in the units of the data; see `Prediction.f`.

        Its queries, such as ``f(x).mean`` and ``f(x).interval(0.9)``, are of each row alone.
        """
        return self.at(x).f

    def draws(self, key: PRNGKey, num: int = 10) -> FunctionDraws:
        """Draw whole functions: the result is called at x, [N, D], and returns [num, N].

        The same functions are called each time. They are differentiable, and of features: see
        `Prediction.function_draws` with ``mode="path"``. Several outputs are [num, N, P].
        """
        check_key("Function.draws", key)
        check_count("Function.draws", "num", num)
        return FunctionDraws(self, key, num)

    def gradient(self, key: PRNGKey, x: ArrayLike, num: int = 100) -> tuple[Array, Array]:
        """Return mean and standard deviation of the gradient of f at x, [N, D], over draws.

        Of several outputs they are [N, P, D]. In units of f by units of the inputs.
        """
        p, x, widths = self.prediction, as_array("Function.gradient", "x", x), np.ones(1)
        with precision_of((p.draws, p.params)):
            rows, scale = default_floats(x), p.standardizer
            if scale is not None:  # float32 cannot tell raw inputs far from 0 apart
                rows, widths = scale.inputs(x), scale.x_scale
                zero, one = np.zeros_like(scale.x_loc), np.ones_like(widths)
                scale = dataclasses.replace(scale, x_loc=zero, x_scale=one)
            f = Function(dataclasses.replace(p, standardizer=scale, _cache={}))
            draws = f.draws(key, num)
            slopes = jax.vmap(jax.jacfwd(lambda row: draws(row[None])[:, 0]))(rows)
            slopes = slopes / widths.reshape((1,) * (slopes.ndim - 1) + widths.shape)
            return slopes.mean(axis=1), slopes.std(axis=1)

    def covariance(self, key: PRNGKey, x: ArrayLike, num: int = 1000) -> np.ndarray:
        """Return the covariance of f between the rows of x, [N, N], or [N, P, N, P], over draws.

        Correlations are of joint draws, so their standard errors are at most ``num ** -0.5``;
        variances are those of ``f(x).var``.
        """
        p = self.at(x)
        found = p.function_draws(key, num)
        flat, var = found.reshape(num, -1), p.f.var.reshape(-1)
        flat, xp = flat - flat.mean(axis=0), namespace(flat, var)
        spread = xp.square(flat).mean(axis=0)
        flat = flat * xp.sqrt(var / xp.where(spread > 0, spread, 1.0))
        return (flat.T @ flat / num).reshape(found.shape[1:] * 2)

    def condition(self, x: ArrayLike, y: ArrayLike) -> Function:
        """Return the function given new rows too, [N, D] and targets as of y, without a fit.

        q(v) of the last layer moves in closed form: exactly if the likelihood is Gaussian and there
        is one layer, else by a natural-gradient step with its `num_samples` passes. Everything else
        stays, so new rows teach nothing of f that the inducing inputs do not determine. Up to 32
        rows share a compiled program, and `jax.vmap` takes many y::

            fantasies = jax.vmap(lambda y: f.condition(x_next, y)(x).mean)(ys)

        Raises:
            TypeError: if the prediction is no prediction of a `MeanField` fit.
            ValueError: if the shapes do not fit, x or y is NaN or infinite, or the guide has
                ``covariance="diagonal"``.

        Source: Salimbeni et al. (2018), "Natural gradients in practice", a step of size 1.
        """
        p = self.at(x)
        guide = p.forward_pass.partition.guide
        if type(guide) is not MeanField or guide.coupled or isinstance(p, PooledPrediction):
            raise TypeError(
                "Function.condition: wanted the prediction of one fit of MeanField; others are "
                "fitted to all rows anew"
            )
        targets, num = p._shaped("Function.condition", y), len(p.x)
        for name, a in (("x", p.x), ("y", targets)):
            check_inputs("Function.condition", a, name)
        size = -(-num // BLOCK) * BLOCK
        known = np.arange(size) < num
        rows = [block(a, 0, size) for a in (p.x, p._standardized(targets))]
        with precision_of(p.params):  # in which the params stay
            rows = double(rows) if jnp.result_type(float) == np.float64 else rows
            strata = np.arange(p.num_samples) / p.num_samples
            moved = _conditioned(p.forward_pass, p.key, strata, p.params, p.data, *rows, known)
        changed = dataclasses.replace(self.prediction, params={**p.params, **moved}, _cache={})
        return dataclasses.replace(self, prediction=changed)

    def at(self, x: ArrayLike) -> Prediction:
        """Return the prediction of y at x, [N, D]."""
        p, x = self.prediction, as_array("Function", "x", x)
        inputs = default_floats(x) if p.standardizer is None else p.standardizer.inputs(x)
        if inputs.shape[1:] != p.x.shape[1:] or not len(inputs):
            raise ValueError(
                f"Function: x has shape {inputs.shape}, wanted [N, {p.x.shape[1]}] with N >= 1"
            )
        wide = is_double((p.draws, p.params)) and jnp.result_type(float) != np.float64
        if wide and is_traced(x):
            raise TypeError(
                "Function: the fit is in float64, and JAX traces x in float32, where derivatives "
                "of the function fail, wanted the whole program within jax.enable_x64(True)"
            )
        # A model whose rows are not alone runs all of them at once.
        whole = p.chunk_size == len(p.x) or is_traced(inputs)
        return _at(p, inputs, len(inputs) if whole else p.chunk_size)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FunctionDraws(Summarized):
    """Draws of whole functions; see `Function.draws`."""

    function: Function
    key: PRNGKey
    num: int

    def summary(self) -> list[str]:
        return [f"{self.num} draws of {self.function.summary()[0]}"]

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """Return the functions at x, [N, D]: [num, N], or [num, N, P], in the units of the data."""
        return self.function.at(x).function_draws(self.key, self.num, "path")


def row_function(
    prediction: Prediction, levels: Sequence[float]
) -> Callable[..., dict[str, Array]]:
    """Return the prediction as a function of one row, which `jax.jit` and `jax.vmap` accept.

    >>> import jax, jax.numpy as jnp, dgp_ppl as dgp
    >>> z = jnp.zeros((1, 2))
    >>> p = dgp.predict(jax.random.key(0), dgp.models.svgp, None, {}, z, z=z)
    >>> sorted(jax.vmap(row_function(p, [0.5]))(jnp.zeros((3, 2))))
    ['mean', 'quantiles', 'var']

    The function takes x [D], and a row of each argument that has one row per row of x. Its result
    is a dict of ``mean`` and ``var`` of y [], and ``quantiles`` [Q] if there are levels; for
    classes also ``probabilities`` [C], and no moments or quantiles if the distribution has none.
    They are in the units of the data, and equal the same prediction at this row alone. It raises a
    ValueError if the distribution of y lacks moments, or quantiles.
    """

    def one_row(x: Array, *others: Array) -> dict[str, Array]:
        loc, spread = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
        if (scale := prediction.standardizer) is not None:
            x = (x - jnp.asarray(scale.x_loc, x.dtype)) / jnp.asarray(scale.x_scale, x.dtype)
            loc, spread = (jnp.asarray(a, x.dtype) for a in (scale.y_loc, scale.y_scale))
        mixtures = next(_at(prediction, x[None], 1, others).components())[1]
        found: dict[str, Array] = {}
        classes = functionals.num_classes(mixtures)
        if classes is not None:
            values = functionals.probabilities(mixtures, classes)[0]
            found["probabilities"] = values / values.sum(axis=-1, keepdims=True)
        try:
            mean, var = functionals.moments(mixtures)[0][:2]
            found |= {"mean": mean * spread + loc, "var": var * jnp.square(spread)}
            if len(levels):
                at = functionals.quantiles(mixtures, np.asarray(levels, np.float64))[0]
                found["quantiles"] = at * spread + loc
        except NotImplementedError as error:
            if classes is None:
                lacking: Any = "quantiles; leave them out" if found else "mean and variance"
                raise ValueError(f"the distribution of y has no {lacking} ({error!r})") from error
        return found

    return one_row


def _at(p: Prediction, x: Array, chunk: int, others: Sequence[Array] = ()) -> Prediction:
    """Return a prediction at other standardised inputs, with a row of each argument by row."""
    if isinstance(p, PooledPrediction):
        members = tuple(_at(m, x, chunk, others) for m in p.members)
        return dataclasses.replace(p, x=x, members=members, _cache={})
    rest = iter(others)
    row = lambda a, own: next(rest)[None] if own else a  # noqa: E731
    data = jax.tree.map(row, p.data, p.by_row)
    return dataclasses.replace(p, x=x, data=data, chunk_size=chunk, _cache={})


@in_precision_of_argument(3)
@partial(compiled, static_argnums=0)
def _conditioned(
    forward_pass: ForwardPass, key: PRNGKey, strata: Array, params: Params, data: CallArrays,
    x: Array, y: Array, known: Array,
) -> Params:  # fmt: skip
    """Return the params of q(v) of observed layers, given known rows of y too."""

    def passes(values: Params, number: Array) -> Any:
        spread = random.fold_in(key, len(strata)), strata, number
        return forward_pass.distribution(
            random.fold_in(key, number), {}, params | values, data, x, spread=spread
        )

    def loss(raw: Params) -> Array:
        values = raw | {n: transform(raw[n]) for n in pairs.values()}
        each = lambda number: jnp.sum(known * passes(values, number).log_prob(y))  # noqa: E731
        return -jnp.mean(jax.vmap(each)(jnp.arange(len(strata))))

    transform: Any = biject_to(cholesky_factor)
    with handlers.block():
        layers = passes({}, jnp.array(0)).marginals.layers
        every = gaussian_pairs(params).items()
        pairs = {a: b for a, b in every if a.removesuffix(".loc") in layers}
        if lacking := [n for n in layers if f"{n}.loc" not in pairs]:
            raise ValueError(
                f"Function.condition: q({lacking[0]}) has a diagonal covariance, which new rows "
                "would fill, wanted a fit of MeanField(model) or of covariance='shared'"
            )
        raw = {n: params[n] for n in pairs} | {n: transform.inv(params[n]) for n in pairs.values()}
        # Of the rows alone: q before them is the prior of the step.
        moves, _ = natural_gradient(lambda _: 1.0).update(jax.grad(loss)(raw), jnp.array(0), raw)
    moved: Any = optax.apply_updates(raw, moves)
    moved = moved | {n: transform(moved[n]) for n in pairs.values()}
    # A step that is not finite would be left out, without a word.
    finite = jnp.isfinite(x).all() & jnp.isfinite(y).all()
    return jax.tree.map(lambda a: jnp.where(finite, a, jnp.nan), moved)
