"""From a fit to ArviZ."""

from typing import Any

import jax
import numpy as np
import numpyro
from jax import random
from jax.typing import ArrayLike

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.fit import FitResult
from dgp_ppl.predict import Prediction

__all__ = ["to_inferencedata"]


def to_inferencedata(
    key: PRNGKey,
    prediction: Prediction,
    y: ArrayLike,
    *,
    result: FitResult | None = None,
    test: Prediction | None = None,
    y_test: ArrayLike | None = None,
    x: ArrayLike | None = None,
    x_test: ArrayLike | None = None,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """An ArviZ data tree of a fitted model.

    Every draw is a pass of the prediction. Groups: ``posterior`` (latent sites),
    ``posterior_predictive`` and ``log_likelihood`` (log p(y_n | pass), whose mean over draws in
    density is the predictive density) at the FULL training data, ``observed_data``,
    ``constant_data``; with `test` also ``predictions`` and ``predictions_constant_data``; with
    `result` also ``fit`` (the loss of every step, and the params). Values of y are in the data's
    units if the prediction has a standardizer.

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
    latents = {n: a[None] for n, a in prediction.latent_draws().items()}
    groups: dict[str, dict[str, Any]] = {
        "posterior": latents,
        "posterior_predictive": {"y": prediction.sample_by_pass(key_train)[None]},
        "log_likelihood": {"y": prediction.log_prob_by_pass(y)[None]},
        "observed_data": {"y": np.asarray(y)},
    }
    if x is not None:
        groups["constant_data"] = {"x": np.asarray(x)}
    if test is not None:
        groups["predictions"] = {"y": test.sample_by_pass(key_test)[None]}
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
        for name, value in result.params.items():
            array = np.asarray(value)
            axes = tuple(f"{name}.dim_{i}" for i in range(array.ndim))
            variables[name] = (axes, array)
        tree["fit"] = xarray.DataTree(xarray.Dataset(variables))
        tree["fit"].attrs["num_data"] = result.num_data
    versions = {"numpyro_version": numpyro.__version__, "jax_version": jax.__version__}
    tree.attrs.update({"inference_library": "dgp_ppl", **versions, **dict(attrs or {})})
    return tree


def _dims(name: str, ndim: int) -> list[str]:
    """Named dimensions of a latent site: inducing values are [M, P] of their own layer."""
    if name.endswith(".v") and ndim == 2:
        layer = name.removesuffix(".v")
        return [f"{layer}.inducing", f"{layer}.output"]
    return [f"{name}.dim_{i}" for i in range(ndim)]
