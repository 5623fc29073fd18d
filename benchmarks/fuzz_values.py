"""Values that the fuzz passes: odd ones, the same ones in other forms, and random data.

An odd value may be refused in the library's words. The same value in another form may be refused
too, or else gives the same result.
"""

import collections
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse

import dgp_ppl as dgp
from dgp_ppl import likelihoods, models

KEY, ROWS = jax.random.key(0), 12
X = np.linspace(-2, 2, ROWS)[:, None].astype("float32")
Y = np.sin(2 * X[:, 0])
Z = np.array([[-1.5], [0.0], [1.5]], np.float32)
G = np.arange(ROWS) % 3  # groups
QUICK: dict[str, Any] = {"steps": 3, "progress": False}


def same_rows(a: np.ndarray) -> dict[str, Any]:
    """Return the same numbers in other forms."""
    read_only = a.copy()
    read_only.flags.writeable = False
    return {
        "float64": a.astype("float64"),
        "jax": jax.numpy.asarray(a),
        "list": a.tolist(),
        "big-endian": a.astype(a.dtype.newbyteorder(">")),
        "Fortran order": np.asfortranarray(a),
        "read only": read_only,
        "strided": np.repeat(a, 2, axis=0)[::2],
        "reversed view": a[::-1].copy()[::-1],
        "subclass": a.view(np.recarray),
        "unmasked": np.ma.masked_array(a),
        "frame": pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
        "shuffled index": pd.Series(a, index=range(len(a), 0, -1)) if a.ndim == 1 else a,
        "nullable frame": pd.DataFrame(a).astype("Float32") if a.ndim == 2 else a,
        "polars": pl.DataFrame(a) if a.ndim == 2 else pl.Series(a),
        "arrow": pa.table({"a": a[:, 0]}) if a.ndim == 2 else pa.array(a),
        "objects": a.astype(object),
    }


def other_rows(a: np.ndarray) -> dict[str, Any]:
    """Return other arrays."""
    nan, wide = a.astype("float32"), a.astype(float)
    nan.flat[1] = np.nan
    put = lambda value: np.where(np.isnan(nan), value, wide)  # noqa: E731
    return {
        "NaN": nan, "infinite": put(np.inf), "1e39": put(1e39), "outlier": put(1e6),
        "1e30": a * 1e30, "1e-30": a * 1e-30, "times 1e6": a * 1e6, "plus 1e6": a + 1e6,
        "unix seconds": 1.7e9 + 60 * wide,
        "constant": np.ones_like(a), "zeros": np.zeros_like(a), "copies": np.repeat(a[::2], 2, 0),
        "no rows": a[:0], "one row": a[:1], "a row more": np.concatenate([a, a[:1]]),
        "flat": a.ravel(), "two columns": np.stack([a.ravel(), a.ravel()], axis=1),
        "one column": a.reshape(-1, 1), "no columns": np.zeros((len(a), 0)),
        "rank 3": a.reshape(len(a), -1)[None], "scalar": 1.0, "0-d": np.array(1.0),
        "integers": a.astype(int), "unsigned": np.abs(a).astype("uint8"), "booleans": a > 0,
        "huge integers": np.full(a.shape, 2**60), "complex": a + 1j,
        "masked": np.ma.masked_array(a, mask=a > a.min()),
        "sparse": scipy.sparse.csr_matrix(np.atleast_2d(a)),
        "text": a.astype(str), "dates": a.astype("datetime64[s]"),
        "records": np.zeros(len(a), [("a", "f4")]),
        "ragged": [[1.0], [1.0, 2.0]],
        "mixed objects": np.array([None, "a", *a.ravel()[2:]], dtype=object),
        "half": a.astype("float16"),
        "missing": pd.Series([None, *a.ravel()[1:]], dtype="Float64"),
        "generator": (row for row in a), "dict of columns": {"a": a.ravel().tolist()},
    }  # fmt: skip


SCALARS: dict[str, Any] = {
    "None": None, "True": True, "-1": -1, "0": 0, "1": 1, "2.5": 2.5, "2.0": 2.0, "1e9": 1e9,
    "NaN": float("nan"), "infinity": float("inf"), "NumPy's 3": np.int64(3), "1e-30": 1e-30,
    "array(3)": np.array(3), "text": "abc", "empty text": "", "bytes": b"abc", "list": [],
    "dict": {}, "tuple": (), "object": object(), "class": dgp.MeanField, "2**70": 2**70,
    "function": lambda *a, **k: None, "failing": lambda *a, **k: 1 / 0,
    "distribution": dist.Normal(0, 1), "complex": 1j, "set": {1}, "key": KEY,
    "raw key": jax.random.PRNGKey(0), "keys": jax.random.split(KEY, 2), "array": np.ones(3),
    "frame": pd.DataFrame({"a": [1.0]}), "a model": models.svgp, "null byte": "a\0b",
    "a name with a newline": "a\nb", "list of None": [None], "range": range(3),
    "path": pathlib.Path("a"), "ellipsis": ..., "module": np, "error": ValueError("a"),
}  # fmt: skip


def same_value(value: Any) -> dict[str, Any]:
    """Return the same value of an argument that is not rows in other forms."""
    if isinstance(value, bool):
        return {"NumPy's bool": np.bool_(value)}
    if isinstance(value, int):
        return {
            "NumPy's integer": np.int32(value), "as float": float(value),
            "0-d integer": np.array(value), "jax integer": jax.numpy.asarray(value),
        }  # fmt: skip
    if isinstance(value, float):
        return {
            "NumPy's float": np.float32(value), "0-d float": np.array(value),
            "jax float": jax.numpy.asarray(value),
        }  # fmt: skip
    if isinstance(value, str):
        return {"NumPy's text": np.str_(value)}
    if isinstance(value, tuple):
        return {"as list": list(value)}
    if value is KEY:
        return {"raw key": jax.random.key_data(KEY)}
    if isinstance(value, dgp.FitResult):
        params = {n: np.asarray(a) for n, a in value.params.items()}
        ordered = collections.OrderedDict(sorted(params.items(), reverse=True))
        wide = {n: a.astype(float) for n, a in params.items()}
        return {"params": value.params, "NumPy's params": ordered, "float64 params": wide}
    programs = (models.svgp, models.deep_gp, models.sgpr, likelihoods.softmax)
    if any(value is program for program in programs):
        return {"partial": functools.partial(value), "lambda": lambda *a, **k: value(*a, **k)}
    return {}


class Kind(NamedTuple):
    """A likelihood of f: what y is, and the number of outputs of the last layer."""

    likelihood: Callable[[Any], Any] | None
    target: str
    out: int = 1


_CENSORED: Any = np.arange(ROWS) % 3 == 0


def positive(f: Any) -> Any:
    return jax.nn.softplus(f) + 1e-3


KINDS = {
    "gaussian": Kind(None, "real"),
    "two outputs": Kind(lambda f: dist.Normal(f, 0.3).to_event(1), "reals", 2),
    "heteroscedastic": Kind(likelihoods.heteroscedastic, "real", 2),
    "student_t": Kind(likelihoods.student_t, "real"),
    "laplace": Kind(lambda f: dist.Laplace(f, 0.3), "real"),
    "clipped": Kind(lambda f: likelihoods.CensoredNormal(f, 0.5, low=-1.0, high=1.0), "clipped"),
    "probit": Kind(likelihoods.bernoulli_probit, "binary"),
    "logit": Kind(likelihoods.bernoulli_logit, "binary"),
    "softmax": Kind(likelihoods.softmax, "class", 3),
    "robust_max": Kind(likelihoods.robust_max, "class", 3),
    "poisson": Kind(likelihoods.PoissonLog, "count"),
    "negative_binomial": Kind(lambda f: likelihoods.NegativeBinomialLog(f, 2.0), "count"),
    "binomial": Kind(lambda f: dist.Binomial(20, logits=f), "few"),
    "weibull": Kind(lambda f: dist.Weibull(positive(f), 1.5), "positive"),
    "gamma": Kind(lambda f: dist.Gamma(2.0, 2.0 / positive(f)), "positive"),
    "lognormal": Kind(lambda f: dist.LogNormal(f, 0.3), "positive"),
    "beta": Kind(lambda f: dist.Beta(jax.numpy.exp(f), 2.0), "share"),
    "right-censored": Kind(
        lambda f: likelihoods.RightCensored(dist.Normal(f, 0.3), _CENSORED), "real"
    ),
    "censored times": Kind(
        lambda f: likelihoods.RightCensored(dist.Weibull(positive(f), 1.5), _CENSORED), "positive"
    ),
    "left-censored": Kind(
        lambda f: likelihoods.LeftCensored(dist.LogNormal(f, 0.5), _CENSORED), "positive"
    ),
    "interval-censored": Kind(
        lambda f: likelihoods.IntervalCensored(dist.Normal(f, 0.3)), "interval"
    ),
    "NumPyro's censored": Kind(
        lambda f: dist.RightCensoredDistribution(dist.Normal(f, 0.3), _CENSORED), "real"
    ),
    "truncated": Kind(lambda f: dist.TruncatedNormal(f, 0.5, low=0.0), "positive"),
    "truncated on both sides": Kind(
        lambda f: dist.TruncatedNormal(f, 0.5, low=-1.5, high=1.5), "clipped"
    ),
}


def random_data(kind: Kind, rng: Any) -> tuple[np.ndarray, np.ndarray, str]:
    """Return x [N, 1], y, and what is odd about them: copies, outliers, scales, shifts."""
    x, about = rng.normal(size=(ROWS, 1)), []

    def happens(name: str, probability: float = 0.3) -> bool:
        if hit := rng.random() < probability:
            about.append(name)
        return bool(hit)

    if happens("copies"):
        x[: ROWS // 2] = x[ROWS // 2 :]
    f = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=ROWS)
    if happens("constant x", 0.1):
        x[:] = rng.choice([0.0, 1.0, 1e5])
    if happens("outlier in x"):
        x[rng.integers(ROWS)] *= 10.0 ** rng.integers(1, 7)
    x = x * 10.0 ** rng.uniform(-6, 6) if happens("scale of x") else x
    target, spread = kind.target, 1.0
    if target in ("binary", "class"):
        top = 2 if target == "binary" else 3
        one = happens("one class", 0.2)
        return x, np.zeros(ROWS, int) if one else rng.integers(0, top, ROWS), ", ".join(about)
    if target in ("count", "few"):
        y = rng.poisson(np.exp(f))
        if target == "count" and happens("outlier in y"):
            y[0] = 10 ** int(rng.integers(1, 7))
        return x, np.minimum(y, 20) if target == "few" else y, ", ".join(about)
    if target == "share":
        return x, 1 / (1 + np.exp(-f)), ", ".join(about)
    y = np.exp(f) if target == "positive" else f
    if happens("constant y", 0.1):
        y = np.full(ROWS, 1.0)
    if target != "clipped":
        if happens("outlier in y"):
            y[0] *= 10.0 ** rng.integers(1, 5)
        spread = 10.0 ** rng.uniform(-3, 3) if happens("scale of y") else 1.0
    y = np.clip(y, -1, 1) if target == "clipped" else y * spread
    if target in ("reals", "interval"):
        y = np.stack([y, y + spread if target == "interval" else -y], axis=1)
    return x, y, ", ".join(about)
