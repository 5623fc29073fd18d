"""The evidence, measured: annealed importance sampling from a fitted guide to the posterior."""

import dataclasses
import math
import warnings
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array
from numpyro import handlers
from scipy.special import logsumexp
from tqdm.auto import tqdm

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import as_observed
from dgp_ppl.inference.evidence._ais import WANTED_RATE, Annealing
from dgp_ppl.inference.guides import (
    Decoupled,
    LayerGuide,
    MeanField,
    has_reference_space,
    transport_base,
)

__all__ = ["AnnealedEvidence", "annealed_evidence", "log_mean", "why_no_evidence"]

_PILOT = 40  # temperatures of the first run, at least
_LOW_RATE = 0.5  # of acceptance, on average over a tenth of the temperatures
_FRESH = 100  # sets of noise draws in a chain's last step
_SAME = 0.05  # nats between log densities that pass for one


@dataclasses.dataclass(frozen=True)
class AnnealedEvidence:
    """What `annealed_evidence` returns; in nats.

    Attributes:
        log_evidence: log of the mean weight; in expectation not above the truth.
        standard_error: of it, by the jackknife over chains. Not to be trusted where
            `effective_particles` is below half of them, of which there is a warning.
        log_weights: of the chains, [C].
        effective_particles: how many equal weights would be worth as much.
        draws: where the chains end, latent sites [C, ...]: weighted, draws of the posterior.
        acceptance: mean acceptance rate at every temperature, [K].
        upper: by the chains in reverse, from exact draws: in expectation not below the truth. None
            without them.
        upper_error: its standard error, as if the exact draws were independent.
        doubts: what was warned of: reasons not to trust the errors.
    """

    log_evidence: float
    standard_error: float
    log_weights: np.ndarray
    effective_particles: float
    draws: dict[str, np.ndarray]
    acceptance: np.ndarray
    upper: float | None = None
    upper_error: float | None = None
    doubts: tuple[str, ...] = ()


def annealed_evidence(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params,
    *args: Any,
    target: Literal["bound", "model"] = "bound",
    start: Literal["guide", "prior"] = "guide",
    temperatures: int = 500,
    leapfrogs: int = 15,
    num_particles: int = 8,
    num_noise: int = 8,
    posterior_samples: dict[str, Any] | None = None,
    progress: bool | str = True,
    **kwargs: Any,
) -> AnnealedEvidence:
    """log p(y) at a fit's hyperparameters, hence how far below it the fit's bound is.

    Annealed importance sampling (Neal 2001) in the guide's white space, where its q(v) is N(0, I):
    from q, by Hamiltonian Monte Carlo, through q^(1 - beta) p(y, v)^beta, beta from 0 to 1. A first
    run finds step sizes for all temperatures, with which the second, whose weights count, is an
    unbiased estimate of the evidence. From exact draws of the posterior the same temperatures are
    also gone through in reverse, which gives an upper end (Grosse et al. 2015).

    The standard error is right where all chains see the same posterior. A part of it that only a
    few chains reach in time (another mode, say) shows in a few large weights, and so in a low
    `effective_particles`: there is a warning then, and more temperatures and chains help. Of a part
    that none of them reaches nothing is seen, and the value is too low, whatever its error says.
    Fits to few data are most at risk, whose q is narrow and far from all there is: start from the
    prior as well, and believe the larger value. (12 rows, two layers of four inducing values, a
    bound 8 nats below the evidence of -11.1: -11.7 (0.03) by 256 chains from the guide, -11.0
    (0.13) by 64 from the prior. On hundreds of rows the prior is too far: there is a warning then.)

    Args:
        key: random key.
        model: a model made of `dgp_ppl.gp` layers, without other latent sites.
        guide: its fitted guide: `MeanField` or `GlobalInducing`, of a `Diffusion` its base, of an
            `Implicit` the Gaussian of its draws' moments. (The evidence depends on the model's
            params alone; where the chains start, only its error.)
        params: the fit's params.
        *args: the model's arguments.
        target: ``"bound"``: the evidence of what a bound is a bound of, exp(E log p(y | f)) given
            v, with hidden layers' unit noise averaged in the expectation: what a better q(v) could
            still gain. ``"model"``: that of the model that MCMC samples, the unit noise being
            latent variables; the whole gap.
        start: where the chains start: ``"guide"``, from its q(v), or ``"prior"``, from p(v), which
            is farther from the posterior, but on the way to all parts of it.
        temperatures: steps K from there to the posterior.
        leapfrogs: leapfrog steps of each transition.
        num_particles: chains C, side by side.
        num_noise: with "bound", draws of the unit noise, and of what `observe` draws, that stand
            for the average on the way, each chain having its own. A last step weighs the chain's
            end by the average over 100 times as many new ones, less half the variance of that (of
            the log of an average's exponential, the bias). So the number changes no expectation,
            only the spread of the weights, which the standard error knows of. A model of one layer
            has none, but for vector latents whose likelihood does not know its averages.
        posterior_samples: draws of the target's posterior, every latent site [S, ...]; C of them
            are taken, evenly spaced. With "model" NUTS's ``get_samples()`` of the model, unit noise
            (``.eps``) included. With "bound" only where the model's posterior is the same one: of
            one layer whose values at the data are known given v (the data are among its inducing
            inputs). No other sampler's draws are of that target.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        TypeError: if the guide is none of these, or a number is no integer.
        ValueError: if the model has other latent sites or takes a minibatch, a number is not
            positive, or `posterior_samples` lacks a site, has too few draws or cannot be of the
            target.
    """
    for name, value, least in (
        ("temperatures", temperatures, 1),
        ("leapfrogs", leapfrogs, 1),
        ("num_particles", num_particles, 2),
        ("num_noise", num_noise, 1),
    ):
        check_count("annealed_evidence", name, value, least)
    if target not in ("bound", "model"):
        raise ValueError(f"annealed_evidence: target is {target!r}, wanted 'bound' or 'model'")
    if start not in ("guide", "prior"):
        raise ValueError(f"annealed_evidence: start is {start!r}, wanted 'guide' or 'prior'")
    if (why := why_no_evidence(guide)) is not None:
        raise TypeError(f"annealed_evidence: {why}")
    with handlers.block(), handlers.seed(rng_seed=key):
        guide.setup(*args, **kwargs)
    key_noise, key_start, key_pilot, key_run, key_back, key_last = random.split(key, 6)
    begin = _at_prior if start == "prior" else _start_from
    base, params = begin(key_start, guide, params, args, kwargs)
    partition, data = Partition.split(model, Call(args, kwargs), base)
    noise, estimates = _noise_sites(base, params, args, kwargs)
    sites = {n: jnp.zeros(layer.shape) for n, layer in base.layers.items()}
    if target == "model":
        sites |= {n: jnp.zeros(shape) for n, shape in noise.items()}
    averages = target == "bound" and bool(noise or estimates)
    keys = random.split(key_noise, (num_particles, num_noise if averages else 1))
    problem = Annealing(base, partition, target, leapfrogs, sites)
    inputs = params, data, keys
    betas = _schedule(start, temperatures)
    exact = None
    if posterior_samples is not None:
        if averages:
            why = "which has unit noise" if noise else "whose likelihood is estimated by draws"
            raise ValueError(_NOT_OF_BOUND.format(why))
        exact = problem.white(_spaced(posterior_samples, sites, num_particles), inputs)
        other = Annealing(base, partition, "model", leapfrogs, sites)
        apart = jnp.max(jnp.abs(problem.ratio(exact, inputs) - other.ratio(exact, inputs)))
        if not apart < _SAME:
            raise ValueError(_NOT_OF_BOUND.format(f"from which it is {apart:.3g} nats apart"))
    length = temperatures if temperatures < 4 * _PILOT else temperatures // 4
    pilot = _schedule(start, length)
    total = len(pilot) - 1 + temperatures * (1 if exact is None else 2)
    bar = tqdm(total=total, disable=not progress, leave=False, unit=" temperatures")
    bar.set_description("anneal" if progress is True else str(progress), refresh=False)
    with bar:
        run = partial(problem.run, inputs, bar)
        # Sizes that have seen the chains' own starts would make their weights biased.
        z, other = random.normal(key_start, (2, num_particles, problem.dim))
        adapted = run(random.split(key_pilot, num_particles), other, pilot, None)
        sizes = np.interp(betas[1:], pilot[1:], adapted.size)
        end = run(random.split(key_run, num_particles), z, betas, sizes)
        log_weights = end.log_weight
        if averages:
            fresh = random.split(key_last, (num_particles, _FRESH, num_noise))
            log_weights = log_weights + np.asarray(problem.last(end.z, fresh, inputs), np.float64)
        value, error, effective = log_mean(log_weights)
        upper: tuple[Any, Any] = None, None
        doubts = _doubts("", effective, num_particles, end.acceptance)
        if exact is not None:
            back = run(random.split(key_back, num_particles), exact, betas[::-1], sizes[::-1])
            minus, upper_error, effective_back = log_mean(back.log_weight)
            upper = -minus, upper_error
            doubts += _doubts("in reverse, ", effective_back, num_particles, back.acceptance)
    for doubt in doubts:
        warnings.warn(f"annealed_evidence: {doubt}", UserWarning, stacklevel=2)
    draws = {n: np.asarray(a) for n, a in problem.draws(end.z, inputs).items()}
    return AnnealedEvidence(
        value, error, log_weights, effective, draws, end.acceptance, *upper, doubts
    )


_NOT_OF_BOUND = (
    "annealed_evidence: posterior_samples with target='bound', whose posterior is not that of the "
    "model, {}; wanted target='model' and draws of the model itself by NUTS, unit noise (.eps) "
    "included"
)


def why_no_evidence(guide: Any) -> str | None:
    """Why `annealed_evidence` does not take a guide, in words that go after a colon; else None."""
    if isinstance(guide, Decoupled):
        return (
            "guide is Decoupled, whose mean has inducing inputs of its own: its bound is one on "
            "the evidence with those too, and can be above that of the model's inducing values "
            "alone; wanted MeanField, GlobalInducing, Implicit, or a Diffusion"
        )
    if has_reference_space(guide) or (isinstance(guide, LayerGuide) and not guide.has_density):
        return None
    return (
        f"guide is {getattr(guide, '__name__', type(guide).__name__)}, wanted MeanField, "
        "GlobalInducing, Implicit, or a Diffusion on one of the first two"
    )


def _start_from(
    key: PRNGKey, guide: Any, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[LayerGuide, Params]:
    """A guide with a white space, and its params: of one known by its draws, their Gaussian."""
    if has_reference_space(guide):
        base = transport_base("annealed_evidence", guide)
        with handlers.block(), handlers.seed(rng_seed=key):
            base.setup(*args, **kwargs)
        return base, params
    num = 20 * max(M for M, _ in (layer.shape for layer in guide.layers.values()))
    draws = guide.sample_posterior(key, params, *args, sample_shape=(num,), **kwargs)
    base = MeanField(guide.model)
    base.setup(*args, **kwargs)
    own: Params = dict(params)
    for name in base.layers:
        v = np.asarray(draws[name], np.float64)
        # By QR, not the Cholesky of their covariance, whose smallest values rounding would drown.
        _, R = np.linalg.qr(np.moveaxis(v - v.mean(axis=0), 2, 0) / math.sqrt(num - 1))
        signs = np.sign(np.diagonal(R, axis1=1, axis2=2))
        own[f"{name}.loc"] = jnp.asarray(v.mean(axis=0), float)
        own[f"{name}.scale_tril"] = jnp.asarray((signs[:, :, None] * R).swapaxes(1, 2), float)
    return base, own


def _schedule(start: str, length: int) -> np.ndarray:
    """Inverse temperatures from 0 to 1, most of them where the chains have most to find.

    From a guide that is close to the posterior. From the prior it is at the very first: a
    likelihood of many rows is sharp there even at a small power.
    """
    steps = np.linspace(0.0, 1.0, length + 1)
    return steps**4 if start == "prior" else 1 - (1 - steps) ** 2


def _at_prior(
    key: PRNGKey, guide: Any, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[LayerGuide, Params]:
    """A guide of the same model whose q(v) is the prior, and its params."""
    base = MeanField(guide.model)
    base.setup(*args, **kwargs)
    own: Params = dict(params)
    for name, layer in base.layers.items():
        M, P = layer.shape
        own[f"{name}.loc"] = jnp.zeros((M, P))
        own[f"{name}.scale_tril"] = jnp.broadcast_to(jnp.eye(M), (P, M, M))
    return base, own


def _doubts(way: str, effective: float, num: int, acceptance: np.ndarray) -> tuple[str, ...]:
    """Why a run's standard error may be too small."""
    found = []
    if effective < num / 2:
        found.append(
            f"{way}{num} particles are worth {effective:.1f} equal weights: the error is rough, "
            "and the value itself is off by about as much; take more temperatures, particles or "
            "(with target='bound') num_noise"
        )
    lowest = min(float(part.mean()) for part in np.array_split(acceptance, 10) if len(part))
    if lowest < _LOW_RATE:
        found.append(
            f"{way}acceptance falls to {lowest:.2f} (wanted about {WANTED_RATE}): the chains do "
            "not move well; take more temperatures"
        )
    return tuple(found)


def log_mean(w: np.ndarray) -> tuple[float, float, float]:
    """The log of the mean weight, its standard error, and how many equal weights it is worth.

    The error is by the jackknife. What the weights' variance says of the log is far too small once
    a few of them make up the sum; leaving out the largest tells.
    """
    log_sum: Any = logsumexp(w)
    num, total = len(w), float(log_sum)
    effective = float(1 / np.sum(np.exp(w - total) ** 2))
    others = np.where(np.eye(num, dtype=bool), -np.inf, w)
    without = np.asarray(logsumexp(others, axis=1), np.float64)
    error = math.sqrt((num - 1) * without.var())
    return total - math.log(num), error, effective


def _spaced(samples: dict[str, Any], sites: dict[str, Array], num: int) -> dict[str, Array]:
    """`num` draws of every site, evenly spaced."""
    shapes = {n: (num, *a.shape) for n, a in sites.items()}
    got = {n: np.shape(samples[n]) for n in shapes if n in samples}
    if set(got) != set(shapes) or any(
        got[n][1:] != s[1:] or got[n][0] < num for n, s in shapes.items()
    ):
        raise ValueError(
            f"annealed_evidence: posterior_samples has {got} of the latent sites, wanted at least "
            f"{shapes}: draws of the model itself by NUTS, unit noise (.eps) included"
        )
    rows = {n: np.linspace(0, s[0] - 1, num).round().astype(int) for n, s in got.items()}
    return {n: jnp.asarray(np.asarray(samples[n])[rows[n]], float) for n in shapes}


def _noise_sites(
    base: LayerGuide, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Shapes of the sites of hidden layers' unit noise; whether log-likelihoods are estimates."""
    sites: dict[str, Any] = {}

    def run() -> None:
        program = handlers.substitute(handlers.seed(base.model, random.PRNGKey(0)), data=params)
        sites.update(handlers.trace(program).get_trace(*args, **kwargs))

    with handlers.block():
        jax.eval_shape(run)
    for name, site in sites.items():
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"annealed_evidence: plate {name!r} is subsampled; leave out batch_size: the "
                "evidence is that of all rows"
            )
    latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    noise = {n: s["fn"].shape() for n, s in latent.items() if n not in base.layers}
    if others := [n for n in noise if not latent[n]["infer"].get("is_auxiliary")]:
        raise ValueError(
            f"annealed_evidence: the model has other latent sites, {others}; fix them "
            "and hide their priors: handlers.block(handlers.substitute(model, ...), hide=[...])"
        )
    laws = [as_observed(s["fn"]) for s in sites.values() if s["type"] == "sample"]
    return noise, any(law is not None and law.estimated for law in laws)
