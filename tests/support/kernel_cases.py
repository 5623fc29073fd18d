"""Kernels, each with an independent implementation of its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import tinygp

from dgp_ppl import kernels

V, L = 1.3, np.array([0.7, 1.9])  # variance, lengthscales
LENGTHSCALE = jnp.asarray(L, jnp.float32)


def distance(a, b):
    return np.sqrt(np.sum(((a - b) / L) ** 2))


def arc_cosine(a, b):
    a, b = np.append(a / L, 0.6), np.append(b / L, 0.6)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    theta = np.arccos(np.clip(a @ b / norms, -1, 1))
    return V / np.pi * norms * (np.sin(theta) + (np.pi - theta) * np.cos(theta))


def periodic(a, b):
    return V * np.exp(-0.5 * np.sum(np.sin(np.pi * (a - b) / 1.7) ** 2 / L**2))


def matern32(a, b):
    r = np.sqrt(3) * distance(a, b)
    return V * (1 + r) * np.exp(-r)


def matern52(a, b):
    r = distance(a, b)
    return V * (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)


# By name, a kernel and its formula for two points.
CASES = {
    "SquaredExponential": (
        kernels.SquaredExponential(V, LENGTHSCALE),
        lambda a, b: V * np.exp(-0.5 * distance(a, b) ** 2),
    ),
    "Matern12": (kernels.Matern12(V, LENGTHSCALE), lambda a, b: V * np.exp(-distance(a, b))),
    "Matern32": (kernels.Matern32(V, LENGTHSCALE), matern32),
    "Matern52": (kernels.Matern52(V, LENGTHSCALE), matern52),
    "RationalQuadratic": (
        kernels.RationalQuadratic(V, LENGTHSCALE, 0.8),
        lambda a, b: V * (1 + distance(a, b) ** 2 / 1.6) ** -0.8,
    ),
    "Periodic": (kernels.Periodic(V, LENGTHSCALE, 1.7), periodic),
    "Linear": (kernels.Linear(V, LENGTHSCALE), lambda a, b: V * np.sum(a * b / L**2)),
    "ArcCosine": (kernels.ArcCosine(V, LENGTHSCALE, 0.6), arc_cosine),
    "Sum": (  # both have features with a nonzero mean, so that cross terms matter
        kernels.ArcCosine(V, LENGTHSCALE, 0.6) + kernels.ArcCosine(0.5, LENGTHSCALE, 0.6),
        lambda a, b: (1 + 0.5 / V) * arc_cosine(a, b),
    ),
    "Product": (
        kernels.Matern32(V, LENGTHSCALE) * kernels.Periodic(V, LENGTHSCALE, 1.7),
        lambda a, b: matern32(a, b) * periodic(a, b),
    ),
    "Separable": (
        kernels.Separable(
            kernels.Matern32(V, LENGTHSCALE[0]), kernels.SquaredExponential(1.0, LENGTHSCALE[1])
        ),
        lambda a, b: (
            matern32(a * [1, 0], b * [1, 0]) * np.exp(-0.5 * distance(a * [0, 1], b * [0, 1]) ** 2)
        ),
    ),
    "Columns": (
        kernels.Matern32(V, LENGTHSCALE[1]).on(1),
        lambda a, b: matern32(a * [0, 1], b * [0, 1]),
    ),
    "Coregion": (
        kernels.Coregion(jnp.array([[0.9, 0.2], [-0.4, 0.7]]), jnp.array([0.3, 0.8])),
        lambda a, b: a @ np.array([[0.85 + 0.3, -0.22], [-0.22, 0.65 + 0.8]]) @ b,
    ),
    "tinygp": (
        V * tinygp.kernels.ExpSquared(jnp.float32(0.9)),
        lambda a, b: V * np.exp(-0.5 * np.sum((a - b) ** 2) / 0.81),
    ),
}
OURS = [n for n in CASES if n != "tinygp"]
CLASSES = [n for n in OURS if n not in ("Sum", "Product", "Separable", "Columns", "Coregion")]


def inputs(rows, seed):
    return np.random.default_rng(seed).normal(size=(rows, 2))


@jax.jit
def contract(kernel, x, z):
    """Return K(x, z), K(x, x) and the diagonal of K(x, x)."""
    return kernel(x, z), kernel(x, x), kernel(x)
