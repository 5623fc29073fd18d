"""The distance of an approximate posterior from draws of the exact one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from numpyro.infer.autoguide import AutoGuide
from scipy import stats
from scipy.special import logsumexp

from dgp_ppl._checks import check_count, check_key, check_kind, checked_call, params_of
from dgp_ppl._partition import Call
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.criticism._check_guide import khat
from dgp_ppl.inference import Chains
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inferencedata._draws import Draws, draws_from_guide
from dgp_ppl.inferencedata._log_likelihood import PointwiseEvaluator
from dgp_ppl.inferencedata._sites import ModelSites

_MIN_CHAINS = 4  # enough for each chain to be a group; fewer are divided into as many parts
_NUM_GROUPS = 8  # of a guide's draws, which are independent


class Estimate(NamedTuple):
    """A value and its Monte Carlo error: twice the error holds 95 %."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.error:.1g}"


@dataclasses.dataclass(frozen=True)
class PosteriorComparison:
    """Result of `compare_posteriors`.

    Attributes:
        sites: energy distance between the exact draws and the approximation, by latent site.
        joint: energy distance of all sites together. It also measures dependence between sites,
            which the distances of single sites miss.
        log_density: mean log predictive density on the test data, of the approximation minus that
            of the exact draws, in nats per observed row; None without test data.
        khat: Pareto shape of the importance weights p(y, v) / q(v), by NumPyro's
            `psis_diagnostic`. Below 0.7, q is close enough to the posterior for weighted draws to
            correct it. Each weight has a separate draw of the hidden layers' noise, which makes
            k-hat larger. None where q(v) has no density (`Implicit`, a sampler, a mean with a
            separate basis).
    """

    sites: dict[str, Estimate]
    joint: Estimate
    log_density: Estimate | None
    khat: float | None


def compare_posteriors(
    key: PRNGKey,
    exact: Chains,
    approximation: Model | Chains,
    model: Model,
    params: Params | Fitted,
    *args: Any,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    num_draws: int = 2000,
    num_weights: int = 1000,
    **kwargs: Any,
) -> PosteriorComparison:
    """Compare an approximate posterior with draws from the exact one.

    The exact draws usually come from NUTS, at the same hyperparameters. Check that its chains have
    mixed (`chain_diagnostics`): with few effective draws, all standard errors grow. ::

        chains = dgp.run_mcmc(key, NUTS(dgp.freeze(model, fit.params)), x, y)
        found = dgp.compare_posteriors(key, chains, guide, model, fit.params, x, y)
        print(found.joint)

    Errors are between chains if there are at least four. Fewer chains are divided into four parts;
    the errors are then too small if the chains have not mixed. Errors of four groups are rough, and
    are widened by Student's t, so that twice the error holds 95 %.

    NUTS samples the hidden layers' unit noise. The bounds, and `SGHMC`, average over it inside the
    expected log-likelihood, so even the best q(v) keeps a small distance.

    Args:
        key: random key.
        exact: chains of exact draws. Sites that the approximation lacks are ignored.
        approximation: a fitted guide, or a sampler's draws.
        model: the model.
        params: the fit's params, the model's included, or its result.
        *args: the model's arguments, x and y by position.
        test: test inputs, [N*, D], and targets, [N*], in the model's units. They replace x and y.
        num_draws: draws from a guide; at most this many of chains are used.
        num_weights: number of importance weights for `PosteriorComparison.khat`.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        TypeError: if `key` is not a random key, or a number is not an integer.
        ValueError: if `exact` lacks a site of the approximation or has another shape of it, there
            are too few draws, the draws lack a site that the test data depend on, x or y is not
            given by position, or the names or shapes of params differ from the model's and the
            guide's.
    """
    check_key("compare_posteriors", key)
    pair = test if isinstance(test, tuple | list) and len(test) == 2 else None
    check_kind("compare_posteriors", "test", test, type(pair), "two arrays: (x_test, y_test)")
    check_count("compare_posteriors", "num_draws", num_draws, 2 * _NUM_GROUPS)
    check_count("compare_posteriors", "num_weights", num_weights, 10)
    if len(args) < 2:
        raise ValueError(
            f"compare_posteriors: got {len(args)} positional arguments of the model, wanted x and "
            "y by position"
        )
    guide = None if isinstance(approximation, Chains) else approximation
    args, kwargs = call = checked_call("compare_posteriors", model, guide, args, kwargs)
    values = params_of("compare_posteriors", params)
    if guide is not None or test is not None:  # else the model does not run
        values = checked_params("compare_posteriors", values, model, guide, call)
    key_draw, key_khat, key_test = random.split(key, 3)
    if isinstance(approximation, Chains):
        draws = approximation
    else:
        if isinstance(approximation, AutoGuide):
            found = approximation.sample_posterior(
                key_draw, values, *args, sample_shape=(num_draws,), **kwargs
            )
        else:  # a function
            own = model, approximation, values, call, ModelSites.from_model(model, call), num_draws
            found = {n: a[0] for n, a in draws_from_guide(key_draw, *own).values.items()}
        groups = _NUM_GROUPS, num_draws // _NUM_GROUPS
        draws = Chains({
            n: np.asarray(a)[: math.prod(groups)].reshape(*groups, *a.shape[1:])
            for n, a in found.items()
        })  # fmt: skip
    for name, samples in draws.samples.items():
        shape = exact.samples[name].shape[2:] if name in exact.samples else None
        if shape != samples.shape[2:]:
            got = f"no site {name!r}" if shape is None else f"draws {shape} of {name!r}"
            raise ValueError(
                f"compare_posteriors: exact has {got}, wanted draws of shape {samples.shape[2:]}; "
                f"its sites are {list(exact.samples)}"
            )
    a, b = (_groups(chains, draws.samples, num_draws) for chains in (exact, draws))
    sites = {n: energy_distance(a[n], b[n]) for n in a}
    joint = energy_distance(*(np.concatenate(list(g.values()), axis=2) for g in (a, b)))
    log_density = None
    if test is not None:
        x, y = map(jnp.asarray, test)
        if x.shape[:1] != y.shape[:1]:
            raise ValueError(
                f"compare_posteriors: test has inputs of shape {x.shape} and targets of shape "
                f"{y.shape}, wanted the same number of rows"
            )
        test_call = Call((x, y, *args[2:]), kwargs)

        def mean_log_density(key: PRNGKey, chains: Chains) -> Estimate:
            return _mean_log_density(key, chains, model, values, test_call, num_draws)

        own, best = map(mean_log_density, random.split(key_test), (draws, exact))
        log_density = Estimate(own.value - best.value, math.hypot(own.error, best.error))
    tail = None
    if not isinstance(approximation, Chains):
        tail = khat(key_khat, approximation, model, values, call, num_weights)
    return PosteriorComparison(sites, joint, log_density, tail)


def energy_distance(a: ArrayLike, b: ArrayLike) -> Estimate:
    """Estimate the energy distance 2 E|a - b| - E|a - a'| - E|b - b'| of two distributions.

    It is 0 if the distributions are equal, and positive otherwise. The estimate is unbiased, so it
    may be negative. It uses pairs of draws, [G, S, D] and [H, T, D], from different groups: draws
    within a group may depend on each other, so MCMC chains can be groups, mixed or not. The error
    is a U-statistic's over groups, to second order, widened for few groups. A jackknife sees only
    the first order, and reports an error of zero where the groups happen to be balanced.

    Source: Székely and Rizzo 2013, "Energy statistics: A class of statistics based on distances".
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 3 or b.ndim != 3 or min(len(a), len(b)) < 4 or a.shape[2] != b.shape[2]:
        raise ValueError(
            f"energy_distance: shapes are {a.shape} and {b.shape}, wanted [G, S, D] and [H, T, D] "
            "with G and H >= 4; divide chains into parts if there are fewer"
        )
    ab, aa, bb = (_mean_distances(p, q) for p, q in ((a, b), (a, a), (b, b)))
    (sums_a, square_a), (sums_b, square_b) = map(_between_groups, (aa, bb))
    G, H = ab.shape
    # Hoeffding's decomposition. Each group's distribution is the mean one plus a deviation, alpha
    # for a and beta for b. <., .> is the inner product that minus the distance defines.
    slope_a = ab.mean(axis=1) - sums_a / (G - 2)
    slope_b = ab.mean(axis=0) - sums_b / (H - 2)
    first = 4 * slope_a.var(ddof=1) / G + 4 * slope_b.var(ddof=1) / H
    residual = ab - ab.mean(axis=0) - ab.mean(axis=1)[:, None] + ab.mean()
    crossed = np.square(residual).sum() / ((G - 1) * (H - 1))  # E <alpha, beta>²
    second = 2 * square_a / (G * (G - 1)) + 2 * square_b / (H * (H - 1)) + 4 * crossed / (G * H)
    # The slopes' variance under equal distributions, because they subtract estimated means.
    chance = 4 * square_a / (G * (G - 2)) + 4 * square_b / (H * (H - 2)) + 8 * crossed / (G * H)
    value = 2 * ab.mean() - sums_a.mean() / (G - 1) - sums_b.mean() / (H - 1)
    widened = max(_widening(min(G, H)) ** 2 * first - chance, 0.0)
    return Estimate(float(value), math.sqrt(second + widened))


def _widening(groups: int) -> float:
    """Return the factor by which Student's t makes two errors of so many groups hold 95 %."""
    return float(stats.t.ppf(stats.norm.cdf(2), groups - 1)) / 2


def _between_groups(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Return sums of distances to other groups, [G], and E <alpha, alpha'>² by U-centring."""
    G = len(distances)
    between = distances - np.diag(np.diag(distances))
    sums = between.sum(axis=1)
    centred = between - (sums[:, None] + sums) / (G - 2) + sums.sum() / ((G - 1) * (G - 2))
    np.fill_diagonal(centred, 0.0)
    return sums, np.square(centred).sum() / (G * (G - 3))


def _mean_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the mean distance between the draws of each pair of groups, [G, H]."""

    def mean(p: np.ndarray, q: np.ndarray) -> float:
        centre = p.mean(axis=0)  # far from 0, squares have no digits left for differences
        p, q = p - centre, q - centre
        squares = (p**2).sum(1)[:, None] + (q**2).sum(1) - 2 * p @ q.T
        return float(np.sqrt(np.maximum(squares, 0)).mean())

    return np.array([[mean(p, q) for q in b] for p in a])


def _num_groups(chains: Chains) -> int:
    """Return the number of groups: the chains, or an equal number of parts of each."""
    C = chains.shape[0]
    return C if C >= _MIN_CHAINS else C * math.ceil(_MIN_CHAINS / C)


def _groups(chains: Chains, sites: Any, num: int) -> dict[str, np.ndarray]:
    """Divide draws into groups, [G, S, D] by site: chains, or consecutive draws of one."""
    thinned, G = chains.spaced(max(1, num // chains.shape[0])), _num_groups(chains)
    C, S = thinned.shape
    size = C * S // G
    if size < 2:
        raise ValueError(f"compare_posteriors: there are {C * S} draws, wanted at least {2 * G}")
    used = size * (G // C)  # of each chain
    return {n: thinned.samples[n][:, :used].reshape(G, size, -1) for n in sites}


def _mean_log_density(
    key: PRNGKey, chains: Chains, model: Model, params: Params, call: Call, num: int
) -> Estimate:
    """Return the mean log predictive density, as in `predict`, and its jackknife error."""
    sites = ModelSites.from_model(model, call)
    thinned = chains.spaced(max(1, num // chains.shape[0]))
    values = {n: thinned.samples[n] for n in sites.latent_dims if n in thinned.samples}
    missing = [n for n in sites.latent_dims if n not in values and n not in sites.row_sites]
    if missing or not sites.data_dims:
        raise ValueError(
            f"compare_posteriors: with the test data the model has latent sites "
            f"{list(sites.latent_dims)} and observes {list(sites.data_dims)}, wanted draws of all "
            "latent sites outside of rows, and something observed; draws are of "
            f"{list(thinned.samples)}. Leave out test"
        )
    evaluate = PointwiseEvaluator(model, params, None)
    results: Any = evaluate(key, Draws(values), call, sites, 1, use_row_draws=False)
    seen = [np.asarray(r.log_likelihood, float)[..., r.loo.seen] for r in results.values()]
    flat = [a.reshape(math.prod(thinned.shape), -1) for a in seen]
    by_draw, G = np.concatenate(flat, axis=1), _num_groups(chains)
    if not by_draw.size:
        raise ValueError("compare_posteriors: all targets of test are missing, wanted some")
    groups = np.array_split(np.arange(len(by_draw)), G)

    def mean_over_data(terms: np.ndarray) -> float:
        return float(np.mean(logsumexp(terms, axis=0) - np.log(len(terms))))

    left_out = np.array([mean_over_data(np.delete(by_draw, rows, axis=0)) for rows in groups])
    error = math.sqrt((G - 1) * left_out.var()) * _widening(G)
    return Estimate(mean_over_data(by_draw), error)
