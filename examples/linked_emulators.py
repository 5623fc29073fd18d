"""Emulate a system of three simulators by an emulator of each, and the whole by one, to compare.

    python examples/linked_emulators.py

The third simulator takes the results of the other two. Each emulator has 25 runs of its own, and a
draw of the system runs through draws of whole functions.
"""

import jax
import numpy as np
from scipy.stats import qmc

import dgp_ppl as dgp
from dgp_ppl.sklearn import DeepGPRegressor

RUNS, DRAWS = 25, 50
KEYS = jax.random.split(jax.random.key(0), 4)


def pressure(x):
    return np.tanh(6 * (x[:, 0] - 0.5)) + x[:, 1]


def heat(x):
    return np.sin(5 * x[:, 1]) * x[:, 0]


def failure(x):
    return np.exp(-np.square(x[:, 0] - 0.5)) * np.cos(3 * x[:, 1])


def emulator(simulator, low, high):
    """Return the emulator of so many runs within a box."""
    x = low + (high - low) * qmc.LatinHypercube(2, rng=0).random(RUNS)
    return dgp.function(DeepGPRegressor(method="gp").fit(x, simulator(x)).prediction(x[:1]))


def system(x):
    return failure(np.stack([pressure(x), heat(x)], axis=1))


def through(draws, x):
    """Return draw i at its own inputs x[i], for x [draws, N, D]."""
    each = draws(x.reshape(-1, x.shape[-1])).reshape(len(x), *x.shape[:2])
    return each[np.arange(len(x)), np.arange(len(x))]


if __name__ == "__main__":
    zero, one = np.zeros(2), np.ones(2)
    first = emulator(pressure, zero, one), emulator(heat, zero, one)
    second = emulator(failure, np.array([-1.0, -1.0]), np.array([2.0, 1.0]))
    x = np.random.default_rng(1).uniform(size=(100, 2))
    inner = [np.asarray(f.draws(k, DRAWS)(x)) for f, k in zip(first, KEYS, strict=False)]
    linked = through(second.draws(KEYS[2], DRAWS), np.stack(inner, axis=2))
    whole = emulator(system, zero, one).draws(KEYS[3], DRAWS)(x)
    for name, draws in ("linked", linked), ("whole", np.asarray(whole)):
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        inside = np.mean((low < system(x)) & (system(x) < high))
        error = np.sqrt(np.mean(np.square(draws.mean(axis=0) - system(x))))
        print(f"{name}: RMSE {error:.4f}, {inside:.0%} of the truth in 90 % intervals")
