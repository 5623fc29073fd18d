"""A posterior predictive distribution: moments, densities, quantiles and draws."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._checks import (
    as_array,
    check_count,
    check_key,
    check_positive,
    held_by_jax,
    is_traced,
    warn_of_nan,
)  # fmt: skip
from dgp_ppl._typing import PRNGKey
from dgp_ppl.core import function_draws
from dgp_ppl.inference.programs._data import off_support
from dgp_ppl.likelihoods._mixed import filled
from dgp_ppl.likelihoods._survival import density_test
from dgp_ppl.metrics import crps_gaussian_mixture, crps_samples
from dgp_ppl.prediction import _functionals as functionals
from dgp_ppl.prediction._arrays import check_no_nan, namespace, to_host
from dgp_ppl.prediction._mixtures import PassMixtures
from dgp_ppl.prediction._passes import function_passes


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prediction(PassMixtures):
    """A mixture of `num_samples` distributions of y at each of N inputs, in the data's units.

    `predict` makes it. It can be pickled if its model can, as a function of a module can. Mean,
    variance, quantiles and densities describe y, noise included; `function_draws` draws f.
    For several classes, use `probabilities`.
    """

    @property
    def mean(self) -> np.ndarray:
        """E[y], [N]; of 4,000 draws, with a warning, where NumPyro has no mean or variance.

        Raises:
            ValueError: if y is a class.
        """
        return self._moments()[0]

    @property
    def var(self) -> np.ndarray:
        """Var[y], [N], by the law of total variance; of draws where `mean` is."""
        return self._moments()[1]

    @property
    def var_between(self) -> np.ndarray:
        """Var[E[y | pass]], [N]: the part of `var` that is between passes, as of hidden layers.

        Raises:
            ValueError: if y is a class, or NumPyro has no mean of it.
        """
        if len(moments := self._moments()) == 2:
            raise ValueError("var_between: NumPyro has no mean of y, wanted another likelihood")
        return moments[2]

    @property
    def probabilities(self) -> np.ndarray:
        """p(y = c) of the classes 0 ... C-1, [N, C], or of each label, [N, P, C]; they sum to one.

        Raises:
            ValueError: if y is not a class.
        """
        kind, num = self._classes()
        if num is None:
            raise ValueError(f"probabilities: y is {kind}, wanted a class 0 ... C-1; see mean")
        values = self._map(lambda mixtures: functionals.probabilities(mixtures, num))
        return values / values.sum(axis=-1, keepdims=True)  # removes the rounding error

    def log_prob(self, y: ArrayLike, mask: ArrayLike | None = None) -> np.ndarray:
        """Return log p(y_n) in nats, [N]: a density in the units of y.

        Args:
            y: targets, [N] or [N, ...]: one row per input.
            mask: True where y counts: of rows [N], or of the entries of y if the outputs are
                independent given f. What it leaves out may be NaN and adds nothing: the density of
                a row without any entry is 1. Divide a sum by ``mask.sum()`` for a mean.

        Raises:
            ValueError: if y or `mask` has another shape, or y is NaN, or is outside of a discrete
                support, where it counts.
        """
        return self._log_density(functionals.log_density, "log_prob", y, mask)

    def cdf(self, y: ArrayLike, num: int = 1000) -> np.ndarray:
        """Return P(Y_n <= y_n) of every entry of y, [N] or [N, P].

        It comes from the mixture if NumPyro has a distribution function of the likelihood, and
        from draws, with a warning, otherwise.

        Args:
            y: values in the units of y, in its shape, or one number for all inputs.
            num: number of draws, where draws are needed.

        Raises:
            ValueError: if y has another shape, or is NaN.
        """
        at: Any = y
        if np.ndim(at) == 0:
            first = next(self.components())[1]
            at = namespace(at).full((len(self.x), *first.components.event_shape), at)
        at, num_classes = self._shaped("cdf", at), self._classes()[1]
        if not is_traced(at) and at.dtype.kind == "f":
            check_no_nan("cdf", np.isnan(at))
        try:
            return self._map(
                lambda *a: functionals.distribution_function(*a, num_classes),
                to_host(self._standardized(at)),
            )
        except NotImplementedError:
            draws = self._draws_without_cdf("cdf", num)
            if draws.shape[1:] != at.shape:
                raise ValueError("cdf: y is an interval, wanted a value; see quantile") from None
            return (draws <= at).mean(axis=0)

    def fill(self, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return y with its missing entries given the others of their row, and their sd, [N, P].

        Args:
            y: targets, [N, P], NaN where they are missing.

        Returns:
            y with means in place of NaN, and standard deviations, 0 where y is known.

        Raises:
            ValueError: if y has another shape, or its entries are independent given a pass, so that
                there is nothing to learn from the others.
        """
        targets = to_host(self._shaped("fill", y))
        if not hasattr(next(self.components())[1].components, "given"):
            raise ValueError(
                f"fill: entries of y are {self._classes()[0]}, independent of each other, wanted "
                "models.deep_gp(mixing=...) or likelihoods.MixedNormal; see mean"
            )
        xp = namespace(targets)
        seen = ~xp.isnan(targets)
        found = self._map(filled, self._standardized(xp.where(seen, targets, 0.0)), seen)
        mean, sd = self._original(found[:, 0]), xp.sqrt(found[:, 1]) * self._y_scale
        return xp.where(seen, targets, mean), xp.where(seen, 0.0, sd)

    def crps(self, y: ArrayLike, num: int = 200) -> np.ndarray:
        """Return the continuous ranked probability score in the units of y; lower is better.

        Gaussian components have a closed form (see `metrics.crps_gaussian_mixture`). For others it
        is estimated. Several outputs have a score each.

        Args:
            y: targets, [N] or [N, P].
            num: number of draws of the estimate.

        Returns:
            The score of each target, in the shape of y.

        Raises:
            ValueError: if y does not have the shape of the outputs, or is NaN.
        """
        first = next(self.components())[1]
        if is_traced(y, first):
            raise TypeError(
                "Prediction.crps is computed in NumPy, wanted a call outside of jax.jit, jax.vmap "
                "and jax.grad; log_prob, moments, quantiles and samples can be traced"
            )
        y = np.asarray(self._shaped("crps", y), np.float64)
        check_no_nan("crps", np.isnan(y))
        if type(first.entries) is not dist.Normal or len(first.log_weights[0]) > 1:
            draws = self.sample(random.fold_in(self.key, 2), num)
            return crps_samples(y.ravel(), draws.reshape(len(draws), -1)).reshape(y.shape)
        values = []
        for rows, mixtures in self.components():
            normal, count = mixtures.entries, rows.stop - rows.start
            loc, scale = (np.asarray(a)[:, 0, :count] for a in (normal.loc, normal.scale))
            means, sds = self._original(loc), np.broadcast_to(scale, loc.shape) * self._y_scale
            means, sds = means.reshape(len(means), -1), sds.reshape(len(sds), -1)
            found = crps_gaussian_mixture(y[rows].ravel(), means, sds)
            values.append(found.reshape(y[rows].shape))
        return np.concatenate(values)

    def sample(self, key: PRNGKey, num: int = 1) -> np.ndarray:
        """Draw y at all inputs, [num, N]: each draw takes one random pass, and y from it.

        Given the pass, the inputs' draws are independent. For draws of whole functions, see
        `function_draws`.
        """
        check_key("Prediction.sample", key)
        check_count("Prediction.sample", "num", num, 0)
        key_pass, key_y = random.split(key)
        passes = random.randint(key_pass, (num,), 0, self.num_samples)
        draw = lambda m, row: functionals.draws(m, passes, random.fold_in(key_y, row))  # noqa: E731
        return self._original(self._map(draw, with_row=True).swapaxes(0, 1))

    def quantile(self, q: ArrayLike | Sequence[float], num: int = 1000) -> np.ndarray:
        """Return quantiles of y, of shape ``q.shape + (N,)``.

        They invert the mixture's distribution function: exactly for integers, and for real y to
        5e-7 of itself or its standard deviation; or are of draws, with a warning, if it has none.

        Args:
            q: levels between 0 and 1.
            num: number of draws, where draws are needed.

        Raises:
            ValueError: if a level is outside (0, 1).
        """
        levels = to_host(as_array("quantile", "q", q))
        if not is_traced(levels) and not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantile: q is {q}, wanted levels strictly between 0 and 1")
        flat = levels.ravel()
        if (num_classes := self._classes()[1]) is None:
            found = lambda mixtures: functionals.quantiles(mixtures, flat)  # noqa: E731
        else:
            at = jnp.asarray(flat, float)
            found = lambda mixtures: functionals.class_quantiles(mixtures, at, num_classes)  # noqa: E731
        try:
            values = self._original(self._map(found).swapaxes(0, 1))
        except NotImplementedError:
            draws = self._draws_without_cdf("quantile", num)
            whole = next(self.components())[1].support.is_discrete
            how = {"axis": 0, "method": "higher" if whole else "linear"}
            values = namespace(draws, levels).quantile(draws, levels.ravel(), **how)
        return values.reshape(levels.shape + values.shape[1:])

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends, [N] each, of the central interval that holds y with this probability."""
        if not is_traced(level):
            check_positive("interval", "level", level, float(np.nextafter(1, 0)))
        lower, upper = self.quantile(np.array([0.5 - level / 2, 0.5 + level / 2]))
        return lower, upper

    def function_draws(
        self, key: PRNGKey, num: int = 10, mode: Literal["joint", "path"] = "joint"
    ) -> np.ndarray:
        """Draw the latent function f jointly at all inputs, [num, N] or [num, N, P].

        Each draw takes one draw of every layer's function. The result is in the data's units if
        there is a standardizer, and f has the outputs of y.

        Args:
            key: random key.
            num: number of draws.
            mode: ``"joint"`` is exact and costs O(N³); ``"path"`` uses pathwise conditioning and
                costs O(N). Neither divides the rows into chunks.
        """
        check_key("Prediction.function_draws", key)
        check_count("Prediction.function_draws", "num", num, 0)
        function_draws(mode=mode)  # raises for an unknown mode
        draws = {}
        if self.draws:
            # While JAX traces x the passes are known, and draws on the host keep their precision.
            known = contextlib.nullcontext() if is_traced(key) else jax.ensure_compile_time_eval()
            with known:
                passes = random.randint(random.fold_in(key, 1), (num,), 0, self.num_samples)
            arrays = self.draws if not is_traced(passes) else jax.tree.map(jnp.asarray, self.draws)
            draws = {n: a[passes] for n, a in arrays.items()}
        static, each = (self.forward_pass, mode), (np.arange(num), draws)
        values = function_passes(static, each, self.params, self.data, self.x, key)
        values = to_host(values, None)
        if self._scales(values.shape[2:]):
            values = self._original(values)
        else:
            text = f"f has outputs of shape {values.shape[2:]}, unlike y: in the model's units"
            warnings.warn(f"function_draws: {text}", stacklevel=2)
        warn_of_nan("function_draws", {self.forward_pass.site: values})
        return values

    @property
    def f(self) -> Prediction:
        """The prediction of the latent function, without noise, at the same inputs.

        Its queries are those of a prediction: ``p.f.mean``, ``p.f.interval(0.9)``. It is in the
        units of y if f has its outputs, and else in the model's, such as log rates.
        """
        if (f := self._cache.get("f")) is None:
            f = dataclasses.replace(
                self, forward_pass=dataclasses.replace(self.forward_pass, latent=True), _cache={}
            )
            if not self._scales(next(f.components())[1].components.event_shape):
                f = dataclasses.replace(f, standardizer=None)
            self._cache["f"] = f
        return f

    def _draws_without_cdf(self, caller: str, num: int) -> np.ndarray:
        functionals.warn_of_draws(caller, self._classes()[0], num)
        return self.sample(random.fold_in(self.key, 1), num)

    def _classes(self) -> tuple[str, int | None]:
        """Return the name of y's distribution, and its number of classes; None if it has none."""
        first = next(self.components())[1]
        return type(first.entries).__name__, functionals.num_classes(first)

    def _moments(self) -> tuple[np.ndarray, ...]:
        if (moments := self._cache.get("moments")) is None:
            try:
                found = self._map(functionals.moments)
                functionals.warn_if_rough(found, self.num_samples, bool(self.draws))
                squared = np.square(self._y_scale)
                moments = self._original(found[:, 0]), found[:, 1] * squared, found[:, 3] * squared
            except NotImplementedError:
                kind, num = self._classes()
                if num is not None:
                    raise ValueError(
                        f"mean and var: y is a class ({kind}), wanted numbers; see probabilities "
                        "[N, C], and quantile for ordered classes"
                    ) from None
                draws = self.sample(random.fold_in(self.key, 3), 4000)
                moments = functionals.moments_of_draws(draws)
            if not is_traced(moments):
                self._cache["moments"] = moments
        return moments

    def _log_density(
        self, function: Callable[..., Array], caller: str, y: ArrayLike, mask: Any = None
    ) -> Any:
        """Apply a log density to the entries of y that count, in the units of y."""
        targets: Any = self._shaped(caller, y)
        targets = held_by_jax(caller, "y", targets) if targets.dtype.kind in "iu" else targets
        seen = np.ones(len(targets), bool) if mask is None else as_array(caller, "mask", mask)
        seen = to_host(seen, None).astype(bool)
        if seen.shape not in (targets.shape[:1], targets.shape):
            raise ValueError(
                f"{caller}: mask has shape {seen.shape}, wanted the shape of the rows "
                f"{targets.shape[:1]} or of y {targets.shape}: True where y counts"
            )
        entries = seen.reshape(seen.shape + (1,) * (targets.ndim - seen.ndim))
        if not is_traced(targets, seen) and targets.dtype.kind == "f":
            check_no_nan(caller, np.isnan(targets) & entries)
        xp = namespace(targets, seen)
        values = xp.where(entries, targets, xp.zeros_like(targets))
        found = self._map(function, values := self._standardized(values), *[seen] * (seen.ndim > 1))
        rows = seen.reshape(len(seen), -1).any(axis=1)
        components = next(self.components())[1].components
        if not is_traced(found) and np.isneginf(found).any():
            bad = rows & (self._map(functionals.supported, values) == 0)
            if bad.any():
                raise off_support(caller, "y", components, bad, targets, remedy="omit these rows")
        # Change of variables: every density that counts subtracts log(y_scale).
        counted = xp.broadcast_to(entries, targets.shape)
        if density_test(components) is not None:
            counted = counted * self._map(functionals.dense, values)
        shift = counted * xp.log(xp.asarray(self._y_scale))
        align = lambda a: a.reshape(a.shape + (1,) * (found.ndim - 1))  # noqa: E731
        found = namespace(found, seen).where(align(rows), found, 0.0)
        return found - align(shift.reshape(len(shift), -1).sum(axis=1))
