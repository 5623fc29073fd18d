"""The kernels that `compare` knows by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from dgp_ppl import kernels

__all__ = ["KERNELS", "CategoryKernel"]

KERNELS: dict[str, type[kernels.Kernel]] = {
    "squared_exponential": kernels.SquaredExponential,
    "matern52": kernels.Matern52,
    "matern32": kernels.Matern32,
    "matern12": kernels.Matern12,
    "rational_quadratic": kernels.RationalQuadratic,
}
"""The kernels by name. Draws of the later ones of the first four are rougher."""


@dataclasses.dataclass(frozen=True)
class CategoryKernel:
    """Makes a layer's kernel: one of the numbers, times a `Coregion` of each column of categories.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import kernels
    >>> from dgp_ppl.comparison._kernels import CategoryKernel
    >>> maker = CategoryKernel(kernels.Matern52, ((1, 2, 3),))
    >>> maker("l1", 4)(jnp.zeros((5, 4))).shape
    (5,)

    Attributes:
        kernel: class of the kernel of the other inputs.
        one_hot: positions of the one-hot inputs of each column of categories.
    """

    kernel: type[kernels.Kernel]
    one_hot: tuple[tuple[int, ...], ...]

    def __call__(
        self, name: str, dim: int, *, out: int | None = None, variance: float = 1.0
    ) -> Any:
        """Make the kernel of a layer with `dim` inputs.

        It starts with this prior variance, or 1 if all inputs are categories.

        The params of the categories are ``NAME.categoriesI.W`` and ``NAME.categoriesI.kappa``,
        where I is the position of the first category's input.
        """
        numbers = sorted(set(range(dim)).difference(*self.one_hot))
        factors = []
        if numbers:
            of_numbers = self.kernel.learned(name, len(numbers), out=out, variance=variance)
            factors.append(of_numbers.on(numbers))
        for columns in self.one_hot:
            # The first factor has the variance of the product.
            own = kernels.Coregion.learned(
                f"{name}.categories{columns[0]}", len(columns), out=out, normalised=bool(factors)
            )
            factors.append(own.on(columns))
        product, *rest = factors
        for factor in rest:
            product *= factor
        return product
