"""Fit small random data sets in float32, and look for NaN in losses, predictions and draws.

    python benchmarks/fuzz.py [--cases 2000] [--minutes 60] [--records FILE] [--only REGEX]
        [--skip CASE ...]

A case is a number: it fixes the data, the likelihood, the sizes and the scales. N is 2 to 60, also
below the number M of inducing inputs; rows may be repeated, a column constant, one target or input
an outlier, and inputs and targets scaled by 1e-6 to 1e6, standardised or not. A case fails if a
loss, a prediction or a draw is NaN, or if an error does not come from the library with a cause.

Each finished case is one line of the records, so the run can be stopped at any time, and goes on.
Cases of one shape share their compiled programs: one shape takes the longest the first time. Set
JAX_COMPILATION_CACHE_DIR to keep programs between runs. `--json FILE` writes a summary.
"""

import argparse
import collections
import functools
import json
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

import dgp_ppl as dgp
from dgp_ppl import initialize, likelihoods, models
from dgp_ppl.comparison import versions, write_json

STEPS, CLASSES, TEST_ROWS = 30, 3, 4
LEVELS = np.array([0.05, 0.5, 0.95])
OPTIMIZER = optax.adam(0.05)
MODELS = {1: models.svgp, 2: models.deep_gp}


class Kind(NamedTuple):
    """A likelihood: what y is, from f, and the number of outputs of the last layer."""

    likelihood: Callable[[Any], Any] | None
    target: str
    out: int = 1


def constant(likelihood: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let fits share compiled programs, as the library's likelihoods do: this one never changes."""
    likelihood.__module__ = "dgp_ppl.likelihoods"
    return likelihood


@constant
def poisson(f: Any) -> Any:
    return likelihoods.PoissonLog(f)


@constant
def negative_binomial(f: Any) -> Any:
    return likelihoods.NegativeBinomialLog(f, 2.0)


@constant
def censored(f: Any) -> Any:
    return likelihoods.CensoredNormal(f, 0.5, low=-1.0, high=1.0)


@constant
def laplace(f: Any) -> Any:
    return dist.Laplace(f, 0.3)


@constant
def weibull(f: Any) -> Any:
    return dist.Weibull(jax.nn.softplus(f) + 1e-3, 1.5)


@constant
def gamma(f: Any) -> Any:
    return dist.Gamma(2.0, 2.0 / (jax.nn.softplus(f) + 1e-3))


@constant
def two_outputs(f: Any) -> Any:
    return dist.Normal(f, 0.3).to_event(1)


KINDS = {
    "gaussian": Kind(None, "real"),
    "two outputs": Kind(two_outputs, "reals", 2),
    "heteroscedastic": Kind(likelihoods.heteroscedastic, "real", 2),
    "student_t": Kind(likelihoods.student_t, "real"),
    "laplace": Kind(laplace, "real"),
    "censored": Kind(censored, "clipped"),
    "probit": Kind(likelihoods.bernoulli_probit, "binary"),
    "logit": Kind(likelihoods.bernoulli_logit, "binary"),
    "softmax": Kind(likelihoods.softmax, "class", CLASSES),
    "robust_max": Kind(likelihoods.robust_max, "class", CLASSES),
    "poisson": Kind(poisson, "count"),
    "negative_binomial": Kind(negative_binomial, "count"),
    "weibull": Kind(weibull, "positive"),
    "gamma": Kind(gamma, "positive"),
}


class Shape(NamedTuple):
    """Sizes of a case: rows N, inputs D, inducing inputs M, layers."""

    rows: int
    inputs: int
    inducing: int
    depth: int


# M > N in the first two.
SHAPES = (Shape(2, 1, 6, 1), Shape(9, 2, 12, 2), Shape(60, 3, 10, 1), Shape(25, 1, 8, 2))
# Each likelihood starts with another shape: an early stop has seen all shapes.
GROUPS = [
    (kind, SHAPES[(i + j) % len(SHAPES)])
    for j in range(len(SHAPES))
    for i, kind in enumerate(KINDS)
]


class Case(NamedTuple):
    """A random data set, and how it is fitted."""

    kind: str
    shape: Shape
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    standardised: bool
    about: str


def make_case(number: int) -> Case:
    """Return the case with this number; numbers of one group differ by the number of groups."""
    kind, shape = GROUPS[number % len(GROUPS)]
    rng = np.random.default_rng([19, number])
    N, D = shape.rows, shape.inputs
    x = rng.normal(size=(N + TEST_ROWS, D))
    about = []

    def happens(name: str, probability: float = 0.3) -> bool:
        if hit := rng.random() < probability:
            about.append(name)
        return bool(hit)

    if happens("duplicates"):
        x[: N // 2] = x[N // 2 : 2 * (N // 2)]
    if happens("all rows equal", 0.05):
        x[:N] = x[0]
    if happens("constant column"):
        x[:, rng.integers(D)] = rng.choice([0.0, 1.0, 1e6])
    f = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=len(x))
    if happens("outlier in x"):
        x[rng.integers(N)] *= 10.0 ** rng.integers(1, 7)
    x = x * 10.0 ** rng.uniform(-6, 6) if happens("scale of x", 0.5) else x
    x = x + 10.0 ** rng.uniform(0, 6) if happens("shift of x", 0.2) else x
    y = _target(KINDS[kind].target, f[:N], rng, happens)
    return Case(kind, shape, x[:N], y, x[N:], happens("standardised", 0.5), ", ".join(about))


def _target(target: str, f: np.ndarray, rng: Any, happens: Callable[..., bool]) -> np.ndarray:
    """Return y of a likelihood from f [N]."""
    if target == "binary":
        return np.zeros(len(f), int) if happens("one class", 0.2) else (f > 0).astype(int)
    if target == "class":
        return (
            np.zeros(len(f), int) if happens("one class", 0.2) else rng.integers(0, CLASSES, len(f))
        )
    if target == "count":
        y = rng.poisson(np.exp(f))
        if happens("outlier in y"):
            y[0] = 10 ** int(rng.integers(1, 7))
        return y
    y = np.exp(f) if target == "positive" else f
    if happens("constant y", 0.1):
        y = np.full(len(f), 1.0)
    if happens("outlier in y"):
        y[0] *= 10.0 ** rng.integers(1, 7)
    y = y * 10.0 ** rng.uniform(-6, 6) if happens("scale of y", 0.5) else y
    if target == "clipped":
        return np.clip(y, -1, 1)
    return np.stack([y, -y], axis=1) if target == "reals" else y


@functools.cache
def guide_of(kind: str, shape: Shape) -> Any:
    """Return the guide of a group, which keeps the shapes of its first fit."""
    return dgp.MeanField(MODELS[shape.depth])


def run_case(case: Case) -> tuple[str, str]:
    """Fit a case and predict: ("ok" or "error" or "FAILED", what happened)."""
    kind, shape = KINDS[case.kind], case.shape
    scales_y = kind.target in ("real", "reals")
    scaler = dgp.Standardizer.fit(case.x, case.y if scales_y else None)
    if not case.standardised:
        one = np.ones(case.x.shape[1])
        scaler = dgp.Standardizer(0 * one, one)
    key, x = jax.random.key(0), scaler.inputs(case.x)
    y = scaler.outputs(case.y) if scales_y else jnp.asarray(case.y)
    try:
        options = _options(key, x, kind, shape)
        model, guide = MODELS[shape.depth], guide_of(case.kind, shape)
        fit = dgp.fit(
            key, model, guide, x, y, steps=STEPS, optimizer=OPTIMIZER, progress=False, **options
        )
        if not np.isfinite(fit.losses).all():
            return "FAILED", "a loss is not finite, without an error"
        bad = list(_nan_queries(key, model, guide, fit, case, scaler, options))
    except dgp.NonFiniteLossError as error:
        return "error", str(error)
    except (dgp.DataError, ValueError) as error:
        named = re.match(r"[A-Za-z_.]+: ", str(error))
        return ("error" if named else "FAILED"), f"{type(error).__name__}: {error}"
    except Exception as error:  # what a user would see as a traceback
        return "FAILED", f"{type(error).__name__}: {error}"
    return ("FAILED", "NaN in " + ", ".join(bad)) if bad else ("ok", "")


def _options(key: Any, x: Any, kind: Kind, shape: Shape) -> dict[str, Any]:
    layers = initialize.deep_gp(key, x, num_inducing=shape.inducing, depth=shape.depth)
    if shape.depth == 1:
        layers = {"z": layers["z"][0]}
    likelihood = {} if kind.likelihood is None else {"likelihood": kind.likelihood}
    return {**layers, **likelihood, "out": kind.out}


def _nan_queries(
    key: Any, model: Any, guide: Any, fit: Any, case: Case, scaler: Any, options: Any
) -> Iterator[str]:
    """Yield the queries of predictions at new and at training rows that have NaN."""
    kind = KINDS[case.kind]
    # As many new rows as training rows: the same programs.
    new = np.resize(case.x_test, case.x.shape)
    for name, rows in (("training rows", case.x), ("new rows", new)):
        p = dgp.predict(key, model, guide, fit, rows, num_samples=3, standardizer=scaler, **options)
        queries = {
            "log_prob": lambda p=p: p.log_prob(case.y),
            "sample": lambda p=p: p.sample(key, 3),
            "function_draws": lambda p=p: p.function_draws(key, 3),
            "paths": lambda p=p: p.function_draws(key, 3, mode="path"),
        }
        if kind.target == "class" or kind.target == "binary":
            queries["probabilities"] = lambda p=p: p.probabilities
        else:
            queries |= {"mean": lambda p=p: p.mean, "var": lambda p=p: p.var}
        if kind.target not in ("class", "binary", "reals"):
            queries["quantile"] = lambda p=p: p.quantile(LEVELS)
            queries["cdf"] = lambda p=p: p.cdf(case.y)
        for query, compute in queries.items():
            if np.isnan(compute()).any():
                yield f"{query} at {name}"


def finished(records: Path) -> dict[int, dict[str, Any]]:
    """Return the records by case; a line cut short is removed."""
    if not records.exists():
        return {}
    text = records.read_text()
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        records.write_text(text)
    return {row["case"]: row for row in map(json.loads, text.splitlines())}


def order(cases: int) -> list[int]:
    """Return the cases group by group, in rounds of 36 of each group."""
    size = 36 * len(GROUPS)
    return sorted(range(cases), key=lambda n: (n // size, n % len(GROUPS), n))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of outcomes by likelihood, and the causes that errors name."""
    outcomes: dict[str, Any] = {}
    for row in rows:
        counts = outcomes.setdefault(row["kind"], collections.Counter())
        counts[row["outcome"]] += 1
    causes = collections.Counter(
        re.sub(r"\d[\d.e+-]*", "#", row["message"])[:160] for row in rows if row["message"]
    )
    total = collections.Counter(row["outcome"] for row in rows)
    return {
        "cases": len(rows), "outcomes": total, "by_likelihood": outcomes,
        "causes": dict(causes.most_common(30)), "versions": versions(),
        "failed": [row for row in rows if row["outcome"] == "FAILED"][:100],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", default="", help="regular expression of likelihoods")
    parser.add_argument("--skip", type=int, nargs="*", default=[], help="cases that do not end")
    parser.add_argument("--records", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    end, done = time.monotonic() + 60 * given.minutes, finished(given.records)
    group = None
    with given.records.open("a") as file:
        for number in order(given.cases):
            case = make_case(number)
            if number in done or number in given.skip or not re.search(given.only, case.kind):
                continue
            if time.monotonic() > end:
                break
            if group != (case.kind, case.shape):  # the memory of a process holds few groups
                jax.clear_caches()
                group = case.kind, case.shape
            begun = time.monotonic()
            outcome, message = run_case(case)
            row = {
                "case": number, "kind": case.kind, "shape": list(case.shape), "about": case.about,
                "outcome": outcome, "message": message[:400],
                "seconds": round(time.monotonic() - begun, 2),
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
            done[number] = row
            if outcome == "FAILED":
                print(number, case.kind, case.shape, case.about, message[:200], flush=True)
    found = summary(list(done.values()))
    print({n: found[n] for n in ("cases", "outcomes")})
    if given.json is not None:
        write_json(given.json, found)


if __name__ == "__main__":
    main()
