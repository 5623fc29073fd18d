"""The log evidence at a fit's hyperparameters, by sequential Monte Carlo."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array
from numpyro import handlers
from scipy.stats import t

from dgp_ppl._checks import check_choice, check_count, check_counts, check_key, checked_call
from dgp_ppl._partition import Call, Partition, alone
from dgp_ppl._progress import Progress
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference._params import checked_params, set_up_guide
from dgp_ppl.inference.evidence._smc import anneal, pilot
from dgp_ppl.inference.evidence._starts import start_at_guide, start_at_prior, why_no_evidence
from dgp_ppl.inference.evidence._target import Arrays, Target
from dgp_ppl.inference.evidence._weights import doubts, estimate
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.inference.programs._handlers import survey
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.inference.samplers import Chains
from dgp_ppl.likelihoods._observe import as_observed

_PILOT = 512  # particles of the pilot run, at most
_CORRECTION_SETS = 100  # sets of new noise in the last step


@dataclasses.dataclass(frozen=True, repr=False)
class AnnealedEvidence(Summarized):
    """The result of `annealed_evidence`; in nats.

    Attributes:
        log_evidence: log of the mean weight. Its expectation is at most the log evidence.
        standard_error: jackknife estimate over islands, or an estimate from families of particles
            where it is larger. It has G - 1 degrees of freedom: see `interval`. Do not trust it
            where `effective_particles` is below a quarter of them; there is a warning then.
        log_weights: of the particles, [G, B] in G islands.
        effective_particles: the number of independent draws whose mean weight would vary as much.
            Particles of one ancestor count as one.
        draws: final particles, latent sites [G B, ...]; weighted, they are posterior draws, and
            `chains` has them as such.
        betas: inverse temperatures, [K + 1].
        acceptance: mean acceptance rate at every temperature, [K].
        warnings: texts of the warnings, with reasons not to trust the errors. None is no promise.
    """

    log_evidence: float
    standard_error: float
    log_weights: np.ndarray
    effective_particles: float
    draws: dict[str, np.ndarray]
    betas: np.ndarray
    acceptance: np.ndarray
    warnings: tuple[str, ...] = ()

    def summary(self) -> list[str]:
        low, high = self.interval
        first = f"log evidence {self.log_evidence:.6g} +- {self.standard_error:.2g} nats, "
        first += f"95 % interval {low:.6g} to {high:.6g}"
        effective = f"{self.effective_particles:.3g} of {self.log_weights.size} particles"
        temperatures = f"{len(self.acceptance)} temperatures"
        return [first, f"worth {effective}, {temperatures}", *self.warnings]

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval, by Student's t with G - 1 degrees of freedom for G islands.

        Where it misses the log evidence, it is mostly too low.
        """
        half = float(t.ppf(0.975, len(self.log_weights) - 1)) * self.standard_error
        return self.log_evidence - half, self.log_evidence + half

    @property
    def chains(self) -> Chains:
        """The final particles as weighted posterior draws, a chain for each island, [G, B, ...].

        `predict` and `to_inferencedata` resample them by their weights.
        """
        draws = {n: a.reshape(*self.log_weights.shape, *a.shape[1:]) for n, a in self.draws.items()}
        return Chains(draws, log_weights=self.log_weights)


def annealed_evidence(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params | Fitted,
    *args: Any,
    target: Literal["bound", "model"] = "bound",
    start: Literal["guide", "prior"] = "guide",
    temperatures: int | None = None,
    leapfrogs: int = 15,
    num_particles: int = 64,
    num_islands: int = 8,
    num_noise: int = 8,
    progress: bool | str = True,
    **kwargs: Any,
) -> AnnealedEvidence:
    """Estimate log p(y) at a fit's hyperparameters, hence the gap of the fit's bound.

    Sequential Monte Carlo moves particles from q(v) to the posterior: at each temperature they are
    weighted, resampled where few carry the weight, and moved by Hamiltonian Monte Carlo. A pilot
    run finds the temperatures and the moves; a second run gives the weights::

        found = dgp.annealed_evidence(key, model, guide, result.params, x, y, z=z)
        gap = found.log_evidence - bound
        p = dgp.predict(
            key, model, None, result.params, x_new, z=z, posterior_samples=found.chains
        )

    The particles are divided into islands, which are independent estimates; the standard error is
    of their mean. It assumes that all islands see the same posterior. There is a warning if they
    do not, or if `effective_particles` is low; more temperatures and particles help. No warning is
    no promise: a mode, or a tail, that no particle reaches goes unnoticed and makes the estimate
    too low, whatever its error. This is most likely for fits to few data: repeat with
    ``start="prior"`` or another key, and believe the larger value.

    Args:
        key: random key.
        model: a model made of `dgp_ppl.gp` layers, and other latent sites.
        guide: its fitted guide: `MeanField`, `GlobalInducing` or `Flow`; a `Diffusion` stands for
            its base, an `Implicit` for the Gaussian with the moments of its draws. It sets where
            particles start. The evidence depends on the model's params only.
        params: the fit's params, or its result. From the prior, the model's are enough.
        *args: the model's arguments.
        target: ``"bound"``: the evidence that the fit's ELBO bounds, with likelihood
            exp(E log p(y | f)) given v, where the expectation includes the unit noise of hidden
            layers. The gap is what a better q(v) could gain. ``"model"``: the evidence of the model
            that MCMC samples, where unit noise is latent; the whole gap.
        start: ``"guide"``: particles start from q(v). ``"prior"``: from p(v), which is farther from
            the posterior, but less likely to miss a mode. Other latent sites start from the guide.
        temperatures: number K of temperatures, equally far apart; None for as many as make the
            particles worth half of their number if moves mix perfectly, between 20 and 2,000.
        leapfrogs: leapfrog steps per transition.
        num_particles: particles C, moved in one program, 64 at a time.
        num_islands: independent parts G of the particles, at least 8: fewer hardly tell the error.
            As many as particles are annealed importance sampling (Neal 2001), without resampling.
        num_noise: with ``"bound"``, draws of the unit noise (and of likelihoods that `observe`
            estimates) per island. They stay fixed while its particles move; a last step
            reweights them with 100 times as many new draws. The number affects the spread of the
            weights, not their expectation. One-layer models with exact likelihoods ignore it.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments, without ``batch_size``.

    Returns:
        The estimate, its error, and the weighted particles.

    Raises:
        TypeError: if the guide is of another type, or a number is not an integer.
        ValueError: if the model subsamples its data, the guide of a site besides the layers is no
            bijection of a normal, a number is not positive, `num_particles` is no multiple of
            `num_islands`, the density is finite at no start, or the names or shapes of params
            differ from the model's and the guide's.

    Warns:
        UserWarning: if there are fewer than 8 islands, few particles carry the weight, islands
            differ, or the acceptance rate is low.

    Source: Del Moral, Doucet & Jasra (2006), "Sequential Monte Carlo samplers".
    """
    check_key("annealed_evidence", key)
    check_counts("annealed_evidence", leapfrogs=leapfrogs, num_noise=num_noise)
    check_count("annealed_evidence", "num_particles", num_particles, 2)
    check_count("annealed_evidence", "num_islands", num_islands, 2)
    if temperatures is not None:
        check_count("annealed_evidence", "temperatures", temperatures)
    if num_particles % num_islands:
        raise ValueError(
            f"annealed_evidence: num_particles is {num_particles}, wanted a multiple of "
            f"num_islands, {num_islands}"
        )
    check_choice("annealed_evidence", "target", target, ("bound", "model"))
    check_choice("annealed_evidence", "start", start, ("guide", "prior"))
    if (why := why_no_evidence(guide)) is not None:
        raise TypeError(f"annealed_evidence: {why}")
    call = checked_call("annealed_evidence", model, guide, args, kwargs)
    check_data("annealed_evidence", model, call)
    set_up_guide(key, guide, call)
    needed = guide if start == "guide" or guide.other_sites else None
    params = checked_params("annealed_evidence", params, model, needed, call)
    # The seventh key is left out, so that estimates of version 0.2 stay.
    key_noise, key_base, key_start, key_pilot_start, key_pilot, key_run, _, key_last = random.split(
        key, 8
    )
    begin = start_at_prior if start == "prior" else start_at_guide
    base, params = begin(key_base, guide, params, call)
    partition, data = Partition.split(model, call, base)
    noise_sites, others, estimated = _other_sites(base, params, call)
    sites = {n: jnp.zeros(layer.shape) for n, layer in base.layers.items()}
    sites |= {n: jnp.zeros(shape) for n, shape in others.items()}
    if target == "model":
        sites |= {n: jnp.zeros(shape) for n, shape in noise_sites.items()}
    noisy = target == "bound" and bool(noise_sites or estimated)
    G, B = num_islands, num_particles // num_islands
    noise = random.split(key_noise, (G + 1, num_noise if noisy else 1))  # the last: the pilot's
    path, arrays = Target(base, partition, target, leapfrogs, sites, others), Arrays(params, data)
    noises = jnp.repeat(noise[:G], B, axis=0)
    # Step sizes and temperatures that depend on the particles they move would bias the weights.
    pilot_z = random.normal(key_pilot_start, (min(num_particles, _PILOT), path.dim))
    z = random.normal(key_start, (G, B, path.dim))
    with Progress(progress, None, "anneal: pilot", "temperatures") as bar:
        plan = pilot(key_pilot, path, pilot_z, noise[-1], arrays, temperatures, bar)
    with Progress(progress, len(plan.sizes), "anneal", "temperatures") as bar:
        forward = anneal(key_run, path, z, noise[:G], plan, arrays, bar)
    weights, ratio = forward.log_weights, _by_island(forward.points.ratio, G)
    if noisy:
        fresh = random.split(key_last, (num_particles, _CORRECTION_SETS, num_noise))
        correction = path.noise_correction(forward.points.z, noises, fresh, arrays)
        correction = _by_island(correction, G)
        weights, ratio = weights + correction, ratio + correction
    found = estimate(weights, forward.ancestors)
    messages = doubts(found, forward, ratio)
    for message in messages:
        warnings.warn(f"annealed_evidence: {message}", stacklevel=2)
    latents = path.latents(forward.points.z, noises, arrays)
    draws = {n: np.asarray(a) for n, a in latents.items() if not n.startswith("_auto_")}
    return AnnealedEvidence(*found, draws, plan.betas, forward.acceptance, messages)


def _by_island(values: Array, islands: int) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(islands, -1)


def _other_sites(
    base: LayerGuide, params: Params, call: Call
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]], bool]:
    """Return shapes of hidden layers' noise and of other sites, and if densities are estimates."""
    sites = survey(handlers.substitute(base.model, data=params), call)
    for name, site in sites.items():
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"annealed_evidence: plate {name!r} is subsampled; leave out batch_size: the "
                "evidence needs all rows"
            )
    latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    noise = {n: s["fn"].shape() for n, s in latent.items() if s["infer"].get("is_auxiliary")}
    with alone(), handlers.substitute(data=params):
        others = base.other_sites.noise_shapes(call)
    observed = [as_observed(s["fn"]) for s in sites.values() if s["type"] == "sample"]
    return noise, others, any(o is not None and o.estimated for o in observed)
