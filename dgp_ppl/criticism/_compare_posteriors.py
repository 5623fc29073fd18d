"""How far an approximate posterior is from exact draws of the same model's, NUTS's say."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from scipy.special import logsumexp

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.criticism._check_guide import khat
from dgp_ppl.inference import Chains, LayerGuide
from dgp_ppl.inferencedata import Draws, Pointwise, Sites

__all__ = ["Estimate", "PosteriorComparison", "compare_posteriors", "energy_distance"]

_GROUPS = 8  # of draws that are of too few chains to be groups themselves
_CHAINS = 4  # are enough


class Estimate(NamedTuple):
    """A number, and its Monte Carlo standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.error:.1g}"


@dataclasses.dataclass(frozen=True)
class PosteriorComparison:
    """What `compare_posteriors` returns.

    Attributes:
        sites: energy distance between the exact draws and the others, of every latent site alone.
        joint: of all sites together: at least what the sites say, more where the approximation
            misses how they depend on each other.
        log_density: mean log predictive density on the test data, the approximation's less that of
            the exact draws, in nats per observed value; None without test data.
        khat: shape of the tail of the importance weights p(y, v) / q(v) (Yao et al. 2018; NumPyro's
            `psis_diagnostic`): below 0.7 the approximation is near enough to be corrected by
            weighing its draws. Each weight has its own draw of hidden layers' unit noise, which
            no q(v) can answer for and which makes it larger. None where q(v) has no density
            (`Implicit`, a sampler's draws, means with a basis of their own).
    """

    sites: dict[str, Estimate]
    joint: Estimate
    log_density: Estimate | None
    khat: float | None


def compare_posteriors(
    key: PRNGKey,
    exact: Chains,
    approximation: LayerGuide | Chains,
    model: Model,
    params: Params,
    *args: Any,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    num_draws: int = 2000,
    num_weights: int = 1000,
    **kwargs: Any,
) -> PosteriorComparison:
    """Compare an approximate posterior with exact draws of the same model's.

    Exact are draws of ``run_mcmc(key, NUTS(...), ...)``, or ``Chains.from_mcmc(mcmc)``, at the same
    hyperparameters, if their chains have mixed (`chain_diagnostics`); with fewer effective draws
    all errors grow. Errors are between chains if there are at least four; fewer are cut in parts,
    whose errors are too small if the chains have not mixed. NUTS has hidden layers' unit noise as
    latent variables; the bounds average it inside the expected log-likelihood, and so does `SGHMC`,
    so that even the best q(v) keeps a small distance.

    Args:
        key: random key.
        exact: chains of exact draws. Sites that the approximation does not have are not looked at.
        approximation: a fitted guide, or a sampler's draws.
        model: the model.
        params: the fit's params, the model's own among them.
        *args: the model's arguments, x and y by position.
        test: test inputs [N*, D] and targets [N*], in the units of the model, which is called with
            them in place of x and y.
        num_draws: draws of a guide; at most so many of chains.
        num_weights: importance weights for `PosteriorComparison.khat`.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        TypeError: if `key` is no random key, or a number is no integer.
        ValueError: if `exact` lacks a site of the approximation's, or has other shapes; if draws
            are too few, or lack a site that test data depend on; if x or y is not given by
            position.
    """
    check_key("compare_posteriors", key)
    check_count("compare_posteriors", "num_draws", num_draws, 2 * _GROUPS)
    check_count("compare_posteriors", "num_weights", num_weights, 10)
    if len(args) < 2:
        raise ValueError(
            f"compare_posteriors: got {len(args)} of the model's x and y by position, wanted both"
        )
    key_draw, key_khat, key_test = random.split(key, 3)
    draws = (
        approximation
        if isinstance(approximation, Chains)
        else _drawn(key_draw, approximation, params, args, kwargs, num_draws)
    )
    for name, own in draws.samples.items():
        got = exact.samples[name].shape[2:] if name in exact.samples else None
        if got != own.shape[2:]:
            raise ValueError(
                f"compare_posteriors: exact has {'no site' if got is None else f'draws {got} of'} "
                f"{name!r}, wanted draws of shape {own.shape[2:]}; its sites are "
                f"{list(exact.samples)}"
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
                f"{y.shape}, wanted as many rows of both"
            )

        def score(key: PRNGKey, chains: Chains) -> Estimate:
            return _score(key, chains, model, params, (x, y, *args[2:]), kwargs, num_draws)

        own, best = map(score, random.split(key_test), (draws, exact))
        log_density = Estimate(own.value - best.value, math.hypot(own.error, best.error))
    tail = None
    if not isinstance(approximation, Chains):
        tail = khat(key_khat, approximation, model, params, args, kwargs, num_weights)
    return PosteriorComparison(sites, joint, log_density, tail)


def energy_distance(a: ArrayLike, b: ArrayLike) -> Estimate:
    """2 E|a - b| - E|a - a'| - E|b - b'|: 0 where two laws are equal, else positive.

    Unbiased, from pairs of different groups (Székely & Rizzo 2013): draws within a group may depend
    on each other in any way, so that chains, mixed or not, can be groups. The standard error is a
    U-statistic's over groups, to second order: where laws are near, groups that happen to be
    balanced have a distance below zero and no slope, and a jackknife, which sees slopes alone,
    takes that for certain.

    Args:
        a: draws, [G, S, D]: G groups, independent of each other (chains, say), at least 4.
        b: draws of the other law, [H, T, D].

    Returns:
        The distance in the units of the draws.

    Raises:
        ValueError: if shapes do not fit.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 3 or b.ndim != 3 or min(len(a), len(b)) < 4 or a.shape[2] != b.shape[2]:
        raise ValueError(
            f"energy_distance: shapes are {a.shape} and {b.shape}, wanted [G, S, D] and [H, T, D] "
            "with G and H >= 4; cut chains in parts where there are fewer"
        )
    ab, aa, bb = (_mean_distances(p, q) for p, q in ((a, b), (a, a), (b, b)))
    (sums_a, own_a), (sums_b, own_b) = map(_apart, (aa, bb))
    G, H = ab.shape
    # Hoeffding's decomposition. A group's law is the mean law and some alpha (of b: beta), with the
    # inner product that minus the distance between draws defines.
    slope_a = ab.mean(axis=1) - sums_a / (G - 2)
    slope_b = ab.mean(axis=0) - sums_b / (H - 2)
    first = 4 * slope_a.var(ddof=1) / G + 4 * slope_b.var(ddof=1) / H
    left = ab - ab.mean(axis=0) - ab.mean(axis=1)[:, None] + ab.mean()
    crossed = np.square(left).sum() / ((G - 1) * (H - 1))  # E <alpha, beta>²
    second = 2 * own_a / (G * (G - 1)) + 2 * own_b / (H * (H - 1)) + 4 * crossed / (G * H)
    # What slopes vary by where laws are equal, as they are taken to mean laws that are estimates.
    chance = 4 * own_a / (G * (G - 2)) + 4 * own_b / (H * (H - 2)) + 8 * crossed / (G * H)
    value = 2 * ab.mean() - sums_a.mean() / (G - 1) - sums_b.mean() / (H - 1)
    return Estimate(float(value), math.sqrt(second + max(first - chance, 0.0)))


def _apart(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Each group's distances to the others, summed, [G]; and E <alpha, alpha'>² of two groups.

    The latter without bias, by Székely & Rizzo (2014)'s U-centring.
    """
    G = len(distances)
    apart = distances - np.diag(np.diag(distances))
    sums = apart.sum(axis=1)
    centred = apart - (sums[:, None] + sums) / (G - 2) + sums.sum() / ((G - 1) * (G - 2))
    np.fill_diagonal(centred, 0.0)
    return sums, np.square(centred).sum() / (G * (G - 3))


def _mean_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mean distance between draws of every two groups, [G, G]."""

    def mean(p: np.ndarray, q: np.ndarray) -> float:
        squares = (p**2).sum(1)[:, None] + (q**2).sum(1) - 2 * p @ q.T
        return float(np.sqrt(np.maximum(squares, 0)).mean())

    return np.array([[mean(p, q) for q in b] for p in a])


def _num_groups(chains: Chains) -> int:
    """Chains are groups, or are cut in a whole number of parts each."""
    C = chains.shape[0]
    return C if C >= _CHAINS else C * math.ceil(_GROUPS / C)


def _groups(chains: Chains, sites: Any, num: int) -> dict[str, np.ndarray]:
    """Draws of sites as groups [G, S, D], of chains or of neighbours in one."""
    some, G = chains.spaced(max(1, num // chains.shape[0])), _num_groups(chains)
    C, S = some.shape
    size = C * S // G
    if size < 2:
        raise ValueError(f"compare_posteriors: there are {C * S} draws, wanted at least {2 * G}")
    cut = size * (G // C)  # of each chain
    return {n: some.samples[n][:, :cut].reshape(G, size, -1) for n in sites}


def _drawn(
    key: PRNGKey, guide: LayerGuide, params: Params, args: Any, kwargs: Any, num: int
) -> Chains:
    """A guide's draws of its sites, as one chain."""
    found = guide.sample_posterior(key, params, *args, sample_shape=(num,), **kwargs)
    samples = {n: np.asarray(a)[None] for n, a in found.items()}
    return Chains(samples)


def _score(
    key: PRNGKey,
    chains: Chains,
    model: Model,
    params: Params,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    num: int,
) -> Estimate:
    """Mean log predictive density, and its error over draws: the jackknife's, over groups.

    Every draw of the latent sites has a draw of the hidden layers' noise, as in `predict`.
    """
    sites = Sites.from_model(model, Call(args, kwargs))
    some = chains.spaced(max(1, num // chains.shape[0]))
    values = {n: some.samples[n] for n in sites.latent if n in some.samples}
    missing = [n for n in sites.latent if n not in values and n not in sites.rows]
    if missing or not sites.data:
        raise ValueError(
            f"compare_posteriors: with the test data the model has latent sites "
            f"{list(sites.latent)} and observes {list(sites.data)}, "
            "wanted draws of all these but those of rows, and something observed; "
            f" draws are of {list(some.samples)}. Leave out test"
        )
    said = Pointwise(model, params, kwargs, None)
    found = said(key, Draws(values), args, sites, 1, own_rows=False).values()
    flat = [
        np.asarray(a.log_likelihood, np.float64).reshape(math.prod(some.shape), -1) for a in found
    ]
    by_pass = np.concatenate(flat, axis=1)
    G = _num_groups(chains)
    groups = np.array_split(np.arange(len(by_pass)), G)
    mixed = lambda terms: float(np.mean(logsumexp(terms, axis=0) - np.log(len(terms))))  # noqa: E731
    left_out = np.array([mixed(np.delete(by_pass, rows, axis=0)) for rows in groups])
    return Estimate(mixed(by_pass), math.sqrt((G - 1) * left_out.var()))
