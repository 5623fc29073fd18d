"""Deep GPs of any depth and width, with any likelihood. With one layer it is the SVGP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpyro
from jaxtyping import Array

from dgp_ppl._typing import AnyArray, InducingInputs, Inputs
from dgp_ppl.core import NearRows, RandomFunction, minibatch
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.likelihoods import Likelihood, MixedNormal, observe
from dgp_ppl.linalg._products import as_float
from dgp_ppl.models._local import local as make_local
from dgp_ppl.models._stack import (
    KernelMaker,
    MeanFunction,
    likelihood_or_gaussian,
    make_stack,
    noise_param,
)

FeatureMaker = Callable[[str], Callable[[Inputs], Array]]
"""A function that makes a map of the inputs from the prefix of its params."""


def deep_gp(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    z: Sequence[AnyArray],
    mean: Sequence[MeanFunction] | None = None,
    out: int = 1,
    kernel: KernelMaker | Sequence[KernelMaker] = SquaredExponential.learned,
    share_kernel: bool | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    skip: bool = False,
    features: FeatureMaker | None = None,
    local: NearRows | None = None,
    mixing: AnyArray | None = None,
    batch_size: int | None = None,
) -> None:
    """A deep Gaussian process: sparse GP layers ``l1`` ... ``lL``, then a likelihood.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> x, z = jnp.zeros((4, 3)), jnp.zeros((2, 3))
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.deep_gp(x, z=(z, z))
    >>> {n: s["value"].shape for n, s in sites.items() if s["type"] == "sample"}
    {'l1.v': (2, 3), 'l2.v': (2, 1), 'l1.eps': (4, 3), 'y': (4,)}

    Params: ``lK.z`` and the kernel's (``lK.variance``, ``lK.lengthscale``) for layer K, and
    ``noise``, the standard deviation of the Gaussian likelihood. Sites: ``lK.v``; ``y`` in the
    plate ``data``; without a guide also the unit noise ``lK.eps`` of hidden layers.

    Args:
        x: inputs, [N, D].
        y: targets, [N], or of the shape of the likelihood; None to draw them.
        z: initial inducing inputs of each layer, [M, D_l], or [P, M, D_l] for a set per output.
            Their number is the depth. The columns of the next layer's `z` set a hidden layer's
            width.
        mean: fixed mean function of each layer. None takes the identity, padded or cut to the
            width, and zero for the last layer. See `initialize.deep_gp`.
        out: number of outputs of the last layer.
        kernel: makes a layer's kernel from its name and number of inputs; one for all layers, or
            one per layer. It is called with ``out=P`` to make a kernel per output. In hidden layers
            it is also called with ``variance=0.1``, the initial value, if it has a parameter of
            that name or is `Kernel.learned`. A hidden layer that starts near its mean function
            predicts better on most sets; its bound is often a little lower.
        share_kernel: whether the outputs of a hidden layer share one kernel. None gives every
            output its own if `kernel` takes the keyword ``out``, unless the layer has more than 64
            inputs and more inputs than shared inducing inputs: computing its distances once per
            output would then dominate the cost. Params of own kernels have a leading axis P.
            Params without it, such as params of a fit with a shared kernel, are shared.
        likelihood: a function from the last layer's f to the distribution of y (see `observe`);
            None for Gaussian noise with a learned standard deviation.
        noise: initial standard deviation of the Gaussian noise, in the units of y.
        skip: whether every layer after the first also receives the inputs, as the last D columns
            of its own inputs and of its `z` (Duvenaud et al. 2014, section 5).
        features: makes a map [N, D] -> [N, D_1] that is applied to x first, from the prefix
            "features" of its params (deep kernel learning, Wilson et al. 2016). For example,
            ``lambda name: jax.vmap(numpyro.contrib.module.eqx_module(name, net))`` trains an
            equinox network with the rest.
        local: the training rows, ``dgp.NearRows(x, y)``, for a rough process of x beside the deep
            one, with the params ``g.variance``, ``g.lengthscale``, the same of ``g.short``, and
            ``g.df``; see `dgp_ppl.local`. Pass the same rows to `fit` and `predict`. It needs one
            output and Gaussian noise.
        mixing: initial W, [P, Q], of P outputs of y = W f + noise that share the Q outputs of the
            last layer, as of `initialize.mixing`; then the param ``mixing``. Each output of the
            last layer has its own kernel if `kernel` takes ``out``. See `likelihoods.MixedNormal`
            and `Prediction.fill`.
        batch_size: number of rows of a minibatch; None takes all.

    Raises:
        ValueError: if `z`, `mean` and `kernel` disagree about the depth, or widths do not fit.
        TypeError: if `share_kernel` is False and `kernel` does not take ``out``.

    Source: Salimbeni & Deisenroth (2017), section 3.
    """
    passed = {"local": local, "mixing": mixing, "likelihood": likelihood}
    names = [n for n, a in passed.items() if a is not None] + ["out"] * (out != 1)
    first, *others = names or [""]
    if first in ("local", "mixing") and others:
        outputs = "one output" if first == "local" else "the outputs that are its rows"
        raise ValueError(
            f"deep_gp: {first} is given with {' and '.join(others)}, wanted {outputs} with "
            f"Gaussian noise: leave out {first}, or the others"
        )
    if mixing is not None:
        if jnp.ndim(mixing) != 2:
            raise ValueError(
                f"deep_gp: mixing has shape {jnp.shape(mixing)}, wanted [P, Q], as of "
                "initialize.mixing(y, Q)"
            )
        W: Any = numpyro.param("mixing", as_float(mixing))
        scale = noise_param("deep_gp", noise, len(W))
        likelihood, out = partial(MixedNormal, mixing=W, scale=scale), W.shape[1]
    hidden, last = make_stack(
        "deep_gp", z, mean, out, kernel, share_kernel, skip, mixing is not None
    )
    if local is None:
        likelihood = likelihood_or_gaussian("deep_gp", likelihood, noise, out)
        given = lambda x, y: observe(last(through(x, RandomFunction.sample)), likelihood)  # noqa: E731
    else:
        g, scale = make_local("g", local), noise_param("deep_gp", noise)
        given = lambda x, y: g.observe(last, x, y, scale, through)  # noqa: E731
    # Outside the plate: NumPyro would make a param per row inside it.
    feature_map = None if features is None else features("features")

    def through(x: AnyArray, draw: Callable[[RandomFunction, Array], Array]) -> Inputs:
        return hidden(x if feature_map is None else feature_map(as_float(x)), draw)

    with minibatch(x, y, batch_size=batch_size, near=local) as (x, y):
        numpyro.sample("y", given(x, y), obs=y)


def svgp(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    z: InducingInputs,
    mean: MeanFunction | None = None,
    out: int = 1,
    kernel: KernelMaker = SquaredExponential.learned,
    likelihood: Likelihood | None = None,
    noise: float = 0.3,
    batch_size: int | None = None,
) -> None:
    """A sparse variational GP: a `deep_gp` with one layer, ``l1``.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> with handlers.seed(rng_seed=0), handlers.trace() as sites:
    ...     models.svgp(jnp.zeros((4, 3)), z=jnp.zeros((2, 3)))
    >>> [name for name, site in sites.items() if site["type"] == "param"]
    ['l1.z', 'l1.variance', 'l1.lengthscale', 'noise']

    Args:
        x: inputs, [N, D].
        y: targets, [N], or of the shape of the likelihood; None to draw them.
        z: initial inducing inputs, [M, D], or [P, M, D] for a set per output.
        mean: fixed mean function; None for zero.
        out: number of outputs.
        kernel: makes the kernel from its name and number of inputs.
        likelihood: a function from f to the distribution of y (see `observe`); None for Gaussian
            noise with a learned standard deviation.
        noise: initial standard deviation of the Gaussian noise, in the units of y.
        batch_size: number of rows of a minibatch; None takes all.

    Raises:
        ValueError: if shapes do not fit.

    Source: Hensman, Fusi & Lawrence (2013); Hensman, Matthews & Ghahramani (2015).
    """
    deep_gp(
        x, y, z=(z,), mean=None if mean is None else (mean,), out=out, kernel=kernel,
        likelihood=likelihood, noise=noise, batch_size=batch_size,
    )  # fmt: skip
