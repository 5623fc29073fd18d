"""Gaussian laws of a layer's whitened inducing values v, [M, P].

A guide hands one of these to a layer, which then integrates v out: all it asks for are the moments
of A'v, where A [M, N] (or [P, M, N], a matrix per output) maps inducing values to function values,
and a shift of the function that v does not carry.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jaxtyping import Array, Float
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from dgp_ppl._typing import Inputs, PRNGKey
from dgp_ppl.linalg import matmul, weighted_squares

__all__ = [
    "AbstractInducing", "DiagonalInducing", "FullInducing", "SharedInducing", "cholesky_factor",
    "project",
]  # fmt: skip


def project(A: Array, v: Float[Array, "M P"]) -> Float[Array, "N P"]:
    """A'v for every output."""
    if A.ndim == 2:
        return matmul(A.T, v)
    return jnp.einsum("pmn,mp->np", A, v, precision=lax.Precision.HIGHEST)


class AbstractInducing(dist.Distribution):
    """A Gaussian q(v) over whitened inducing values [M, P], independent over outputs.

    Attributes:
        loc: mean, [M, P].
    """

    support: Any = constraints.real_matrix
    reparametrized_params = ["loc"]  # noqa: RUF012 - NumPyro's declaration
    loc: Any

    @abc.abstractmethod
    def variance_of(self, A: Array) -> Float[Array, "P N"]:
        """Variance of A'v for every output."""

    @abc.abstractmethod
    def root_of(self, A: Array) -> Float[Array, "P M N"]:
        """R'A for every output, with R R' its covariance: Cov(A'v) = (R'A)'(R'A)."""

    @abc.abstractmethod
    def log_det(self) -> Float[Array, ""]:
        """log |R|, with R R' the covariance of all of v."""

    @abc.abstractmethod
    def white(self, value: Float[Array, "*s M P"]) -> Float[Array, "*s M P"]:
        """The e of which a value is m + R e, where this is the law of that for e ~ N(0, I)."""

    @abc.abstractmethod
    def from_white(self, white: Float[Array, "*s M P"]) -> Float[Array, "*s M P"]:
        """m + R e, of which e is `white`."""

    def draw(self, key: PRNGKey, shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """A draw, and the noise e that it is made of, each of this shape + [M, P]."""
        white = random.normal(key, shape + self.loc.shape, self.loc.dtype)
        return self.from_white(white), white

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.draw(key, sample_shape)[0]

    def log_prob(self, value: Array) -> Array:
        return self.log_prob_from_white(self.white(value))

    def log_prob_from_white(self, white: Float[Array, "*s M P"]) -> Float[Array, "*s"]:
        """The log density at m + R e in nats, of which e is `white`: exact where R is tiny."""
        norm = 0.5 * self.loc.size * jnp.log(2 * jnp.pi) + self.log_det()
        return -0.5 * jnp.sum(jnp.square(white), axis=(-2, -1)) - norm

    @abc.abstractmethod
    def standard_kl(self) -> Float[Array, ""]:
        """KL of the function's law to the prior's in nats, summed over outputs.

        KL[q(v) || N(0, I)] where there is no shift.
        """

    @abc.abstractmethod
    def scaled(self, loc: Float[Array, "M P"], scale: Float[Array, "M P"]) -> "AbstractInducing":
        """The law of m + R (loc + scale * e), e ~ N(0, I), where this one is that of m + R e."""

    def shift(self, A: Array, x: Inputs) -> Array | float:
        """What the mean of f(x) is beyond A'loc, [N, P]: 0 unless it has a basis of its own."""
        return 0.0

    @property
    def mean(self) -> Float[Array, "M P"]:
        return self.loc


class FullInducing(AbstractInducing):
    """q(v) = prod_p N(loc_p, R_p R_p'), a full covariance for each output.

    Args:
        loc: means, [M, P].
        scale_tril: triangular R with a positive diagonal, [P, M, M].
        upper: whether R is upper-triangular; it is lower-triangular by default.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.real_matrix,
        "scale_tril": constraints.dependent(is_discrete=False, event_dim=3),
    }
    reparametrized_params = ["loc", "scale_tril"]  # noqa: RUF012

    pytree_aux_fields = ("upper",)

    def __init__(
        self,
        loc: Array,
        scale_tril: Array,
        *,
        upper: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale_tril, self.upper = loc, scale_tril, upper
        super().__init__((), jnp.shape(loc), validate_args=validate_args)

    def variance_of(self, A: Array) -> Array:
        return weighted_squares(A, self.scale_tril)

    def root_of(self, A: Array) -> Array:
        return matmul(jnp.swapaxes(self.scale_tril, -1, -2), A)

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)))

    def standard_kl(self) -> Array:
        squares = jnp.sum(jnp.square(self.scale_tril)) + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()

    def scaled(self, loc: Array, scale: Array) -> "FullInducing":
        moved = self.loc + project(jnp.swapaxes(self.scale_tril, -1, -2), loc)
        root = self.scale_tril * scale.T[:, None, :]
        return FullInducing(moved, root, upper=self.upper, validate_args=False)

    @property
    def variance(self) -> Array:
        return jnp.sum(jnp.square(self.scale_tril), axis=-1).T

    def from_white(self, white: Array) -> Array:
        return _at(self.loc, self.scale_tril, white)

    def white(self, value: Array) -> Array:
        centred = jnp.moveaxis(value - self.loc, -1, -2)[..., None]
        tril = jnp.broadcast_to(self.scale_tril, centred.shape[:-2] + self.scale_tril.shape[-2:])
        white = lax.linalg.triangular_solve(tril, centred, left_side=True, lower=not self.upper)
        return jnp.moveaxis(white[..., 0], -1, -2)


class SharedInducing(FullInducing):
    """q(v) = prod_p N(loc_p, R R'), one covariance for all outputs.

    With one kernel and Gaussian noise of one variance on all outputs, the best covariances are the
    same; and the variance of P outputs costs that of one.

    Args:
        loc: means, [M, P].
        root: lower-triangular R with a positive diagonal, [M, M].
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.real_matrix,
        "root": constraints.lower_cholesky,
    }
    reparametrized_params = ["loc", "root"]  # noqa: RUF012

    pytree_aux_fields = ("upper",)

    def __init__(self, loc: Array, root: Array, *, validate_args: bool | None = None) -> None:
        self.root = root
        every = jnp.broadcast_to(root, (jnp.shape(loc)[-1], *jnp.shape(root)[-2:]))
        super().__init__(loc, every, validate_args=validate_args)

    def variance_of(self, A: Array) -> Array:
        if A.ndim == 3:
            return super().variance_of(A)
        one = weighted_squares(A, self.root[None])
        return jnp.broadcast_to(one, (self.loc.shape[-1], A.shape[-1]))

    def log_det(self) -> Array:
        return self.loc.shape[-1] * jnp.sum(jnp.log(jnp.diagonal(self.root)))

    def standard_kl(self) -> Array:
        squares = self.loc.shape[-1] * jnp.sum(jnp.square(self.root))
        squares = squares + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()


@jax.jit
def _at(loc: Array, scale_tril: Array, white: Array) -> Array:
    return loc + jnp.einsum("pij,...jp->...ip", scale_tril, white, precision=lax.Precision.HIGHEST)


class DiagonalInducing(AbstractInducing):
    """q(v) with independent entries.

    Args:
        loc: means, [M, P].
        scale: standard deviations, [M, P].
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.real_matrix,
        "scale": constraints.independent(constraints.positive, 2),
    }
    reparametrized_params = ["loc", "scale"]  # noqa: RUF012

    def __init__(self, loc: Array, scale: Array, *, validate_args: bool | None = None) -> None:
        self.loc, self.scale = loc, scale
        super().__init__((), jnp.shape(loc), validate_args=validate_args)

    def variance_of(self, A: Array) -> Array:
        if A.ndim == 2:
            return matmul(jnp.square(self.scale).T, jnp.square(A))
        return jnp.sum(jnp.square(self.scale.T[:, :, None] * A), axis=-2)

    def root_of(self, A: Array) -> Array:
        return self.scale.T[:, :, None] * A

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(self.scale))

    def standard_kl(self) -> Array:
        squares = jnp.sum(jnp.square(self.scale)) + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()

    def scaled(self, loc: Array, scale: Array) -> "DiagonalInducing":
        return DiagonalInducing(
            self.loc + self.scale * loc, self.scale * scale, validate_args=False
        )

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale)

    def from_white(self, white: Array) -> Array:
        return self.loc + self.scale * white

    def white(self, value: Array) -> Array:
        return (value - self.loc) / self.scale


_register_kl: Any = kl_divergence  # a multipledispatch Dispatcher, typed as a function


@_register_kl.register(AbstractInducing, dist.Independent)
def _kl_to_prior(q: AbstractInducing, p: Any) -> Array:
    """Closed form against the layer's prior, ``Normal(0, 1).expand([M, P]).to_event(2)``."""
    base = p.base_dist
    while isinstance(base, dist.ExpandedDistribution):
        base = base.base_dist
    standard = type(base) is dist.Normal and _is_number(base.loc, 0) and _is_number(base.scale, 1)
    if not standard or p.event_shape != q.event_shape or p.batch_shape:
        raise NotImplementedError  # NumPyro then takes the Monte Carlo difference of densities
    return q.standard_kl()


def _is_number(value: Any, number: float) -> bool:
    """Whether a distribution's argument is this constant, known without running the program."""
    return isinstance(value, int | float) and value == number


_LowerCholesky: Any = type(constraints.lower_cholesky)


class _CholeskyFactor(_LowerCholesky):
    """Lower-triangular matrices with a positive diagonal, unconstrained as full matrices."""


cholesky_factor = _CholeskyFactor()
"""As NumPyro's `lower_cholesky`, but without the scatter from a packed triangle.

The unconstrained value is a full matrix, of which the upper triangle is not used; the diagonal is
kept positive by its exponential.
"""


@partial(jax.jit, static_argnums=1)
def _map_diagonal(x: Array, function: Callable[[Array], Array]) -> Array:
    """The lower triangle of x, with a function applied to its diagonal."""
    diagonal = function(jnp.diagonal(x, axis1=-2, axis2=-1))
    return jnp.tril(x, -1) + diagonal[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)


class _FactorTransform(ParameterFreeTransform):
    domain: Any = constraints.real_matrix
    codomain: Any = cholesky_factor

    def __call__(self, x: Array) -> Array:
        return _map_diagonal(x, jnp.exp)

    def _inverse(self, y: Array) -> Array:
        return _map_diagonal(y, jnp.log)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        return jnp.sum(jnp.diagonal(x, axis1=-2, axis2=-1), axis=-1)


_register_bijection: Any = biject_to


@_register_bijection.register(_CholeskyFactor)
def _biject_to_factor(constraint: _CholeskyFactor) -> _FactorTransform:
    return _FactorTransform()
