"""A Bayesian neural network: what deep GPs are compared with."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl._typing import Inputs
from dgp_ppl.core import Likelihood, Marginals, minibatch, observe
from dgp_ppl.linalg import as_float, matmul

__all__ = ["bnn"]


def bnn(
    x: Inputs,
    y: Array | None = None,
    *,
    hidden: Sequence[int] = (50,),
    out: int = 1,
    likelihood: Likelihood | None = None,
    batch_size: int | None = None,
) -> None:
    """A network of rectified linear units whose weights are standard normal.

    No guide of `dgp_ppl.gp` layers fits it: take NumPyro's `AutoNormal` or NUTS. Sites: ``w1``,
    ``b1``, ...: weights [D_1, D_2], which are divided by sqrt(D_1), and biases [D_2]; ``noise``,
    the standard deviation of the Gaussian likelihood, log-normal about 0.3; ``y`` in the plate
    ``data``.

    Args:
        x: inputs, [N, D].
        y: targets, [N], or what the likelihood takes; None to draw them.
        hidden: units of the hidden layers. One of 50 is the "two-layer" network of the papers'
            tables (Hernandez-Lobato & Adams 2015).
        out: outputs of the last layer.
        likelihood: from the network's output to a distribution of y; Gaussian noise by default.
        batch_size: rows of a minibatch; None takes all.
    """
    widths = [jnp.shape(x)[-1], *hidden, out]
    layers: list[tuple[Any, Any]] = []
    for l, (dim, width) in enumerate(itertools.pairwise(widths), 1):
        weight = dist.Normal(0, 1).expand([dim, width]).to_event(2)
        bias = dist.Normal(0, 1).expand([width]).to_event(1)
        layers.append((numpyro.sample(f"w{l}", weight), numpyro.sample(f"b{l}", bias)))
    if likelihood is None:
        noise: Any = numpyro.sample("noise", dist.LogNormal(jnp.log(0.3), 1.0))
        likelihood = lambda f: _gaussian(f, noise, out)  # noqa: E731
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        h = as_float(x)
        for l, (weight, bias) in enumerate(layers):
            h = jax.nn.relu(h) if l else h
            h = matmul(h, weight) / jnp.sqrt(len(weight)) + bias
        # One node is as good as any number where nothing is left to average over.
        known = Marginals(h, jnp.zeros_like(h), guided=True)
        law = observe(known, likelihood, num_nodes=1, num_draws=1)
        numpyro.sample("y", law, obs=y)


def _gaussian(f: Array, noise: Array, out: int) -> dist.Distribution:
    law = dist.Normal(f, noise)
    return law if out == 1 else law.to_event(1)
