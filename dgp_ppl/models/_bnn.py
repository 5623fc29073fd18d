"""A Bayesian neural network, the usual alternative to a deep GP."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from dgp_ppl._checks import check_counts, check_kind
from dgp_ppl._partition import shape_of
from dgp_ppl._typing import AnyArray, Inputs
from dgp_ppl.core import Marginals, minibatch
from dgp_ppl.likelihoods import Likelihood, observe
from dgp_ppl.linalg._products import as_float, matmul
from dgp_ppl.models._stack import gaussian


def bnn(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    hidden: Sequence[int] = (50,),
    out: int = 1,
    likelihood: Likelihood | None = None,
    batch_size: int | None = None,
) -> None:
    """A network of rectified linear units with standard normal weights.

    It has no `gp` layers, so the guides of this library do not apply. Use NumPyro's `AutoNormal` or
    NUTS.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.bnn(jnp.zeros((4, 3)), hidden=(5,))
    >>> [name for name, site in sites.items() if site["type"] == "sample"]
    ['w1', 'b1', 'w2', 'b2', 'noise', 'y']

    Sites: weights ``w1``, ``w2``, ... [D_in, D_out], which the model divides by sqrt(D_in); biases
    ``b1``, ``b2``, ... [D_out]; ``noise``, the standard deviation of the Gaussian likelihood, with
    a log-normal prior of median 0.3; and ``y`` in the plate ``data``.

    Args:
        x: inputs, [N, D].
        y: targets, [N], or of the shape of the likelihood; None to draw them.
        hidden: number of units of each hidden layer. One layer of 50 is the "two-layer" network of
            the tables in the literature (Hernandez-Lobato & Adams 2015).
        out: number of outputs of the last layer.
        likelihood: a function from the network's output to the distribution of y (see `observe`);
            None for Gaussian noise.
        batch_size: number of rows of a minibatch; None takes all.
    """
    check_kind("bnn", "hidden", hidden, list | tuple, "the width of each hidden layer, as (50,)")
    check_counts("bnn", out=out, **{f"hidden[{i}]": n for i, n in enumerate(hidden)})
    if len(shape_of(x)) != 2:
        raise ValueError(f"bnn: x has shape {shape_of(x)}, wanted [N, D]")
    widths = [shape_of(x)[1], *hidden, out]
    layers: list[tuple[Any, Any]] = []
    for l, (dim, width) in enumerate(itertools.pairwise(widths), 1):
        weight = dist.Normal(0, 1).expand([dim, width]).to_event(2)
        bias = dist.Normal(0, 1).expand([width]).to_event(1)
        layers.append((numpyro.sample(f"w{l}", weight), numpyro.sample(f"b{l}", bias)))
    if likelihood is None:
        noise: Any = numpyro.sample("noise", dist.LogNormal(jnp.log(0.3), 1.0))
        likelihood = partial(gaussian, noise=noise, out=out)
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        h = as_float(x)
        for l, (weight, bias) in enumerate(layers):
            h = jax.nn.relu(h) if l else h
            h = matmul(h, weight) / jnp.sqrt(len(weight)) + bias
        # The network's output has no variance, so one node gives the exact expectation.
        output = Marginals(h, jnp.zeros_like(h), guided=True)
        numpyro.sample("y", observe(output, likelihood, num_nodes=1, num_draws=1), obs=y)
