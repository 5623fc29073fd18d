"""Global sensitivity: which inputs a function depends on, with intervals from draws of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from jax import random
from scipy.stats import qmc

from dgp_ppl._checks import as_array, check_count, check_key, check_kind
from dgp_ppl._typing import AnyArray, PRNGKey
from dgp_ppl.inference.runs._summary import Summarized

_LEVELS = 16  # of an input, at which its main effect is computed


def sensitivity(
    key: PRNGKey,
    function: Callable[[np.ndarray], AnyArray],
    bounds: Mapping[str, tuple[float, float]],
    *,
    num: int = 512,
    pairs: bool = False,
) -> Sensitivity:
    """Compute Sobol indices and main effects of a function of independent uniform inputs.

    Given draws of a fitted function, every result has a value for each draw, and so an interval::

        f = dgp.function(dgp.predict(key, model, guide, fit, x, z=z, standardizer=scale))
        found = sensitivity(key, f.draws(key, 50), {"a": (0.0, 1.0), "b": (-1.0, 1.0)})
        print(found)

    The intervals are of what the runs leave open, not of the error of `num` points, which a run
    with another key shows.

    >>> import jax
    >>> found = sensitivity(
    ...     jax.random.key(0), lambda x: x[:, 0] + 2 * x[:, 1], {"a": (0, 1), "b": (0, 1)}
    ... )
    >>> found.first.round(2).tolist()
    [[0.2], [0.8]]

    Args:
        key: random key of the points.
        function: from inputs [N, D], in the order of the bounds, to values [N], or to draws [K, N].
        bounds: the interval of each input by name.
        num: number of points, a power of two; it evaluates num * (D + 2) of them.
        pairs: whether to compute the closed indices of pairs, num * D (D - 1) / 2 points more.

    Raises:
        TypeError: if `key` is no random key, or an argument of another kind.
        ValueError: if an interval is empty, the function's values have another shape or are not
            finite, or do not vary.

    Source: Saltelli et al. (2010), "Variance based sensitivity analysis of model output"; Jansen
    (1999) for both estimators; Marrel et al. (2009) for intervals.
    """
    check_key("sensitivity", key)
    check_count("sensitivity", "num", num, 8)
    if num & (num - 1):
        raise ValueError(f"sensitivity: num is {num}, wanted a power of two, such as 512")
    check_kind("sensitivity", "bounds", bounds, Mapping, "an interval of each input by name")
    names = tuple(bounds)
    ends = np.array([as_array("sensitivity", f"bounds[{n!r}]", bounds[n]) for n in names], float)
    if ends.shape != (len(names), 2) or not (ends[:, 0] < ends[:, 1]).all() or not len(names):
        raise ValueError(f"sensitivity: bounds is {dict(bounds)}, wanted (low, high) by name")
    D, (low, high) = len(names), ends.T
    unit = qmc.Sobol(2 * D, rng=np.random.default_rng(int(random.bits(key)))).random(num)
    first, second = (low + (high - low) * u for u in (unit[:, :D], unit[:, D:]))

    def values(x: np.ndarray) -> np.ndarray:
        found = []
        for at in np.split(x, len(x) // num):  # blocks of one size share a compiled program
            found.append(np.asarray(function(at), np.float64))
            if found[-1].ndim not in (1, 2) or found[-1].shape[-1] != num:
                raise ValueError(
                    f"sensitivity: function returns an array of shape {found[-1].shape} for "
                    f"{num} inputs, wanted [{num}], or [K, {num}] of K draws"
                )
        values = np.atleast_2d(np.concatenate(found, axis=-1))
        if not np.isfinite(values).all():
            raise ValueError("sensitivity: function returns NaN or infinity, wanted numbers")
        return values

    def with_second(*columns: int) -> np.ndarray:
        x = first.copy()
        x[:, columns] = second[:, columns]
        return values(x)

    at_first, at_second = values(first), values(second)
    both = np.concatenate([at_first, at_second], axis=1)
    mean, var = both.mean(axis=1), both.var(axis=1)
    if not (var > 0).all():
        raise ValueError("sensitivity: function does not vary within the bounds")

    def half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.square(a - b).mean(axis=1) / (2 * var)

    one = [with_second(i) for i in range(D)]
    alone = np.stack([1 - half(at_second, a) for a in one])
    closed = np.array([np.diag(a) for a in alone.T]).transpose(1, 2, 0)  # [D, D, K]
    for i in range(D if pairs else 0):
        for j in range(i):
            closed[i, j] = closed[j, i] = 1 - half(at_second, with_second(i, j))
    levels = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _LEVELS)
    effects = []
    for i, at in enumerate(levels):
        x = np.tile(first[: num // 8], (_LEVELS, 1))
        x[:, i] = np.repeat(at, len(x) // _LEVELS)
        effects.append(values(x).reshape(len(mean), _LEVELS, -1).mean(axis=2).T)
    return Sensitivity(
        names, alone, np.stack([half(at_first, a) for a in one]), closed if pairs else None,
        levels, np.stack(effects), mean, var,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class Sensitivity(Summarized):
    """Sobol indices and main effects of D inputs, for each of K draws of a function.

    Attributes:
        names: names of the inputs.
        first: the share of the variance that an input explains alone, [D, K].
        total: the share that it takes part in, [D, K].
        closed: the share that two inputs explain together, [D, D, K], and on the diagonal one
            alone; None if `pairs` is False.
        levels: values of each input, [D, L].
        effects: the mean of the function given that an input has these values, [D, L, K].
        mean: mean of the function, [K].
        var: its variance, [K].
    """

    names: tuple[str, ...]
    first: np.ndarray
    total: np.ndarray
    closed: np.ndarray | None
    levels: np.ndarray
    effects: np.ndarray
    mean: np.ndarray
    var: np.ndarray

    def summary(self) -> list[str]:
        width = max(map(len, self.names))
        lines = [f"{self.first.shape[1]} draws; shares of the variance, and 90 % intervals"]
        for name, *shares in zip(self.names, self.first, self.total, strict=True):
            found = [
                f"{a.mean():.3f} ({np.quantile(a, 0.05):.3f}, {np.quantile(a, 0.95):.3f})"
                for a in shares
            ]
            lines.append(f"{name:<{width}}  first {found[0]}  total {found[1]}")
        return lines
