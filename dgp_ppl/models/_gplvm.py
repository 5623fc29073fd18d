"""Deep GPs of inputs that nobody has seen: the Bayesian GPLVM, and inputs beside known ones."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl._typing import InducingInputs, Inputs
from dgp_ppl.core import Likelihood, minibatch, observe
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.linalg import as_float
from dgp_ppl.models._stack import KernelMaker, Mean, likelihood_or_gaussian, stack

__all__ = ["gplvm"]


def gplvm(
    x: Inputs | None,
    y: Array | None = None,
    seen: Array | None = None,
    *,
    z: Sequence[InducingInputs],
    mean: Sequence[Mean] | None = None,
    out: int = 1,
    kernel: KernelMaker | Sequence[KernelMaker] = SquaredExponential.learned,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    batch_size: int | None = None,
) -> None:
    """A deep GP whose inputs are latent, or known ones with latent ones beside them.

    Every row has a latent input w_n ~ N(0, I_Q). Without known inputs and with one layer this is
    the Bayesian GPLVM (Titsias & Lawrence 2010), with more the deep one (Damianou & Lawrence 2013);
    with known inputs it is a deep GP whose noise can have any shape (Salimbeni et al. 2019). Guides
    cover ``latent`` row by row, also in minibatches; `initialize.gplvm` starts it at the principal
    components, and `infer_latent` finds it for new rows. Predictions at inputs take it from its
    prior.

    Params: those of `models.deep_gp`. Sites: ``lK.v``, and in the plate ``data`` ``latent``, [N, Q]
    in all, and ``y``.

    Args:
        x: known inputs, [N, D]; None, or [N, 0], if there are none.
        y: targets, [N, P] (or [N] if `out` is 1); None to draw them.
        seen: True where y was observed, [N] or [N, P]; what stands elsewhere is of no account.
            None if all of it was.
        z: initial inducing inputs of each layer, [M, D_l]; the first one's columns are x's and
            after them Q for the latent ones.
        mean: each layer's fixed mean; see `models.deep_gp`.
        out: outputs of the last layer, P.
        kernel: makes a layer's kernel from its name and input dimension.
        likelihood: from f to a distribution of y; Gaussian noise that is learned by default.
        noise: initial standard deviation of the Gaussian noise.
        batch_size: rows of a minibatch; None takes all.

    Raises:
        ValueError: if there are neither x nor y, or shapes do not fit.
    """
    if x is None and y is None:
        raise ValueError("gplvm: x and y are None; to draw y for N rows pass x = jnp.zeros((N, 0))")
    known = 0 if x is None else jnp.shape(x)[-1]
    if not len(z) or (num := z[0].shape[-1] - known) < 1:
        raise ValueError(
            f"gplvm: z has {[a.shape for a in z]} for {known} known inputs; wanted a first one of "
            f"more than {known} columns: those over are the latent inputs'"
        )
    layers = stack("gplvm", z, mean, out, kernel)
    likelihood = likelihood_or_gaussian(likelihood, noise, out)
    with minibatch(x, y, seen, batch_size=batch_size) as (x, y, seen):
        w: Any = numpyro.sample("latent", dist.Normal(0, 1).expand([num]).to_event(1))
        inputs = w if x is None else jnp.concatenate([as_float(x), w], axis=1)
        numpyro.sample("y", observe(layers(inputs), likelihood, mask=seen), obs=y)
