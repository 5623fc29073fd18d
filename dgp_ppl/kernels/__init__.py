"""Covariance functions, and the operations that combine them.

Call a kernel as you call tinygp's: ``k(x, z)`` returns the matrix [N, M] and ``k(x)`` the diagonal
[N]. Any callable with this signature works like these classes. Every kernel is an equinox
module, and therefore a pytree. ``Kernel.learned(name, dim)`` registers the hyperparameters as
NumPyro params ``name.variance``, ``name.lengthscale``, ..., so `handlers.lift` can put priors on
them. ``kernel.on(columns)`` takes some of the inputs; `Coregion` is a kernel of categories.

>>> import jax.numpy as jnp
>>> from dgp_ppl import kernels
>>> x = jnp.linspace(0.0, 1.0, 5)[:, None]
>>> k = kernels.Matern52(variance=1.0, lengthscale=0.5) + kernels.Linear(0.1, lengthscale=1.0)
>>> k(x, x[:3]).shape, k(x).shape
((5, 3), (5,))
"""

from __future__ import annotations

from dgp_ppl.kernels._base import (
    Columns,
    Covariance,
    Features,
    Kernel,
    PerOutput,
    Product,
    Separable,
    Sum,
)
from dgp_ppl.kernels._coregion import Coregion
from dgp_ppl.kernels._dot_product import ArcCosine, Linear
from dgp_ppl.kernels._stationary import (
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)

__all__ = [
    "ArcCosine", "Columns", "Coregion", "Covariance", "Features", "Kernel", "Linear", "Matern12",
    "Matern32", "Matern52", "PerOutput", "Periodic", "Product", "RationalQuadratic", "Separable",
    "SquaredExponential", "Sum",
]  # fmt: skip
