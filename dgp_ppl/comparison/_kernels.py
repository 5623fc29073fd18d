"""The kernels that `compare` knows by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from dgp_ppl import kernels
from dgp_ppl.models import KernelMaker
from dgp_ppl.models._local import rough_kernel

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

    The params of the categories are ``NAME.categoriesI.W`` and ``NAME.categoriesI.kappa``, where I
    is the position of the first category's input.
    """

    kernel: type[kernels.Kernel]  # of the numbers
    one_hot: tuple[tuple[int, ...], ...]  # positions of the inputs of each column of categories

    def __call__(
        self, name: str, dim: int, *, out: int | None = None, variance: float = 1.0
    ) -> Any:
        """Make the kernel; without numbers its variance starts at 1."""
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


@dataclasses.dataclass(frozen=True)
class LocalKernel:
    """Makes the kernel of f + g, where g is the rough process of `dgp_ppl.local`."""

    kernel: KernelMaker  # of f

    def __call__(self, name: str, dim: int) -> Any:
        """Make the kernel."""
        return kernels.Sum(self.kernel(name, dim), rough_kernel("g", dim))
