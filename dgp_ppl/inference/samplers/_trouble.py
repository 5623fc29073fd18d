"""Signs that the draws of a run are not the posterior's: values and steps that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dgp_ppl.inference.samplers._chains import Chains

__all__ = ["ChainLine", "run_lines", "stuck_sites"]

ChainLine = tuple[str, str, str, str]
"""What was looked at, its value, the verdict ("good", "look" or "bad"), and what to do."""

_FEW = 10  # draws of a chain, all of which may be equal after some rejections
_SMALL_STEP = 1e-5  # relative to the scales of the coordinates
_MANY_STEPS = 1023  # of a trajectory: the most that NUTS takes by default
_ALL_ACCEPTED = 0.998
_TEMPERATURES = (0.8, 1.25)
_BATCHES = 20  # of temperatures, which depend on each other
_STILL = (
    "float32 may not resolve the density there: use float64 (jax_enable_x64), fewer inducing "
    "inputs than rows, or fixed hyperparameters (dgp_ppl.freeze); or start elsewhere (init_params)"
)
_SHORT = (
    "steps are too short for the posterior: warm up for longer, in float64, or in the reference "
    "space of a fit (dgp_ppl.transported)"
)
_HOT = "Try a longer num_warmup (more steps in fit_mcem), or SGHMC with a smaller step_size"


def stuck_sites(chains: Chains) -> dict[str, str]:
    """Return the sites whose draws are not finite or stand still, and which of both.

    A site stands still if, in one chain, all of its values are constant that change somewhere. So
    values that are constant by design, such as zeros of a triangular matrix, do not count.
    """
    found, few, moves = {}, chains.shape[1] < _FEW, False
    for name, draws in chains.samples.items():
        flat = np.asarray(draws).reshape(*chains.shape, -1)
        changing = flat[..., (flat != flat[0, 0]).any(axis=(0, 1))]
        still = (changing == changing[:, :1]).all(axis=(1, 2))
        moves |= changing.size > 0
        if not np.isfinite(flat).all():
            found[name] = "not finite"
        elif changing.size and still.any() and not few:
            found[name] = f"constant in chains {np.flatnonzero(still).tolist()}"
    return found if moves or few else dict.fromkeys(chains.samples, "constant in all chains")


def run_lines(chains: Chains) -> Iterator[ChainLine]:
    """Yield what the draws, the kernel's statistics and its last state say about a run."""
    if not chains.samples or chains.log_weights is not None:
        return
    if stuck := stuck_sites(chains):
        sites = "; ".join(f"{name} is {what}" for name, what in stuck.items())
        yield "draws", sites, "bad", _STILL
    state: Any = getattr(chains.state, "hmc_state", chains.state)
    settings = getattr(state, "parameters", {})
    size = getattr(getattr(state, "adapt_state", None), "step_size", settings.get("step_size", 1.0))
    if (least := float(np.min(size))) < _SMALL_STEP:
        yield "step size", f"the step size is {least:.1g}{_slowest(chains)}", "bad", _STILL
    steps = np.asarray(chains.fields.get("num_steps", getattr(state, "num_steps", 0)))
    if (share := float(np.mean(steps >= _MANY_STEPS))) > 0.1:
        value = f"{share:.0%} of the draws take {_MANY_STEPS} steps{_slowest(chains)}"
        yield "leapfrog steps", value, "bad" if share > 0.9 else "look", _SHORT
    rate = float(np.mean(chains.fields.get("accept_prob", getattr(state, "mean_accept_prob", 0))))
    if rate > _ALL_ACCEPTED and chains.shape[1] >= _FEW:
        yield "acceptance", f"acceptance is {rate:.3f}{_slowest(chains)}", "bad", _SHORT
    temperature = np.asarray(chains.fields.get("temperature", ()), np.float64).ravel()
    diverging = float(np.mean(chains.fields.get("diverging", 0)))
    if diverging:
        bad = diverging > (0.01 if temperature.size else 0.1)
        cure = _HOT if temperature.size else "raise target_accept_prob; keep scales from zero"
        yield "divergences", f"{diverging:.2g} of the draws diverge", "bad" if bad else "look", cure
    if temperature.size >= _BATCHES:
        means = np.array([part.mean() for part in np.array_split(temperature, _BATCHES)])
        mean, error = means.mean(), means.std(ddof=1) / np.sqrt(_BATCHES)
        bad = not _TEMPERATURES[0] < mean < _TEMPERATURES[1] and abs(mean - 1) > 4 * error
        value = f"their mean kinetic temperature is {mean:.2f}, wanted about 1"
        yield "temperature", value, "bad" if bad else "good", _HOT if bad else ""


def _slowest(chains: Chains) -> str:
    """Name the site with the value that moves least from draw to draw, relative to its spread."""
    moves = {}
    for name, draws in chains.samples.items():
        flat = np.asarray(draws, np.float64).reshape(*chains.shape, -1)
        spread = flat.var(axis=(0, 1))
        step = np.square(np.diff(flat, axis=1)).mean(axis=(0, 1))[spread > 0]
        moves[name] = np.min(step / spread[spread > 0], initial=np.inf)
    return f" ({min(moves, key=lambda name: moves[name])} moves least)"
