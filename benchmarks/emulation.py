"""Compare surrogates of noise-free simulators: 15 functions, 10 to 100 runs each.

    python benchmarks/emulation.py [--methods bayes,gp,sklearn] [--cases CASES] [--designs 3] \
        [--jsonl benchmarks/results/emulation.jsonl]

`bayes` and other methods of `compare` have their defaults, `sklearn` is an exact GP with a
lengthscale for each input and five restarts, `dgpsi` its default of two layers, `gpytorch` the deep
GP of its tutorial (see `tables/peers.py`), 3,000 steps of Adam (if installed).
Runs are a Latin hypercube. Errors are of 1,000 other places, in standard deviations of the function
there, and coverage of 90 % intervals; seconds are of CPU, compilation included. A run goes on where
its file ends. Keep it on one core (`taskset -c 0`, and OPENBLAS_NUM_THREADS=1).
"""
# pyright: reportMissingImports=false

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy import pi
from scipy.stats import norm, qmc
from small_functions import Function, borehole, friedman, hill, ishigami, of_sklearn, step

from dgp_ppl import Standardizer, metrics
from dgp_ppl.comparison import METHODS, Setting, Task, versions

TEST, PASSES = 1000, 500


def piecewise(u: np.ndarray) -> np.ndarray:
    """Return a sine on the left and a straight line on the right, with a kink between them."""
    x = u[:, 0]
    return np.where(x < 0.6, np.sin(10 * pi * x) * np.exp(-2 * x), 2 * (x - 0.6))


def higdon(u: np.ndarray) -> np.ndarray:
    x = 20 * u[:, 0]
    wave = np.sin(pi * x / 5) + 0.2 * np.cos(4 * pi * x / 5)
    return np.where(x < 10, wave, x / 10 - 1)


def branin(u: np.ndarray) -> np.ndarray:
    a, b = 15 * u[:, 0] - 5, 15 * u[:, 1]
    curved = b - 5.1 * a**2 / (4 * pi**2) + 5 * a / pi - 6
    return curved**2 + 10 * (1 - 1 / (8 * pi)) * np.cos(a) + 10


def currin(u: np.ndarray) -> np.ndarray:
    a, b = u[:, 0], np.maximum(u[:, 1], 1e-6)
    top = 2300 * a**3 + 1900 * a**2 + 2092 * a + 60
    return (1 - np.exp(-0.5 / b)) * top / (100 * a**3 + 500 * a**2 + 4 * a + 20)


def michalewicz(u: np.ndarray) -> np.ndarray:
    x, i = pi * u, np.arange(1, u.shape[1] + 1)
    return -np.sum(np.sin(x) * np.sin(i * x**2 / pi) ** 20, axis=1)


def scaled(u: np.ndarray, low: list[float], high: list[float]) -> Any:
    return (np.array(low) + (np.array(high) - np.array(low)) * u).T


def otl(u: np.ndarray) -> np.ndarray:
    """Return the voltage of an output transformerless circuit."""
    low, high = [50, 25, 0.5, 1.2, 0.25, 50], [150, 70, 3, 2.5, 1.2, 300]
    b1, b2, f, c1, c2, beta = scaled(u, low, high)
    base = 12 * b2 / (b1 + b2)
    gain = beta * (c2 + 9)
    total = gain + f
    return (base + 0.74) * gain / total + 11.35 * f / total + 0.74 * f * gain / (total * c1)


def piston(u: np.ndarray) -> np.ndarray:
    """Return the time of a piston's cycle."""
    low = [30, 0.005, 0.002, 1000, 90000, 290, 340]
    high = [60, 0.020, 0.010, 5000, 110000, 296, 360]
    mass, s, v, k, p, t_a, t_0 = scaled(u, low, high)
    force = p * s + 19.62 * mass - k * v / s
    volume = s / (2 * k) * (np.sqrt(force**2 + 4 * k * p * v * t_a / t_0) - force)
    return 2 * pi * np.sqrt(mass / (k + s**2 * p * v * t_a / (t_0 * volume**2)))


def wing(u: np.ndarray) -> np.ndarray:
    """Return the weight of a light aircraft's wing."""
    low = [150, 220, 6, -10, 16, 0.5, 0.08, 2.5, 1700, 0.025]
    high = [200, 300, 10, 10, 45, 1, 0.18, 6, 2500, 0.08]
    s, fuel, a, sweep, q, taper, tc, n, w, paint = scaled(u, low, high)
    c = np.cos(sweep * pi / 180)
    shape = s**0.758 * fuel**0.0035 * (a / c**2) ** 0.6 * q**0.006 * taper**0.04
    return 0.036 * shape * (100 * tc / c) ** -0.3 * (n * w) ** 0.49 + s * paint


def g_function(u: np.ndarray) -> np.ndarray:
    a = np.arange(u.shape[1])
    return np.prod((np.abs(4 * u - 2) + a) / (1 + a), axis=1)


def ridge(u: np.ndarray) -> np.ndarray:
    """Return a function of three inputs that is flat but for a curved ridge."""
    a, b, c = u.T
    return np.tanh(20 * (a + 0.3 * np.sin(4 * b) - 0.6)) + 0.5 * c


# The function, its inputs, and runs of it; the first eight do not look the same everywhere.
CASES: dict[str, tuple[Function, int, int]] = {
    "step": (step, 1, 10),
    "piecewise": (piecewise, 1, 20),
    "higdon": (higdon, 1, 20),
    "hill": (hill, 2, 40),
    "currin": (currin, 2, 40),
    "michalewicz": (michalewicz, 2, 60),
    "ridge": (ridge, 3, 60),
    "g-function": (g_function, 3, 60),
    "branin": (branin, 2, 30),
    "ishigami": (ishigami, 3, 60),
    "friedman": (friedman, 5, 60),
    "otl": (otl, 6, 60),
    "piston": (piston, 7, 70),
    "borehole": (borehole, 8, 80),
    "wing": (wing, 10, 100),
}


def of_method(method: str, x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> Any:
    key, key_test = jax.random.split(jax.random.key(seed))
    fitted = METHODS[method](Task(key, x, y, Setting()))
    p = fitted.predict(key_test, x_test, num_samples=PASSES)
    return p.mean, p.crps(y_test), p.interval(0.9)


def of_dgpsi(x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> Any:
    import dgpsi

    dgpsi.nb_seed(seed)
    model = dgpsi.dgp(np.asarray(x, float), np.asarray(y, float)[:, None])
    model.train(N=500, disable=True)
    found = dgpsi.emulator(model.estimate(), N=10).predict(np.asarray(x_test, float))
    return gaussian(found[0][:, 0], np.sqrt(found[1][:, 0]), y_test)


def of_gpytorch(x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> Any:
    import gpytorch
    import torch
    from tables.peers import RATE, TwoLayers

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    x, y, x_test = (torch.as_tensor(a).float() for a in (x, y, x_test))
    model = TwoLayers(x.shape[1])
    bound = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(x))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    with gpytorch.settings.num_likelihood_samples(1):
        for _ in range(3000):
            optimizer.zero_grad()
            (-bound(model(x), y)).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(PASSES):
        p = model.likelihood(model(x_test))
    mean, var = p.mean.numpy(), p.variance.numpy()  # of each pass
    return gaussian(mean.mean(0), np.sqrt(var.mean(0) + mean.var(0)), y_test)


def gaussian(mean: np.ndarray, sd: np.ndarray, y_test: np.ndarray) -> Any:
    crps = metrics.crps_gaussian_mixture(y_test, mean[None], sd[None])
    half = norm.ppf(0.95) * sd
    return mean, crps, (mean - half, mean + half)


def rows(case: str, design: int) -> tuple[np.ndarray, ...]:
    """Return standardised runs, inputs and values, and other places and the function there."""
    function, dim, num = CASES[case]
    u = qmc.LatinHypercube(dim, rng=design).random(num)
    u_test = np.random.default_rng(1000 + design).uniform(size=(TEST, dim))
    y, y_test = function(u), function(u_test)
    scale = Standardizer.fit(u, y)
    arrays = scale.inputs(u), scale.outputs(y), scale.inputs(u_test), scale.outputs(y_test)
    x, y, x_test, y_test = map(np.asarray, arrays)
    return x, y, x_test, y_test


def run(method: str, case: str, design: int) -> dict[str, Any]:
    x, y, x_test, y_test = rows(case, design)
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "sklearn":
            mean, sd, *_ = of_sklearn(x, y, x_test, design)
            found = gaussian(mean, sd, y_test)
        elif method == "dgpsi":
            found = of_dgpsi(x, y, x_test, y_test, design)
        elif method == "gpytorch":
            found = of_gpytorch(x, y, x_test, y_test, design)
        else:
            found = of_method(method, x, y, x_test, y_test, design)
    mean, crps, (low, high) = (np.asarray(a) for a in found)
    sd = float(y_test.std())
    return {
        "method": method, "case": case, "design": design, "rows": len(x),
        "rmse": float(metrics.rmse(y_test, mean)) / sd, "crps": float(crps.mean()) / sd,
        "coverage": float(((low < y_test) & (y_test < high)).mean()),
        "cpu": time.process_time() - begun,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="bayes,sklearn")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--designs", type=int, default=3)
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/emulation.jsonl"))
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    done = {tuple(json.loads(line)[n] for n in ("method", "case", "design")) for line in kept}
    runs: Any = itertools.product(
        range(args.designs), args.cases.split(","), args.methods.split(",")
    )
    for design, case, method in runs:
        if (method, case, design) in done:
            continue
        row = run(method, case, design)
        print(json.dumps(row), flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row | {"versions": versions()}) + "\n")


if __name__ == "__main__":
    main()
