"""Groups of an ArviZ tree that several checks read."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from dgp_ppl.inferencedata import passes_factor

__all__ = [
    "arviz_stats",
    "in_float64",
    "log_likelihood_name",
    "observed_and_draws",
    "warn_about_passes",
    "warn_about_rows",
]


def arviz_stats() -> Any:
    """Import ArviZ's statistics, which its type stubs load lazily."""
    import arviz_stats

    return arviz_stats


def log_likelihood_name(tree: Any, name: str | None, caller: str) -> str:
    """Return the variable of the group ``log_likelihood``; `name` is optional if there is one."""
    if "log_likelihood" not in tree.children:
        raise ValueError(
            f"{caller}: the tree has groups {list(tree.children)}, wanted log_likelihood; convert "
            "by to_inferencedata with a guide or posterior_samples"
        )
    names = list(tree["log_likelihood"].data_vars)
    if name is None and len(names) == 1:
        return str(names[0])
    if name not in names:
        raise ValueError(f"{caller}: var_name is {name!r}, wanted one of {names}")
    return str(name)


def in_float64(tree: Any, name: str) -> Any:
    """Return the tree with a log-likelihood in float64.

    In float32 the smallest weights of PSIS underflow if a row's log-likelihood spreads over more
    than about 100 nats, and ArviZ's LOO is then NaN.
    """
    if tree["log_likelihood"][name].dtype == np.float64:
        return tree
    import xarray

    group = tree["log_likelihood"].to_dataset()
    group[name] = group[name].astype(np.float64)
    tree = tree.copy()
    tree["log_likelihood"] = xarray.DataTree(group)
    return tree


def warn_about_rows(tree: Any, name: str) -> None:
    """Warn where the log-likelihood is conditional on a row's own latent inputs."""
    if tree["log_likelihood"].attrs.get("latent_rows") == "given":
        warnings.warn(
            "the log-likelihood is conditional on each row's own latent inputs, so LOO does not "
            "leave out whole rows; convert with latent_rows='integrated'",
            UserWarning,
            stacklevel=3,
        )


def warn_about_passes(tree: Any, name: str, se: float) -> None:
    """Warn where the passes over hidden noise are too few for LOO or WAIC.

    Args:
        tree: an ArviZ tree.
        name: the observed site.
        se: standard error of LOO or WAIC.
    """
    attributes = tree["log_likelihood"].attrs
    integrated = (attributes.get("hidden_noise"), attributes.get("latent_rows"))
    if "integrated" not in integrated:
        return
    passes = attributes.get("passes", 1)
    bias = float(tree["log_likelihood"][name].attrs.get("loo_bias", math.nan))
    what = "hidden layers' noise" if integrated[0] == "integrated" else "latent inputs"
    if math.isnan(bias):  # of a single pass, or where p is 0 in all passes
        size, wanted = "an unknown bias", f"passes={10 * passes} or more in to_inferencedata"
    elif (factor := passes_factor(bias, se)) > 1:
        size = f"an estimated bias of {-bias:.2g} nats, more than a tenth of the error {se:.2g}"
        wanted = f"passes={factor * passes} in to_inferencedata"
    else:
        return
    warnings.warn(
        f"the log-likelihood integrates over {what} by passes={passes}, which gives LOO and WAIC "
        f"{size}; set {wanted}",
        UserWarning,
        stacklevel=3,
    )


def observed_and_draws(
    tree: Any, name: str | None, group: str, caller: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return y, [N, ...], and draws of it, [S, N, ...]."""
    observed = "predictions_constant_data" if group == "predictions" else "observed_data"
    missing = [g for g in (group, observed) if g not in tree.children]
    if missing:
        raise ValueError(
            f"{caller}: the tree has groups {list(tree.children)}, wanted {missing[0]} too"
        )
    names = [n for n in tree[group].data_vars if n in tree[observed].data_vars]
    if name is None and len(names) == 1:
        name = str(names[0])
    if name not in names:
        raise ValueError(f"{caller}: var_name is {name!r}, wanted one of {names}")
    y, draws = tree[observed][name].values, tree[group][name].values
    return y, draws.reshape(-1, *draws.shape[2:])
