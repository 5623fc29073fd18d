"""Models, kernels and guides that a file can name, and a fit that a file of format 1 holds.

``python tests/support/keepable.py PATH`` writes such a file, with its predictions as `info`.
"""

import dataclasses
import enum
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp
from dgp_ppl import kernels, means, models

FORMAT_1 = Path(__file__).parent.parent / "persistence" / "format_1.dgp"
X_TEST = np.array([[19.0, 3.0], [21.5, -4.0], [20.2, 0.5]])


def student(f):
    return dist.StudentT(4.0, f, 0.3)


class Shifted(dgp.MeanField):
    """A guide of a user's, which passes options on."""

    def __init__(self, model, *, shift=0.0, **options):
        super().__init__(model, **options)
        self.shift = shift


counts = lambda f: dist.Poisson(jnp.exp(f))  # noqa: E731 - a lambda that can be imported


def plain(x, y=None, *, z, noise=0.3, scale=None):
    """A GP whose hyperparameters are fixed."""
    scale = 1.0 if scale is None else scale
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, scale), z)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, noise)), obs=y)


class Corner(NamedTuple):
    low: float
    high: Any


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    scales: Any
    added_later: int = 7


class Plain:
    """A class that a file cannot hold."""

    def method(self):
        return 1


def write(path):
    """Fit two layers, and keep the fit with its predictions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2)) * [2.0, 5.0] + [20.0, 0.0]
    y = 100 + 10 * np.sin(x[:, 0] / 2)
    scale = dgp.Standardizer.fit(x, y)
    z = np.asarray(scale.inputs(x[:5]))
    layers = {
        "z": (z, jnp.asarray(z)),
        "mean": [means.linear(np.eye(2)), means.zero],
        "kernel": kernels.Matern52.learned,
        "likelihood": student,
    }
    model, guide = models.deep_gp, dgp.GlobalInducing(models.deep_gp, z[:3])
    fit = dgp.fit(
        random.key(0), model, guide, scale.inputs(x), scale.outputs(y), steps=20, progress=False,
        **layers,
    )  # fmt: skip
    options = {"standardizer": scale, **layers}
    p = dgp.predict(random.key(1), model, guide, fit.params, X_TEST, num_samples=8, **options)
    info = {"mean": p.mean.tolist(), "var": p.var.tolist(), "quantile": p.quantile(0.1).tolist()}
    dgp.save(path, model, guide, fit, data=(x, y), columns=("age", "height"), info=info, **options)


if __name__ == "__main__":
    from support import keepable  # functions of __main__ cannot be kept

    keepable.write(sys.argv[1])
