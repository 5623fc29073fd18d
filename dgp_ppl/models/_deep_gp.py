"""Deep GPs of any depth and width, with any likelihood; with one layer, the SVGP."""

from collections.abc import Callable, Sequence

import numpyro
from jaxtyping import Array

from dgp_ppl import means
from dgp_ppl._typing import InducingInputs, Inputs
from dgp_ppl.core import Likelihood, minibatch, observe
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.linalg import as_float
from dgp_ppl.models._stack import KernelMaker, Mean, likelihood_or_gaussian, stack

__all__ = ["FeatureMaker", "deep_gp", "svgp"]

FeatureMaker = Callable[[str], Callable[[Inputs], Array]]


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
    skip: bool = False,
    features: FeatureMaker | None = None,
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
        skip: whether every layer after the first takes the input along, after the layer before it
            (Duvenaud et al. 2014, section 5): its `z` has D_1 columns more at the end.
        features: makes a map of the inputs, from its name "features", that the layers see in place
            of them, [N, D] -> [N, D_1] (deep kernel learning, Wilson et al. 2016). It may have
            params: ``lambda name: jax.vmap(numpyro.contrib.module.eqx_module(name, net))`` trains
            an equinox network with the rest.
        batch_size: rows of a minibatch; None takes all.

    Source: Salimbeni & Deisenroth (2017), section 3.

    Raises:
        ValueError: if `z`, `mean` and `kernel` disagree about the depth, or widths do not fit.
    """
    layers = stack("deep_gp", z, mean, out, kernel, skip)
    likelihood = likelihood_or_gaussian(likelihood, noise, out)
    # Made out here: a param inside of the plate would be one for each row.
    feature_map = None if features is None else features("features")
    with minibatch(x, y, batch_size=batch_size) as (x, y):
        x = x if feature_map is None else feature_map(as_float(x))
        numpyro.sample("y", observe(layers(x), likelihood), obs=y)


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
