"""How far an approximate posterior is from exact draws of the same model's, NUTS's say."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from jax import random
from jax.typing import ArrayLike
from scipy.special import logsumexp

from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.guide_check import khat
from dgp_ppl.inference.layer_guide import LayerGuide
from dgp_ppl.inference.mcmc import Chains
from dgp_ppl.predict import Prediction, predict

__all__ = ["Estimate", "Judgement", "energy_distance", "judge"]

_GROUPS = 8  # of draws, for standard errors


class Estimate(NamedTuple):
    """A number, and its Monte Carlo standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.error:.1g}"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What `judge` returns.

    Attributes:
        sites: energy distance between the exact draws and the others, of every latent site alone.
        joint: of all sites together: at least what the sites say, more where the approximation
            misses how they depend on each other.
        log_density: mean log predictive density on the test data, the approximation's less that of
            the exact draws, in nats per datum; None without test data.
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


def judge(
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
) -> Judgement:
    """Compare an approximate posterior with exact draws of the same model's.

    Exact are draws of ``run_mcmc(key, NUTS(...), ...)``, or ``Chains.of(mcmc)``, at the same
    hyperparameters, if their chains have mixed (`chain_diagnostics`); with fewer effective draws
    all errors grow. NUTS has hidden layers' unit noise as latent variables; the bounds average it
    inside the expected log-likelihood, and so does `SGHMC`, so that even the best q(v) keeps a
    small distance.

    Args:
        key: random key.
        exact: chains of exact draws. Sites that the approximation does not have are not looked at.
        approximation: a fitted guide, or a sampler's draws.
        model: the model.
        params: the fit's params, the model's own among them.
        *args: the model's arguments, x and y by position.
        test: test inputs [N*, D] and targets [N*], in the units of the model.
        num_draws: draws of a guide; at most so many of chains.
        num_weights: importance weights for `Judgement.khat`.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        ValueError: if `exact` lacks a site of the approximation's, or has other shapes; if x or y
            is not given by position.
    """
    if len(args) < 2:
        raise ValueError(f"judge: got {len(args)} of the model's x and y by position, wanted both")
    key_draw, key_khat, key_predict = random.split(key, 3)
    draws = (
        approximation
        if isinstance(approximation, Chains)
        else _drawn(key_draw, approximation, params, args, kwargs, num_draws)
    )
    for name, own in draws.samples.items():
        got = exact.samples[name].shape[2:] if name in exact.samples else None
        if got != own.shape[2:]:
            raise ValueError(
                f"judge: exact has {'no site' if got is None else f'draws {got} of'} {name!r}, "
                f"wanted draws of shape {own.shape[2:]}; its sites are {list(exact.samples)}"
            )
    a, b = (_groups(chains, draws.samples, num_draws) for chains in (exact, draws))
    sites = {n: energy_distance(a[n], b[n]) for n in a}
    joint = energy_distance(*(np.concatenate(list(g.values()), axis=2) for g in (a, b)))
    log_density = None
    if test is not None:

        def score(key: PRNGKey, chains: Chains) -> Estimate:
            options: Any = {"posterior_samples": chains, "num_samples": num_draws, **kwargs}
            return _score(predict(key, model, None, params, test[0], *args[2:], **options), test[1])

        own, best = map(score, random.split(key_predict), (draws, exact))
        log_density = Estimate(own.value - best.value, math.hypot(own.error, best.error))
    tail = None
    if not isinstance(approximation, Chains):
        tail = khat(key_khat, approximation, model, params, args, kwargs, num_weights)
    return Judgement(sites, joint, log_density, tail)


def energy_distance(a: ArrayLike, b: ArrayLike) -> Estimate:
    """2 E|a - b| - E|a - a'| - E|b - b'|: 0 where two laws are equal, else positive.

    Unbiased, from pairs of different groups: draws within a group may depend on each other, as
    those of a chain do. The standard error is the jackknife's, over groups (Székely & Rizzo 2013).

    Args:
        a: draws, [G, S, D]: G groups (chains, or parts of them), at least 3.
        b: draws of the other law, [G, T, D].

    Returns:
        The distance in the units of the draws.

    Raises:
        ValueError: if shapes do not fit.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 3 or b.ndim != 3 or len(a) != len(b) or len(a) < 3 or a.shape[2] != b.shape[2]:
        raise ValueError(
            f"energy_distance: shapes are {a.shape} and {b.shape}, wanted [G, S, D] and [G, T, D] "
            "with G >= 3"
        )
    ab, aa, bb = (_mean_distances(p, q) for p, q in ((a, b), (a, a), (b, b)))

    def distance(kept: np.ndarray) -> float:
        part = np.ix_(kept, kept)
        apart = ~np.eye(len(kept), dtype=bool)
        return 2 * ab[part].mean() - aa[part][apart].mean() - bb[part][apart].mean()

    groups = np.arange(len(a))
    left_out = np.array([distance(np.delete(groups, g)) for g in groups])
    error = math.sqrt((len(groups) - 1) * left_out.var())
    return Estimate(distance(groups), error)


def _mean_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mean distance between draws of every two groups, [G, G]."""

    def mean(p: np.ndarray, q: np.ndarray) -> float:
        squares = (p**2).sum(1)[:, None] + (q**2).sum(1) - 2 * p @ q.T
        return float(np.sqrt(np.maximum(squares, 0)).mean())

    return np.array([[mean(p, q) for q in b] for p in a])


def _groups(chains: Chains, sites: Any, num: int) -> dict[str, np.ndarray]:
    """Draws of sites as groups [G, S, D] of neighbours."""
    some = chains.spaced(max(1, num // chains.shape[0]))
    total = math.prod(some.shape)
    size = total // _GROUPS
    if size < 2:
        raise ValueError(f"judge: there are {total} draws, wanted at least {2 * _GROUPS}")
    flat = {n: some.samples[n].reshape(total, -1) for n in sites}
    return {n: f[: _GROUPS * size].reshape(_GROUPS, size, -1) for n, f in flat.items()}


def _drawn(
    key: PRNGKey, guide: LayerGuide, params: Params, args: Any, kwargs: Any, num: int
) -> Chains:
    """A guide's draws of its sites, as one chain."""
    found = guide.sample_posterior(key, params, *args, sample_shape=(num,), **kwargs)
    samples = {n: np.asarray(a)[None] for n, a in found.items()}
    return Chains(samples)


def _score(prediction: Prediction, y: ArrayLike) -> Estimate:
    """Mean log predictive density, and its error over draws: the jackknife's, over groups."""
    by_pass = prediction.log_prob_by_pass(y)
    groups = np.array_split(np.arange(len(by_pass)), _GROUPS)
    mixed = lambda terms: float(np.mean(logsumexp(terms, axis=0) - np.log(len(terms))))  # noqa: E731
    left_out = np.array([mixed(np.delete(by_pass, rows, axis=0)) for rows in groups])
    return Estimate(mixed(by_pass), math.sqrt((_GROUPS - 1) * left_out.var()))
