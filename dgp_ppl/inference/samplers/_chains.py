"""Draws of a Markov chain Monte Carlo run, and signs that they are not the posterior's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.infer.mcmc import MCMC

from dgp_ppl._checks import as_array, check_kind
from dgp_ppl.inference.runs._lines import Line
from dgp_ppl.inference.runs._pickling import Portable
from dgp_ppl.inference.runs._summary import Summarized, list_arrays

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
_HOT = "try a longer num_warmup (more steps in fit_mcem), or SGHMC with a smaller step_size"


@dataclasses.dataclass(frozen=True, repr=False)
class Chains(Summarized, Portable):
    """Draws of a Markov chain Monte Carlo run. They can be pickled.

    Attributes:
        samples: draws of the latent sites, [C, S, ...] each.
        fields: other fields of the kernel's state at each draw, [C, S].
        state: the kernel's state of all chains after the last step.
        steps: steps of each chain, including warm-up.
        seconds: wall-clock time of this call.
        log_weights: log weights of the draws, up to a constant, [C, S]; None where all are equal.
            `spaced` turns them into draws of equal weights, as do `predict` and
            `to_inferencedata`; `get_samples` leaves them out of account.

    Raises:
        TypeError: if `samples` is no dict.
        ValueError: if the draws' or the weights' shapes differ, or no weight is positive.
    """

    samples: dict[str, np.ndarray]
    fields: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    state: Any = None
    steps: int = 0
    seconds: float = 0.0
    log_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        wanted = "a dict of draws by site, [C, S, ...] each"
        check_kind("Chains", "samples", self.samples, Mapping, wanted)
        shapes = {np.shape(a)[:2] for a in self.samples.values()}
        if len(shapes) > 1 or any(len(shape) < 2 for shape in shapes):
            raise ValueError(f"Chains: samples begin with axes {sorted(shapes)}, wanted {wanted}")
        if self.log_weights is None:
            return
        w = np.asarray(as_array("Chains", "log_weights", self.log_weights))
        if {w.shape} != shapes or not np.isfinite(w.max(initial=-np.inf)):
            raise ValueError(
                f"Chains: log_weights has shape {w.shape} and samples begin with axes "
                f"{sorted(shapes)}, wanted the same ones, and numbers below infinity, not all -inf"
            )

    @staticmethod
    def from_mcmc(mcmc: MCMC) -> Chains:
        """Convert the result of a finished NumPyro `MCMC`.

        Raises:
            ValueError: if the MCMC has not run.
        """
        last: Any = mcmc.last_state
        if last is None:
            raise ValueError("Chains.from_mcmc: this MCMC has not run yet; call its run(...) first")
        samples, fields = (
            {n: np.asarray(a) for n, a in get(group_by_chain=True).items()}
            for get in (mcmc.get_samples, mcmc.get_extra_fields)
        )
        if mcmc.num_chains == 1:  # NumPyro drops the chains' axis of a single chain's state
            last = jax.tree.map(lambda a: a[None], last)
        steps = mcmc.num_warmup + mcmc.num_samples
        return Chains(samples, fields, last, steps, 0.0)

    def summary(self) -> list[str]:
        steps = f", {self.steps} steps of each in {self.seconds:.3g} s" if self.steps else ""
        if not self.samples:
            return [f"no draws{steps}"]
        chains, draws = self.shape
        fields = list_arrays("fields", self.fields, 2) if self.fields else []
        weighted = "" if self.log_weights is None else f", weighted, worth {self.worth:.3g}"
        first = f"{chains} chain{'s' * (chains > 1)} of {draws} draws{weighted}{steps}"
        return [first, *list_arrays("samples", self.samples, 2), *fields]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of chains C, and of draws S in each."""
        chains, draws = next(iter(self.samples.values())).shape[:2]
        return chains, draws

    @property
    def worth(self) -> float:
        """The number of draws of equal weights that the weighted draws are worth."""
        if self.log_weights is None:
            return float(math.prod(self.shape))
        weights = np.exp(np.asarray(self.log_weights, np.float64) - np.max(self.log_weights))
        return float(weights.sum() ** 2 / np.sum(weights**2))

    def spaced(self, num: int) -> Chains:
        """Thin every chain to `num` evenly spaced draws, or keep all if there are fewer.

        Weighted draws are resampled to equal weights: systematically over the draws of all chains
        in their order, without random numbers. A draw whose normalised weight is w is there w C
        `num` times, rounded up or down. So a chain that carries more of the weight fills more than
        its place. The weight that a draw had is its field ``log_weight``.
        """
        chains, total = self.shape
        num = min(num, total)
        fields = dict(self.fields)
        # Positions among all draws, [C, num].
        rows = np.linspace(0, total - 1, num).round().astype(int)
        rows = rows + total * np.arange(chains)[:, None]
        if self.log_weights is not None:
            fields["log_weight"] = self.log_weights
            log_weights = np.asarray(self.log_weights, np.float64).ravel()
            edges = np.cumsum(np.exp(log_weights - log_weights.max()))
            at = (np.arange(chains * num) + 0.5) / (chains * num) * edges[-1]
            rows = np.searchsorted(edges, at).reshape(chains, num)
        samples, fields = (
            {n: a.reshape(-1, *a.shape[2:])[rows] for n, a in draws.items()}
            for draws in (self.samples, fields)
        )
        return dataclasses.replace(self, samples=samples, fields=fields, log_weights=None)

    def get_samples(self, group_by_chain: bool = False) -> dict[str, np.ndarray]:
        """Return draws as NumPyro's `MCMC` does: [C S, ...], or [C, S, ...] if grouped."""
        if group_by_chain:
            return self.samples
        return {n: a.reshape(-1, *a.shape[2:]) for n, a in self.samples.items()}


def stuck_sites(chains: Chains) -> dict[str, str]:
    """Return the sites whose draws are not finite or stand still, and which of both.

    A site stands still if, in one chain, all of its values are constant that change somewhere. So
    values that are constant by design, such as zeros of a triangular matrix, do not count. Nor do
    discrete sites: an indicator may well have one value in a chain.
    """
    found, few, moves = {}, chains.shape[1] < _FEW, False
    continuous = {n: a for n, a in chains.samples.items() if np.issubdtype(a.dtype, np.floating)}
    for name, draws in continuous.items():
        flat = np.asarray(draws).reshape(*chains.shape, -1)
        changing = flat[..., (flat != flat[0, 0]).any(axis=(0, 1))]
        still = (changing == changing[:, :1]).all(axis=(1, 2))
        moves |= changing.size > 0
        if not np.isfinite(flat).all():
            found[name] = "not finite"
        elif changing.size and still.any() and not few:
            found[name] = f"constant in chains {np.flatnonzero(still).tolist()}"
    return found if moves or few else dict.fromkeys(continuous, "constant in all chains")


def run_lines(chains: Chains) -> Iterator[Line]:
    """Yield what the draws, the kernel's statistics and its last state say about a run."""
    if not chains.samples or chains.log_weights is not None:
        return
    if stuck := stuck_sites(chains):
        sites = "; ".join(f"{name} is {what}" for name, what in stuck.items())
        yield Line("draws", sites, "bad", _STILL)
    state: Any = getattr(chains.state, "hmc_state", chains.state)
    settings = getattr(state, "parameters", {})
    size = getattr(getattr(state, "adapt_state", None), "step_size", settings.get("step_size", 1.0))
    if (least := float(np.min(size))) < _SMALL_STEP:
        yield Line("step size", f"the step size is {least:.1g}{_slowest(chains)}", "bad", _STILL)
    steps = np.asarray(chains.fields.get("num_steps", getattr(state, "num_steps", 0)))
    if (share := float(np.mean(steps >= _MANY_STEPS))) > 0.1:
        value = f"{share:.0%} of the draws take {_MANY_STEPS} steps{_slowest(chains)}"
        yield Line("leapfrog steps", value, "bad" if share > 0.9 else "look", _SHORT)
    rate = float(np.mean(chains.fields.get("accept_prob", getattr(state, "mean_accept_prob", 0))))
    if rate > _ALL_ACCEPTED and chains.shape[1] >= _FEW:
        yield Line("acceptance", f"acceptance is {rate:.3f}{_slowest(chains)}", "bad", _SHORT)
    temperature = np.asarray(chains.fields.get("temperature", ()), np.float64).ravel()
    diverging = float(np.mean(chains.fields.get("diverging", 0)))
    if diverging:
        bad = diverging > 0.01 if temperature.size else diverging > 0.1 and chains.shape[1] >= _FEW
        cure = _HOT if temperature.size else "raise target_accept_prob; keep scales from zero"
        value = f"{diverging:.2g} of the draws diverge"
        yield Line("divergences", value, "bad" if bad else "look", cure)
    if temperature.size >= _BATCHES:
        means = np.array([part.mean() for part in np.array_split(temperature, _BATCHES)])
        mean, error = means.mean(), means.std(ddof=1) / np.sqrt(_BATCHES)
        bad = not _TEMPERATURES[0] < mean < _TEMPERATURES[1] and abs(mean - 1) > 4 * error
        value = f"their mean kinetic temperature is {mean:.2f}, wanted about 1"
        yield Line("temperature", value, "bad" if bad else "good", _HOT if bad else "")


def _slowest(chains: Chains) -> str:
    """Name the site with the value that moves least from draw to draw, relative to its spread."""
    moves = {}
    for name, draws in chains.samples.items():
        flat = np.asarray(draws, np.float64).reshape(*chains.shape, -1)
        spread = flat.var(axis=(0, 1))
        step = np.square(np.diff(flat, axis=1)).mean(axis=(0, 1))[spread > 0]
        moves[name] = np.min(step / spread[spread > 0], initial=np.inf)
    return f" ({min(moves, key=lambda name: moves[name])} moves least)"


def draws_of(caller: str, samples: Any, guide: Any = None) -> Any:
    """Return posterior samples: None, `Chains`, also of NumPyro's `MCMC`, or a dict by site."""
    if guide is not None and samples is not None:
        raise ValueError(
            f"{caller}: got a guide and posterior_samples, wanted draws from one of them; pass "
            "guide=None"
        )
    if isinstance(samples, MCMC):
        return Chains.from_mcmc(samples)
    kinds, wanted = Mapping | Chains | None, "Chains, an MCMC, or a dict of draws by site"
    check_kind(caller, "posterior_samples", samples, kinds, wanted)
    return samples
