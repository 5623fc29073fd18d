"""Convergence diagnostics of MCMC chains."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgp_ppl.inference import Chains

__all__ = ["chain_diagnostics"]


def chain_diagnostics(chains: Chains) -> dict[str, float | int | None]:
    """Return how well chains have mixed: the worst value over all latent entries.

    Args:
        chains: the chains.

    Returns:
        For draws that are not all finite ``rhat`` is infinite and ``ess`` zero.

        ``rhat``: largest rank-normalised split R-hat (Vehtari et al. 2021), or None for one chain,
        or for weighted draws, whose islands are no chains.
        ``ess``: smallest bulk effective sample size of all chains together; of weighted draws the
        number of equal weights that theirs are worth.
        ``divergences``: number of draws at which the sampler diverged, or None if it reports none.
    """
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    axes = {"chain_axis": 0, "draw_axis": 1}
    rhats, sizes = [], []
    for draws in chains.samples.values():
        flat = draws.reshape(*chains.shape, -1).astype(np.float64)
        if not np.isfinite(flat).all():
            rhats.append(np.inf)
            sizes.append(0.0)
            continue
        flat = flat[..., np.ptp(flat, axis=(0, 1)) > 0]  # drops constant entries
        if flat.size and chains.log_weights is None:
            rhats.append(np.max(statistics.rhat(flat, **axes)))
            sizes.append(np.min(statistics.ess(flat, **axes)))
    if chains.log_weights is not None:
        sizes.append(chains.worth)
    found = {"rhat": float(np.max(rhats or [np.nan])), "ess": float(np.min(sizes or [np.nan]))}
    known: dict[str, float | int | None] = {n: None if np.isnan(a) else a for n, a in found.items()}
    diverging = chains.fields.get("diverging")
    return known | {"divergences": None if diverging is None else int(diverging.sum())}
