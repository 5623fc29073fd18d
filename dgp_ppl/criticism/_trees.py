"""Model criticism on ArviZ trees: LOO, WAIC, stacking, PIT, calibration and predictive checks.

Made for the trees of `to_inferencedata`, and no more than ArviZ's groups are needed. What ArviZ
computes it computes here too; what is added is what deep GPs need to be told.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import logsumexp

__all__ = [
    "WAIC", "Calibration", "calibration", "loo", "loo_pit", "pit", "posterior_check", "stacking",
    "waic", "weights_khat",
]  # fmt: skip

_NOISY = 0.1  # nats of Monte Carlo error of a log-likelihood, above which LOO is not to be trusted
_RESTLESS = 0.4  # variance of a row's log-likelihood from which WAIC fails (Vehtari et al. 2017)


def loo(tree: Any, var_name: str | None = None, *, correct: bool = False) -> Any:
    """Leave-one-out cross-validation by PSIS (Vehtari, Gelman and Gabry 2017): ArviZ's own.

    Args:
        tree: an ArviZ tree with ``log_likelihood`` and ``posterior``.
        var_name: the observed site; None if there is one.
        correct: weigh a guide's draws by p(y, v) / q(v) too (Magnusson et al. 2019): LOO under the
            exact posterior, if the Pareto k say that the weights can be trusted. Without, draws are
            taken for the posterior's, and LOO is that of the approximation.

    Returns:
        ArviZ's ``ELPDData``: ``elpd`` in nats, ``se``, ``p``, and of each row ``elpd_i`` and
        ``pareto_k``.

    Raises:
        ValueError: if the tree has no log-likelihood, or no densities to correct by.

    Warns:
        UserWarning: where leaving out y_n is not leaving out the row: its latent inputs are given,
            or hidden layers' noise is not integrated out; and ArviZ's own, of large Pareto k.
    """
    arviz_stats = _arviz_stats()
    name = _variable(tree, var_name, "loo")
    _warn_of_rows(tree, name)
    values = tree["log_likelihood"][name].values
    num, rows = values.shape[:2], values.size // math.prod(values.shape[:2])
    if not rows or math.prod(num) < 2 or not np.ptp(values, axis=(0, 1)).any():
        raise ValueError(
            f"loo: the log-likelihood has {rows} rows, and {math.prod(num)} draws that do not "
            "differ, wanted rows and draws of a posterior that is no point"
        )
    if rows == 1:
        warnings.warn(
            f"the data are one observation to LOO: {name!r} has all of them in one event; put its "
            "rows in a plate",
            UserWarning,
            stacklevel=2,
        )
    if not correct:
        return arviz_stats.loo(tree, var_name=name, pointwise=True)
    found = tree.children.get("sample_stats")
    if found is None or "log_q" not in found.data_vars:
        raise ValueError(
            "loo: correct=True needs sample_stats with lp and log_q, which a guide's draws have "
            "where q has a density; pass correct=False"
        )
    log_p, log_q = (found[n].values.ravel() for n in ("lp", "log_q"))
    return arviz_stats.loo_approximate_posterior(
        tree, log_p=log_p, log_q=log_q, var_name=name, pointwise=True
    )


def weights_khat(tree: Any) -> float | None:
    """PSIS k-hat of a guide's draws, from their ``log_weight``: below 0.7 the guide is near.

    As `check_guide`'s, but of the tree's draws and with hidden layers' noise integrated out of each
    weight. None where the tree has no weights.
    """
    found = tree.children.get("sample_stats")
    if found is None or "log_weight" not in found.data_vars:
        return None
    _arviz_stats()
    # ArviZ takes log-likelihoods, of which the log ratios are the negatives.
    weights = -found["log_weight"].astype(np.float64)
    return float(weights.azstats.psislw(dim=["chain", "draw"])[1])


def _arviz_stats() -> Any:
    """ArviZ's statistics, which it types lazily."""
    import arviz_stats

    return arviz_stats


def _variable(tree: Any, name: str | None, caller: str) -> str:
    if "log_likelihood" not in tree.children:
        raise ValueError(
            f"{caller}: the tree has groups {list(tree.children)}, wanted log_likelihood; make it "
            "by to_inferencedata with a guide or samples"
        )
    names = list(tree["log_likelihood"].data_vars)
    if name is None and len(names) == 1:
        return str(names[0])
    if name not in names:
        raise ValueError(f"{caller}: var_name is {name!r}, wanted one of {names}")
    return str(name)


def _warn_of_rows(tree: Any, name: str) -> None:
    about = tree["log_likelihood"].attrs
    if about.get("latent_rows") == "given":
        warnings.warn(
            "the log-likelihood is given each row's own latent inputs, which LOO leaves in; "
            "convert with latent_rows='integrated' to leave out rows whole",
            UserWarning,
            stacklevel=3,
        )
    error = float(tree["log_likelihood"][name].attrs.get("noise_error", 0.0))
    alone = about.get("hidden_noise") == "integrated" and about.get("passes") == 1
    if error > _NOISY or alone:
        told = "nobody knows what error" if alone else f"an error of {error:.2g} nats a row"
        warnings.warn(
            f"the log-likelihood integrates hidden layers' noise by {about.get('passes')} passes, "
            f"with {told}; convert with more passes",
            UserWarning,
            stacklevel=3,
        )


@dataclasses.dataclass(frozen=True)
class WAIC:
    """The widely applicable information criterion (Watanabe 2010), on the scale of log p.

    Attributes:
        elpd: expected log pointwise predictive density, in nats; more is better.
        se: its standard error over rows.
        p: effective number of parameters.
        elpd_i: of each row.
        p_i: of each row, the variance of its log-likelihood over draws.
        warning: whether some of these are above 0.4, where LOO is to be preferred.
    """

    elpd: float
    se: float
    p: float
    elpd_i: np.ndarray
    p_i: np.ndarray
    warning: bool


def waic(tree: Any, var_name: str | None = None) -> WAIC:
    """WAIC: log mean p(y_n | draw) less its penalty, the variance of log p (Watanabe 2010).

    Args:
        tree: an ArviZ tree with ``log_likelihood``.
        var_name: the observed site; None if there is one.

    Raises:
        ValueError: if the tree has no log-likelihood.

    Warns:
        UserWarning: as `loo`, and where a row's penalty is above 0.4.
    """
    name = _variable(tree, var_name, "waic")
    _warn_of_rows(tree, name)
    terms = tree["log_likelihood"][name].values.astype(np.float64)
    flat = terms.reshape(math.prod(terms.shape[:2]), -1)
    p_i = flat.var(axis=0, ddof=1)
    log_sums: Any = logsumexp(flat, axis=0)
    elpd_i = log_sums - math.log(len(flat)) - p_i
    restless = int((p_i > _RESTLESS).sum())
    if restless:
        warnings.warn(
            f"waic: the log-likelihood of {restless} of {p_i.size} rows has a variance above "
            f"{_RESTLESS}, where WAIC is not to be trusted; take loo",
            UserWarning,
            stacklevel=2,
        )
    shape = terms.shape[2:]
    se = math.sqrt(elpd_i.size * elpd_i.var())
    return WAIC(
        float(elpd_i.sum()), se, float(p_i.sum()), elpd_i.reshape(shape), p_i.reshape(shape),
        restless > 0,
    )  # fmt: skip


def stacking(
    trees: Mapping[str, Any], var_name: str | None = None, *, method: str = "stacking"
) -> Any:
    """Guides, samplers and models by their LOO, and the weights of their best mixture.

    Args:
        trees: ArviZ trees by name, of the same rows of data.
        var_name: the observed site; None if there is one.
        method: ``"stacking"`` (Yao et al. 2018), ``"BB-pseudo-BMA"`` or ``"pseudo-BMA"``.

    Returns:
        ArviZ's table, best first: ``elpd``, ``elpd_diff`` and its error, ``weight``.

    Raises:
        ValueError: if there are fewer than two trees, or their rows differ.
    """
    if len(trees) < 2:
        raise ValueError(f"stacking: got {len(trees)} tree, wanted two and more to compare")
    names = {n: _variable(t, var_name, "stacking") for n, t in trees.items()}
    targets = {n: t["observed_data"][names[n]].values for n, t in trees.items()}
    first, y = next(iter(targets.items()))
    for other, own in targets.items():
        if own.shape != y.shape or not _same(own, y):
            raise ValueError(
                f"stacking: {first!r} and {other!r} are of different data, with targets of shapes "
                f"{y.shape} and {own.shape}; wanted the same rows in the same order"
            )
    found = {n: loo(t, names[n]) for n, t in trees.items()}
    compare = _arviz_stats().compare
    # Since 1.2 ArviZ rounds its table to the digits that its errors leave.
    options = {"round_to": "none"} if "round_to" in signature(compare).parameters else {}
    with warnings.catch_warnings():  # of pandas, to ArviZ
        warnings.simplefilter("ignore", DeprecationWarning)
        return compare(found, method=method, **options)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two targets are the same but for float32's rounding."""
    room = 1e-5 * np.nanmax(np.abs(b)) + 1e-4 * np.nanstd(b)
    return bool((np.isnan(a) == np.isnan(b)).all() and (np.nan_to_num(np.abs(a - b)) <= room).all())


def pit(
    tree: Any, var_name: str | None = None, *, group: str = "posterior_predictive", seed: int = 0
) -> np.ndarray:
    """P(Y_n < y_n) under the predictive draws, uniform where they are calibrated, [N, ...].

    Ties, as of counts and classes, are split at random (Czado, Gneiting and Held 2009), and with S
    draws the values are spread evenly within their steps of 1 / (S + 1).

    Args:
        tree: an ArviZ tree.
        var_name: the observed site; None if there is one.
        group: ``posterior_predictive``, ``prior_predictive``, or ``predictions`` for held-out rows.
        seed: of the random part.

    Raises:
        ValueError: if the tree has no such draws, or no y for them.
    """
    y, draws = _observed_and_drawn(tree, var_name, group, "pit")
    below, same = (draws < y).sum(axis=0), (draws == y).sum(axis=0)
    share = np.random.default_rng(seed).uniform(size=y.shape)
    return (below + share * (same + 1)) / (len(draws) + 1)


def loo_pit(tree: Any, var_name: str | None = None, *, seed: int = 0) -> np.ndarray:
    """P(Y_n < y_n) under the predictive law of all other rows, [N]; ArviZ's.

    Args:
        tree: an ArviZ tree with ``log_likelihood`` and ``posterior_predictive``.
        var_name: the observed site; None if there is one.
        seed: of the random part, for discrete y.

    Raises:
        ValueError: if the tree lacks a group, or rows are of several values each.

    Warns:
        UserWarning: as `loo`.
    """
    name = _variable(tree, var_name, "loo_pit")
    y, _ = _observed_and_drawn(tree, name, "posterior_predictive", "loo_pit")
    if y.shape != tree["log_likelihood"][name].shape[2:]:
        raise ValueError(
            f"loo_pit: rows of {name!r} have several values each, of shape {y.shape[1:]}, wanted "
            "one; take pit"
        )
    _warn_of_rows(tree, name)
    found = _arviz_stats().loo_pit(tree, var_names=name, random_state=seed)
    return np.clip(found[name].values, 0.0, 1.0)  # sums of weights can be over 1 by rounding


def _observed_and_drawn(
    tree: Any, name: str | None, group: str, caller: str
) -> tuple[np.ndarray, np.ndarray]:
    """Y, [N, ...], and draws of it, [S, N, ...]."""
    home = "predictions_constant_data" if group == "predictions" else "observed_data"
    missing = [g for g in (group, home) if g not in tree.children]
    if missing:
        raise ValueError(
            f"{caller}: the tree has groups {list(tree.children)}, wanted {missing[0]} too"
        )
    known = [n for n in tree[group].data_vars if n in tree[home].data_vars]
    if name is None and len(known) == 1:
        name = str(known[0])
    if name not in known:
        raise ValueError(f"{caller}: var_name is {name!r}, wanted one of {known}")
    y, draws = tree[home][name].values, tree[group][name].values
    return y, draws.reshape(-1, *draws.shape[2:])


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How often central intervals hold y.

    Attributes:
        levels: probabilities of the intervals, [L].
        coverage: shares of rows inside, [L].
        lower: where 95 % of shares are, were the intervals right: lower ends, [L].
        upper: and upper ends, [L].
        p_value: of the hypothesis that the PIT is uniform (Kolmogorov and Smirnov); rows are taken
            for independent, which they are not quite on training data.
        num: rows.
    """

    levels: np.ndarray
    coverage: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    p_value: float
    num: int


def calibration(values: ArrayLike, levels: ArrayLike | None = None) -> Calibration:
    """The coverage of central intervals, from probability integral transforms.

    Args:
        values: of `pit` or `loo_pit`, any shape, in [0, 1]; NaN is left out.
        levels: in (0, 1), [L]; by default 0.05, 0.1, ..., 0.95.

    Raises:
        ValueError: if a value is outside [0, 1], or there is none.
    """
    u = np.asarray(values, np.float64).ravel()
    u = u[~np.isnan(u)]
    if not u.size or u.min() < 0 or u.max() > 1:
        ends = f"from {u.min()} to {u.max()}" if u.size else "none"
        raise ValueError(f"calibration: values are {ends}, wanted some in [0, 1]; pass pit(tree)")
    p = np.linspace(0.05, 0.95, 19) if levels is None else np.asarray(levels, np.float64)
    if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
        raise ValueError(f"calibration: levels are {levels}, wanted [L] in (0, 1)")
    inside = (np.abs(2 * u - 1)[:, None] <= p).mean(axis=0)
    lower, upper = (stats.binom.ppf(q, u.size, p) / u.size for q in (0.025, 0.975))
    p_value = float(stats.kstest(u, "uniform").pvalue)
    return Calibration(p, inside, lower, upper, p_value, u.size)


STATISTICS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "sd": np.std,
    "min": np.min,
    "max": np.max,
}
"""Of the target's rows, for `posterior_check`."""


def posterior_check(
    tree: Any,
    statistics: Mapping[str, Callable[[np.ndarray], Any]] | None = None,
    var_name: str | None = None,
    *,
    group: str = "posterior_predictive",
) -> Any:
    """Posterior predictive checks: statistics of y among those of replicated data sets.

    A p-value near 0 or 1 names what the model does not reproduce (Gelman, Meng and Stern 1996).

    Args:
        tree: an ArviZ tree.
        statistics: functions from a data set [N, ...] to a number, by name; by default the mean,
            sd, min and max.
        var_name: the observed site; None if there is one.
        group: as in `pit`.

    Returns:
        A table with a row for each statistic: ``observed``, ``predicted`` (mean), ``lower`` and
        ``upper`` (of 90 %), and ``p_value``, P(T(y_rep) >= T(y)).

    Raises:
        ValueError: if the tree has no such draws, or no y for them.
    """
    import pandas

    y, draws = _observed_and_drawn(tree, var_name, group, "posterior_check")
    rows = {}
    for name, function in (STATISTICS if statistics is None else statistics).items():
        kept = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(y.shape, bool)
        replicated = np.array([float(function(draw[kept])) for draw in draws])
        own = float(function(y[kept]))
        low, high = np.quantile(replicated, [0.05, 0.95])
        ties = 0.5 * np.mean(replicated == own)
        p_value = float(np.mean(replicated > own) + ties)
        rows[name] = {
            "observed": own, "predicted": replicated.mean(), "lower": low, "upper": high,
            "p_value": p_value,
        }  # fmt: skip
    return pandas.DataFrame.from_dict(rows, orient="index")
