"""From a fit, or chains, to ArviZ."""

from typing import Any

import jax
import numpy as np
import numpyro
from jax import random
from jax.typing import ArrayLike

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.fit import FitResult
from dgp_ppl.inference.mcem import MCEMResult
from dgp_ppl.inference.mcmc import Chains
from dgp_ppl.predict import Prediction

__all__ = ["chain_diagnostics", "to_inferencedata"]

# NumPyro's names of what a sampler tells of a draw, and ArviZ's.
_SAMPLE_STATS = {
    "accept_prob": "acceptance_rate",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
}


def chain_diagnostics(chains: Chains) -> dict[str, float | int | None]:
    """How well chains have mixed: the worst number of any latent value.

    Returns:
        ``rhat``, the largest rank-normalised split R-hat (Vehtari et al. 2021; None for a single
        chain); ``ess``, the smallest bulk effective sample size of all chains together; and
        ``divergences``, draws at which the sampler diverged.
    """
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    axes = {"chain_axis": 0, "draw_axis": 1}
    rhats, sizes = [], []
    for draws in chains.samples.values():
        flat = draws.reshape(*chains.shape, -1).astype(np.float64)
        flat = flat[..., np.ptp(flat, axis=(0, 1)) > 0]  # a triangle's zeros, say, never move
        if flat.size:
            rhats.append(np.max(statistics.rhat(flat, **axes)))
            sizes.append(np.min(statistics.ess(flat, **axes)))
    found = {"rhat": float(np.max(rhats or [np.nan])), "ess": float(np.min(sizes or [np.nan]))}
    known: dict[str, float | int | None] = {
        n: a if np.isfinite(a) else None for n, a in found.items()
    }
    diverging = chains.fields.get("diverging")
    return known | {"divergences": None if diverging is None else int(diverging.sum())}


def to_inferencedata(
    key: PRNGKey,
    prediction: Prediction,
    y: ArrayLike,
    *,
    result: FitResult | MCEMResult | None = None,
    test: Prediction | None = None,
    y_test: ArrayLike | None = None,
    x: ArrayLike | None = None,
    x_test: ArrayLike | None = None,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """An ArviZ data tree of a fitted model.

    Every draw is a pass of the prediction; with its ``posterior_samples`` from `Chains` they are
    those of several chains, and ``sample_stats`` what the sampler told of them. Groups:
    ``posterior`` (latent sites), ``posterior_predictive`` and ``log_likelihood`` (log p(y_n |
    pass), whose mean over draws in density is the predictive density) at the FULL training data,
    ``observed_data``, ``constant_data``; with `test` also ``predictions`` and
    ``predictions_constant_data``; with `result` also ``fit`` (the loss of every step, and the
    params). Values of y are in the data's units if the prediction has a standardizer.

    Args:
        key: random key of the draws of y.
        prediction: `predict` at the training inputs.
        y: training targets, [N].
        result: the fit, for its losses and params.
        test: `predict` at held-out inputs.
        y_test: held-out targets, [N*].
        x: training inputs in the data's units, [N, D].
        x_test: held-out inputs in the data's units, [N*, D].
        attrs: attributes of the tree.

    Returns:
        An ``xarray.DataTree``; save it with ``.to_netcdf(path)``.
    """
    import arviz_base
    import xarray

    key_train, key_test = random.split(key)
    chains = prediction.chains
    by_chain = lambda a, p=prediction: a.reshape(_num_chains(p), -1, *a.shape[1:])  # noqa: E731
    latents = {n: by_chain(a) for n, a in prediction.latent_draws().items()}
    groups: dict[str, dict[str, Any]] = {
        "posterior": latents,
        "posterior_predictive": {"y": by_chain(prediction.sample_by_pass(key_train))},
        "log_likelihood": {"y": by_chain(prediction.log_prob_by_pass(y))},
        "observed_data": {"y": np.asarray(y)},
    }
    if chains is not None:
        groups["sample_stats"] = _sample_stats(chains)
    if x is not None:
        groups["constant_data"] = {"x": np.asarray(x)}
    if test is not None:
        groups["predictions"] = {"y": by_chain(test.sample_by_pass(key_test), test)}
        held = {"x": x_test, "y": y_test}
        groups["predictions_constant_data"] = {
            n: np.asarray(a) for n, a in held.items() if a is not None
        }
    dims: dict[str, list[str]] = {n: _dims(n, a.ndim - 2) for n, a in latents.items()}
    dims |= {"y": ["data"], "x": ["data", "input"]}
    pred_dims = {"y": ["test"], "x": ["test", "input"]}
    tree: Any = arviz_base.from_dict(groups, dims=dims, pred_dims=pred_dims)
    if result is not None:
        variables: dict[str, Any] = {"loss": (("step",), result.losses)}
        for name, array in _flat(result.params).items():
            axes = tuple(f"{name}.dim_{i}" for i in range(array.ndim))
            variables[name] = (axes, array)
        tree["fit"] = xarray.DataTree(xarray.Dataset(variables))
        if isinstance(result, FitResult):
            tree["fit"].attrs["num_data"] = result.num_data
    versions = {"numpyro_version": numpyro.__version__, "jax_version": jax.__version__}
    tree.attrs.update({"inference_library": "dgp_ppl", **versions, **dict(attrs or {})})
    return tree


def _flat(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Params by name; the leaves of one that is a tree, such as a network, by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named = {(path[0].key, *path[1:]): leaf for path, leaf in leaves}
    return {n + jax.tree_util.keystr(tuple(p)): np.asarray(a) for (n, *p), a in named.items()}


def _num_chains(prediction: Prediction) -> int:
    return 1 if prediction.chains is None else prediction.chains.shape[0]


def _sample_stats(chains: Chains) -> dict[str, np.ndarray]:
    """What the sampler told of each draw, [C, S] each, by ArviZ's names."""
    stats = {_SAMPLE_STATS.get(n, n): a for n, a in chains.fields.items()}
    if "potential_energy" in stats:
        stats["lp"] = -stats.pop("potential_energy")
    return stats


def _dims(name: str, ndim: int) -> list[str]:
    """Named dimensions of a latent site: inducing values are [M, P] of their own layer."""
    if name.endswith(".v") and ndim == 2:
        layer = name.removesuffix(".v")
        return [f"{layer}.inducing", f"{layer}.output"]
    return [f"{name}.dim_{i}" for i in range(ndim)]
