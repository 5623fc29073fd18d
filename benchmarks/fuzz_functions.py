"""The calls of public functions that the fuzz varies."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from fuzz_problem import (
    censored,
    chains,
    clipped,
    estimator,
    exported,
    fitted,
    fitted_by,
    fitted_diffusion,
    fitted_grouped,
    fitted_latent,
    grouped,
    inference_data,
    kept,
    naturally_fitted,
    near_prediction,
    ordered,
    own_model,
    predicted,
    sampled,
    weighted,
)
from fuzz_values import KEY, QUICK, G, X, Y, Z
from numpyro.infer import NUTS
from numpyro.infer.autoguide import AutoNormal

import dgp_ppl as dgp
from dgp_ppl import (
    criticism,
    datasets,
    inference,
    initialize,
    kernels,
    likelihoods,
    means,
    metrics,
    models,
    plots,
    prediction,
)
from dgp_ppl.sklearn import DeepGPClassifier, DeepGPRegressor


class Target(NamedTuple):
    """A public function, its arguments, and which of them are rows of data."""

    call: Callable[..., Any]
    arguments: dict[str, Any]
    rows: tuple[str, ...] = ()


@functools.cache
def targets() -> dict[str, Target]:
    guide, result = fitted()
    deep = dict(zip(("guide", "params"), fitted(models.deep_gp), strict=True))
    deep |= {"key": KEY, "model": models.deep_gp, "x": X, "z": (Z, Z)}
    base = {"key": KEY, "model": models.svgp, "guide": guide, "params": result}
    data = {"x": X, "y": Y, "z": Z}
    both, fit = "key model guide params x y", ordered(dgp.fit, "key model guide x y")
    by_group = dict(zip(("guide", "params"), fitted_grouped(), strict=True))
    pairs = np.stack([Y, X[:, 0]], axis=1)
    p = predicted()
    return _fits(fit, base, data, deep) | _samplers(base, data) | {
        "predict": Target(
            predicted,
            {**base, "x": X, "z": Z, "num_samples": 4, "standardizer": None, "site": "y",
             "posterior_samples": None, "chunk_size": None, "out": 1, "noise": 0.3},
            ("x", "z"),
        ),
        "predict deep": Target(predicted, {**deep, "chunk_size": None, "num_samples": 4}, ("x",)),
        "predict by group": Target(
            ordered(dgp.predict, "key model guide params x g"),
            {"key": KEY, "model": grouped, **by_group, "x": X, "g": G, "num_samples": 4}, ("x",),
        ),
        "predict near rows": Target(
            near_prediction, {"x": X, "y": Y, "x_new": X, "block": 6, "neighbours": 5},
            ("x", "y", "x_new"),
        ),
        "local": Target(dgp.local, {"name": "g", "near": dgp.NearRows(X, Y),
                                    "kernel": kernels.Matern12.learned}),
        "gp, minibatch and observe": Target(
            own_model,
            {"x": X, "y": Y, "name": "f", "kernel": kernels.Matern12(1.0, 1.0), "out": 1,
             "mean": None, "plate": "data", "batch_size": None, "num_nodes": 20, "num_draws": 5,
             "mask": None},
            ("x", "y"),
        ),
        "censored": Target(
            censored, {"kind": "RightCensored", "y": Y, "flags": Y > 0, "scale": 0.3}, ("y",)
        ),
        "CensoredNormal": Target(
            clipped, {"y": Y, "scale": 0.5, "low": -1.0, "high": 1.0}, ("y",)
        ),
        **{
            f"Prediction.{name}": Target(functools.partial(getattr(p, name)), given, rows)
            for name, given, rows in (
                ("log_prob", {"y": Y, "mask": None}, ("y",)), ("cdf", {"y": Y, "num": 10}, ("y",)),
                ("crps", {"y": Y, "num": 10}, ("y",)), ("quantile", {"q": 0.5, "num": 10}, ()),
                ("interval", {"level": 0.9}, ()), ("sample", {"key": KEY, "num": 2}, ()),
                ("function_draws", {"key": KEY, "num": 2, "mode": "joint"}, ()),
            )
        },
        "evaluate": Target(
            ordered(dgp.evaluate, both), {**base, **data, "loss": None, "num_draws": 3},
            ("x", "y", "z"),
        ),
        "to_inferencedata": Target(
            ordered(dgp.to_inferencedata, both),
            {**base, **data, "num_samples": 4, "num_prior_samples": 4, "passes": 2, "site": "y",
             "standardizer": None, "test": None, "coords": None, "units": None, "attrs": None,
             "chunk_size": None, "result": result},
            ("x", "y", "z"),
        ),
        "annealed_evidence": Target(
            ordered(dgp.annealed_evidence, both),
            {**base, **data, "target": "bound", "start": "guide", "temperatures": 3,
             "leapfrogs": 2, "num_particles": 8, "num_islands": 8, "num_noise": 2,
             "progress": False},
            ("x", "y"),
        ),
        "check_fit": Target(
            ordered(dgp.check_fit, "fit key model guide x y"),
            {"fit": result, "key": KEY, "model": models.svgp, "guide": guide, **data,
             "test": (p, Y), "posterior_samples": None, "num_weights": 0, "num_particles": 0},
            ("x", "y"),
        ),
        "check_fit of chains": Target(
            ordered(dgp.check_fit, "fit key model guide x y"),
            {"fit": {}, "key": KEY, "model": dgp.freeze(models.svgp, result.params),
             "guide": None, **data, "posterior_samples": chains()},
            ("x", "y"),
        ),
        "check_guide": Target(
            ordered(dgp.check_guide, both),
            {**base, **data, "num_weights": 20, "num_simulations": 4, "steps": 3, "num_draws": 5},
            ("x", "y"),
        ),
        "layer_functions": Target(
            ordered(dgp.layer_functions, "key model guide params x"),
            {**base, "x": X, "z": Z, "num_draws": 2, "at": None, "mode": "joint", "site": "y",
             "posterior_samples": None},
            ("x", "z"),
        ),
        "compare_posteriors": Target(
            ordered(dgp.compare_posteriors, "key exact approximation model params x y"),
            {"key": KEY, "exact": chains(), "approximation": guide, "model": models.svgp,
             "params": result, **data, "test": None, "num_draws": 16, "num_weights": 10},
            ("x", "y"),
        ),
        "chain_diagnostics": Target(criticism.chain_diagnostics, {"chains": chains()}),
        "prediction_diagnostics": Target(
            ordered(criticism.prediction_diagnostics, "key model params x y"),
            {"key": KEY, "model": dgp.freeze(models.svgp, result.params), "params": {}, **data,
             "posterior_samples": chains(), "num_draws": 4, "num_noise": 2},
            ("x", "y"),
        ),
        "guided": Target(dgp.guided, {n: base[n] for n in ("model", "guide", "params")}),
        "transported": Target(dgp.transported, {n: base[n] for n in ("model", "guide", "params")}),
        "freeze": Target(dgp.freeze, {"program": models.svgp, "params": result}),
        "pool": Target(dgp.pool, {"predictions": [p, p]}),
        "MeanField": Target(
            dgp.MeanField, {"model": models.svgp, "covariance": "full", "hidden_scale": 1e-5,
                            "coupled": False}
        ),
        "Decoupled": Target(
            dgp.Decoupled,
            {"model": models.svgp, "z_mean": Z, "mean": "cb", "covariance": "cb",
             "hidden_scale": 0.1},
            ("z_mean",),
        ),
        "GlobalInducing": Target(
            dgp.GlobalInducing, {"model": models.svgp, "pseudo_inputs": Z}, ("pseudo_inputs",)
        ),
        "Diffusion": Target(
            dgp.Diffusion, {"model": models.svgp, "steps": 2, "base": None, "schedule": None,
                            "informed": None, "last": "integrated"},
        ),
        "Flow": Target(dgp.Flow, {"model": models.svgp, "base": None, "stick_the_landing": True}),
        "Implicit": Target(dgp.Implicit, {"model": models.svgp, "noise_dim": 2}),
        "kernel": Target(
            lambda lengthscale, **o: kernels.RationalQuadratic.learned("k", 1, **o)
            if lengthscale is None else kernels.Matern32(lengthscale=lengthscale, **o)(X, Z),
            {"variance": 1.0, "lengthscale": 0.5},
        ),
        "means": Target(
            lambda x, dim, out: (means.pca(x, out), means.pad(dim, out)),
            {"x": pairs, "dim": 2, "out": 1}, ("x",),
        ),
        "initialize.deep_gp": Target(
            initialize.deep_gp,
            {"key": KEY, "x": X, "num_inducing": 3, "depth": 2, "width": None, "skip": False},
            ("x",),
        ),
        "initialize.gplvm": Target(
            initialize.gplvm,
            {"key": KEY, "y": pairs, "dim": 1, "num_inducing": 3, "depth": 1}, ("y",)
        ),
        "initialize.inducing_inputs": Target(
            initialize.inducing_inputs, {"key": KEY, "x": X, "num": 3}, ("x",)
        ),
        "save and load": Target(
            kept,
            {"name": "a.dgp", "trusted": (), "x_new": X, "model": models.svgp, "guide": guide,
             "params": result, "z": Z, "standardizer": None, "posterior_samples": None,
             "data": (X, Y), "columns": None, "info": None},
            ("x_new",),
        ),
        "export": Target(exported, {"name": "a", "quantiles": (0.1, 0.5), "columns": None}),
    } | _tables() | _others(base, data)  # fmt: skip


def _fits(fit: Any, base: Any, data: Any, deep: Any) -> dict[str, Target]:
    new = {"key": KEY, "model": models.svgp, "guide": dgp.MeanField(models.svgp), **data}
    return {
        "fit": Target(
            fit,
            {**new, "learning_rate": 0.1, "optimizer": None, "loss": None, "start": None,
             "keep_best": False, "restarts": 1, "checkpoint": None, "every": 10, "mesh": None,
             "out": 1, "kernel": kernels.SquaredExponential.learned, "likelihood": None,
             "noise": 0.3, "batch_size": None, "mean": None, "unknown": "leave out", **QUICK},
            ("x", "y", "z"),
        ),
        "fit of a deep GP": Target(
            fit,
            {**{n: deep[n] for n in ("key", "model", "guide", "x", "z")}, "y": Y, "skip": False,
             "share_kernel": None, "local": None, **QUICK},
            ("x", "y"),
        ),
        "fit_many": Target(
            ordered(dgp.fit_many, "keys model guide x y"),
            {**{n: a for n, a in new.items() if n != "key"}, "keys": jax.random.split(KEY, 2),
             "each": (), "num_rows": None, "start": None, "learning_rate": 0.1, **QUICK},
            ("x", "y", "z"),
        ),
        "minimize": Target(
            ordered(inference.minimize, "key model guide x y"),
            {**new, "model": models.sgpr, "guide": None, "loss": None, "start": None,
             "noise": 0.3, **QUICK},
            ("x", "y", "z"),
        ),
        "natural_adam": Target(
            naturally_fitted, {"learning_rate": 0.1, "steps": 10, "slow": (), "step_size": 0.5}
        ),
        "fit_mcem": Target(
            ordered(dgp.fit_mcem, "key model x y"),
            {"key": KEY, "model": models.svgp, **data, "learning_rate": 0.03, "window": 2,
             "num_samples": 2, "thinning": 1, "num_chains": 1, "expected": 0.5, "start": None,
             "every": 100, **QUICK},
            ("x", "y", "z"),
        ),
        "likelihoods.softmax": Target(
            lambda likelihood, y: dgp.fit(
                KEY, models.svgp, dgp.MeanField(models.svgp), X, y, z=Z, out=3,
                likelihood=likelihood, **QUICK
            ),
            {"likelihood": likelihoods.softmax, "y": G}, ("y",),
        ),
        "DeepGPRegressor": Target(
            estimator(DeepGPRegressor),
            {"x": X, "y": Y, "x_new": X, "steps": 3, "inducing": 3, "depth": 2, "batch": 100,
             "learning_rate": 0.1, "samples": 3, "method": "dsvi", "random_state": 0,
             "kernel": "squared_exponential", "width": None, "restarts": 1},
            ("x", "y", "x_new"),
        ),
        "DeepGPClassifier": Target(
            estimator(DeepGPClassifier),
            {"x": X, "y": (Y > 0).astype(int), "x_new": X, "steps": 3, "inducing": 3, "samples": 3},
            ("x", "y", "x_new"),
        ),
    }  # fmt: skip


def _samplers(base: Any, data: Any) -> dict[str, Target]:
    steps = {"num_warmup": 3, "num_samples": 3, "num_chains": 1, "progress": False}
    draws = chains()
    return {
        "run_mcmc": Target(
            sampled,
            {"key": KEY, **data, **steps, "thinning": 1, "init_params": None, "start": None,
             "extra_fields": (), "every": 100, "noise": 0.3},
            ("x", "y", "z"),
        ),
        "NUTS": Target(
            lambda key, x, y, **o: dgp.run_mcmc(
                key, NUTS(dgp.freeze(models.svgp, base["params"].params)), x, y, z=Z, **o
            ),
            {"key": KEY, "x": X, "y": Y, **steps}, ("x", "y"),
        ),
        "SGHMC": Target(
            dgp.SGHMC,
            {"model": models.svgp, "step_size": 0.2, "friction": 0.2, "preconditioner": "variance",
             "integrator": "baoab", "correct_noise": True},
        ),
        "ParallelTempering": Target(
            dgp.ParallelTempering, {"model": models.svgp, "num_temperatures": 4, "leapfrogs": 2}
        ),
        "weighted Chains": Target(
            weighted,
            {"log_weights": np.zeros(draws.shape), "samples": draws.samples, "num_samples": 40,
             "site": "y", "chunk_size": None},
        ),
    }  # fmt: skip


def _tables() -> dict[str, Target]:
    two, sums = np.stack([Y, Y]), ("y", "means", "sds")
    frame = pd.DataFrame({"a": X[:, 0], "y": Y})
    return {
        "Standardizer.fit": Target(
            dgp.Standardizer.fit,
            {"x": X, "y": Y, "shared": False, "unscaled": (), "targets": True}, ("x", "y"),
        ),
        "Rows.from_arrays": Target(
            lambda x, y, **o: dgp.Rows.from_arrays(x, y, **o),
            {"x": X, "y": Y, "buffer_rows": None}, ("x", "y")
        ),
        "NearRows": Target(
            dgp.NearRows, {"x": X, "y": Y, "block": 6, "neighbours": 5}, ("x", "y")
        ),
        "metrics.rmse": Target(metrics.rmse, {"y": Y, "mean": Y + 1}, ("y", "mean")),
        "metrics.mean_log_density": Target(
            metrics.mean_log_density, {"log_density": Y}, ("log_density",)
        ),
        "metrics.crps_samples": Target(
            metrics.crps_samples, {"y": Y, "samples": np.stack([Y, Y + 1])}, ("y", "samples")
        ),
        "metrics.crps_gaussian_mixture": Target(
            metrics.crps_gaussian_mixture, {"y": Y, "means": two, "sds": np.ones_like(two)}, sums
        ),
        "metrics.interval_coverage": Target(
            metrics.interval_coverage, {"y": Y, "lower": Y - 1, "upper": Y + 1},
            ("y", "lower", "upper"),
        ),
        "datasets.load": Target(datasets.load, {"name_or_path": frame, "target": "y"}),
        "datasets.splits": Target(
            datasets.splits, {"data": datasets.load("step"), "num_splits": 2, "seed": 0}
        ),
        "datasets.repeated_rows": Target(
            datasets.repeated_rows, {"x": X, "x_test": X}, ("x", "x_test")
        ),
        "compare": Target(
            dgp.compare,
            {"data": frame, "methods": ["sgpr"], "splits": 1, "seed": 0, "target": "y", "drop": (),
             "categorical": (), "strict": False, "out": None, "overwrite": False, "resume": False,
             "executor": None, "in_one_program": None, "progress": False, "steps": 3},
        ),
    }  # fmt: skip


def _others(base: Any, data: Any) -> dict[str, Target]:
    diffusion = dict(zip(("guide", "params"), fitted_diffusion(), strict=True))
    latent, rows, guide = (
        fitted_latent(),
        dgp.NearRows(X, Y, block=6),
        dgp.MeanField(models.deep_gp),
    )
    deep = {"z": (Z, Z), "local": rows}
    near = {"guide": guide, "params": dgp.fit(KEY, models.deep_gp, guide, X, Y, **deep, **QUICK)}
    fit, grid = ordered(dgp.fit, "key model guide x y"), np.linspace(-2, 2, 9)
    band = {"mean": grid, "lower": grid - 1, "upper": grid + 1, "draws": grid[None]}
    return {
        "optimal_inducing": Target(
            models.optimal_inducing, {"params": base["params"], "x": X, "y": Y}, ("x", "y")
        ),
        "importance_evidence": Target(
            ordered(inference.importance_evidence, "key model guide params x y"),
            {**base, **diffusion, **data, "num_paths": 4}, ("x", "y"),
        ),
        "diffusion_paths": Target(
            ordered(inference.diffusion_paths, "key guide params x y"),
            {"key": KEY, **diffusion, **data, "num_paths": 4}, ("x", "y"),
        ),
        "latent_inputs": Target(
            prediction.latent_inputs,
            {**{n: latent[n] for n in ("model", "guide", "params")}, "site": "latent"},
        ),
        "infer_latent": Target(
            ordered(prediction.infer_latent, "key model guide params x y"),
            {"key": KEY, **latent, "site": "latent", "learning_rate": 0.05, **QUICK}, ("y",),
        ),
        "tune_local": Target(
            ordered(prediction.tune_local, "key model guide params"),
            {"key": KEY, "model": models.deep_gp, **near, **deep, "name": "g", "site": "y"},
        ),
        "fit of a bnn": Target(
            lambda x, y, **o: dgp.fit(
                KEY, models.bnn, AutoNormal(models.bnn), x, y, **QUICK, **o
            ),
            {"x": X, "y": Y, "hidden": (3,), "out": 1}, ("x", "y"),
        ),
        "fit of a DiffGP": Target(
            fit,
            {"key": KEY, "model": models.diff_gp, "guide": dgp.MeanField(models.diff_gp), **data,
             "z_flow": Z, "horizon": 1.0, "flow_steps": 2, "flow": "marginal", "keep_path": False,
             **QUICK},
            ("x", "y", "z", "z_flow"),
        ),
        "ImportanceWeighted": Target(
            lambda **o: dgp.fit(
                KEY, base["model"], base["guide"], X, Y, z=Z, loss=dgp.ImportanceWeighted(**o),
                **QUICK,
            ),
            {"num_particles": 3, "over": "local", "plate": "data"},
        ),
        "default_optimizer": Target(
            lambda **o: fitted_by(inference.default_optimizer(**o)),
            {"learning_rate": 0.1, "steps": 10, "slow": frozenset(), "share": 0.3, "hold": 0.0},
        ),
        "initialize.nearest_rows": Target(
            initialize.nearest_rows,
            {"y_new": data["y"][:, None], "seen": np.ones((len(Y), 1), bool), "y": Y[:, None]},
            ("y_new", "y"),
        ),
        "initialize.shorter_lengthscales": Target(
            initialize.shorter_lengthscales,
            {"model": models.svgp, "x": X, "factor": 0.25, "z": Z}, ("x", "z"),
        ),
        "loo": Target(criticism.loo, {"tree": inference_data(), "var_name": "y"}),
        "weights_khat": Target(criticism.weights_khat, {"tree": inference_data()}),
        "composed kernels": Target(
            lambda x, lengthscale, period, columns: (
                kernels.Periodic(1.0, lengthscale, period) + kernels.Linear(1.0, lengthscale)
                * kernels.Columns(kernels.Matern12(1.0, lengthscale), columns)
            )(x),
            {"x": X, "lengthscale": 0.5, "period": 1.0, "columns": 0}, ("x",),
        ),
        "plots.training_curves": Target(
            lambda values, **o: plots.training_curves({"a": values}, **o),
            {"values": Y, "title": "", "units": "nats"}, ("values",),
        ),
        "plots.function_bands": Target(
            lambda **o: plots.function_bands(bands={"a": band}, **o),
            {"x": X[:, 0], "y": Y, "grid": grid, "title": ""}, ("x", "y", "grid"),
        ),
        "plots.predicted_against_observed": Target(
            lambda y, mean, **o: plots.predicted_against_observed(
                y, {"a": (mean, Y - 1, Y + 1)}, **o
            ),
            {"y": Y, "mean": Y, "target": "y", "title": "", "level": 0.9}, ("y", "mean"),
        ),
    }  # fmt: skip
