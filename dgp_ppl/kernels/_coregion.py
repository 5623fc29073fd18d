"""A kernel over categories, whose covariances are learned."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._checks import check_counts
from dgp_ppl._typing import AnyArray, Inputs, OtherInputs, PRNGKey
from dgp_ppl.kernels._base import Features, Kernel
from dgp_ppl.linalg._products import matmul

_START = 0.5  # of the covariance between two categories, whose variance starts at 1
_START_REST = 0.1  # of the other columns of W


class Coregion(Kernel):
    """A kernel over C categories with a learned covariance B = W W' + diag(kappa).

    Its inputs are one-hot: k(x, z) = x' B z is then the entry of B for two categories. Multiply it
    with a kernel of the other inputs: each category then has a function of its own, which borrows
    strength from the functions that it correlates with. Unlike a lengthscale, B can learn that two
    categories are independent, or opposite.

    >>> import jax, jax.numpy as jnp
    >>> from dgp_ppl import kernels
    >>> B = kernels.Coregion(W=jnp.array([[1.0], [1.0], [-1.0]]), kappa=jnp.full(3, 0.5))
    >>> k = kernels.Matern52(1.0, 0.5).on(0) * B.on(slice(1, 4))
    >>> x, labels = jnp.zeros((2, 1)), jnp.array([0, 2])
    >>> inputs = jnp.concatenate([x, jax.nn.one_hot(labels, 3)], axis=1)
    >>> k(inputs).tolist(), round(float(k(inputs[:1], inputs[1:])[0, 0]), 4)
    ([1.5, 1.5], -1.0)

    An inducing input need not be one-hot. With weights v of the categories, its value is the
    sum Σ_c v_c f_c(z) of their functions, so gradients may move it. A row of zeros is of no
    category: its function is 0, with variance 0.

    Args:
        W: the shared part of the covariance, of rank R, [C, R].
        kappa: the variance that each category has for itself, positive, [C].
        normalised: whether B is scaled to the correlations of the categories, with a diagonal of 1.
            In a product with a kernel that has a variance, the scale of B is redundant.

    Source: Bonilla, Chai & Williams (2008), "Multi-task Gaussian process prediction", eq. 2;
    GPflow's and PyMC's ``Coregion``.
    """

    W: Any
    kappa: Any
    normalised: bool = eqx.field(static=True, default=False)

    @classmethod
    def learned(
        cls,
        name: str,
        dim: int,
        *,
        out: int | None = None,
        rank: int = 1,
        normalised: bool = False,
        **initial: ArrayLike,
    ) -> Any:
        """Make this kernel with the NumPyro params ``name.W`` and ``name.kappa``.

        All categories start with variance 1 and correlation 0.5.

        >>> from numpyro import handlers
        >>> from dgp_ppl import kernels
        >>> with handlers.trace() as sites:
        ...     kernel = kernels.Coregion.learned("l1.colour", 3, rank=2)
        >>> {name: site["value"].shape for name, site in sites.items()}
        {'l1.colour.W': (3, 2), 'l1.colour.kappa': (3,)}

        Args:
            name: prefix of the params.
            dim: number of categories C.
            out: number of outputs P that each get their own covariance; the result is then a
                `PerOutput` kernel.
            rank: number of columns R of W; C allows any covariance.
            normalised: see `Coregion`.
            **initial: starting values of ``W`` and ``kappa``.

        Raises:
            TypeError: if `rank` is not an integer, or there is no hyperparameter of a given name.
            ValueError: if `rank` is below 1.
        """
        check_counts("Coregion.learned", dim=dim, rank=rank)
        # Columns that start equal would stay equal: the other columns are cosines.
        columns = np.cos(np.pi * np.outer(np.arange(dim) + 0.5, np.arange(rank)) / dim)
        columns *= [np.sqrt(_START), *[_START_REST] * (rank - 1)]
        starts = {
            "W": (jnp.asarray(columns), dist.constraints.real),
            "kappa": (jnp.full(dim, 1 - _START), dist.constraints.positive),
        }
        return cls._registered(name, starts, dict(initial), out, normalised=normalised)

    @property
    def covariance(self) -> Float[Array, "C C"]:
        """B, the covariance of the categories."""
        W, kappa = self._parts()
        return matmul(W, W.T) + jnp.diag(kappa)

    def _parts(self) -> tuple[AnyArray, AnyArray]:
        if not self.normalised:
            return self.W, self.kappa
        variance = jnp.sum(jnp.square(self.W), axis=1) + self.kappa
        return self.W / jnp.sqrt(variance)[:, None], self.kappa / variance

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        W, kappa = self._parts()
        self._check(x)
        if z is None:
            shared = jnp.sum(jnp.square(matmul(x, W)), axis=-1)
            return shared + matmul(jnp.square(x), kappa)
        self._check(z)
        return matmul(matmul(x, W), matmul(z, W).T) + matmul(x * kappa[None], z.T)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        W, kappa = self._parts()
        key_shared, key_own = random.split(key)
        shared = matmul(W, random.normal(key_shared, (W.shape[1], num)))
        own = jnp.sqrt(kappa)[:, None] * random.normal(key_own, (len(kappa), num))
        return lambda x: matmul(x, shared + own)

    def _check(self, x: Inputs) -> None:
        C = jnp.shape(self.W)[0]
        if x.shape[-1] != C:
            raise ValueError(
                f"Coregion: the inputs have {x.shape[-1]} columns, wanted one for each of the {C} "
                "categories; encode labels by jax.nn.one_hot, and pick the columns by "
                ".on(columns)"
            )
