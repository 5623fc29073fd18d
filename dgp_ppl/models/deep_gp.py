"""Deep GPs of any depth and width, with any likelihood; with one layer, the SVGP."""

from collections.abc import Callable, Sequence
from typing import Any

import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl import means
from dgp_ppl._typing import InducingInputs, Inputs
from dgp_ppl.gp import gp
from dgp_ppl.kernels import Covariance, SquaredExponential
from dgp_ppl.linalg import as_float
from dgp_ppl.minibatch import minibatch
from dgp_ppl.observe import Likelihood, observe

__all__ = ["deep_gp", "svgp"]

KernelMaker = Callable[[str, int], Covariance]
Mean = Callable[[Inputs], Array]


def deep_gp(
    x: Inputs,
    y: Array | None = None,
    *,
    z: Sequence[InducingInputs],
    mean: Sequence[Mean] | None = None,
    out: int = 1,
    kernel: KernelMaker | Sequence[KernelMaker] = SquaredExponential.learned,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    batch_size: int | None = None,
) -> None:
    """A deep Gaussian process: sparse GP layers ``l1`` ... ``lL``, then a likelihood.

    Params: ``lK.z`` and the kernel's (``lK.variance``, ``lK.lengthscale``), and ``noise``, the
    standard deviation of the Gaussian likelihood. Sites: ``lK.v``, and ``y`` in the plate ``data``.

    Args:
        x: inputs, [N, D].
        y: targets, [N], or what the likelihood takes; None to draw them.
        z: initial inducing inputs of each layer, [M, D_l] (or [P, M, D_l], a set per output); their
            number is the depth, and the width of a hidden layer that of the next layer's.
        mean: each layer's fixed mean; by default the identity, padded or cut to the width, and
            zero for the last. See `initialize.deep_gp`.
        out: outputs of the last layer.
        kernel: makes a layer's kernel from its name and input dimension; one for all layers or one
            for each.
        likelihood: from the last layer's f to a distribution of y (see `observe`); Gaussian noise
            with a learned standard deviation by default.
        noise: initial standard deviation of the Gaussian noise.
        batch_size: rows of a minibatch; None takes all.

    Source: Salimbeni & Deisenroth (2017), section 3.

    Raises:
        ValueError: if `z`, `mean` and `kernel` disagree about the depth.
    """
    if not len(z):
        raise ValueError("deep_gp: z is empty, wanted the inducing inputs of at least one layer")
    makers = [kernel] * len(z) if callable(kernel) else list(kernel)
    widths = [z_next.shape[-1] for z_next in z[1:]] + [out]
    if mean is None:
        maps = [_keep(a.shape[-1], w) for a, w in zip(z, widths, strict=True)]
        mean = [*maps[:-1], means.zero]
    if not len(z) == len(mean) == len(makers):
        raise ValueError(
            f"deep_gp: z has {len(z)} layers, mean {len(mean)} and kernel {len(makers)}; "
            "wanted as many of each"
        )
    layers = []
    for l, (z_l, width, mean_l, maker) in enumerate(zip(z, widths, mean, makers, strict=True), 1):
        inducing: Any = numpyro.param(f"l{l}.z", as_float(z_l))
        covariance = maker(f"l{l}", z_l.shape[-1])
        layers.append(gp(f"l{l}", covariance, inducing, out=width, mean=mean_l))
    if likelihood is None:
        scale: Any = numpyro.param("noise", noise, constraint=dist.constraints.positive)
        likelihood = lambda f: gaussian(f, scale, out)  # noqa: E731
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        for layer in layers[:-1]:
            x = layer.sample(x)
        numpyro.sample("y", observe(layers[-1](x), likelihood), obs=y)


def svgp(
    x: Inputs,
    y: Array | None = None,
    *,
    z: InducingInputs,
    mean: Mean = means.zero,
    out: int = 1,
    kernel: KernelMaker = SquaredExponential.learned,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    batch_size: int | None = None,
) -> None:
    """A sparse variational GP (Hensman et al. 2013, 2015): the `deep_gp` of one layer, ``l1``."""
    deep_gp(
        x,
        y,
        z=(z,),
        mean=(mean,),
        out=out,
        kernel=kernel,
        likelihood=likelihood,
        noise=noise,
        batch_size=batch_size,
    )


def _keep(dim: int, width: int) -> Mean:
    return means.identity if dim == width else means.pad(dim, width)


def gaussian(f: Array, scale: Array, out: int) -> dist.Distribution:
    """Gaussian noise, the same on all outputs."""
    law = dist.Normal(f, scale)
    return law if out == 1 else law.to_event(1)
