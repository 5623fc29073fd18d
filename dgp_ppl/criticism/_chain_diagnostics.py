"""Convergence diagnostics of MCMC chains."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgp_ppl._checks import check_kind
from dgp_ppl.inference import Chains
from dgp_ppl.inference.runs._lines import Line, checked
from dgp_ppl.inference.samplers._chains import run_lines, stuck_sites


def chain_diagnostics(chains: Chains) -> dict[str, float | int | str | None]:
    """Return how well chains have mixed: the worst value over all latent entries.

    Args:
        chains: the chains.

    Returns:
        ``rhat``: largest rank-normalised split R-hat (Vehtari et al. 2021), or None for one chain,
        or for weighted draws, whose islands are no chains. It is infinite if a site is stuck.
        ``ess``: smallest bulk effective sample size of all chains together; of weighted draws the
        number of equal weights that theirs are worth. The word "stuck" if the draws of a site are
        not finite, or constant in a chain.
        ``rhat_site``, ``ess_site``: the sites that they are of, or None.
        ``divergences``: number of draws at which the sampler diverged, or None if it reports none.
    """
    check_kind("chain_diagnostics", "chains", chains, Chains, "Chains, as run_mcmc returns")
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    axes = {"chain_axis": 0, "draw_axis": 1}
    rhats: dict[str, float] = {}
    sizes: dict[str, float] = {}
    stuck = [] if chains.log_weights is not None else list(stuck_sites(chains))
    for name, draws in chains.samples.items():
        flat = draws.reshape(*chains.shape, -1).astype(np.float64)
        flat = flat[..., np.ptp(flat, axis=(0, 1)) > 0]  # drops constant entries
        if name in stuck:
            rhats[name], sizes[name] = np.inf, 0.0
        elif flat.size and chains.log_weights is None:
            rhats[name] = float(np.max(statistics.rhat(flat, **axes)))
            sizes[name] = float(np.min(statistics.ess(flat, **axes)))
    rhats = {} if chains.shape[0] == 1 else {n: a for n, a in rhats.items() if not np.isnan(a)}
    sizes = {n: a for n, a in sizes.items() if not np.isnan(a)}
    rhat_site = max(rhats, key=lambda n: rhats[n], default=None)
    ess_site = min(sizes, key=lambda n: sizes[n], default=None)
    ess = "stuck" if stuck else None if ess_site is None else sizes[ess_site]
    diverging = chains.fields.get("diverging")
    return {
        "rhat": None if rhat_site is None else rhats[rhat_site],
        "ess": ess if chains.log_weights is None else chains.worth,
        "rhat_site": rhat_site,
        "ess_site": ess_site,
        "divergences": None if diverging is None else int(diverging.sum()),
    }


def chain_lines(chains: Chains) -> list[Line]:
    """Return the lines of `check_fit` about chains: a run's statistics, R-hat and sample size."""
    lines, found = list(run_lines(chains)), chain_diagnostics(chains)
    for what, name, sign in (("R-hat", "rhat", 1), ("ESS", "ess", -1)):
        value, site = found[name], found[f"{name}_site"]
        if isinstance(value, float | int) and np.isfinite(value):
            text = f"{value:.4g}" + (f" of {site}" if site else "")
            lines.append(checked(what, sign * value, text))
    return lines
