"""The log evidence at a fit's hyperparameters, by annealed importance sampling."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro import handlers

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._partition import Call, Partition
from dgp_ppl._terminal import Progress
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey, Values
from dgp_ppl.core import as_observed
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inference._summary import Summarized
from dgp_ppl.inference.evidence._particles import ACCEPTANCE, AnnealedParticles, Arrays, schedule
from dgp_ppl.inference.evidence._starts import start_at_guide, start_at_prior, why_no_evidence
from dgp_ppl.inference.evidence._weights import log_mean
from dgp_ppl.inference.guides import LayerGuide

__all__ = ["AnnealedEvidence", "annealed_evidence"]

_LEAST_PILOT = 40  # temperatures of the pilot run
_LOW_ACCEPTANCE = 0.5  # on average over a tenth of the temperatures
_CORRECTION_SETS = 100  # sets of new noise in the last step
_SAME = 0.05  # largest difference in nats between log densities that count as equal


@dataclasses.dataclass(frozen=True, repr=False)
class AnnealedEvidence(Summarized):
    """The result of `annealed_evidence`; in nats.

    Attributes:
        log_evidence: log of the mean weight. Its expectation is at most the log evidence.
        standard_error: jackknife estimate over particles. Do not trust it where
            `effective_particles` is below half of the particles; there is a warning then.
        log_weights: of the particles, [C].
        effective_particles: the number of equal weights with the same variance of the mean.
        draws: final particles, latent sites [C, ...]; weighted, they are posterior draws.
        acceptance: mean acceptance rate at every temperature, [K].
        upper: estimate by annealing in reverse from exact draws. Its expectation is at least the
            log evidence. None without exact draws.
        upper_error: its standard error, as if the exact draws were independent.
        warnings: texts of the warnings, with reasons not to trust the errors.
    """

    log_evidence: float
    standard_error: float
    log_weights: np.ndarray
    effective_particles: float
    draws: dict[str, np.ndarray]
    acceptance: np.ndarray
    upper: float | None = None
    upper_error: float | None = None
    warnings: tuple[str, ...] = ()

    def summary(self) -> list[str]:
        first = f"log evidence {self.log_evidence:.6g} +- {self.standard_error:.2g} nats"
        upper = []
        if self.upper is not None and self.upper_error is not None:
            upper = [f"upper end {self.upper:.6g} +- {self.upper_error:.2g} nats"]
        effective = f"{self.effective_particles:.3g} of {len(self.log_weights)} particles"
        return [first, *upper, f"worth {effective}", *self.warnings]


def annealed_evidence(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params | Fitted,
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
    """Estimate log p(y) at a fit's hyperparameters, hence the gap of the fit's bound.

    Annealed importance sampling (Neal 2001) moves particles from q(v) to the posterior by
    Hamiltonian Monte Carlo. A pilot run finds the step sizes; a second run gives the weights::

        found = dgp.annealed_evidence(key, model, guide, result.params, x, y, z=z)
        gap = found.log_evidence - bound

    The standard error assumes that all particles see the same posterior. If only a few reach a
    mode, a few weights dominate and `effective_particles` is low: there is a warning then, and more
    temperatures and particles help. A mode that no particle reaches goes unnoticed and makes the
    estimate too low. This is most likely for fits to few data: repeat with ``start="prior"`` and
    believe the larger value.

    Args:
        key: random key.
        model: a model made of `dgp_ppl.gp` layers, without other latent sites.
        guide: its fitted guide: `MeanField` or `GlobalInducing`; a `Diffusion` stands for its base,
            an `Implicit` for the Gaussian with the moments of its draws. It sets where particles
            start. The evidence depends on the model's params only.
        params: the fit's params, or its result. From the prior, the model's are enough.
        *args: the model's arguments.
        target: ``"bound"``: the evidence that the fit's ELBO bounds, with likelihood
            exp(E log p(y | f)) given v, where the expectation includes the unit noise of hidden
            layers. The gap is what a better q(v) could gain. ``"model"``: the evidence of the model
            that MCMC samples, where unit noise is latent; the whole gap.
        start: ``"guide"``: particles start from q(v). ``"prior"``: from p(v), which is farther from
            the posterior, but less likely to miss a mode.
        temperatures: number K of annealing steps.
        leapfrogs: leapfrog steps per transition.
        num_particles: particles C, moved in one program.
        num_noise: with ``"bound"``, draws of the unit noise (and of likelihoods that `observe`
            estimates) per particle. They stay fixed while the particle moves; a last step
            reweights it with 100 times as many new draws. The number affects the spread of the
            weights, not their expectation. One-layer models with exact likelihoods ignore it.
        posterior_samples: exact posterior draws of every latent site, [S, ...], S >= C, for the
            upper end. With ``"model"``: ``get_samples()`` of NUTS on the model, with its unit noise
            (``.eps``). With ``"bound"``: only for one layer whose values at the data are known
            given v (the data are among its inducing inputs). Other samplers' draws do not qualify.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments, without ``batch_size``.

    Returns:
        The estimate, its error, and the weighted particles.

    Raises:
        TypeError: if the guide is of another type, or a number is not an integer.
        ValueError: if the model has other latent sites or subsamples its data, a number is not
            positive, `posterior_samples` lacks a site, has too few draws, or cannot be of the
            target, or the names or shapes of params are not those of the model and the guide.

    Warns:
        UserWarning: if few particles carry the weight, or the acceptance rate is low.
    """
    check_key("annealed_evidence", key)
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
    call = Call(args, kwargs)
    with handlers.block(), handlers.seed(rng_seed=key):
        guide.setup(*args, **kwargs)
    needed = guide if start == "guide" else None
    params = checked_params("annealed_evidence", params, model, needed, call)
    key_noise, key_start, key_pilot, key_run, key_back, key_last = random.split(key, 6)
    begin = start_at_prior if start == "prior" else start_at_guide
    base, params = begin(key_start, guide, params, call)
    partition, data = Partition.split(model, call, base)
    noise, estimated = _noise_sites(base, params, call)
    sites = {n: jnp.zeros(layer.shape) for n, layer in base.layers.items()}
    if target == "model":
        sites |= {n: jnp.zeros(shape) for n, shape in noise.items()}
    noisy = target == "bound" and bool(noise or estimated)
    noise_keys = random.split(key_noise, (num_particles, num_noise if noisy else 1))
    particles = AnnealedParticles(base, partition, target, leapfrogs, sites)
    arrays = Arrays(params, data, noise_keys)
    betas = schedule(start, temperatures)
    exact = None
    if posterior_samples is not None:
        if noisy:
            why = "which has unit noise" if noise else "whose likelihood is estimated by draws"
            raise ValueError(_NOT_OF_BOUND.format(why))
        latents = _spaced(posterior_samples, sites, num_particles)
        exact = particles.to_reference(latents, arrays)
        other = AnnealedParticles(base, partition, "model", leapfrogs, sites)
        ratio, other_ratio = (p.log_ratio(exact, arrays) for p in (particles, other))
        difference = jnp.max(jnp.abs(ratio - other_ratio))
        if not difference < _SAME:
            raise ValueError(_NOT_OF_BOUND.format(f"from which it is {difference:.3g} nats apart"))
    length = temperatures if temperatures < 4 * _LEAST_PILOT else temperatures // 4
    pilot_betas = schedule(start, length)
    total = len(pilot_betas) - 1 + temperatures * (1 if exact is None else 2)
    with Progress(progress, total, "anneal", "temperatures") as bar:
        run = partial(particles.run, arrays, bar)
        # Step sizes that depend on the particles they move would bias the weights.
        z, pilot_z = random.normal(key_start, (2, num_particles, particles.dim))
        pilot = run(random.split(key_pilot, num_particles), pilot_z, pilot_betas, None)
        sizes = np.interp(betas[1:], pilot_betas[1:], pilot.size)
        forward = run(random.split(key_run, num_particles), z, betas, sizes)
        log_weights = forward.log_weight
        if noisy:
            fresh = random.split(key_last, (num_particles, _CORRECTION_SETS, num_noise))
            correction = particles.noise_correction(forward.z, fresh, arrays)
            log_weights = log_weights + np.asarray(correction, np.float64)
        value, error, effective = log_mean(log_weights)
        upper: tuple[Any, Any] = None, None
        messages = _warning_messages("", effective, num_particles, forward.acceptance)
        if exact is not None:
            keys = random.split(key_back, num_particles)
            back = run(keys, exact, betas[::-1], sizes[::-1])
            minus, upper_error, effective_back = log_mean(back.log_weight)
            upper = -minus, upper_error
            messages += _warning_messages(
                "in reverse, ", effective_back, num_particles, back.acceptance
            )
    for message in messages:
        warnings.warn(f"annealed_evidence: {message}", UserWarning, stacklevel=2)
    draws = {n: np.asarray(a) for n, a in particles.latents(forward.z, arrays).items()}
    return AnnealedEvidence(
        value, error, log_weights, effective, draws, forward.acceptance, *upper, messages
    )


_NOT_OF_BOUND = (
    "annealed_evidence: posterior_samples are given with target='bound', whose posterior differs "
    "from that of the model, {}; wanted target='model' and draws of the model itself by NUTS, unit "
    "noise (.eps) included"
)


def _warning_messages(
    direction: str, effective: float, num: int, acceptance: np.ndarray
) -> tuple[str, ...]:
    """Return reasons why a run's standard error may be too small."""
    found = []
    if effective < num / 2:
        found.append(
            f"{direction}{num} particles are worth {effective:.1f} equal weights, so the error is "
            "rough, and the value may be off by as much; take more temperatures, particles or "
            "(with target='bound') num_noise"
        )
    lowest = min(float(part.mean()) for part in np.array_split(acceptance, 10) if len(part))
    if lowest < _LOW_ACCEPTANCE:
        found.append(
            f"{direction}acceptance falls to {lowest:.2f} (wanted about {ACCEPTANCE}), so the "
            "particles move too little; take more temperatures"
        )
    return tuple(found)


def _spaced(samples: dict[str, Any], sites: Values, num: int) -> Values:
    """Return `num` evenly spaced draws of every site."""
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
    base: LayerGuide, params: Params, call: Call
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return shapes of the unit noise, and whether a log-likelihood is estimated.

    Raises:
        ValueError: if the model subsamples its data or has other latent sites.
    """
    sites: dict[str, Any] = {}

    def run() -> None:
        program = handlers.substitute(handlers.seed(base.model, random.PRNGKey(0)), data=params)
        sites.update(handlers.trace(program).get_trace(*call.args, **call.kwargs))

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
    observed = [as_observed(s["fn"]) for s in sites.values() if s["type"] == "sample"]
    return noise, any(o is not None and o.estimated for o in observed)
