"""Conversion of a fit, MCMC chains or the prior to one ArviZ data tree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np
import numpyro
from jax import random
from jax.typing import ArrayLike

import dgp_ppl
from dgp_ppl._checks import (
    check_choice,
    check_count,
    check_key,
    check_kind,
    checked_call,
    warn_of_nan,
)  # fmt: skip
from dgp_ppl._partition import Call
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl._waiting import Waiting
from dgp_ppl.core import NearRows
from dgp_ppl.inference import Chains, FitResult, MCEMResult
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.inference.samplers._chains import draws_of
from dgp_ppl.inferencedata._draws import (
    Draws,
    draws_from_chains,
    draws_from_guide,
    draws_from_prior,
)
from dgp_ppl.inferencedata._groups import GroupBuilder
from dgp_ppl.inferencedata._log_likelihood import (
    PASSES_AT_ONCE,
    PointwiseEvaluator,
    PointwiseResult,
)
from dgp_ppl.inferencedata._sites import ModelSites
from dgp_ppl.standardize import Standardizer

# NumPyro's names of sample statistics, and ArviZ's.
_SAMPLE_STATS = {
    "accept_prob": "acceptance_rate",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
}


def to_inferencedata(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params | Fitted,
    *args: Any,
    posterior_samples: Mapping[str, ArrayLike] | Chains | None = None,
    num_samples: int = 500,
    num_prior_samples: int = 100,
    passes: int | None = None,
    latent_rows: Literal["given", "integrated"] = "given",
    standardizer: Standardizer | None = None,
    site: str = "y",
    test: tuple[Any, ...] | None = None,
    result: FitResult | MCEMResult | None = None,
    coords: Mapping[str, ArrayLike] | None = None,
    units: Mapping[str, str] | None = None,
    attrs: Mapping[str, Any] | None = None,
    chunk_size: int | None = None,
    **kwargs: Any,
) -> Any:
    """Convert a model and its posterior to an ArviZ data tree.

    The posterior is a guide's, a sampler's, or absent (the prior alone)::

        tree = dgp.to_inferencedata(key, model, guide, fit.params, x, y, test=(x_test, y_test))
        tree.to_netcdf("fit.nc")

    Groups:

    - ``posterior``: latent and deterministic sites; dimensions are named after plates and layers.
    - ``posterior_predictive``: a draw of y for each posterior draw; with `local` and
      `models.exact` of each row given all others, as ``log_likelihood`` is.
    - ``log_likelihood``: log p(y_n | draw) of every row of the full data, whatever the size of
      minibatches. The noise of hidden layers is integrated out, see `passes`. This biases LOO,
      which a constant for each row, ``y_loo_correction`` in ``constant_data``, corrects.
    - ``sample_stats``: a sampler's statistics. For a guide's draws, their log density under the
      model, ``lp``, and under the guide, ``log_q``, and the log importance weight, ``log_weight``;
      not with `local`.
    - ``prior``, ``prior_predictive``, ``observed_data``.
    - ``constant_data``: x, and the model's other arguments with one row per row of x (such as a
      group index), by their names.
    - With `test`: ``predictions``, ``predictions_constant_data``.
    - With `result`: ``fit``, the params, and in ``sample_stats`` the ``loss`` of every step.

    Rows that a mask leaves out (`observe`'s, or NumPyro's) appear only in
    ``posterior_predictive``, as ``y_missing`` along ``y.missing``. The other rows of y are then
    along ``y.seen``. Missing entries of a row with several are NaN. "/" in site names becomes ".",
    because files cannot store it.

    Args:
        key: random key.
        model: the model.
        guide: its fitted guide; None with `posterior_samples`, or for the prior alone.
        params: the fit's params, or its result.
        *args: the model's positional arguments, data included: x and y first. Arrays with one row
            per row of the data are divided into chunks.
        posterior_samples: draws instead of a guide: `Chains`, MCMC, or its ``get_samples()``.
        num_samples: number of draws S from a guide. At most this many of `posterior_samples` are
            used, evenly spaced.
        num_prior_samples: number of draws from the prior; 0 leaves its groups out.
        passes: draws of the hidden layers' noise for each draw. The likelihood is their mean. None
            takes 10, and more (up to 160) until LOO's estimated bias is below a tenth of its
            standard error.
        latent_rows: what log-likelihoods condition on: ``"given"`` keeps each row's latent inputs
            fixed at their draws; ``"integrated"`` draws them from their prior in each pass.
        standardizer: the training data's. x and y, here and in the tree, are then in the units of
            the data, else in the model's.
        site: the observed site that `standardizer` scales.
        test: the model's positional arguments at held-out rows, x and y first; y may be None.
        result: the fit, for its losses and params.
        coords: labels by dimension: ``data``, ``input``, ``output``, ``l1.output``.
        units: units by variable: such as ``{"y": "MPa"}``.
        attrs: further attributes of the tree, beside versions, ``model``, ``guide`` and
            ``configuration``.
        chunk_size: rows in memory at once; the default depends on the numbers of draws and passes.
        **kwargs: the model's keyword arguments.

    Returns:
        An ``xarray.DataTree``. Arrays are on the host, in the precision of the computation.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if a number is too small, the model has no observed site, a latent site has no
            draws, the names or shapes of params differ from the model's and the guide's, or a
            log-likelihood is NaN, for example because of NaN in y without a mask.
    """
    import xarray

    check_key("to_inferencedata", key)
    check_count("to_inferencedata", "num_prior_samples", num_prior_samples, 0)
    counts = {"num_samples": num_samples, "passes": passes, "chunk_size": chunk_size}
    for name, value in counts.items():
        if value is not None:
            check_count("to_inferencedata", name, value)
    check_choice("to_inferencedata", "latent_rows", latent_rows, ("given", "integrated"))
    draws_of("to_inferencedata", posterior_samples, guide)
    kinds: dict[str, tuple[Any, Any, str]] = {
        "test": (test, tuple, "a tuple of the model's positional arguments at held-out rows: "
                 "(x_test, y_test)"),
        "standardizer": (standardizer, Standardizer, "a Standardizer"),
        "result": (result, FitResult | MCEMResult, "the result of fit or fit_mcem"),
        "coords": (coords, Mapping, "a dict of labels by dimension"),
        "units": (units, Mapping, "a dict of texts by variable"),
        "attrs": (attrs, Mapping, "a dict of further attributes"),
    }  # fmt: skip
    for name, (value, kind, wanted) in kinds.items():
        check_kind("to_inferencedata", name, value, kind | None, wanted)
    given: Any = None
    if test is not None:
        test, named = checked_call("to_inferencedata: test", model, guide, test, kwargs)
        given = Call(_standardized(test or (), standardizer), named)
        if any(isinstance(a, NearRows) for a in named.values()):  # which are of training targets
            given = Call((*given.args[:1], None, *given.args[2:]), named)
        check_data("to_inferencedata: test", model, given, fitted=False)
    args, kwargs = checked_call("to_inferencedata", model, guide, args, kwargs)
    call = Call(_standardized(args, standardizer), kwargs)
    check_data("to_inferencedata", model, call, fitted=False)
    sites = ModelSites.from_model(model, call)
    if not sites.data_dims:
        raise ValueError(
            "to_inferencedata: the model observes nothing at these arguments, wanted an observed "
            f"site; its latent sites are {list(sites.latent_dims)}; pass its data by position, as "
            "in training"
        )
    if site == "y" and len(sites.data_dims) == 1:
        (site,) = sites.data_dims
    elif site not in sites.data_dims and (site != "y" or standardizer is not None):
        raise ValueError(
            f"to_inferencedata: site is {site!r}, wanted the observed site whose value is the "
            f"second argument: one of {list(sites.data_dims)}"
        )
    integrated = latent_rows == "integrated" and bool(sites.row_sites)
    noisy = sites.draws_noise or integrated
    passes = passes if noisy else 1
    builder = GroupBuilder(
        sites, coords or {}, units or {}, standardizer or Standardizer(np.zeros(0), np.zeros(0)),
        site,
    )  # fmt: skip

    def data_groups(results: dict[str, PointwiseResult], **options: bool) -> dict[str, Any]:
        target = None if standardizer is None else _target(args, call, results[site].value)
        return builder.data_groups(results, target, **options)

    # The keys of `random.split`, which is a program of its own for each number.
    key_draw, key_posterior, key_prior, key_test = (random.fold_in(key, i) for i in range(4))
    with Waiting():  # one line at a terminal for its many programs
        groups: dict[str, Any] = {}
        draws: Draws | None = None
        chains = _chains(posterior_samples)
        prior_only = guide is None and chains is None
        params = checked_params("to_inferencedata", params, model, guide, call, prior=prior_only)
        evaluate = PointwiseEvaluator(model, params, chunk_size)
        named_dims = sites.deterministic_dims | sites.latent_dims
        if guide is not None:
            draws = draws_from_guide(key_draw, model, guide, params, call, sites, num_samples)
        elif chains is not None:
            chains = chains.spaced(max(1, num_samples // chains.shape[0]))
            draws = draws_from_chains(chains, sites)
        if draws is not None:
            where = (key_posterior, draws, call, sites)
            if passes is None:
                results, passes = evaluate.with_enough_passes(*where, use_row_draws=not integrated)
            else:
                results = evaluate(*where, passes, use_row_draws=not integrated)
            found = data_groups(results, corrected=noisy)
            attributes = {
                "passes": passes,
                "hidden_noise": "integrated" if sites.draws_noise else "none",
                "latent_rows": latent_rows if sites.row_sites else "none",
                "weighted_rows": str(any(np.any(r.factor != 1) for r in results.values())),
            }
            groups["posterior"] = builder.dataset(draws.values | draws.deterministic, named_dims)
            groups["posterior_predictive"] = found["predictive"]
            groups["log_likelihood"] = found["log_likelihood"].assign_attrs(attributes)
            statistics: dict[str, Any] = {}
            if chains is not None:
                statistics = {
                    _SAMPLE_STATS.get(n, n): np.asarray(a) for n, a in chains.fields.items()
                }
                if "potential_energy" in statistics:
                    statistics["lp"] = -statistics.pop("potential_energy")
            # If integrated, q covers the rows' latent inputs, which the likelihood integrates. If
            # tied, the likelihood is of each row given all others, and its sum no joint density.
            elif not (integrated or sites.tied):
                statistics = _guide_stats(draws, results)
            groups["sample_stats"] = builder.dataset(statistics, {})
            groups["constant_data"] = found["correction"]
            groups["observed_data"] = found["observed"]
        few = min(passes or 1, PASSES_AT_ONCE)  # draws of y need one; so many share a compilation
        if num_prior_samples:
            key_prior, key_values = (random.fold_in(key_prior, i) for i in range(2))
            prior = draws_from_prior(key_values, model, params, call, sites, num_prior_samples)
            results = evaluate(
                key_prior, prior, call, sites, 1 if draws is None else few, scored=False
            )
            found = data_groups(results)
            groups["prior"] = builder.dataset(prior.values | prior.deterministic, named_dims)
            groups["prior_predictive"] = found["predictive"]
            groups["observed_data"] = found["observed"]
        elif draws is None:
            raise ValueError(
                "to_inferencedata: there is no guide, no posterior_samples and no "
                "num_prior_samples, wanted one of them"
            )
        constant = builder.inputs(args, model, kwargs, "data")
        groups["constant_data"] = constant.merge(groups.get("constant_data", {}))
        if test is not None and draws is not None:
            test_sites = ModelSites.from_model(model, given, sites.data_dims)
            results = evaluate(
                key_test, draws, given, test_sites, few, use_row_draws=False, scored=False
            )
            groups["predictions"] = builder.predictions(results)
            groups["predictions_constant_data"] = builder.inputs(
                test, model, kwargs, "test", with_y=True
            )
        if result is not None:
            groups.setdefault("sample_stats", builder.dataset({}, {}))
            groups["sample_stats"]["loss"] = ("step", np.asarray(result.losses), {"units": "nats"})
            groups["fit"] = _fit_group(result)
    simple = {n: a for n, a in kwargs.items() if isinstance(a, bool | int | float | str)}
    configuration = {
        "passes": passes,
        "latent_rows": latent_rows,
        "standardized": standardizer is not None,
        "model_arguments": simple,
    }
    for group in ("posterior", "posterior_predictive", "prior", "predictions"):
        drawn = groups.get(group, {})
        warn_of_nan("to_inferencedata", {f"{group}.{n}": drawn[n].values for n in drawn})
    tree: Any = xarray.DataTree.from_dict({n: d for n, d in groups.items() if len(d.variables)})
    attributes = {
        "inference_library": "dgp_ppl",
        "inference_library_version": dgp_ppl.__version__,
        "numpyro_version": numpyro.__version__,
        "jax_version": jax.__version__,
        "model": getattr(model, "__name__", type(model).__name__),
        "guide": "none" if guide is None else getattr(guide, "__name__", type(guide).__name__),
        "configuration": json.dumps(configuration),
    }
    tree.attrs.update({**attributes, **(attrs or {})})
    return tree


def _target(args: tuple[Any, ...], call: Call, value: np.ndarray | None) -> Any:
    """Return the second argument in the data's units, after checking that the site observes it."""
    if len(args) < 2 or value is None:
        return None
    y = np.asarray(call.args[1]) if call.args[1] is not None else np.zeros(())
    if y.shape != value.shape or not np.array_equal(y, value, equal_nan=y.dtype.kind == "f"):
        raise ValueError(
            "to_inferencedata: a standardizer wants y as the model's second argument, and the "
            f"model observes something else (shapes {y.shape} and {value.shape}); put y second, "
            "or standardise before"
        )
    return args[1]


def _chains(samples: Mapping[str, ArrayLike] | Chains | None) -> Chains | None:
    samples = draws_of("to_inferencedata", samples)
    if samples is None or isinstance(samples, Chains):
        return samples
    arrays = {n: np.asarray(a)[None] for n, a in samples.items()}
    sizes = {a.shape[1:2] for a in arrays.values()}
    if len(sizes) != 1 or sizes == {()}:
        shapes = {n: a.shape[1:] for n, a in arrays.items()}
        raise ValueError(
            f"to_inferencedata: posterior_samples has arrays of shapes {shapes}, wanted the same "
            "number of draws of every site; pass Chains, or MCMC's get_samples()"
        )
    return Chains(arrays)


def _standardized(args: tuple[Any, ...], standardizer: Standardizer | None) -> tuple[Any, ...]:
    if standardizer is None or not args:
        return args
    x, *rest = args
    x = None if x is None else standardizer.inputs(x)
    if rest and rest[0] is not None and standardizer.scales_targets:
        rest[0] = standardizer.outputs(rest[0])
    return (x, *rest)


def _guide_stats(draws: Draws, results: dict[str, PointwiseResult]) -> dict[str, np.ndarray]:
    """Return log densities of a guide's draws, [1, S] each; empty if the guide has no density."""
    if draws.log_q is None or draws.log_prior is None:
        return {}
    each = [r for r in results.values() if r.log_likelihood is not None]
    terms = [np.asarray(r.log_likelihood * r.factor) for r in each]
    log_likelihood = sum(np.sum(a, axis=tuple(range(2, a.ndim)), dtype=np.float64) for a in terms)
    lp = draws.log_prior + log_likelihood
    return {"lp": lp, "log_q": draws.log_q, "log_weight": lp - draws.log_q}


def _fit_group(result: FitResult | MCEMResult) -> Any:
    import xarray

    variables = {}
    # Of a tree of params, such as a network, each array has a name of its own.
    for (name, *rest), leaf in jax.tree_util.tree_leaves_with_path(result.params):
        named = f"{name.key}{jax.tree_util.keystr(tuple(rest))}".replace("/", ".")
        array = np.asarray(leaf)
        variables[named] = (tuple(f"{named}.dim_{i}" for i in range(array.ndim)), array)
    attrs: dict[str, Any] = {"steps": len(result.losses), "seconds": result.seconds}
    if isinstance(result, FitResult):
        attrs["num_data"] = result.num_data
    return xarray.Dataset(variables, attrs=attrs)
