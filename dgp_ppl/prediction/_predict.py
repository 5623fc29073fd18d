"""Predictions: the mixture over S passes through the model, in the units of the data."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Mixture
from dgp_ppl.inference import Chains
from dgp_ppl.metrics import crps_gaussian_mixture, crps_samples
from dgp_ppl.prediction import _functionals as functionals
from dgp_ppl.prediction._passes import Program, function_passes, latent_passes, predictive_passes
from dgp_ppl.standardize import Standardizer

__all__ = ["Prediction", "predict"]

_ROWS = 100_000  # rows times passes that are in memory at once
_KEPT = 20_000_000  # numbers of the mixture's params that are kept between calls


def predict(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params,
    x: ArrayLike,
    *args: Any,
    num_samples: int = 100,
    standardizer: Standardizer | None = None,
    posterior_samples: dict[str, Array] | Chains | None = None,
    site: str = "y",
    chunk_size: int | None = None,
    **kwargs: Any,
) -> "Prediction":
    """The posterior predictive distribution of a model at new inputs.

    Every pass draws the hidden layers afresh; the last layer's Gaussian is kept in closed form, so
    the prediction is a mixture of `num_samples` distributions of y (Salimbeni & Deisenroth 2017,
    section 3.3). Nothing is computed until it is asked for; any number of rows is taken in chunks.

    Latent sites of the data's rows (latent inputs, say) belong to the rows of the fit: here they
    are drawn from their priors, whatever the guide or `posterior_samples` say of them. For a fit's
    own rows see `latent_inputs`.

    Args:
        key: random key; the same key gives the same prediction, whatever is asked first.
        model: the model; ``model(x, *args, **kwargs)`` must be a call without y.
        guide: its fitted guide, or None.
        params: the fit's params.
        x: test inputs, [N, D], in the data's units if there is a `standardizer`.
        *args: further arguments of the model; arrays with one row per row of x (an exposure, say)
            are taken in the same chunks.
        num_samples: number of passes S (with `posterior_samples`: taken from them, evenly spaced).
        standardizer: the training data's; inputs go in, and answers come out, in its units.
        posterior_samples: draws of latent sites in place of a guide's: MCMC's ``get_samples()``, or
            `Chains`, of each of which as many are taken.
        site: the observed site, whose distribution is an `observe`.
        chunk_size: rows in memory at once; by default 100,000 / S.
        **kwargs: keyword arguments of the model.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if x is not [N, D], a number is not positive, the site is not an `observe`,
            `posterior_samples` lacks a latent site that no plate holds, or the model answers for
            other rows than those of x (a `batch_size`, say).
    """
    check_count("predict", "num_samples", num_samples)
    if chunk_size is not None:
        check_count("predict", "chunk_size", chunk_size)
    inputs = jnp.asarray(x, float) if standardizer is None else standardizer.inputs(x)
    if inputs.ndim != 2 or not len(inputs):
        raise ValueError(f"predict: x has shape {inputs.shape}, wanted [N, D] with N >= 1")
    latents: dict[str, Array] = {}
    chains = None
    if isinstance(posterior_samples, Chains):
        chains = posterior_samples.spaced(max(1, num_samples // posterior_samples.shape[0]))
        posterior_samples = {n: jnp.asarray(a) for n, a in chains.get_samples().items()}
        num_samples = chains.shape[0] * chains.shape[1]
    if posterior_samples is not None:
        totals = sorted({len(a) for a in posterior_samples.values()})
        if len(totals) != 1:
            raise ValueError(
                f"predict: posterior_samples has {totals or 'no'} draws, wanted the same number of "
                "every site; pass MCMC's get_samples()"
            )
        total = totals[0]
        num_samples = min(num_samples, total)
        kept = np.linspace(0, total - 1, num_samples).round().astype(int)
        latents = {n: jnp.asarray(a)[kept] for n, a in posterior_samples.items()}

    partition, data = Partition.split(model, Call(args, kwargs), guide)
    # The arrays of args come first: those of x's length go with its rows.
    positional = len(Partition.split(model, Call(args))[1])
    by_row = tuple(i < positional and a.shape[:1] == (len(inputs),) for i, a in enumerate(data))
    return Prediction(
        key=key,
        program=Program(model, guide, site, partition),
        params=params,
        data=data,
        by_row=by_row,
        x=inputs,
        latents=latents,
        num_samples=num_samples,
        chunk_size=min(len(inputs), chunk_size or max(1, _ROWS // num_samples)),
        standardizer=standardizer,
        chains=chains,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """A mixture of `num_samples` distributions of y at each of N inputs, in the data's units.

    Made by `predict`. Means, quantiles and densities are those of y; `function_draws` gives f.
    Several classes have `probabilities`, and no mean.
    """

    key: PRNGKey = dataclasses.field(repr=False)
    program: Program = dataclasses.field(repr=False)
    params: Params = dataclasses.field(repr=False)
    data: list[Any] = dataclasses.field(repr=False)
    by_row: tuple[bool, ...] = dataclasses.field(repr=False)
    x: Array = dataclasses.field(repr=False)
    latents: dict[str, Array] = dataclasses.field(repr=False)
    num_samples: int
    chunk_size: int
    standardizer: Standardizer | None = None
    chains: Chains | None = dataclasses.field(default=None, repr=False)
    _cache: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def mean(self) -> np.ndarray:
        """E[y], [N]."""
        return self._moments()[0]

    @property
    def var(self) -> np.ndarray:
        """Var[y], [N], by the law of total variance."""
        return self._moments()[1]

    @property
    def probabilities(self) -> np.ndarray:
        """p(y = c) of the classes 0 ... C-1, [N, C]; every row adds to one.

        Raises:
            ValueError: if y is not a class.
        """
        first = next(self.components())[1]
        num = functionals.num_classes(first)
        if num is None:
            raise ValueError(
                "probabilities: y is not a class 0 ... C-1 but has the law "
                f"{type(first.components).__name__}; see mean, quantile and log_prob"
            )
        values = self._map(lambda laws: functionals.probabilities(laws, num))
        return values / values.sum(axis=1, keepdims=True)  # but for rounding, one

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log p(y_n) in nats, [N]: the density in the units of y, by logsumexp over passes.

        Raises:
            ValueError: if y does not have one row per input.
        """
        return self._map(functionals.log_density, self._unit_scale(y)) - np.log(self._y_scale)

    def log_prob_by_pass(self, y: ArrayLike) -> np.ndarray:
        """log p(y_n | pass s) in nats, [S, N]: `log_prob` is the log of its mean over passes."""
        return self._map(functionals.log_density_by_pass, self._unit_scale(y)).T - np.log(
            self._y_scale
        )

    def sample_by_pass(self, key: PRNGKey) -> np.ndarray:
        """One draw of y at each input from every pass, [S, N]."""
        return self._sample(key, jnp.arange(self.num_samples))

    def latent_draws(self) -> dict[str, np.ndarray]:
        """The latent sites of every pass, each [S, ...]: the guide's draws or the given ones."""
        draws = self.latents
        if self.program.guide is not None:
            keys = random.split(self.key, self.num_samples)
            draws = latent_passes(self.program, keys, self.params, self.data, self.x) | draws
        return {n: np.asarray(a) for n, a in draws.items()}

    def crps(self, y: ArrayLike, num: int = 200) -> np.ndarray:
        """Continuous ranked probability score in the units of y, [N]; less is better.

        In closed form for Gaussian components (Grimit et al. 2006); else from `num` draws.
        """
        y = np.asarray(y, np.float64)
        scores = []
        for rows, laws in self.components():
            normal = laws.components
            if type(normal) is not dist.Normal or normal.batch_shape[:1] != (1,):
                return crps_samples(y, self.sample(random.fold_in(self.key, 2), num))
            count = rows.stop - rows.start
            loc, scale = (np.asarray(a)[:, 0, :count] for a in (normal.loc, normal.scale))
            means, sds = self._original(loc), np.broadcast_to(scale, loc.shape) * self._y_scale
            scores.append(crps_gaussian_mixture(y[rows], means, sds))
        return np.concatenate(scores)

    def sample(self, key: PRNGKey, num: int = 1) -> np.ndarray:
        """`num` draws of y at each input, [num, N]: a random pass for each, then y from it.

        Draws are independent over inputs given the pass; for draws of whole functions see
        `function_draws`.
        """
        key_pass, key_y = random.split(key)
        picked = random.randint(key_pass, (num,), 0, self.num_samples)
        return self._sample(key_y, picked)

    def _sample(self, key: PRNGKey, picked: Array) -> np.ndarray:
        draws = self._map(
            lambda laws, row: functionals.draws(laws, picked, random.fold_in(key, row)),
            rows_given=True,
        )
        return self._original(np.moveaxis(draws, 1, 0))

    def quantile(self, q: ArrayLike, num: int = 1000) -> np.ndarray:
        """Quantiles of y, of the shape of `q` + [N].

        By inverting the mixture's distribution function; where NumPyro has none for the
        likelihood, from `num` draws.

        Raises:
            ValueError: if a level is outside (0, 1).
        """
        levels = np.asarray(q, np.float64)
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantile: q is {q}, wanted levels strictly between 0 and 1")
        flat = jnp.asarray(levels.ravel(), float)
        try:
            values = self._map(lambda laws: functionals.quantiles(laws, flat))
            values = self._original(np.moveaxis(values, 1, 0))
        except NotImplementedError:
            draws = self.sample(random.fold_in(self.key, 1), num)
            values = np.quantile(draws, levels.ravel(), axis=0)
        return values.reshape(levels.shape + values.shape[1:])

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with probability `level`: lower and upper ends, [N]."""
        lower, upper = self.quantile(np.array([0.5 - level / 2, 0.5 + level / 2]))
        return lower, upper

    def components(self) -> Iterator[tuple[slice, Mixture]]:
        """The laws of y chunk by chunk, on the scale of the model: rows, and their S mixtures.

        Every leaf of the mixtures leads with S, as from `jax.vmap`: apply functions of one mixture
        to them by `jax.vmap`. The last chunk is padded to full length with its last row.
        """
        size, total = self.chunk_size, len(self.x)
        keys = random.split(self.key, self.num_samples)
        for start in range(0, total, size):
            laws = self._cache.get(start)
            if laws is None:
                stop = min(start + size, total)
                x = _pad(self.x[start:stop], size)
                data = [
                    _pad(a[start:stop], size) if by_row else a
                    for a, by_row in zip(self.data, self.by_row, strict=True)
                ]
                laws = predictive_passes(
                    self.program, keys, self.latents, self.params, data, x, start
                )
                numbers = sum(a.size for a in jax.tree.leaves(laws))
                if numbers * -(-total // size) <= _KEPT:
                    self._cache[start] = laws
            yield slice(start, min(start + size, total)), laws

    def function_draws(
        self, key: PRNGKey, num: int = 10, mode: Literal["joint", "path"] = "joint"
    ) -> np.ndarray:
        """Coherent draws of the latent function f at all inputs, [num, N] or [num, N, P].

        Every layer is one draw of a function: ``"joint"`` exactly, at a cost cubic in N;
        ``"path"`` by the pathwise rule, linear in N and evaluated in one piece. In the data's units
        where there is a standardizer.
        """
        keys = random.split(key, num)
        picked = random.randint(random.fold_in(key, 1), (num,), 0, self.num_samples)
        latents = {n: a[picked] for n, a in self.latents.items()}
        draws = function_passes(self.program, mode, keys, latents, self.params, self.data, self.x)
        return self._original(draws)

    def _map(
        self, function: Callable[..., Array], *arrays: np.ndarray, rows_given: bool = False
    ) -> np.ndarray:
        """A function of the S mixtures and the rows of arrays, chunk by chunk, on the host."""
        values = []
        for rows, laws in self.components():
            own = [_pad(jnp.asarray(a[rows]), self.chunk_size) for a in arrays]
            if rows_given:
                own.append(jnp.asarray(rows.start))
            values.append(np.asarray(function(laws, *own), np.float64)[: rows.stop - rows.start])
        return np.concatenate(values)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        if "moments" not in self._cache:
            mean, var = np.moveaxis(self._map(functionals.moments), 1, 0)
            self._cache["moments"] = self._original(mean), var * self._y_scale**2
        return self._cache["moments"]

    def _unit_scale(self, y: ArrayLike) -> np.ndarray:
        y = np.asarray(y)
        if y.shape[:1] != (len(self.x),) or y.shape == (len(self.x), 1):
            hint = "; pass y[:, 0]" if y.shape == (len(self.x), 1) else ""
            raise ValueError(
                f"log_prob: y has shape {y.shape}, wanted one row for each of {len(self.x)} inputs"
                + hint
            )
        scale = self.standardizer
        if scale is None or (scale.y_loc, scale.y_scale) == (0.0, 1.0):
            return y  # the model's own units: classes and counts stay integers
        return (y.astype(np.float64) - scale.y_loc) / scale.y_scale

    @property
    def _y_scale(self) -> float:
        return 1.0 if self.standardizer is None else self.standardizer.y_scale

    def _original(self, y: ArrayLike) -> np.ndarray:
        return np.asarray(y) if self.standardizer is None else self.standardizer.original(y)


def _pad(a: Array, size: int) -> Array:
    """Rows up to `size`, by repeating the last one."""
    return jnp.pad(a, [(0, size - len(a))] + [(0, 0)] * (a.ndim - 1), mode="edge")
