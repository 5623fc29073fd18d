"""Deep GPs with latent inputs: the Bayesian GPLVM, and latent inputs beside known ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from dgp_ppl._partition import shape_of
from dgp_ppl._typing import AnyArray, Inputs
from dgp_ppl.core import RandomFunction, minibatch
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.likelihoods import Likelihood, observe
from dgp_ppl.linalg._products import as_float
from dgp_ppl.models._stack import (
    KernelMaker,
    MeanFunction,
    check_inducing,
    likelihood_or_gaussian,
    make_stack,
)  # fmt: skip


def gplvm(
    x: Inputs | None,
    y: AnyArray | None = None,
    seen: AnyArray | None = None,
    *,
    z: Sequence[AnyArray],
    mean: Sequence[MeanFunction] | None = None,
    out: int = 1,
    kernel: KernelMaker | Sequence[KernelMaker] = SquaredExponential.learned,
    share_kernel: bool | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    batch_size: int | None = None,
) -> None:
    """A deep GP with a latent input w_n ~ N(0, I_Q) for every row, alone or beside known inputs.

    Without known inputs and with one layer this is the Bayesian GPLVM; with more layers it is the
    deep GPLVM. With known inputs it is a deep GP with noise of any shape. Guides have parameters of
    q(w_n) for every row, also in minibatches. `initialize.gplvm` starts them at the principal
    components of y, and `infer_latent` finds the latent inputs of new rows. `predict` draws latent
    inputs from the prior.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> y = jnp.zeros((6, 3))
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.gplvm(None, y, z=(jnp.zeros((4, 2)),), out=3)
    >>> sites["latent"]["value"].shape
    (6, 2)

    Params: as for `models.deep_gp`. Sites: ``lK.v``; in the plate ``data``, ``latent`` [N, Q] and
    ``y``.

    Args:
        x: known inputs, [N, D]; None or [N, 0] if there are none.
        y: targets, [N, P], or [N] if `out` is 1; None to draw them.
        seen: True where y was observed, [N] or [N, P]; None if all of y was. Values elsewhere are
            ignored.
        z: initial inducing inputs of each layer, [M, D_l]. The first layer's columns are the D
            known inputs and then the Q latent ones.
        mean: fixed mean function of each layer; see `models.deep_gp`.
        out: number of outputs P of the last layer.
        kernel: makes a layer's kernel from its name and number of inputs.
        share_kernel: whether the outputs of a hidden layer share one kernel; see `models.deep_gp`.
        likelihood: a function from f to the distribution of y (see `observe`); None for Gaussian
            noise with a learned standard deviation.
        noise: initial standard deviation of the Gaussian noise, in the units of y.
        batch_size: number of rows of a minibatch; None takes all.

    Raises:
        ValueError: if x and y are both None, or shapes do not fit.

    Source: Titsias & Lawrence (2010); Damianou & Lawrence (2013) for more layers; Salimbeni et al.
    (2019) for latent inputs beside known ones.
    """
    if x is None and y is None:
        raise ValueError("gplvm: x and y are None; to draw y for N rows pass x = jnp.zeros((N, 0))")
    check_inducing("gplvm", z)
    if x is not None and len(shape_of(x)) != 2:
        raise ValueError(f"gplvm: x has shape {shape_of(x)}, wanted [N, D] or None")
    known = 0 if x is None else shape_of(x)[-1]
    if (num := z[0].shape[-1] - known) < 1:
        raise ValueError(
            f"gplvm: z has {[a.shape for a in z]} for {known} known inputs; wanted more than "
            f"{known} columns in the first, the additional ones for the latent inputs"
        )
    hidden, last = make_stack("gplvm", z, mean, out, kernel, share_kernel)
    likelihood = likelihood_or_gaussian("gplvm", likelihood, noise, out)
    with minibatch(x, y, seen, batch_size=batch_size) as (x, y, seen):
        w: Any = numpyro.sample("latent", dist.Normal(0, 1).expand([num]).to_event(1))
        inputs = w if x is None else jnp.concatenate([as_float(x), w], axis=1)
        f = last(hidden(inputs, RandomFunction.sample))
        numpyro.sample("y", observe(f, likelihood, mask=seen), obs=y)
