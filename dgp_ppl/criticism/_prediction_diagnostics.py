"""How well chains have mixed in what predictions see."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from scipy.special import logsumexp

from dgp_ppl._checks import check_count, check_key, check_kind
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.criticism._chain_diagnostics import chain_diagnostics
from dgp_ppl.inference import Chains
from dgp_ppl.inference.samplers._chains import draws_of
from dgp_ppl.prediction import predict
from dgp_ppl.prediction._functionals import log_density_by_pass
from dgp_ppl.standardize import Standardizer

_LEAST_DRAWS = 4  # of a chain, for a split R-hat


def prediction_diagnostics(
    key: PRNGKey,
    model: Model,
    params: Params | Fitted,
    x: ArrayLike,
    y: ArrayLike,
    *args: Any,
    posterior_samples: Chains,
    num_draws: int = 100,
    num_noise: int = 8,
    standardizer: Standardizer | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Return how well chains have mixed in the predictions at fixed rows.

    The latent values of a deep GP have directions along which the function hardly changes, such as
    a shift of a hidden layer that the next layer undoes. Chains are slow there, and R-hat of the
    values may be large where every prediction is right. What each draw predicts at fixed rows,
    log p(y_n | draw), does not depend on such directions::

        prediction_diagnostics(key, model, params, x_test, y_test, posterior_samples=chains)

    Args:
        key: random key.
        model: the model; ``model(x, *args, **kwargs)`` must be a call without y.
        params: its params, or a fit's result.
        x: inputs of the fixed rows, [N, D]; in the data's units if there is a `standardizer`.
        y: their targets, in the same units.
        *args: further arguments of the model.
        posterior_samples: the chains.
        num_draws: draws of each chain to take, at most; evenly spaced.
        num_noise: draws of the hidden layers' noise to average the density of each draw over. All
            draws have the same, so that it does not look like mixing.
        standardizer: the training data's.
        **kwargs: keyword arguments of the model.

    Returns:
        ``rhat_log_density`` and ``ess_log_density``: rank-normalised split R-hat and effective
        sample size of the mean log density of the rows; R-hat is None for one chain. Predictions
        that never change are "stuck", with an infinite R-hat.
        ``rhat_predictions`` and ``ess_predictions``: the worst of single rows. The largest of many
        R-hats is above 1.01 for independent draws too.

    Raises:
        TypeError: if `key` is no random key, a number is not an integer, or `posterior_samples`
            are not `Chains`.
        ValueError: if a number is not positive, there are fewer than four draws of a chain, or as
            `predict` does.
    """
    check_key("prediction_diagnostics", key)
    check_count("prediction_diagnostics", "num_draws", num_draws, _LEAST_DRAWS)
    check_count("prediction_diagnostics", "num_noise", num_noise)
    posterior_samples = draws_of("prediction_diagnostics", posterior_samples)
    wanted = "Chains or an MCMC, which keep the chains apart"
    check_kind("prediction_diagnostics", "posterior_samples", posterior_samples, Chains, wanted)
    if posterior_samples.shape[1] < _LEAST_DRAWS:
        raise ValueError(
            f"prediction_diagnostics: posterior_samples has {posterior_samples.shape[1]} draws of "
            f"each chain, wanted at least {_LEAST_DRAWS}; draw more"
        )
    chains = posterior_samples.spaced(num_draws)
    repeated: dict[str, Any] = {
        n: np.repeat(a, num_noise, axis=0) for n, a in chains.get_samples().items()
    }
    count, draws = chains.shape
    found = predict(
        key, model, None, params, x, *args, num_samples=count * draws * num_noise,
        standardizer=standardizer, posterior_samples=repeated, **kwargs,
    )  # fmt: skip
    # Draws with noise of their own would look as if they had mixed.
    found = dataclasses.replace(found, num_noise=num_noise)
    by_pass = found._log_density(log_density_by_pass, "prediction_diagnostics", y)
    by_pass = np.asarray(by_pass.T, np.float64).reshape(count, draws, num_noise, -1)
    values = np.asarray(logsumexp(by_pass, axis=2))
    rows = chain_diagnostics(Chains({"log p(y)": values}))
    mean = chain_diagnostics(Chains({"log p(y)": values.mean(axis=-1)}))
    return {
        "rhat_predictions": rows["rhat"],
        "ess_predictions": rows["ess"],
        "rhat_log_density": mean["rhat"],
        "ess_log_density": mean["ess"],
    }
