"""From a fit, chains or the prior to one ArviZ data tree."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Literal

import jax
import numpy as np
import numpyro
from jax import random
from jax.typing import ArrayLike
from numpyro.infer import MCMC

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference import Chains, FitResult, MCEMResult
from dgp_ppl.inferencedata._draws import (
    Draws,
    draws_from_chains,
    draws_from_guide,
    draws_from_prior,
)
from dgp_ppl.inferencedata._groups import Names
from dgp_ppl.inferencedata._log_likelihood import Pointwise, PointwiseResult
from dgp_ppl.inferencedata._sites import Sites
from dgp_ppl.standardize import Standardizer

__all__ = ["to_inferencedata"]

# NumPyro's names of what a sampler tells of a draw, and ArviZ's.
_SAMPLE_STATS = {
    "accept_prob": "acceptance_rate",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
}


def to_inferencedata(
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params,
    *args: Any,
    posterior_samples: Mapping[str, ArrayLike] | Chains | None = None,
    num_samples: int = 500,
    num_prior_samples: int = 100,
    passes: int = 10,
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
    """An ArviZ data tree of a model and its posterior: SVI with any guide, MCMC, or the prior.

    Groups: ``posterior`` (latent sites, dimensions named after plates and layers),
    ``posterior_predictive`` (y of every draw), ``log_likelihood`` (log p(y_n | draw) of every row
    of the FULL data, whatever a minibatch's size), ``prior`` and ``prior_predictive``,
    ``observed_data``, ``constant_data``, ``sample_stats`` (what a sampler told; of a guide's draws
    ``lp``, their log density with the data's, ``log_q``, that of the guide, and the importance
    weights' logs ``log_weight``; the ``loss`` of every step), with `test` ``predictions`` and
    ``predictions_constant_data``, with `result` also ``fit`` (its params).

    A draw's log-likelihood is p(y_n | latent sites): the noise of hidden layers, a nuisance of
    each row, is integrated out by the mean of p over `passes` of them, so that LOO leaves out a row
    with its noise. Guides' draws are draws of v, also where a bound integrates v out. Draws are
    made once, rows and draws are worked on in chunks, and all is kept on the host in the precision
    in which it was computed.

    Rows that a mask leaves out (`observe`'s, or NumPyro's) are in no group but
    ``posterior_predictive``, as ``y_missing`` along ``y.missing``; y then lies along ``y.seen``.
    Entries that are missing within a row of several are NaN. "/" in names of sites, which no file
    can hold, becomes ".".

    Args:
        key: random key.
        model: the model.
        guide: its fitted guide; None with `posterior_samples`, or for the prior alone.
        params: the fit's params.
        *args: the model's positional arguments, data and all: x and y first. Arrays with one row
            per row of the data are taken in chunks.
        posterior_samples: draws in place of a guide's: `Chains`, or MCMC's ``get_samples()``.
        num_samples: draws S of a guide; of samples at most so many in all, evenly spaced.
        num_prior_samples: draws of the prior; 0 leaves its groups out.
        passes: of hidden layers' noise, for each draw; 1 where a model has none.
        latent_rows: latent sites of the data's rows (latent inputs) are ``"given"``, so that the
            log-likelihood is that of y_n given them too, or ``"integrated"`` like the noise, by
            draws from their priors.
        standardizer: x and `site`'s values, in and out, are in the units of the data; else in the
            model's.
        site: the observed site that the standardizer's target is.
        test: the model's positional arguments at held-out rows, x and y first; y may be None.
        result: the fit, for its losses and params.
        coords: labels of dimensions: ``data``, ``input``, ``output``, ``l1.output``, say.
        units: of variables: ``{"y": "MPa"}``, say.
        attrs: further attributes of the tree, beside versions, the names of model and guide and the
            ``configuration``.
        chunk_size: rows in memory at once; by default as many as are quick.
        **kwargs: the model's keyword arguments.

    Returns:
        An ``xarray.DataTree``; save it by ``.to_netcdf(path)`` or ``.to_zarr(path)``.

    Raises:
        ValueError: if a number is not positive, the model has no observed site, a latent site has
            no draws, or a log-likelihood is not a number (NaN in y without a mask).
    """
    for name, value, least in (
        ("num_samples", num_samples, 1),
        ("num_prior_samples", num_prior_samples, 0),
        ("passes", passes, 1),
        ("chunk_size", 1 if chunk_size is None else chunk_size, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(
                f"to_inferencedata: {name} is {value}, wanted an integer of at least {least}"
            )
    if latent_rows not in ("given", "integrated"):
        raise ValueError(
            f"to_inferencedata: latent_rows is {latent_rows!r}, wanted 'given' or 'integrated'"
        )
    if guide is not None and posterior_samples is not None:
        raise ValueError(
            "to_inferencedata: got a guide and posterior_samples, wanted draws from one of them; "
            "pass guide=None"
        )
    if test is not None and not isinstance(test, tuple):
        raise ValueError(
            f"to_inferencedata: test is a {type(test).__name__}, wanted a tuple of the model's "
            "positional arguments at held-out rows: (x_test, y_test)"
        )
    scale = Standardizer(np.zeros(0), np.zeros(0)) if standardizer is None else standardizer
    own = _standardized(args, standardizer)
    sites = Sites.from_model(model, Call(own, kwargs))
    if not sites.data:
        raise ValueError(
            "to_inferencedata: the model observes nothing at these arguments; its latent sites are "
            f"{list(sites.latent)}. Pass its data by position, as in training"
        )
    site = _site_of(site, sites, standardizer is not None)
    integrated = latent_rows == "integrated" and bool(sites.rows)
    passes = passes if sites.noisy or integrated else 1
    names = Names(sites, dict(coords or {}), dict(units or {}), scale, site)
    key_draw, key_said, key_prior, key_test = random.split(key, 4)
    told_of = Pointwise(model, params, kwargs, chunk_size)
    groups: dict[str, Any] = {}
    told: dict[str, Any] = {}
    draws: Draws | None = None
    chains = _chains(posterior_samples)
    if guide is not None:
        draws = draws_from_guide(key_draw, model, guide, params, own, kwargs, sites, num_samples)
    elif chains is not None:
        if missing := sorted(sites.params - set(params)):
            raise ValueError(
                f"to_inferencedata: params has no {missing[0]!r}, a param of the model; it has "
                f"{sorted(params)}, wanted those that the samples were drawn at"
            )
        chains = chains.spaced(max(1, num_samples // chains.shape[0]))
        draws = draws_from_chains(chains, sites)
    if draws is not None:
        said = told_of(key_said, draws, own, sites, passes, own_rows=not integrated)
        given = _given(args, own, said[site].value) if scale is standardizer else None
        told = names.data_groups(said, given)
        about = {
            "passes": passes,
            "hidden_noise": "integrated" if sites.noisy else "none",
            "latent_rows": latent_rows if sites.rows else "none",
        }
        groups["posterior"] = names.dataset(draws.values, names.latent)
        groups["posterior_predictive"] = told["predictive"]
        groups["log_likelihood"] = told["log_likelihood"].assign_attrs(about)
        weighed = not integrated  # else weights would be of rows that likelihoods leave out
        stats = _of_chains(chains) if chains is not None else {}
        if chains is None and weighed:
            stats = _of_draws(draws, said)
        groups["sample_stats"] = names.dataset(stats, {})
    if num_prior_samples:
        key_prior, key_values = random.split(key_prior)
        prior = draws_from_prior(key_values, model, params, own, kwargs, sites, num_prior_samples)
        said = told_of(key_prior, prior, own, sites, passes)
        given = _given(args, own, said[site].value) if scale is standardizer else None
        told = names.data_groups(said, given, checked=False)
        groups["prior"] = names.dataset(prior.values, names.latent)
        groups["prior_predictive"] = told["predictive"]
    elif draws is None:
        raise ValueError(
            "to_inferencedata: there are no guide, no posterior_samples and no num_prior_samples, "
            "wanted one of them"
        )
    groups["observed_data"] = told["observed"]
    groups["constant_data"] = names.inputs(args, "data")
    if test is not None and draws is not None:
        rest = _standardized(test, standardizer)
        held = Sites.from_model(model, Call(rest, kwargs), sites.data)
        said = told_of(key_test, draws, rest, held, passes, own_rows=False)
        groups["predictions"] = names.predictions(said)
        groups["predictions_constant_data"] = names.inputs(test, "test", with_y=True)
    if result is not None:
        groups.setdefault("sample_stats", names.dataset({}, {}))
        groups["sample_stats"]["loss"] = ("step", np.asarray(result.losses), {"units": "nats"})
        groups["fit"] = _of_fit(result)
    settings = {"passes": passes, "latent_rows": latent_rows, "standardized": scale is standardizer}
    simple = {n: a for n, a in kwargs.items() if isinstance(a, bool | int | float | str)}
    configuration = json.dumps({**settings, "model_arguments": simple})
    return _tree(groups, model, guide, {"configuration": configuration, **dict(attrs or {})})


def _tree(groups: dict[str, Any], model: Model, guide: Model | None, attrs: dict[str, Any]) -> Any:
    import xarray

    tree: Any = xarray.DataTree.from_dict({n: d for n, d in groups.items() if len(d.variables)})
    about = {
        "inference_library": "dgp_ppl",
        "inference_library_version": version("dgp_ppl"),
        "numpyro_version": numpyro.__version__,
        "jax_version": jax.__version__,
        "model": getattr(model, "__name__", type(model).__name__),
        "guide": "none" if guide is None else getattr(guide, "__name__", type(guide).__name__),
    }
    tree.attrs.update({**about, **attrs})
    return tree


def _site_of(site: str, sites: Sites, standardized: bool) -> str:
    """The observed site that the second argument is."""
    if site in sites.data:
        return site
    if site == "y" and len(sites.data) == 1:
        return next(iter(sites.data))
    if site == "y" and not standardized:
        return site  # which nothing is to be done with
    raise ValueError(
        f"to_inferencedata: site is {site!r}, wanted the observed site whose values the second "
        f"argument has: one of {list(sites.data)}"
    )


def _given(args: tuple[Any, ...], own: tuple[Any, ...], value: np.ndarray | None) -> Any:
    """The site's value in the data's units, which is the second argument."""
    if len(args) < 2 or value is None:
        return None
    y = np.asarray(own[1]) if own[1] is not None else np.zeros(())
    if y.shape != value.shape or not np.array_equal(y, value, equal_nan=y.dtype.kind == "f"):
        raise ValueError(
            "to_inferencedata: a standardizer wants y as the model's second argument, and that is "
            f"not what the model observes (shapes {y.shape} and {value.shape}); put y second, "
            "or standardise before"
        )
    return args[1]


def _chains(samples: Mapping[str, ArrayLike] | Chains | None) -> Chains | None:
    if samples is None or isinstance(samples, Chains):
        return samples
    if isinstance(samples, MCMC):
        return Chains.from_mcmc(samples)
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
    if rest and rest[0] is not None and (standardizer.y_loc, standardizer.y_scale) != (0.0, 1.0):
        rest[0] = standardizer.outputs(rest[0])
    return (x, *rest)


def _of_chains(chains: Chains) -> dict[str, np.ndarray]:
    """What the sampler told of each draw, [C, S] each, by ArviZ's names."""
    stats = {_SAMPLE_STATS.get(n, n): np.asarray(a) for n, a in chains.fields.items()}
    if "potential_energy" in stats:
        stats["lp"] = -stats.pop("potential_energy")
    return stats


def _of_draws(draws: Draws, said: dict[str, PointwiseResult]) -> dict[str, np.ndarray]:
    """Log densities of a guide's draws, [1, S] each, where they have any."""
    if draws.log_q is None or draws.log_prior is None:
        return {}
    likely = [s.log_likelihood for s in said.values() if s.log_likelihood is not None]
    whole = sum(np.sum(a, axis=tuple(range(2, a.ndim)), dtype=np.float64) for a in likely)
    lp = draws.log_prior + whole
    return {"lp": lp, "log_q": draws.log_q, "log_weight": lp - draws.log_q}


def _of_fit(result: FitResult | MCEMResult) -> Any:
    """Params by name."""
    import xarray

    variables = {}
    for name, array in _flat(result.params).items():
        name = name.replace("/", ".")
        variables[name] = (tuple(f"{name}.dim_{i}" for i in range(array.ndim)), array)
    attrs: dict[str, Any] = {"steps": len(result.losses), "seconds": result.seconds}
    if isinstance(result, FitResult):
        attrs["num_data"] = result.num_data
    return xarray.Dataset(variables, attrs=attrs)


def _flat(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Params by name; the leaves of one that is a tree, such as a network, by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named = {(path[0].key, *path[1:]): leaf for path, leaf in leaves}
    return {n + jax.tree_util.keystr(tuple(p)): np.asarray(a) for (n, *p), a in named.items()}
