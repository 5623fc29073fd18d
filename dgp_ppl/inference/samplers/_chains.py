"""Draws of a Markov chain Monte Carlo run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from numpyro.infer.mcmc import MCMC

from dgp_ppl.inference.runs._pickling import Portable
from dgp_ppl.inference.runs._summary import Summarized, list_arrays

__all__ = ["Chains"]


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
    """

    samples: dict[str, np.ndarray]
    fields: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    state: Any = None
    steps: int = 0
    seconds: float = 0.0
    log_weights: np.ndarray | None = None

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
