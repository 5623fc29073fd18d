"""Programs whose result is known from another call or formula, with random numbers in them.

Each takes a random generator and raises `FindingError` where the two differ.
"""

import functools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import numpyro.handlers
from fuzz_problem import (
    chains,
    fitted,
    fitted_grouped,
    grouped,
    kept,
    near_prediction,
    numbers,
    predicted,
    weighted,
)
from fuzz_values import KEY, KINDS, QUICK, ROWS, G, X, Y, Z, random_data
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import datasets, inference, kernels, likelihoods, metrics, models
from dgp_ppl.sklearn import DeepGPRegressor


class FindingError(Exception):
    """A finding of the fuzz."""


def same(what: str, found: Any, wanted: Any, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """Raise unless two results have the same numbers."""
    a, b = (numbers(r) if not isinstance(r, list) else r for r in (found, wanted))
    if len(a) != len(b):
        raise FindingError(f"{what}: {len(a)} arrays instead of {len(b)}")
    for x, y in zip(a, b, strict=True):
        if np.shape(x) != np.shape(y):
            raise FindingError(f"{what}: shape {np.shape(x)} instead of {np.shape(y)}")
        if not np.allclose(x, y, rtol, atol, equal_nan=True):
            error = np.max(np.abs(np.asarray(x, float) - y))
            raise FindingError(f"{what}: numbers differ by up to {error:.2g}")


def that(holds: Any, what: str) -> None:
    if not np.all(holds):
        raise FindingError(what)


# ------------------------------------------------------------------------------------------- rows
def permuted_rows(rng: Any) -> str:
    """Permute the rows of a fit, an evaluation, a prediction, or a measure."""
    p = rng.permutation(ROWS)
    x, y, g = X[p], Y[p], G[p]
    guide, fit = fitted()
    bound = lambda x, y: dgp.evaluate(KEY, models.svgp, guide, fit, x, y, z=Z, num_draws=2)  # noqa: E731
    trained = lambda x, y: dgp.fit(KEY, models.svgp, guide, x, y, z=Z, **QUICK)  # noqa: E731
    collapsed = lambda x, y: inference.minimize(KEY, models.sgpr, None, x, y, z=Z, **QUICK)  # noqa: E731
    scaler = lambda x, y: list(vars(dgp.Standardizer.fit(x, y)).values())  # noqa: E731
    groups = lambda x, g: dgp.predict(KEY, grouped, *fitted_grouped(), x, g, num_samples=4)  # noqa: E731
    rough = lambda x, y: near_prediction(x, y, X, block=ROWS, neighbours=ROWS)  # noqa: E731
    crps = lambda x, y: [np.mean(metrics.crps_samples(y, np.stack([x[:, 0], y + 1])))]  # noqa: E731
    alike: dict[str, Callable[..., Any]] = {
        "evaluate": bound, "fit": trained, "minimize": collapsed, "Standardizer": scaler,
        "local": rough, "crps_samples": crps,
    }  # fmt: skip
    name = rng.choice([*alike, "predict", "predict by group"])
    if name in alike:
        same(name, alike[name](x, y), alike[name](X, Y))
    elif name == "predict":
        same(name, predicted(x=x).mean[np.argsort(p)], predicted().mean)
    else:
        same(name, groups(x, g).mean[np.argsort(p)], groups(X, G).mean)
    return name


def some_rows(rng: Any) -> str:
    """Predict some rows alone, or in chunks."""
    rows = np.sort(rng.permutation(ROWS)[: rng.integers(1, ROWS)])
    size = int(rng.integers(1, 2 * ROWS))
    name = str(rng.choice(["svgp", "groups", "local", "chunks", "chunks of groups"]))
    if name == "svgp":
        same(name, predicted(x=X[rows]).var, predicted().var[rows])
    elif name == "local":
        same(name, near_prediction(X, Y, X[rows]).mean, near_prediction(X, Y, X).mean[rows])
    elif name == "chunks":
        q = lambda **o: list(predicted(**o).interval(0.9))  # noqa: E731
        same(name, q(chunk_size=size), q())
    else:
        given = {"num_samples": 4} | ({"chunk_size": size} if "chunks" in name else {})
        kept_rows = slice(None) if "chunks" in name else rows
        call = lambda r, **o: dgp.predict(KEY, grouped, *fitted_grouped(), X[r], G[r], **o)  # noqa: E731
        whole = call(slice(None), num_samples=4)
        found = call(kept_rows, **given)
        same(name, [found.mean, found.var], [whole.mean[kept_rows], whole.var[kept_rows]])
    return name


def weights_are_copies(rng: Any) -> str:
    """Count rows k times, by weights and by copies."""
    k = int(rng.integers(2, 5))

    def model(x: Any, y: Any = None, *, k: int) -> None:
        with numpyro.handlers.scale(scale=float(k)):
            models_like(x, y)

    def models_like(x: Any, y: Any) -> None:
        f = dgp.gp("f", kernels.Matern32(1.0, 1.0), Z)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.3)), obs=y)

    def terms(program: Any, x: Any, y: Any, **options: Any) -> Any:
        seeded = numpyro.handlers.seed(program, 0)
        trace = numpyro.handlers.trace(seeded).get_trace(x, y, **options)["y"]
        scale = 1.0 if trace["scale"] is None else trace["scale"]
        return [np.sum(scale * trace["fn"].log_prob(trace["value"]))]

    copies = (np.repeat(a, k, axis=0) for a in (X, Y))
    same("weights", terms(model, X, Y, k=k), terms(models_like, *copies))
    fit = inference.minimize(KEY, models.sgpr, None, X, Y, z=Z, **QUICK)
    x, y = (np.repeat(a, 2, axis=0) for a in (X, Y))
    doubled = inference.minimize(KEY, models.sgpr, None, x, y, z=Z, **QUICK)
    that(doubled.num_data == 2 * fit.num_data, "minimize: num_data of copied rows")
    return f"{k} times"


def units(rng: Any) -> str:
    """Change the units of y, and of x: predictions change theirs."""
    a, b = float(10 ** rng.uniform(-3, 3)), float(rng.normal())
    name = rng.choice(["standardizer", "estimator of y", "estimator of x"])
    if name == "standardizer":
        scaler = dgp.Standardizer(np.zeros(1), np.ones(1), b, a)
        plain, scaled = predicted(), predicted(standardizer=scaler)
        found = [scaled.mean, scaled.var, scaled.quantile(0.9), scaled.log_prob(b + a * Y)]
        wanted = [b + a * plain.mean, a**2 * plain.var, b + a * plain.quantile(0.9)]
        same(name, found, [*wanted, plain.log_prob(Y) - np.log(a)], atol=1e-4 * (1 + a))
        return name
    make = lambda x, y: DeepGPRegressor(steps=3, inducing=3, samples=3, random_state=0).fit(x, y)  # noqa: E731
    plain = make(X, Y).predict(X)
    if name == "estimator of y":
        same(name, make(X, b + a * Y).predict(X), b + a * plain, 1e-2, 1e-3 * (abs(b) + a))
    else:
        moved = b + a * X.astype(float)
        same(name, make(moved, Y).predict(moved), plain, 1e-2, 1e-2)
    return name


# -------------------------------------------------------------------------------- weights and files
def log_weights(rng: Any) -> str:
    """Weigh the draws of chains: equally, shifted, or all but some with weight 0."""
    samples, shape = chains().samples, chains().shape
    name = str(rng.choice(["equal", "shifted", "some", "float64"]))
    w = rng.normal(size=shape)
    if name == "equal":
        w = np.full(shape, rng.normal())
        same(name, weighted(w, samples, num_samples=40), weighted(None, chains()))
    elif name == "some":
        kept_draw = int(rng.integers(w.size))
        w = np.where(np.arange(w.size).reshape(shape) == kept_draw, 0.0, -np.inf)
        one = {n: a.reshape(-1, *a.shape[2:])[kept_draw][None] for n, a in samples.items()}
        same(name, weighted(w, samples, num_samples=40).mean, weighted(None, one).mean)
    else:
        other = w + 1000 if name == "shifted" else w.astype("float32")
        found = weighted(other, samples, num_samples=40)
        same(name, found, weighted(w, samples, num_samples=40))
    return name


def round_trip(rng: Any) -> str:
    """Save a fit and load it, pool a prediction with itself, or fit one of many alone."""
    name = rng.choice(["save", "pool", "fit_many", "x64", "rows"])
    guide, fit = fitted()
    if name == "save":
        same(name, kept("a.dgp"), predicted(), 1e-6, 1e-7)
    elif name == "pool":
        same(name, dgp.pool([predicted()] * int(rng.integers(1, 4))), predicted())
    elif name == "fit_many":
        keys, r = jax.random.split(KEY, 3), int(rng.integers(3))
        many = dgp.fit_many(keys, models.svgp, guide, X, Y, z=Z, **QUICK)
        alone = dgp.fit(keys[r], models.svgp, guide, X, Y, z=Z, **QUICK)
        same(name, many.losses[r], alone.losses)
    elif name == "x64":
        with jax.enable_x64(True):
            wide = predicted(x=X.astype(float)).mean
        same(name, wide, predicted().mean, 1e-2, 1e-2)
    else:
        rows = dgp.Rows.from_arrays(X, Y)
        wanted = dgp.Standardizer.fit(X, Y)
        same(name, list(vars(dgp.Standardizer.fit(rows)).values()), list(vars(wanted).values()))
        batched = lambda x, *y: dgp.check_fit(fit, KEY, models.svgp, guide, x, *y, z=Z)  # noqa: E731
        same(name, batched(rows), batched(X, Y))
    return name


def table_order(rng: Any) -> str:
    """Reorder the columns of a table that a preprocessor knows."""
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "b": list("uvw" * 4), "c": Y**2, "y": Y})
    prepared: Any = datasets.Preprocessor.fit(frame, target="y", categorical=["b"])
    order = rng.permutation(frame.columns[:3])
    same("columns", prepared.inputs(frame[list(order)]), prepared.inputs(frame))
    return "inputs"


# ------------------------------------------------------------------------------------ likelihoods
SCIPY: dict[str, Callable[..., Any]] = {
    "Normal": stats.norm, "Laplace": stats.laplace, "Logistic": stats.logistic,
    "Cauchy": stats.cauchy,
}  # fmt: skip


def tails(rng: Any) -> str:
    """Compare censored and truncated likelihoods with SciPy in float64."""
    name = rng.choice([*SCIPY, "Weibull", "Gamma", "LogNormal", "StudentT", "truncated"])
    loc, scale, y = rng.normal(), float(10 ** rng.uniform(-2, 2)), float(np.exp(rng.normal()))
    y = loc + scale * float(rng.normal()) * 3 if name in (*SCIPY, "StudentT", "truncated") else y
    c = float(rng.uniform(0.5, 5))
    if name == "truncated":
        low = y - scale * float(rng.uniform(0, 2))
        truncated: Any = dist.TruncatedNormal(loc, scale, low=low)
        wanted = stats.norm.logpdf(y, loc, scale) - stats.norm.logsf(low, loc, scale)
        exact = likelihoods.log_density(truncated, y)
        same(name, [np.asarray(exact)], [np.asarray(wanted)], 2e-3, 2e-3)
        return name
    pair: Any = {
        "Weibull": (lambda: dist.Weibull(scale, c), stats.weibull_min(c, scale=scale)),
        "Gamma": (lambda: dist.Gamma(c, 1 / scale), stats.gamma(c, scale=scale)),
        "LogNormal": (lambda: dist.LogNormal(loc, c), stats.lognorm(c, scale=np.exp(loc))),
        "StudentT": (lambda: dist.StudentT(c, loc, scale), stats.t(c, loc, scale)),
    }.get(name) or (lambda: getattr(dist, name)(loc, scale), SCIPY[name](loc, scale))
    ours, theirs = pair
    right = likelihoods.RightCensored(ours(), np.array(True)).log_prob(y)
    left = likelihoods.LeftCensored(ours(), np.array(True)).log_prob(y)
    plain = likelihoods.RightCensored(ours(), np.array(False)).log_prob(y)
    ends = np.array([y, y + scale])
    between = likelihoods.IntervalCensored(ours()).log_prob(ends)
    wanted = [theirs.logsf(y), theirs.logcdf(y), theirs.logpdf(y)]
    tail = theirs.logcdf if theirs.logcdf(ends[1]) < theirs.logsf(ends[0]) else theirs.logsf
    less, more = np.sort(tail(ends))
    wanted += [more + np.log(-np.expm1(less - more))]
    found = [np.asarray(a) for a in (right, left, plain, between)]
    same(name, found, [np.asarray(w) for w in wanted], 2e-3, 2e-3)
    return name


def random_fit(rng: Any) -> str:
    """Fit odd data under a likelihood: no NaN, and queries of the prediction that fit together."""
    name = str(rng.choice(list(KINDS)))
    kind = KINDS[name]
    x, y, about = random_data(kind, rng)
    scaled = kind.target in ("real", "reals") and rng.random() < 0.5
    scaler = dgp.Standardizer.fit(x, y if scaled else None)
    given: dict[str, Any] = {"z": Z, "out": kind.out}
    given |= {} if kind.likelihood is None else {"likelihood": kind.likelihood}
    guide = _guide_of(name)
    fit = dgp.fit(
        KEY, models.svgp, guide, scaler.inputs(x), scaler.outputs(y) if scaled else y, **QUICK,
        **given,
    )  # fmt: skip
    that(np.isfinite(fit.losses), "a loss is not finite")
    p = dgp.predict(KEY, models.svgp, guide, fit, x, num_samples=3, standardizer=scaler, **given)
    has_quantiles = kind.target in ("real", "positive", "clipped", "share", "count", "few")
    # Each query of a likelihood compiles for seconds: a likelihood has one.
    queries = ("log_prob", "moments", "sample", "quantile")[: 3 + has_quantiles]
    query = queries[list(KINDS).index(name) % len(queries)]
    found: dict[str, Any] = {}
    if query in ("log_prob", "sample"):
        found[query] = p.log_prob(y) if query == "log_prob" else p.sample(KEY, 3)
    elif query == "quantile":
        q = np.sort(rng.uniform(0.01, 0.99, 3))
        low, middle, high = quantiles = p.quantile(q)
        that((low <= middle) & (middle <= high), "quantiles are not in order")
        reached = np.stack([p.cdf(row) for row in quantiles])
        that(reached >= q[:, None] - 0.03, "the cdf at a quantile is below its level")
        if kind.target not in ("clipped", "count", "few"):
            that(reached <= q[:, None] + 0.03, "the cdf at a quantile is above its level")
        found |= {"quantile": quantiles, "cdf": reached}
    elif kind.target in ("binary", "class"):
        same("sum of probabilities", p.probabilities.sum(axis=-1), np.ones(ROWS))
    else:
        found |= {"mean": p.mean, "var": p.var}
        that(p.var >= 0, "a variance is negative")
    if bad := [n for n, a in found.items() if np.isnan(a).any()]:
        raise FindingError(f"NaN in {', '.join(bad)}")
    return f"{name}, {query}: {about}"


@functools.cache
def _guide_of(kind: str) -> Any:
    """Return the guide of a likelihood, which shares compiled programs."""
    return dgp.MeanField(models.svgp)


# ------------------------------------------------------------------------------ threads and kills
def threads(rng: Any) -> str:
    """Fit two new models and predict other numbers of rows at once, and compare with one by one."""
    slope = float(rng.uniform(0.5, 2))

    def train() -> np.ndarray:
        model = lambda x, y=None: models.svgp(slope * x, y, z=Z)  # noqa: E731
        return dgp.fit(KEY, model, dgp.MeanField(model), X, Y, **QUICK).losses

    rows = [np.linspace(-1, 1, n)[:, None] for n in rng.integers(2, 40, 2)]
    near = lambda: near_prediction(X, Y, rows[0]).mean  # noqa: E731
    work = [train, train, near, *(lambda x=x: predicted(x=x).mean for x in rows)]
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
        same("in a thread", found[i], task(), 1e-5, 1e-6)
    return ""


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
def _uninterrupted() -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "losses.npy"
        subprocess.run([sys.executable, "-c", RESUMED, "", path], check=True, capture_output=True)
        return np.load(path)


def kills(rng: Any) -> str:
    """Kill a fit at a random time, go on with it, and compare with one that was not killed."""
    whole = _uninterrupted()
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
        that(np.array_equal(np.load(path), whole), "other losses after a kill")
    return ""


RELATIONS = (
    permuted_rows, some_rows, weights_are_copies, units, log_weights, round_trip, table_order,
    tails, random_fit,
)  # fmt: skip
