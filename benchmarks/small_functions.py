"""Compare methods of dgp_ppl with scikit-learn's exact GP on small sets of six known functions.

Both standardise inputs and targets. scikit-learn has a squared exponential with a lengthscale for
each input, noise, and five restarts. Errors are of 1,000 held-out rows, with their noise if there
is some, in standard deviations of the test targets; seconds are of one process, compilation
included.

    python benchmarks/small_functions.py [--methods sklearn,gp,sgpr] [--cases CASES] [--json FILE]
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy import pi

from dgp_ppl import Standardizer, metrics
from dgp_ppl.comparison import METHODS, Setting, Task, versions, write_json

TEST, RESTARTS, SAMPLES = 1000, 5, 1
Function = Callable[[np.ndarray], np.ndarray]


def step(u: np.ndarray) -> np.ndarray:
    return (u[:, 0] > 0.5).astype(float)


def piecewise(u: np.ndarray) -> np.ndarray:
    x = u[:, 0]
    return np.where(x < 0.4, np.sin(10 * x), np.where(x < 0.7, 0.5 - x, 3 * (x - 0.7)))


def hill(u: np.ndarray) -> np.ndarray:
    return np.exp(-20 * np.square(u - [0.4, 0.6]).sum(axis=1))


def friedman(u: np.ndarray) -> np.ndarray:
    product = 10 * np.sin(pi * u[:, 0] * u[:, 1])
    return product + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]


def borehole(u: np.ndarray, flow: float = 2 * pi, rest: float = 1.0) -> np.ndarray:
    """Return the flow of water; the radii are uniform, too. The cheap one has 5 and 1.5."""
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    r_w, r, t_u, h_u, t_l, h_l, length, k_w = (low + (high - low) * u).T
    ratio = np.log(r / r_w)
    leak = 2 * length * t_u / (ratio * r_w**2 * k_w)
    return flow * t_u * (h_u - h_l) / (ratio * (rest + leak + t_u / t_l))


def ishigami(u: np.ndarray) -> np.ndarray:
    a, b, c = (pi * (2 * u - 1)).T
    return np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a)


# The function, its inputs, rows, and the noise in standard deviations of the targets.
CASES: dict[str, tuple[Function, int, int, float]] = {
    "step-100": (step, 1, 100, 0.1),
    "piecewise-20": (piecewise, 1, 20, 0.0),
    "hill-50": (hill, 2, 50, 0.0),
    "friedman-100": (friedman, 10, 100, 0.002),
    "friedman-200": (friedman, 5, 200, 0.2),
    "borehole-100": (borehole, 8, 100, 0.0),
    "ishigami-100": (ishigami, 3, 100, 0.0),
    "borehole-1000": (borehole, 8, 1000, 0.05),
    "friedman-1000": (friedman, 5, 1000, 0.2),
    "ishigami-1000": (ishigami, 3, 1000, 0.01),
}


def rows_of(case: str, seed: int) -> tuple[np.ndarray, ...]:
    """Return inputs and targets to fit, and to test."""
    function, dim, num, noise = CASES[case]
    rng = np.random.default_rng(seed)
    u = rng.uniform(size=(num + TEST, dim))
    f = function(u)
    y = f + noise * f.std() * rng.standard_normal(len(f))
    return u[:num], y[:num], u[num:], y[num:]


def of_sklearn(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, seed: int) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengthscales: Any = np.ones(x.shape[1])
    signal: Any = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(lengthscales, (1e-2, 1e3))
    model: Any = GaussianProcessRegressor(
        signal + WhiteKernel(0.1, (1e-8, 10)), n_restarts_optimizer=RESTARTS, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    mean, sd = model.predict(x_test, return_std=True)
    fitted: Any = model.kernel_
    noise = np.sqrt(np.exp(fitted.theta[-1]))
    return mean, sd, model.log_marginal_likelihood_value_ / len(y), noise


def of_method(method: str, x: Any, y: Any, x_test: Any, seed: int) -> Any:
    key, key_test = jax.random.split(jax.random.key(seed))
    fitted = METHODS[method](Task(key, x, y, Setting()))
    found = fitted.predict(key_test, x_test, num_samples=SAMPLES)
    elbo, noise = fitted.elbo_per_datum, fitted.result.params["noise"]
    return np.asarray(found.mean), np.sqrt(np.asarray(found.var)), elbo, float(noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="sklearn,gp,sgpr")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case in args.cases.split(","):
        x, y, x_test, y_test = rows_of(case, args.seed)
        scale = Standardizer.fit(x, y)
        x, x_test = np.asarray(scale.inputs(x)), np.asarray(scale.inputs(x_test))
        y, y_test = np.asarray(scale.outputs(y)), np.asarray(scale.outputs(y_test))
        for method in args.methods.split(","):
            begun, cpu = time.perf_counter(), time.process_time()
            if method == "sklearn":
                mean, sd, bound, noise = of_sklearn(x, y, x_test, args.seed)
            else:
                mean, sd, bound, noise = of_method(method, x, y, x_test, args.seed)
            crps = metrics.crps_gaussian_mixture(y_test, mean[None], sd[None]).mean()
            inside = (abs(y_test - mean) < 1.6449 * sd).mean()
            numbers = {
                "rmse": metrics.rmse(y_test, mean) / y_test.std(), "crps": crps / y_test.std(),
                "coverage": inside, "bound": bound, "noise": noise,
                "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu,
            }  # fmt: skip
            row = {"case": case, "method": method} | {n: float(v) for n, v in numbers.items()}
            print("  ".join(f"{n} {v:.4g}" for n, v in numbers.items()), case, method, flush=True)
            rows.append(row)
    if args.json:
        about = {"test_rows": TEST, "restarts": RESTARTS, "seed": args.seed}
        write_json(args.json, {**about, "versions": versions(), "rows": rows})


if __name__ == "__main__":
    main()
