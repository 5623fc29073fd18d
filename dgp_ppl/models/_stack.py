"""What the ready-made models share: layers one after the other, and Gaussian noise."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl import means
from dgp_ppl._typing import InducingInputs, Inputs
from dgp_ppl.core import Likelihood, Marginals, RandomFunction, gp
from dgp_ppl.kernels import Covariance
from dgp_ppl.linalg import as_float

__all__ = ["KernelMaker", "Mean", "Stack", "likelihood_or_gaussian", "stack"]

KernelMaker = Callable[[str, int], Covariance]
Mean = Callable[[Inputs], Array]


class Stack:
    """Layers of a deep GP; called at inputs, the marginals of the last one.

    Args:
        layers: the layers, first to last.
        skip: whether every layer after the first takes the input along.
    """

    def __init__(self, layers: Sequence[RandomFunction], skip: bool) -> None:
        self.layers, self.skip = layers, skip

    def __call__(self, x: Inputs) -> Marginals:
        """Hidden layers are drawn, the last one's marginals are of the function at x, [N, P]."""
        h = x
        for layer in self.layers[:-1]:
            h = layer.sample(h)
            h = jnp.concatenate([h, x], axis=1) if self.skip else h
        return self.layers[-1](h)


def stack(
    model: str,
    z: Sequence[InducingInputs],
    mean: Sequence[Mean] | None,
    out: int,
    kernel: KernelMaker | Sequence[KernelMaker],
    skip: bool = False,
) -> Stack:
    """The layers ``l1`` ... ``lL`` of a model with this name; see `models.deep_gp`.

    Raises:
        ValueError: if `z`, `mean` and `kernel` disagree about the depth, or widths do not fit.
    """
    if not len(z):
        raise ValueError(f"{model}: z is empty, wanted the inducing inputs of at least one layer")
    makers = [kernel] * len(z) if callable(kernel) else list(kernel)
    beside = z[0].shape[-1] if skip else 0
    widths = [z_next.shape[-1] - beside for z_next in z[1:]] + [out]
    if min(widths) < 1:
        raise ValueError(
            f"{model}: z has {[a.shape[-1] for a in z]} columns; with skip=True those after the "
            f"first take the {beside} inputs along: wanted more than {beside}"
        )
    if mean is None:
        maps = [_keep(a.shape[-1], w) for a, w in zip(z, widths, strict=True)]
        mean = [*maps[:-1], means.zero]
    if not len(z) == len(mean) == len(makers):
        raise ValueError(
            f"{model}: z has {len(z)} layers, mean {len(mean)} and kernel {len(makers)}; "
            "wanted as many of each"
        )
    layers = []
    for l, (z_l, width, mean_l, maker) in enumerate(zip(z, widths, mean, makers, strict=True), 1):
        inducing: Any = numpyro.param(f"l{l}.z", as_float(z_l))
        covariance = maker(f"l{l}", z_l.shape[-1])
        layers.append(gp(f"l{l}", covariance, inducing, out=width, mean=mean_l))
    return Stack(layers, skip)


def likelihood_or_gaussian(likelihood: Likelihood | None, noise: float, out: int) -> Likelihood:
    """The likelihood, or Gaussian noise, the same on all outputs, with the param ``noise``."""
    if likelihood is not None:
        return likelihood
    scale: Any = numpyro.param("noise", noise, constraint=dist.constraints.positive)

    def gaussian(f: Array) -> dist.Distribution:
        law = dist.Normal(f, scale)
        return law if out == 1 else law.to_event(1)

    return gaussian


def _keep(dim: int, width: int) -> Mean:
    return means.identity if dim == width else means.pad(dim, width)
