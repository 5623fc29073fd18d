"""Gaussian distributions of a layer's whitened inducing values v, [M, P].

A guide hands one of these to a layer, which integrates v out. The layer needs the moments of A'v,
where A, [M, N] or [P, M, N], maps inducing values to function values. It also needs the shift, the
part of the mean that v does not determine.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jaxtyping import Array, Float
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from dgp_ppl._typing import AnyArray, Inputs, PRNGKey
from dgp_ppl.linalg import factorise, weighted_squares
from dgp_ppl.linalg._products import diagonal, matmul
from dgp_ppl.linalg._triangular import triangular_inverse


def project(A: Array, v: Float[Array, "M P"]) -> Float[Array, "N P"]:
    """Return A'v for every output."""
    if A.ndim == 2:
        return matmul(A.T, v)
    return jnp.einsum("pmn,mp->np", A, v, precision=lax.Precision.HIGHEST)


class AbstractInducing(dist.Distribution):
    """A Gaussian q(v) over whitened inducing values [M, P], independent over outputs.

    A new posterior needs a mean and three methods: `variance_of`, `root_of` and `standard_kl`.
    Draws and densities follow from these; override `sample` or `log_prob` where there is a cheaper
    way. A posterior with a `shift` also sets `determines_mean` to False. `TransportInducing` is the
    contract for posteriors that other guides and samplers build on.

    Attributes:
        loc: mean, [M, P].
    """

    support: Any = constraints.real_matrix
    reparametrized_params = ["loc"]  # noqa: RUF012 - NumPyro's declaration
    loc: Any

    determines_mean: ClassVar[bool] = True
    """Whether draws of v determine the mean of the function, so that `shift` is zero."""

    @classmethod
    def gather_pytree_data_fields(cls) -> tuple[str, ...]:
        """Return the names of the arrays, in an order that is the same in every process.

        NumPyro takes the order of a set of strings, which differs between processes. Each would
        make another program, and find none in JAX's compilation cache.
        """
        return tuple(sorted(super().gather_pytree_data_fields()))

    @abc.abstractmethod
    def variance_of(self, A: Array) -> Float[Array, "P N"]:
        """Return the variance of A'v for every output."""

    @abc.abstractmethod
    def root_of(self, A: Array) -> Float[Array, "P K N"]:
        """Return R'A for every output, where R R' = Cov(v), so that Cov(A'v) = (R'A)'(R'A)."""

    @abc.abstractmethod
    def standard_kl(self) -> Float[Array, ""]:
        """Return the KL of the function's distribution from the prior, in nats, over all outputs.

        This is KL[q(v) || N(0, I)] if there is no `shift`.
        """

    @property
    def moment_root(self) -> Float[AnyArray, "P M M"] | None:
        """Triangular R with Cov(v) = R R' for every output, if loc and R give all moments of f(x).

        The layer then uses one derivative rule for both moments. None if there is no such R, or if
        a subclass has another variance or a `shift`.
        """
        return None

    def shift(self, A: Array, x: Inputs) -> Array | float:
        """Return the mean of f(x) minus A'loc, [N, P]; 0 unless it has separate inducing inputs."""
        return 0.0

    def draw(self, key: PRNGKey, shape: tuple[int, ...] = ()) -> tuple[Array, Array | None]:
        """Draw v, `shape` + [M, P]; also return the unit noise it is made of, or None."""
        root = self.root_of(jnp.eye(len(self.loc), dtype=self.loc.dtype))  # R', [P, K, M]
        noise = random.normal(key, (*shape, *root.shape[:2]), root.dtype)
        spread = jnp.einsum("pkm,...pk->...mp", root, noise, precision=lax.Precision.HIGHEST)
        return _like(self.loc, spread) + spread, None

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.draw(key, sample_shape)[0]

    def log_prob(self, value: Array) -> Array:
        root = self.root_of(jnp.eye(len(self.loc), dtype=self.loc.dtype))
        factor = jax.vmap(factorise)(matmul(jnp.swapaxes(root, -1, -2), root))
        residual = jnp.einsum(
            "pij,...jp->...ip",
            factor.inverse,
            value - _like(self.loc, value),
            precision=lax.Precision.HIGHEST,
        )
        log_det = jnp.sum(jnp.log(diagonal(factor.lower)))
        return _standard_log_prob(residual) - log_det

    @property
    def mean(self) -> Float[Array, "M P"]:
        return self.loc


class TransportInducing(AbstractInducing):
    """A Gaussian q(v) as an affine map v = m + R e of unit noise e ~ N(0, I).

    The second contract, for posteriors that others build on: the base of a `Diffusion` or
    `Flow`, `transported` models, and annealing all move in the space of e.
    """

    @abc.abstractmethod
    def log_det(self) -> Float[Array, ""]:
        """Return log |R|."""

    @abc.abstractmethod
    def to_white(self, value: Float[Array, "*s M P"]) -> Float[Array, "*s M P"]:
        """Return e with m + R e = value."""

    @abc.abstractmethod
    def from_white(self, white: Float[Array, "*s M P"]) -> Float[Array, "*s M P"]:
        """Return m + R e for e = white."""

    @abc.abstractmethod
    def scaled(self, loc: Float[Array, "M P"], scale: Float[Array, "M P"]) -> TransportInducing:
        """Return the distribution of m + R (loc + scale * e), e ~ N(0, I)."""

    def draw(self, key: PRNGKey, shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        white = random.normal(key, shape + self.loc.shape, self.loc.dtype)
        return self.from_white(white), white

    def log_prob(self, value: Array) -> Array:
        return self.log_prob_from_white(self.to_white(value))

    def log_prob_from_white(self, white: Float[Array, "*s M P"]) -> Float[Array, "*s"]:
        """Return the log density at m + R e in nats, for e = white; exact for tiny R."""
        return _standard_log_prob(white) - self.log_det()


def _like(a: Array, other: Array) -> Array:
    """Return an array with axes of length 1 in front, as many as another has more."""
    return a.reshape((1,) * (other.ndim - a.ndim) + a.shape)


def _standard_log_prob(white: Array) -> Array:
    """Return log N(e; 0, I) for e [..., M, P]."""
    size = white.shape[-2] * white.shape[-1]
    return -0.5 * jnp.sum(jnp.square(white), axis=(-2, -1)) - 0.5 * size * jnp.log(2 * jnp.pi)


class FullInducing(TransportInducing):
    """Gaussian with a full covariance for each output: q(v) = prod_p N(loc_p, R_p R_p').

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
        loc: AnyArray,
        scale_tril: AnyArray,
        *,
        upper: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale_tril, self.upper = loc, scale_tril, upper
        super().__init__((), jnp.shape(loc), validate_args=validate_args)

    @property
    def moment_root(self) -> Float[AnyArray, "P M M"] | None:
        return self.scale_tril

    def variance_of(self, A: Array) -> Array:
        return weighted_squares(A, self.scale_tril)

    def root_of(self, A: Array) -> Array:
        return matmul(jnp.swapaxes(self.scale_tril, -1, -2), A)

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(diagonal(self.scale_tril)))

    def standard_kl(self) -> Array:
        squares = jnp.sum(jnp.square(self.scale_tril)) + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()

    def scaled(self, loc: Array, scale: Array) -> FullInducing:
        moved = self.loc + project(jnp.swapaxes(self.scale_tril, -1, -2), loc)
        root = self.scale_tril * scale.T[:, None, :]
        return FullInducing(moved, root, upper=self.upper, validate_args=False)

    @property
    def variance(self) -> Array:
        return jnp.sum(jnp.square(self.scale_tril), axis=-1).T

    def from_white(self, white: Array) -> Array:
        return _at(self.loc, self.scale_tril, white)

    def to_white(self, value: Array) -> Array:
        return _at(jnp.zeros(()), self.inverse_root, value - _like(self.loc, value))

    @property
    def inverse_root(self) -> Float[Array, "P M M"]:
        """R⁻¹ of every output, so that the white values of v are R⁻¹ (v - loc)."""
        if self.upper:
            lower = jax.vmap(triangular_inverse)(jnp.swapaxes(self.scale_tril, -1, -2))
            return jnp.swapaxes(lower, -1, -2)
        return jax.vmap(triangular_inverse)(self.scale_tril)


class SharedInducing(FullInducing):
    """Gaussian with one full covariance for all outputs: q(v) = prod_p N(loc_p, R R').

    If all outputs share one kernel and have Gaussian noise of one variance, their optimal
    covariances are equal. The variance of P outputs then costs as much as the variance of one.

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
        return self.loc.shape[-1] * jnp.sum(jnp.log(diagonal(self.root)))

    def standard_kl(self) -> Array:
        squares = self.loc.shape[-1] * jnp.sum(jnp.square(self.root))
        squares = squares + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()


@jax.jit
def _at(loc: Array, scale_tril: Array, white: Array) -> Array:
    moved = jnp.einsum("pij,...jp->...ip", scale_tril, white, precision=lax.Precision.HIGHEST)
    return _like(loc, moved) + moved


class DiagonalInducing(TransportInducing):
    """Gaussian with independent entries.

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
        return self.scale.T[:, :, None] * (A if A.ndim == 3 else A[None])

    def log_det(self) -> Array:
        return jnp.sum(jnp.log(self.scale))

    def standard_kl(self) -> Array:
        squares = jnp.sum(jnp.square(self.scale)) + jnp.sum(jnp.square(self.loc))
        return 0.5 * (squares - self.loc.size) - self.log_det()

    def scaled(self, loc: Array, scale: Array) -> DiagonalInducing:
        return DiagonalInducing(
            self.loc + self.scale * loc, self.scale * scale, validate_args=False
        )

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale)

    def from_white(self, white: Array) -> Array:
        return _like(self.loc, white) + _like(self.scale, white) * white

    def to_white(self, value: Array) -> Array:
        return (value - _like(self.loc, value)) / _like(self.scale, value)


_register_kl: Any = kl_divergence  # a multipledispatch Dispatcher, typed as a function


@_register_kl.register(AbstractInducing, dist.Independent)
def _kl_to_prior(q: AbstractInducing, p: Any) -> Array:
    """Return the KL from the layer's prior, ``Normal(0, 1).expand([M, P]).to_event(2)``."""
    base = p.base_dist
    while isinstance(base, dist.ExpandedDistribution):
        base = base.base_dist
    standard = type(base) is dist.Normal and _is_number(base.loc, 0) and _is_number(base.scale, 1)
    if not standard or p.event_shape != q.event_shape or p.batch_shape:
        raise NotImplementedError  # NumPyro then estimates the KL by Monte Carlo
    return q.standard_kl()


def _is_number(value: Any, number: float) -> bool:
    """Return whether a distribution's argument is this constant, without tracing it."""
    return isinstance(value, int | float) and value == number


_LowerCholesky: Any = type(constraints.lower_cholesky)


class _CholeskyFactor(_LowerCholesky):
    """Lower-triangular matrices with a positive diagonal, unconstrained as full matrices."""


cholesky_factor = _CholeskyFactor()
"""NumPyro's `lower_cholesky` without the scatter from a packed triangle.

The unconstrained value is a full matrix. Its upper triangle is ignored, and an exponential keeps
the diagonal positive.
"""


@partial(jax.jit, static_argnums=1)
def _map_diagonal(x: Array, function: Callable[[Array], Array]) -> Array:
    """Return the lower triangle of x, with a function applied to its diagonal."""
    mapped = function(diagonal(x))
    return jnp.tril(x, -1) + mapped[..., None] * _like(jnp.eye(x.shape[-1], dtype=x.dtype), x)


class _FactorTransform(ParameterFreeTransform):
    domain: Any = constraints.real_matrix
    codomain: Any = cholesky_factor

    def __call__(self, x: Array) -> Array:
        return _map_diagonal(x, jnp.exp)

    def _inverse(self, y: Array) -> Array:
        return _map_diagonal(y, jnp.log)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        return jnp.sum(diagonal(x), axis=-1)


_register_bijection: Any = biject_to


@_register_bijection.register(_CholeskyFactor)
def _biject_to_factor(constraint: _CholeskyFactor) -> _FactorTransform:
    return _FactorTransform()
