"""Parts that the ready-made models share: a stack of layers, and Gaussian noise."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import Distribution

from dgp_ppl import means
from dgp_ppl._checks import as_array, check_count, check_flags
from dgp_ppl._typing import AnyArray, InducingInputs, Inputs
from dgp_ppl.core import RandomFunction, gp
from dgp_ppl.kernels import Covariance, Kernel, PerOutput
from dgp_ppl.kernels._scaled import start_value
from dgp_ppl.likelihoods import Likelihood
from dgp_ppl.linalg._products import as_float

KernelMaker = Callable[..., Covariance]
"""A function that makes a layer's kernel from its name and its number of inputs.

If it also takes the keyword ``out``, as `Kernel.learned` does, it can make a kernel per output. If
it has a parameter ``variance``, it is passed the prior variance that hidden layers start from.
"""
MeanFunction = Callable[[Array], AnyArray]
Propagate = Callable[[Inputs, Callable[[RandomFunction, Array], Array]], Inputs]
"""A function from x and a way to go through a layer to the inputs of the last layer."""

HIDDEN_VARIANCE = 0.1  # docs/tables.md compares it with 1
_LEARNED: Any = Kernel.__dict__["learned"].__func__
_ALWAYS_SEPARATE = 64  # inputs up to which the rule of cost leaves each output its own kernel


def make_stack(
    model: str, z: Sequence[AnyArray], mean: Sequence[MeanFunction] | None, out: int,
    kernel: KernelMaker | Sequence[KernelMaker], share_kernel: bool | None = None,
    skip: bool = False, mixed: bool = False,
) -> tuple[Propagate, RandomFunction]:  # fmt: skip
    """Make the layers ``l1`` ... ``lL`` of a model, the name of which errors mention.

    See `models.deep_gp` for the other arguments. Returns the hidden layers, as a function of x,
    [N, D], and of a way to go through a layer; and the last layer, whose outputs have kernels of
    their own if they are `mixed`.
    """
    check_inducing(model, z)
    check_count(model, "out", out)
    check_flags(model, skip=skip)
    makers: list[Any] = [*kernel] if isinstance(kernel, list | tuple) else [kernel] * len(z)
    for maker in makers:
        if not makes_kernel(maker):
            raise TypeError(
                f"{model}: kernel is {maker!r}, wanted a function of a name and a number of "
                "inputs, such as kernels.Matern52.learned or lambda name, dim: kernel"
            )
    skipped = z[0].shape[-1] if skip else 0
    widths = [z_next.shape[-1] - skipped for z_next in z[1:]] + [out]
    if min(widths) < 1:
        raise ValueError(
            f"{model}: z has {[a.shape[-1] for a in z]} columns; with skip=True layers after the "
            f"first also receive the {skipped} inputs: wanted more than {skipped} columns"
        )
    if mean is None:
        dims = [(a.shape[-1], w) for a, w in zip(z, widths, strict=True)]
        hidden = [means.identity if d == w else means.pad(d, w) for d, w in dims[:-1]]
        mean = [*hidden, means.zero]
    if not isinstance(mean, list | tuple) or not all(map(callable, mean)):
        raise TypeError(
            f"{model}: mean is a {type(mean).__name__}, wanted a function for each layer"
        )
    if not len(z) == len(mean) == len(makers):
        raise ValueError(
            f"{model}: z has {len(z)} layers, mean {len(mean)} and kernel {len(makers)}; "
            "wanted the same number of each"
        )
    layers = []
    for l, (z_l, width, mean_l, maker) in enumerate(zip(z, widths, mean, makers, strict=True), 1):
        inducing: Any = numpyro.param(f"l{l}.z", as_float(z_l))
        options: dict[str, Any] = {}
        own = width > 1 and (l < len(z) or mixed)
        if own and not shares_kernel(model, maker, z_l, share_kernel):
            options["out"] = width
        # Layers that start near their mean function predict better on most sets.
        if l < len(z) and takes_variance(maker):
            options["variance"] = HIDDEN_VARIANCE
        covariance = maker(f"l{l}", z_l.shape[-1], **options)
        layers.append(gp(f"l{l}", covariance, inducing, out=width, mean=mean_l))

    def through(x: Inputs, draw: Callable[[RandomFunction, Array], Array]) -> Array:
        h = as_float(x)
        for layer in layers[:-1]:
            h = draw(layer, h)
            h = jnp.concatenate([h, x], axis=1) if skip else h
        return h

    return through, layers[-1]


def check_inducing(model: str, z: Any) -> None:
    """Raise unless there is an array of inducing inputs for each layer."""
    is_array = isinstance(z, AnyArray)
    layers: Any = z if isinstance(z, list | tuple) or (is_array and z.ndim > 2) else ()
    kinds = [a.shape if isinstance(a, AnyArray) else type(a).__name__ for a in layers]
    if not kinds or any(isinstance(s, str) or len(s) not in (2, 3) or not s[-2] for s in kinds):
        got = kinds or f"{type(z).__name__}{list(z.shape) if is_array else []}"
        raise ValueError(
            f"{model}: z is {got}, wanted an array [M, D] with M >= 1 for each layer: of svgp "
            "z=z1, of others z=(z1, z2)"
        )


def shares_kernel(
    model: str, maker: KernelMaker, z: InducingInputs, share_kernel: bool | None,
    argument: str = "kernel",
) -> bool:  # fmt: skip
    """Return whether outputs of a hidden layer share a kernel; see `models.deep_gp`."""
    if not (share_kernel is None or isinstance(share_kernel, bool)):
        raise TypeError(f"{model}: share_kernel is {share_kernel!r}, wanted True, False or None")
    separable = _takes_out(maker)
    if share_kernel is False and not separable:
        raise TypeError(
            f"{model}: share_kernel is False, but {argument} {maker!r} does not take out; wanted a "
            f"function {argument}(name, dim, out=P), such as kernels.Matern52.learned"
        )
    if share_kernel is not None:
        return share_kernel
    # With more inputs than inducing inputs, their distances cost more than all other products.
    M, D = z.shape[-2:]
    costly = z.ndim == 2 and max(M, _ALWAYS_SEPARATE) < D
    return not separable or costly


def makes_kernel(maker: Any) -> bool:
    """Return whether this can be called with a name and a number of inputs."""
    if not callable(maker) or isinstance(maker, type | Kernel | PerOutput | Distribution):
        return False
    try:
        inspect.signature(maker).bind("l1", 1)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # it does not say what it takes
    return True


def takes_variance(maker: KernelMaker) -> bool:
    """Return whether a function that makes a kernel leaves its prior variance to the caller.

    It has a parameter of this name, or is `Kernel.learned` of a kernel with a variance. Arbitrary
    keywords do not count: the function may pass them on with a variance of its own.
    """
    while isinstance(maker, partial):
        if "variance" in maker.keywords:
            return False
        maker = maker.func
    owner = getattr(maker, "__self__", None)
    if isinstance(owner, type) and getattr(maker, "__func__", None) is _LEARNED:
        return any(field.name == "variance" for field in dataclasses.fields(owner))
    return "variance" in _parameters(maker)


def _takes_out(maker: KernelMaker) -> bool:
    """Return whether a function that makes a kernel takes the number of outputs, ``out``."""
    parameters = _parameters(maker)
    return "out" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _parameters(maker: KernelMaker) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(maker).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return {}


def likelihood_or_gaussian(
    model: str, likelihood: Likelihood | None, noise: float, out: int
) -> Likelihood:
    """Return the likelihood; if None, Gaussian noise of the param ``noise`` on all outputs."""
    if likelihood is not None:
        return likelihood
    return partial(gaussian, noise=noise_param(model, noise, out), out=out)


def noise_param(model: str, noise: float, out: int = 1) -> Any:
    """Return the param ``noise``, the standard deviation of Gaussian noise on all outputs."""
    positive = dist.constraints.positive
    if isinstance(noise, Real) and noise == 0:
        raise ValueError(
            f"{model}: noise is 0, wanted a positive start; models.exact(noise=None) interpolates"
        )
    start_value(f"{model}: noise", noise, (out,) if getattr(noise, "ndim", 0) else (), positive)
    return numpyro.param("noise", noise, constraint=positive)


def rows_that_count(model: str, counts: AnyArray, shape: tuple[int, ...]) -> Array:
    """Return which rows count, or raise."""
    kept = jnp.asarray(as_array(model, "counts", counts))
    if kept.shape != shape or kept.dtype != bool:
        raise ValueError(
            f"{model}: counts has shape {kept.shape} and dtype {kept.dtype}, wanted {shape} of "
            "bool: which rows count"
        )
    return kept


def gaussian(f: Array, noise: ArrayLike, out: int) -> dist.Distribution:
    """Return the normal of one output, or of several, at f with this standard deviation."""
    normal = dist.Normal(f, noise)
    return normal if out == 1 else normal.to_event(1)
