"""Call public functions with odd arguments, and look for foreign errors and wrong numbers.

    python benchmarks/fuzz_calls.py [--cases 2000] [--minutes 60] [--records FILE] [--again]
        [--json FILE]

A case is a number: it fixes a call of a public function on a small problem, one or two of its
arguments, and what takes their place: numbers, text, frames, arrays of other ranks, lengths and
types, classes, functions. Every fortieth case starts threads that fit and predict new models, or
kills a fit and goes on with it. A case fails

- if its error does not begin in the library: the user would read a text of JAX, NumPy or NumPyro;
- if its result has NaN, without a warning;
- if the odd value is the same data in another form, and the result is another one;
- if it takes more than a minute of processor time, or ten minutes.

Each finished case is one line of the records, so the run can be stopped at any time, and goes on.
"""

import argparse
import collections
import functools
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import scipy.sparse
from fuzz import finished
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import criticism, datasets, initialize, likelihoods, metrics, models
from dgp_ppl.comparison import versions, write_json
from dgp_ppl.sklearn import DeepGPClassifier, DeepGPRegressor

KEY, SECONDS = jax.random.key(0), 60
ROWS = 12
X = np.linspace(-2, 2, ROWS)[:, None].astype("float32")
Y = np.sin(2 * X[:, 0])
Z = np.array([[-1.5], [0.0], [1.5]], np.float32)
QUICK: dict[str, Any] = {"steps": 3, "progress": False}


class FindingError(Exception):
    """A finding of the fuzz."""


# ------------------------------------------------------------------------------------ odd values
def same_rows(a: np.ndarray) -> dict[str, Any]:
    """Return the same numbers in other forms: a call may refuse them, or give the same result."""
    return {
        "float64": a.astype("float64"),
        "jax": jax.numpy.asarray(a),
        "list": a.tolist(),
        "big-endian": a.astype(">f4"),
        "Fortran order": np.asfortranarray(a),
        "read only": _read_only(a),
        "strided": np.repeat(a, 2, axis=0)[::2],
        "frame": pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
        "nullable frame": pd.DataFrame(a).astype("Float32") if a.ndim == 2 else None,
        "arrow": pa.table({"a": a[:, 0]}) if a.ndim == 2 else pa.array(a),
        "objects": a.astype(object),
    }


def _read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def other_rows(a: np.ndarray) -> dict[str, Any]:
    """Return other arrays: a call may refuse them, but in the library's words."""
    nan = a.astype("float32")
    nan.flat[1] = np.nan
    return {
        "NaN": nan,
        "infinite": np.where(np.isnan(nan), np.inf, nan),
        "1e39": np.where(np.isnan(nan), 1e39, a.astype(float)),
        "1e30": a * 1e30,
        "1e-30": a * 1e-30,
        "unix seconds": 1.7e9 + 60 * a.astype(float),
        "constant": np.ones_like(a),
        "no rows": a[:0],
        "one row": a[:1],
        "a row more": np.concatenate([a, a[:1]]),
        "flat": a.ravel(),
        "two columns": np.stack([a.ravel(), a.ravel()], axis=1),
        "no columns": np.zeros((len(a), 0)),
        "rank 3": a.reshape(len(a), -1)[None],
        "scalar": 1.0,
        "integers": a.astype(int),
        "booleans": a > 0,
        "huge integers": np.full(a.shape, 2**60),
        "complex": a + 1j,
        "masked": np.ma.masked_array(a, mask=a > 1),
        "sparse": scipy.sparse.csr_matrix(np.atleast_2d(a)),
        "text": a.astype(str),
        "dates": a.astype("datetime64[s]"),
        "ragged": [[1.0], [1.0, 2.0]],
        "mixed objects": np.array([None, "a", *a.ravel()[2:]], dtype=object),
        "half": a.astype("float16"),
    }


SCALARS: dict[str, Any] = {
    "None": None, "True": True, "-1": -1, "0": 0, "1": 1, "2.5": 2.5, "2.0": 2.0, "1e9": 1e9,
    "NaN": float("nan"), "infinity": float("inf"), "NumPy's 3": np.int64(3), "1e-30": 1e-30,
    "array(3)": np.array(3), "text": "abc", "empty text": "", "bytes": b"abc", "list": [],
    "dict": {}, "tuple": (), "object": object(), "class": dgp.MeanField,
    "function": lambda *a, **k: None,
    "distribution": dist.Normal(0, 1), "complex": 1j, "set": {1}, "key": KEY, "raw key": None,
    "keys": jax.random.split(KEY, 2), "array": np.ones(3), "frame": pd.DataFrame({"a": [1.0]}),
    "a model": models.svgp, "a name with a newline": "a\nb",
}  # fmt: skip
SCALARS["raw key"] = jax.random.PRNGKey(0)


# --------------------------------------------------------------------------------------- the calls
class Target(NamedTuple):
    """A public function, its arguments, and which of them are rows of data."""

    call: Callable[..., Any]
    arguments: dict[str, Any]
    rows: tuple[str, ...] = ()


@functools.cache
def fitted() -> tuple[Any, Any]:
    """Return a guide and its fit."""
    guide = dgp.MeanField(models.svgp)
    return guide, dgp.fit(KEY, models.svgp, guide, X, Y, z=Z, **QUICK)


@functools.cache
def chains() -> Any:
    sampler = dgp.SGHMC(dgp.freeze(models.svgp, fitted()[1].params))
    return dgp.run_mcmc(
        KEY, sampler, X, Y, z=Z, num_warmup=5, num_samples=6, num_chains=2, progress=False
    )


def numbers(result: Any) -> list[np.ndarray]:
    """Return the numbers of a result, by which results are compared and NaN is found."""
    if isinstance(result, dgp.Prediction):
        return [result.mean, result.var, result.log_prob(Y)] if len(result.mean) == ROWS else []
    if hasattr(result, "subtree"):  # of ArviZ
        return [a.values for node in result.subtree for a in node.dataset.data_vars.values()]
    for name in ("losses", "energies", "samples"):
        result = getattr(result, name, result)
    leaves = jax.tree.leaves(result)
    return [np.asarray(a) for a in leaves if getattr(a, "dtype", np.dtype("O")).kind in "fiu"]


def predicted(key: Any = KEY, x: Any = X, **options: Any) -> Any:
    guide, fit = fitted()
    given = {"model": models.svgp, "guide": guide, "params": fit, "z": Z, "num_samples": 4}
    given |= options
    first = (given.pop(n) for n in ("model", "guide", "params"))
    return dgp.predict(key, *first, x, **given)


def method(name: str) -> Callable[..., Any]:
    """Return a method of a prediction as a function."""
    return lambda **options: getattr(predicted(), name)(**options)


def fit(key: Any, model: Any, guide: Any, x: Any, y: Any, **options: Any) -> Any:
    return dgp.fit(key, model, guide, x, y, **options)


def with_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass x and y by position, as users do."""
    return lambda key, model, guide, params, x, y, **o: function(
        key, model, guide, params, x, y, **o
    )


def estimator(kind: Any) -> Callable[..., Any]:
    def run(x: Any, y: Any, x_new: Any, **options: Any) -> Any:
        return kind(**{"random_state": 0, **options}).fit(x, y).predict(x_new)

    return run


def sampled(key: Any, x: Any, y: Any, **options: Any) -> Any:
    sampler = dgp.SGHMC(dgp.freeze(models.svgp, fitted()[1].params))
    return dgp.run_mcmc(key, sampler, x, y, **options)


def kept(name: Any, **options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name if isinstance(name, str) else name
        given = {"model": models.svgp, "guide": fitted()[0], "params": fitted()[1], "z": Z}
        given |= options
        first = (given.pop(n) for n in ("model", "guide", "params"))
        dgp.save(path, *first, **given)
        return dgp.load(path).predict(KEY, X, num_samples=4)


def targets() -> dict[str, Target]:
    guide, result = fitted()
    base = {"key": KEY, "model": models.svgp, "guide": guide, "params": result}
    data = {"x": X, "y": Y, "z": Z}
    deep = {"key": KEY, "model": models.deep_gp, "guide": dgp.MeanField(models.deep_gp)}
    return {
        "fit": Target(
            fit,
            {"key": KEY, "model": models.svgp, "guide": dgp.MeanField(models.svgp), **data,
             "learning_rate": 0.1, "optimizer": None, "loss": None, "start": None,
             "keep_best": False, "restarts": 1, "checkpoint": None, "every": 10, "mesh": None,
             "out": 1, "kernel": dgp.kernels.SquaredExponential.learned, "likelihood": None,
             "noise": 0.3, "batch_size": None, "mean": None, "unknown": "leave out", **QUICK},
            ("x", "y", "z"),
        ),
        "fit of a deep GP": Target(
            fit, {**deep, **data, "z": (Z, Z), "skip": False, "share_kernel": None, **QUICK},
            ("x", "y"),
        ),
        "fit_many": Target(
            lambda keys, model, guide, x, y, **o: dgp.fit_many(keys, model, guide, x, y, **o),
            {"keys": jax.random.split(KEY, 2), "model": models.svgp,
             "guide": dgp.MeanField(models.svgp), **data, "each": (), "num_rows": None,
             "start": None, "learning_rate": 0.1, **QUICK},
            ("x", "y", "z"),
        ),
        "predict": Target(
            predicted,
            {**base, "x": X, "z": Z, "num_samples": 4, "standardizer": None, "site": "y",
             "posterior_samples": None, "chunk_size": None, "out": 1, "noise": 0.3},
            ("x", "z"),
        ),
        "Prediction.log_prob": Target(method("log_prob"), {"y": Y, "mask": None}, ("y",)),
        "Prediction.cdf": Target(method("cdf"), {"y": Y, "num": 10}, ("y",)),
        "Prediction.crps": Target(method("crps"), {"y": Y, "num": 10}, ("y",)),
        "Prediction.quantile": Target(method("quantile"), {"q": 0.5, "num": 10}),
        "Prediction.interval": Target(method("interval"), {"level": 0.9}),
        "Prediction.sample": Target(method("sample"), {"key": KEY, "num": 2}),
        "Prediction.function_draws": Target(
            method("function_draws"), {"key": KEY, "num": 2, "mode": "joint"}
        ),
        "run_mcmc": Target(
            sampled,
            {"key": KEY, **data, "num_warmup": 2, "num_samples": 3, "thinning": 1, "num_chains": 1,
             "init_params": None, "start": None, "extra_fields": (), "every": 100,
             "progress": False, "noise": 0.3},
            ("x", "y", "z"),
        ),
        "SGHMC": Target(
            lambda model, **o: dgp.SGHMC(model, **o),
            {"model": models.svgp, "step_size": 0.2, "friction": 0.2, "preconditioner": "variance",
             "integrator": "baoab", "correct_noise": True},
        ),
        "fit_mcem": Target(
            lambda key, model, x, y, **o: dgp.fit_mcem(key, model, x, y, **o),
            {"key": KEY, "model": models.svgp, **data, "learning_rate": 0.03, "window": 2,
             "num_samples": 2, "thinning": 1, "num_chains": 1, "expected": 0.5, "start": None,
             "every": 100, **QUICK},
            ("x", "y", "z"),
        ),
        "evaluate": Target(
            with_two(dgp.evaluate), {**base, **data, "loss": None, "num_draws": 3}, ("x", "y", "z")
        ),
        "to_inferencedata": Target(
            with_two(dgp.to_inferencedata),
            {**base, **data, "num_samples": 4, "num_prior_samples": 4, "passes": 2, "site": "y",
             "standardizer": None, "test": None, "coords": None, "units": None, "attrs": None,
             "chunk_size": None, "result": result},
            ("x", "y", "z"),
        ),
        "annealed_evidence": Target(
            with_two(dgp.annealed_evidence),
            {**base, **data, "target": "bound", "start": "guide", "temperatures": 3,
             "leapfrogs": 2, "num_particles": 8, "num_islands": 8, "num_noise": 2,
             "progress": False},
            ("x", "y"),
        ),
        "check_guide": Target(
            with_two(dgp.check_guide),
            {**base, **data, "num_weights": 20, "num_simulations": 4, "steps": 3, "num_draws": 5},
            ("x", "y"),
        ),
        "layer_functions": Target(
            lambda key, model, guide, params, x, **o: dgp.layer_functions(
                key, model, guide, params, x, **o
            ),
            {**base, "x": X, "z": Z, "num_draws": 2, "at": None, "mode": "joint", "site": "y",
             "posterior_samples": None},
            ("x", "z"),
        ),
        "compare_posteriors": Target(
            lambda key, exact, approximation, model, params, x, y, **o: dgp.compare_posteriors(
                key, exact, approximation, model, params, x, y, **o
            ),
            {"key": KEY, "exact": chains(), "approximation": guide, "model": models.svgp,
             "params": result, **data, "test": None, "num_draws": 6, "num_weights": 10},
            ("x", "y"),
        ),
        "chain_diagnostics": Target(criticism.chain_diagnostics, {"chains": chains()}),
        "guided": Target(dgp.guided, {n: base[n] for n in ("model", "guide", "params")}),
        "transported": Target(dgp.transported, {n: base[n] for n in ("model", "guide", "params")}),
        "freeze": Target(dgp.freeze, {"program": models.svgp, "params": result}),
        "pool": Target(dgp.pool, {"predictions": [predicted(), predicted()]}),
        "MeanField": Target(
            dgp.MeanField, {"model": models.svgp, "covariance": "full", "hidden_scale": 1e-5}
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
        "Implicit": Target(dgp.Implicit, {"model": models.svgp, "noise_dim": 2}),
        "initialize.deep_gp": Target(
            initialize.deep_gp,
            {"key": KEY, "x": X, "num_inducing": 3, "depth": 2, "width": None, "skip": False},
            ("x",),
        ),
        "initialize.gplvm": Target(
            initialize.gplvm,
            {"key": KEY, "y": np.c_[Y, X[:, 0]], "dim": 1, "num_inducing": 3, "depth": 1}, ("y",)
        ),
        "initialize.inducing_inputs": Target(
            initialize.inducing_inputs, {"key": KEY, "x": X, "num": 3}, ("x",)
        ),
        "Standardizer.fit": Target(
            dgp.Standardizer.fit,
            {"x": X, "y": Y, "shared": False, "unscaled": (), "targets": True}, ("x", "y"),
        ),
        "Rows.from_arrays": Target(
            lambda x, y, **o: dgp.Rows.from_arrays(x, y, **o),
            {"x": X, "y": Y, "buffer_rows": None}, ("x", "y"),
        ),
        "metrics.rmse": Target(metrics.rmse, {"y": Y, "mean": Y}, ("y", "mean")),
        "metrics.crps_samples": Target(
            metrics.crps_samples, {"y": Y, "samples": np.stack([Y, Y + 1])}, ("y", "samples")
        ),
        "metrics.crps_gaussian_mixture": Target(
            metrics.crps_gaussian_mixture,
            {"y": Y, "means": np.stack([Y, Y]), "sds": np.ones((2, ROWS))},
            ("y", "means", "sds"),
        ),
        "metrics.interval_coverage": Target(
            metrics.interval_coverage, {"y": Y, "lower": Y - 1, "upper": Y + 1},
            ("y", "lower", "upper"),
        ),
        "datasets.load": Target(
            datasets.load, {"name_or_path": pd.DataFrame({"a": X[:, 0], "y": Y}), "target": "y"}
        ),
        "datasets.splits": Target(
            datasets.splits, {"data": datasets.load("step"), "num_splits": 2, "seed": 0}
        ),
        "save and load": Target(
            kept,
            {"name": "a.dgp", "model": models.svgp, "guide": guide, "params": result, "z": Z,
             "standardizer": None, "posterior_samples": None, "data": (X, Y), "columns": None,
             "info": None},
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
        "likelihoods.softmax": Target(
            lambda likelihood, y: fit(
                KEY, models.svgp, dgp.MeanField(models.svgp), X, y, z=Z, out=3,
                likelihood=likelihood, **QUICK
            ),
            {"likelihood": likelihoods.softmax, "y": np.arange(ROWS) % 3}, ("y",),
        ),
        "NUTS": Target(
            lambda key, x, y, **o: dgp.run_mcmc(
                key, NUTS(dgp.freeze(models.svgp, fitted()[1].params)), x, y, z=Z, **o
            ),
            {"key": KEY, "x": X, "y": Y, "num_warmup": 3, "num_samples": 3, "num_chains": 1,
             "progress": False},
            ("x", "y"),
        ),
    }  # fmt: skip


# --------------------------------------------------------------------------------------- the cases
def run_case(number: int) -> dict[str, Any]:
    """Return what happened in a case: ("ok", "error" or "FAILED"), and a text."""
    rng = np.random.default_rng([7, number])
    if number % 40 == 39:
        name, about = ("threads", "") if number % 80 == 39 else ("kill", "")
        action = functools.partial(threads if name == "threads" else killed, rng)
    else:
        names = list(all_targets())
        name = names[rng.integers(len(names))]
        action, about = odd_call(name, rng)
    outcome, message = judged(action)
    return {"target": name, "about": about, "outcome": outcome, "message": message[:400]}


@functools.cache
def all_targets() -> dict[str, Target]:
    return targets()


@functools.cache
def expected(name: str) -> list[np.ndarray]:
    target = all_targets()[name]
    return numbers(target.call(**_without_odd(target.arguments)))


def _without_odd(arguments: dict[str, Any]) -> dict[str, Any]:
    return {n: a for n, a in arguments.items() if not (isinstance(a, str) and a == "leave out")}


def odd_call(function: str, rng: Any) -> tuple[Callable[[], Any], str]:
    """Return the call with one or two odd arguments, and their description."""
    target = all_targets()[function]
    given, about, same = _without_odd(target.arguments), [], True
    for _ in range(1 + int(rng.random() < 0.15)):
        name = list(target.arguments)[rng.integers(len(target.arguments))]
        value = target.arguments[name]
        if name in target.rows:
            pools = {**other_rows(np.asarray(value)), **SCALARS}
            alike = same_rows(np.asarray(value))
            if rng.random() < 0.3:
                what = list(alike)[rng.integers(len(alike))]
                given[name] = alike[what]
                about.append(f"{name}: {what}")
                continue
        else:
            pools = SCALARS
        what = list(pools)[rng.integers(len(pools))]
        given[name], same = pools[what], False
        about.append(f"{name}: {what}")

    def run() -> Any:
        result = target.call(**given)
        if same:
            for a, b in zip(numbers(result), expected(function), strict=True):
                if a.shape != b.shape or not np.allclose(a, b, 1e-3, 1e-4, equal_nan=True):
                    raise FindingError("another result than of the same numbers as a float32 array")
        return result

    return run, ", ".join(about)


def judged(action: Callable[[], Any]) -> tuple[str, str]:
    """Run a case: ("ok" or "error" or "FAILED", the text)."""

    def late(*_: Any) -> None:
        raise FindingError(f"no end within {SECONDS} s of processor time, or {10 * SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    signal.alarm(10 * SECONDS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = action()
        if any(np.isnan(a).any() for a in numbers(result) if a.dtype.kind == "f") and not said:
            return "FAILED", "NaN in the result, without a warning"
        return "ok", str(said[0].message) if said else ""
    except FindingError as failure:
        return "FAILED", str(failure)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/dgp_ppl/" in f.filename]
        # The library raises its errors itself. NumPyro's refusals of a distribution's arguments
        # and Python's of unknown keywords name the argument too.
        ours = bool(own) and frames[-1] is own[-1] and f"{own[-1].line}".startswith("raise")
        ours = ours and "\n" not in text
        if ours and not isinstance(error, KeyError | AttributeError | IndexError | AssertionError):
            return "error", text
        named = "unexpected keyword" in text or "required positional" in text
        if named or "/sklearn/utils/" in frames[-1].filename:  # of its estimators' contract
            return "error", text
        under = f", under {own[-1].name}" if own else ""
        place = f" [{Path(frames[-1].filename).name}:{frames[-1].lineno}{under}]"
        return "FAILED", text.splitlines()[0][:300] + place
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def threads(rng: Any) -> None:
    """Fit two new models and predict other numbers of rows at once, and compare with one by one."""
    slope = float(rng.uniform(0.5, 2))

    def make() -> Any:
        def model(x: Any, y: Any = None) -> None:
            models.svgp(slope * x, y, z=Z)

        return model

    def train() -> np.ndarray:
        model = make()
        return dgp.fit(KEY, model, dgp.MeanField(model), X, Y, **QUICK).losses

    sizes = rng.integers(2, 40, 2)
    rows = [np.linspace(-1, 1, n)[:, None] for n in sizes]
    work = [train, train, *(lambda x=x: predicted(x=x).mean for x in rows)]
    found: dict[int, Any] = {}

    def run(i: int) -> None:
        try:
            found[i] = work[i]()
        except Exception as error:
            found[i] = error

    started = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for i, task in enumerate(work):
        if isinstance(found[i], Exception):
            raise FindingError(f"in a thread: {type(found[i]).__name__}: {found[i]}")
        if not np.allclose(found[i], task(), rtol=1e-5, atol=1e-6):
            raise FindingError("another result in a thread")


RESUMED = """
import sys, numpy as np, jax, dgp_ppl as dgp
from dgp_ppl import models
x = np.linspace(-2, 2, 12)[:, None].astype("float32")
z = np.float32([[-1.5], [0.0], [1.5]])
options = dict(z=z, steps=4000, every=100, checkpoint=sys.argv[1] or None, progress=False)
guide, y = dgp.MeanField(models.svgp), np.sin(2 * x[:, 0])
fit = dgp.fit(jax.random.key(0), models.svgp, guide, x, y, **options)
np.save(sys.argv[2], fit.losses)
"""


@functools.cache
def uninterrupted() -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "losses.npy"
        subprocess.run([sys.executable, "-c", RESUMED, "", path], check=True, capture_output=True)
        return np.load(path)


def killed(rng: Any) -> None:
    """Kill a fit at a random time, go on with it, and compare with one that was not killed."""
    whole = uninterrupted()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "losses.npy"
        command = [sys.executable, "-c", RESUMED, str(Path(folder) / "kept"), path]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while first.poll() is None and not any((Path(folder) / "kept").glob("*")):
            time.sleep(0.01)  # importing takes longer than all steps
        time.sleep(rng.uniform(0, 1))
        first.kill()
        first.communicate()
        second = subprocess.run(command, capture_output=True, text=True)
        if second.returncode:
            raise FindingError("after a kill: " + second.stderr.strip().splitlines()[-1])
        if not np.array_equal(np.load(path), whole):
            raise FindingError("other losses after a kill")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--records", type=Path, default=Path("fuzz-calls.jsonl"))
    parser.add_argument("--again", action="store_true", help="repeat the cases that failed")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)  # most time goes into compilation
    end, done = time.monotonic() + 60 * given.minutes, finished(given.records)
    if given.again:
        done = {n: row for n, row in done.items() if row["outcome"] != "FAILED"}
    with given.records.open("a") as file:
        for number in range(given.first, given.cases):
            if number in done or time.monotonic() > end:
                continue
            begun = time.monotonic()
            row = {"case": number, **run_case(number)}
            row["seconds"] = round(time.monotonic() - begun, 2)
            file.write(json.dumps(row) + "\n")
            file.flush()
            done[number] = row
            if row["outcome"] == "FAILED":
                print(number, row["target"], "|", row["about"], "|", row["message"], flush=True)
            if number % 500 == 499:  # a process holds few programs, which its cases share
                jax.clear_caches()
    rows = list(done.values())
    outcomes = collections.Counter(r["outcome"] for r in rows)
    print({"cases": len(rows), "outcomes": dict(outcomes)})
    if given.json is not None:
        by_target = collections.defaultdict(collections.Counter)
        for row in rows:
            by_target[row["target"]][row["outcome"]] += 1
        failed = [r for r in rows if r["outcome"] == "FAILED"]
        texts = collections.Counter(re.sub(r"\d[\d.e+-]*", "#", r["message"])[:160] for r in rows)
        found = {
            "cases": len(rows), "outcomes": outcomes, "by_function": by_target,
            "texts": dict(texts.most_common(60)), "failed": failed[:200], "versions": versions(),
        }  # fmt: skip
        write_json(given.json, found)


if __name__ == "__main__":
    main()
