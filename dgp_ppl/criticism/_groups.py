"""Groups of an ArviZ tree that several checks read."""

import warnings
from typing import Any

import numpy as np

__all__ = ["arviz_stats", "log_likelihood_name", "observed_and_draws", "warn_about_rows"]

_MAX_ERROR = 0.1  # nats of Monte Carlo error per row, above which LOO cannot be trusted


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


def warn_about_rows(tree: Any, name: str) -> None:
    """Warn where the log-likelihood still contains a row's own latent inputs or noise."""
    attributes = tree["log_likelihood"].attrs
    if attributes.get("latent_rows") == "given":
        warnings.warn(
            "the log-likelihood is conditional on each row's own latent inputs, so LOO does not "
            "leave out whole rows; convert with latent_rows='integrated'",
            UserWarning,
            stacklevel=3,
        )
    error = float(tree["log_likelihood"][name].attrs.get("noise_error", 0.0))
    single = attributes.get("hidden_noise") == "integrated" and attributes.get("passes") == 1
    if error > _MAX_ERROR or single:
        size = "an unknown error" if single else f"an error of {error:.2g} nats a row"
        warnings.warn(
            "the log-likelihood integrates over hidden layers' noise by "
            f"{attributes.get('passes')} passes, with {size}; convert with more passes",
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
