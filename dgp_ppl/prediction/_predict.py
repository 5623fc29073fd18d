"""Posterior predictive distributions, in the units of the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer.mcmc import MCMC

from dgp_ppl._checks import (
    as_array,
    check_count,
    check_inputs,
    check_key,
    check_kind,
    checked_call,
    is_traced,
    warn_if_blurred,
)
from dgp_ppl._partition import Call, Partition, default_floats
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference import Chains
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inference.programs._rows import arrays_with_rows
from dgp_ppl.inference.samplers._chains import draws_of
from dgp_ppl.linalg._precision import precision_of
from dgp_ppl.prediction._arrays import BLOCK
from dgp_ppl.prediction._passes import ForwardPass
from dgp_ppl.prediction._prediction import Prediction
from dgp_ppl.standardize import Standardizer

_FAR = 1e3  # inputs below may be close to each other, as of an optimiser
_MAX_ROWS = 100_000  # rows times passes in memory at once
_MANY = 1024  # rows, which run in small blocks; more run in blocks of so many


def predict(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params | Fitted,
    x: ArrayLike,
    *args: Any,
    num_samples: int = 100,
    standardizer: Standardizer | None = None,
    posterior_samples: Mapping[str, ArrayLike] | Chains | MCMC | None = None,
    site: str = "y",
    chunk_size: int | None = None,
    **kwargs: Any,
) -> Prediction:
    """Return the posterior predictive distribution of a model at new inputs.

    Each of `num_samples` passes draws the hidden layers and keeps the last layer's Gaussian in
    closed form. The prediction is therefore a mixture of `num_samples` distributions of y. The
    hidden layers' noise is spread evenly over the passes (McKay et al. 1979), which makes means
    exacter. Nothing is computed before it is needed, and rows are processed in chunks of few sizes,
    for each of which a program is compiled once. Models whose rows know each other, or their
    places, have all rows in one chunk::

        p = dgp.predict(key, model, guide, fit.params, x_test)
        p.mean, p.interval(0.9), p.log_prob(y_test)

    `jax.jit`, `jax.vmap` and `jax.grad` can trace this function and every query of its result,
    except `Prediction.crps`. Traced results are JAX arrays in JAX's default dtype, others NumPy's.

    Latent sites in the plate of `site`, or of the `minibatch` that takes x, (such as latent inputs)
    belong to the rows of the fit. Here the rows are new, so these sites are drawn from their
    priors. Those in other plates, such as groups, keep their posterior. For the rows of the fit,
    see `latent_inputs`.

    Args:
        key: random key. The same key gives the same prediction, in any order of the queries.
        model: the model; ``model(x, *args, **kwargs)`` must be a call without y.
        guide: its fitted guide, or None.
        params: the fit's params, or its result.
        x: test inputs, [N, D]; in the units of the data if there is a `standardizer`. They may
            have more axes, [N, ..., D], if the model takes such inputs.
        *args: further arguments of the model. Arrays with one row per row of x, such as an
            exposure, are divided into the same chunks: those that it hands to `minibatch`.
        num_samples: number of passes S. With `posterior_samples`, at most this many draws are
            used, evenly spaced. A mean warns where its Monte Carlo error is above a tenth of the
            predictive sd.
        standardizer: the `Standardizer` of the training data. Inputs and predictions are then in
            the data's units.
        posterior_samples: draws of the latent sites, instead of a guide: `Chains` or NumPyro's
            `MCMC`, whose chains contribute equally many draws each, or its ``get_samples()``.
        site: the observed site; its distribution must be an `observe`.
        chunk_size: most rows in memory at once; by default 100,000 / S.
        **kwargs: keyword arguments of the model.

    Returns:
        A `Prediction`. With neither a guide nor `posterior_samples` it is the prior predictive
        distribution.

    Raises:
        DataError: if x has NaN or infinity.
        TypeError: if `key` is no random key, x holds no numbers, `num_samples` or `chunk_size` is
            not an integer, or the guide is an `AutoLaplaceApproximation`, which runs as a point.
        ValueError: if x is not [N, D], `num_samples` or `chunk_size` is not positive,
            `posterior_samples` has different numbers of draws or comes with a guide, a param is not
            finite, or the names or shapes of params differ from the model's and the guide's.

    The first query of the prediction raises a ValueError if the site is not an `observe`,
    `posterior_samples` lacks a global latent site, or the model returns a number of rows other
    than N (for example because of a `batch_size`).

    Source: Salimbeni and Deisenroth 2017, "Doubly Stochastic Variational Inference for Deep
    Gaussian Processes", section 3.3.
    """
    check_key("predict", key)
    check_count("predict", "num_samples", num_samples)
    x = check_inputs("predict", x)
    call = checked_call("predict", model, guide, (x, *args), kwargs)
    args, kwargs = call.args[1:], call.kwargs
    if chunk_size is not None:
        check_count("predict", "chunk_size", chunk_size)
    check_kind("predict", "site", site, str, "the name of an observed site")
    if standardizer is not None:
        check_kind("predict", "standardizer", standardizer, Standardizer, "a Standardizer")
    elif not is_traced(x) and np.abs(x).max(initial=0) > _FAR:
        warn_if_blurred("predict", x, stacklevel=2)
    inputs = default_floats(x) if standardizer is None else standardizer.inputs(x)
    if inputs.ndim < 2 or not len(inputs):
        raise ValueError(f"predict: x has shape {inputs.shape}, wanted [N, D] with N >= 1")
    draws: dict[str, Any] = {}
    chains = None
    samples = draws_of("predict", posterior_samples, guide)
    if isinstance(samples, Chains):
        chains = samples.spaced(max(1, num_samples // samples.shape[0]))
        samples = chains.get_samples()
        num_samples = chains.shape[0] * chains.shape[1]
    if samples is not None:
        for n, a in samples.items():
            a = as_array("predict", f"posterior_samples[{n!r}]", a)
            # Draws of a run in float64 stay in it; see `in_precision_of_argument`.
            draws[n] = a if a.dtype == np.float64 else jnp.asarray(a)
        totals = sorted({(*a.shape, 0)[0] for a in draws.values()})
        if len(totals) != 1 or not totals[0]:
            raise ValueError(
                f"predict: posterior_samples has {totals or 'no'} draws, wanted the same number of "
                "every site; pass MCMC's get_samples()"
            )
        num_samples = min(num_samples, totals[0])
        kept = np.linspace(0, totals[0] - 1, num_samples).round().astype(int)
        draws = {n: a[kept] for n, a in draws.items()}

    call = Call((inputs, *args), kwargs)
    # A prior, and a sampler that was given no params, have their initial values.
    initial = guide is None and (not draws or params == {})
    params = checked_params("predict", params, model, guide, call, new_rows=True, prior=initial)
    found, most = arrays_with_rows("predict", model, call)
    with precision_of((draws, params)):  # rows that the model is given decide it, to the last digit
        partition, data = Partition.split(model, Call(args, kwargs), guide)
    by_row = jax.tree.map(lambda a: False, data)  # the guide's arrays among them
    by_row = by_row._replace(args=found.args[1:], kwargs=found.kwargs)
    block = BLOCK if len(inputs) <= _MANY else _MANY
    block = block if block <= most else len(inputs)
    chunk = min(block, chunk_size or max(1, _MAX_ROWS // num_samples))
    if chunk < len(inputs) and (most == 0 or (most == 1 and chunk_size is None)):
        warnings.warn(
            "predict: the model may compute rows from other rows, or from their places, and rows "
            f"in chunks of {chunk} know no others, wanted chunk_size={len(inputs)}, or x handed to "
            "dgp_ppl.minibatch and used inside it alone",
            stacklevel=2,
        )
    return Prediction(
        key=key,
        forward_pass=ForwardPass(partition, site),
        params=params,
        data=data,
        by_row=by_row,
        x=inputs,
        draws=draws,
        num_samples=num_samples,
        chunk_size=chunk,
        standardizer=standardizer,
        chains=chains,
    )
