"""The conditional distribution of a sparse Gaussian process.

Notation: K = k(Z, Z) + jitter I = L L', the inducing values are u = L v, and A(x) = L⁻¹ k(Z, x).
The layer's mean function is added elsewhere.

- Given v, f(x) ~ N(A'v, k(x, x) - A'A).
- Given q(v) = N(m, R R'), with v integrated out, f(x) ~ N(A'm, k(x, x) - A'A + A'R R'A).

Source: Salimbeni & Deisenroth (2017), eq. 7 and 8, whitened.

Each step is a separate `jax.jit`. This has no effect inside a compiled program. Code that runs a
model eagerly (`SVI.init`, `Predictive`) then compiles a few programs instead of hundreds of single
operations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import AnyArray, Inputs, Outputs
from dgp_ppl.core._inducing import AbstractInducing, FullInducing, project
from dgp_ppl.kernels import Covariance, PerOutput, Separable
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.linalg import Factor, default_jitter, factorise, white_moments
from dgp_ppl.linalg._precision import factor_dtype
from dgp_ppl.linalg._products import computed_once, matmul, stored_gradient

InducingPosterior = AbstractInducing | Array
"""A Gaussian q(v) to integrate over, or a draw of v, [M, P], to condition on."""


class Grid(eqx.Module):
    """A grid of inducing inputs (z_m, t_j): M places at each of M_t times.

    A layer with a `kernels.Separable` kernel factorises k(z, z) and k(t, t) separately. Its
    projections then cost as much as projections on M places and on M_t times, not on M_t M points.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import Grid
    >>> Grid(z=jnp.zeros((4, 2)), times=jnp.array([0.0, 1.0, 2.0])).points.shape
    (12, 3)

    Args:
        z: places, [M, D].
        times: times, [M_t].

    Raises:
        ValueError: if `z` is not a matrix or `times` not a vector.
    """

    z: Array = eqx.field(converter=jnp.asarray)
    times: Array = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        if jnp.ndim(self.z) != 2 or jnp.ndim(self.times) != 1:
            raise ValueError(
                f"Grid: z and times have shapes {self.z.shape} and {self.times.shape}, wanted "
                "[M, D] and [M_t]"
            )

    @property
    def points(self) -> Array:
        """All points of the grid, time by time, [M_t M, D + 1]; the last column is the time."""
        column = jnp.repeat(self.times, len(self.z))[:, None]
        return jnp.concatenate([jnp.tile(self.z, (len(self.times), 1)), column], axis=1)


class Sparse(eqx.Module):
    """A zero-mean sparse GP: a kernel, inducing inputs, and the factor of their Gram matrix.

    The methods take the distribution of the whitened inducing values as `q`: either a Gaussian
    over v, which they integrate over, or a draw of v, [M, P], which they condition on.
    """

    kernel: Any  # covariance function, shared by the outputs, or a `PerOutput`
    z: Array  # inducing inputs, [M, D], or [P, M, D] for a set per output
    # Cholesky factor of k(z, z), its inverse and its jitter; stacked over outputs if kernels or
    # inducing inputs differ between outputs.
    factor: Factor
    out: int = eqx.field(static=True)  # number of outputs P
    # For a `Grid`, the sparse GPs in space and in time whose product this one is.
    parts: tuple[Sparse, Sparse] | None = None

    @staticmethod
    def build(kernel: Covariance, z: Array | Grid, out: int) -> Sparse:
        """Factorise k(z, z).

        Raises:
            TypeError: for a `Grid`, if the kernel is not a `kernels.Separable` of two kernels that
                all outputs share.
        """
        if isinstance(z, Grid):
            if not isinstance(kernel, Separable):
                raise TypeError(
                    f"a Grid of inducing inputs with a kernel {type(kernel).__name__}, wanted "
                    "kernels.Separable; pass Grid.points for any other"
                )
            parts = [kernel.space, kernel.time]
            if any(isinstance(part, PerOutput) or not jax.tree.leaves(part) for part in parts):
                raise TypeError(
                    "a Grid of inducing inputs wants one kernel for all outputs in space and in "
                    f"time, got {' and '.join(type(part).__name__ for part in parts)}"
                )
            return _build_grid(kernel, z, out, factor_dtype())
        leaves = jax.tree.leaves(kernel)
        if isinstance(kernel, PerOutput) and {jnp.shape(a)[:1] for a in leaves} != {(out,)}:
            raise ValueError(
                f"kernels.PerOutput has arrays of shapes {[jnp.shape(a) for a in leaves]}, wanted "
                f"a leading axis of {out}: one kernel for each output"
            )
        if any(callable(leaf) for leaf in leaves) or not leaves:
            kernel = Partial(kernel)  # a plain function is not a pytree of arrays
        return _build(kernel, z, out, factor_dtype())

    @property
    def separate(self) -> bool:
        """Whether kernels or inducing inputs differ between outputs."""
        return isinstance(self.kernel, PerOutput) or self.z.ndim == 3

    @jax.jit
    def project(self, x: Inputs) -> Array:
        """Return A(x) = L⁻¹ k(Z, x), [M, N], or [P, M, N] if outputs differ."""
        if self.parts is not None:
            space, time = self.parts
            in_space, in_time = space.project(x[:, :-1]), time.project(x[:, -1:])
            return (in_time[:, None, :] * in_space[None]).reshape(-1, x.shape[0])
        return matmul(self.factor.inverse, covariance(self.kernel, self.z, x))

    def residual(self, A: Array, x: Inputs) -> Array:
        """Return the conditional variance given v, k(x, x) - diag(A'A), [N] or [P, N]."""
        explained = jnp.sum(jnp.square(A), axis=-2)
        prior = jnp.broadcast_to(evaluated(self.kernel, x), explained.shape)
        # Exact values are at least about the jitter's fraction of k(x, x), so smaller ones, which
        # are rounding errors, are raised to it.
        return jnp.maximum(computed_once(prior - explained), default_jitter(A.dtype) * prior)

    def scale(self, x: Inputs) -> Array:
        """Return the mean prior variance of f(x), [] or [P]: the scale of rounding errors.

        Where Z determines f, the covariance of `joint` is a small difference of terms of this size.
        """
        return jnp.mean(evaluated(self.kernel, x), axis=-1)

    @jax.jit
    def marginals(self, q: InducingPosterior, x: Inputs) -> tuple[Outputs, Outputs]:
        """Return mean and variance of f(x), [N, P] each, without the layer's mean function."""
        root = q.moment_root if isinstance(q, AbstractInducing) else None
        if isinstance(q, AbstractInducing) and root is not None and self.separate:
            k, prior = covariance(self.kernel, self.z, x), evaluated(self.kernel, x)
            prior = jnp.broadcast_to(prior, (self.out, x.shape[0]))
            mean, var = white_moments(self.factor, k, prior, q.loc, root)
            return stored_gradient(mean.T), stored_gradient(var.T)
        A = self.project(x)
        var = self.residual(A, x)
        if isinstance(q, AbstractInducing):
            var = jnp.atleast_2d(var) + q.variance_of(A)
        mean, var = _mean(q, A, x), jnp.broadcast_to(var, (self.out, x.shape[0])).T
        return (stored_gradient(mean), stored_gradient(var)) if A.ndim == 3 else (mean, var)

    @partial(jax.jit, static_argnames="block")
    def joint(
        self, q: InducingPosterior, x: Inputs, block: int
    ) -> tuple[Outputs, Float[Array, "R P B B"]]:
        """Return the mean [N, P] of f(x), without the mean function, and the covariance by block.

        The variances are at least about the jitter's fraction of k(x, x). Rounding at `scale` can
        still give the covariance negative eigenvalues.
        """
        A = self.project(x)
        # L⁻¹ k(Z, x) misses k(Z, x) by up to 300 times as much as a triangular solve does. Marginal
        # variances can bear it. But the error has a structure that k(x, x) - A'A does not have, and
        # gives it eigenvalues of down to -300 times the jitter. With this step they stay above -1
        # times the jitter. It is rounding alone, so it has no gradient.
        error = covariance(self.kernel, self.z, x) - matmul(self.factor.lower, A)
        A = A + lax.stop_gradient(matmul(self.factor.inverse, error))
        blocks = x.reshape(-1, block, x.shape[1])

        def by_block(a: Array) -> Array:  # [..., N] as [R, ..., B]
            return jnp.moveaxis(a.reshape(*a.shape[:-1], -1, block), -2, 0)

        by_output = lambda a, ndim: a if a.ndim == ndim else a[None]  # noqa: E731 - or for all
        each = by_block(by_output(A, 3))
        own = lambda x: by_output(covariance(self.kernel, x, x), 3)  # noqa: E731
        prior = jax.vmap(own)(blocks) if len(blocks) > 1 else own(x)[None]
        cov = prior - matmul(jnp.swapaxes(each, -1, -2), each)
        rows = jnp.arange(block)
        cov = cov.at[..., rows, rows].set(by_block(by_output(self.residual(A, x), 2)))
        cov = jnp.broadcast_to(cov, (len(blocks), self.out, block, block))
        if isinstance(q, AbstractInducing):
            root = by_block(q.root_of(A))
            cov = cov + matmul(jnp.swapaxes(root, -1, -2), root)
        return _mean(q, A, x), cov

    @jax.jit
    def contrast(
        self, q: InducingPosterior, x: Inputs, others: Float[Array, "N K D"], weights: Array
    ) -> Float[Array, "P N"]:
        """Return the variance of f(x) - weights' f(others) of each row; weights is [N, K]."""

        # Products with the others alone are the same in all passes of a prediction.
        def less(x: Array, others: Array, weights: Array) -> Array:
            between = matmul(covariance(self.kernel, others, others), weights)
            cross = covariance(self.kernel, x[None], others)[..., 0, :]
            return 2 * jnp.sum((cross - 0.5 * between) * weights, axis=-1)

        own = evaluated(self.kernel, x)
        prior = own - jax.vmap(less, out_axes=-1)(jnp.asarray(x), others, weights)
        known = self.project(others.reshape(-1, x.shape[1]))
        known = jnp.sum(known.reshape(*known.shape[:-1], *weights.shape) * weights, axis=-1)
        A = computed_once(self.project(x) - known)
        var = jnp.maximum(prior - jnp.sum(jnp.square(A), axis=-2), default_jitter(A.dtype) * own)
        if isinstance(q, AbstractInducing):
            var = var + q.variance_of(A)
        return jnp.broadcast_to(var, (self.out, len(x)))

    @jax.jit
    def correction(
        self, q: InducingPosterior, v: Float[Array, "M P"], at_z: Float[Array, "M P"], x: Inputs
    ) -> Array:
        """Return the update of a prior draw f that makes its inducing values v, [N, P].

        This is A(x)'(v - L⁻¹ f(Z)), plus the shift of q (Wilson et al. 2020, eq. 9). `v` is a draw
        from q, `at_z` is f(Z).
        """
        # L⁻¹ f(Z), [M, P], where L⁻¹ is one matrix or one per output.
        axes = (0 if self.separate else None, 1)
        v_prior = jax.vmap(matmul, axes, 1)(self.factor.inverse, at_z)
        A = self.project(x)
        shift = q.shift(A, x) if isinstance(q, AbstractInducing) else 0.0
        return project(A, v - v_prior) + shift


def given_values(
    A: Float[Array, "M N"], y: Float[AnyArray, " N"], noise: ArrayLike
) -> FullInducing:
    """Return q(v) = N(B⁻¹ A y / s², B⁻¹), B = I + A A' / s², given y = A'v + s e, e ~ N(0, I).

    With the projection A of all rows it is Titsias (2009), eq. 10, whitened.

    Args:
        A: projection of the rows, as `Sparse.project` returns it.
        y: values less the mean function.
        noise: standard deviation s.
    """
    A = A / noise
    B = jnp.eye(len(A), dtype=A.dtype) + matmul(A, A.T)
    # Cholesky from the last row up: B = U U' with U upper triangular. B⁻¹ = U⁻ᵀ U⁻¹, U⁻ᵀ lower.
    root = factorise(B[::-1, ::-1], jitter=0.0).inverse[::-1, ::-1].T
    loc = matmul(root, matmul(root.T, matmul(A, y / noise)))
    return FullInducing(loc[:, None], root[None], validate_args=False)


def _mean(q: InducingPosterior, A: Array, x: Inputs) -> Outputs:
    if not isinstance(q, AbstractInducing):
        return project(A, q)
    return project(A, q.loc) + q.shift(A, x)


def covariance(kernel: Any, a: AnyArray, b: AnyArray) -> Array:
    """Return k(a, b), [N, M], or [P, N, M] if the kernel or either input is per output."""
    per_output = isinstance(kernel, PerOutput)
    axes = (0 if per_output else None, *(0 if u.ndim == 3 else None for u in (a, b)))
    if axes == (None, None, None):
        return evaluated(kernel, a, b)
    return jax.vmap(evaluated, axes)(kernel.kernel if per_output else kernel, a, b)


@partial(jax.jit, static_argnums=(2, 3))
def _build(kernel: Any, z: Array, out: int, dtype: Any) -> Sparse:
    k, at = kernel, z
    if dtype is not None:  # the rounding of k(z, z) counts, too
        is_float = lambda a: jnp.issubdtype(jnp.result_type(a), jnp.floating)  # noqa: E731
        k, at = jax.tree.map(lambda a: jnp.asarray(a, dtype) if is_float(a) else a, (k, at))
    gram = covariance(k, at, at)
    return Sparse(kernel, z, factorise(gram) if gram.ndim == 2 else jax.vmap(factorise)(gram), out)


@partial(jax.jit, static_argnums=(2, 3))
def _build_grid(kernel: Separable, grid: Grid, out: int, dtype: Any) -> Sparse:
    space = _build(kernel.space, grid.z, out, dtype)
    time = _build(kernel.time, grid.times[:, None], out, dtype)
    # What the jitters a and b add to the diagonal c d of the product: (c + a) (d + b) - c d.
    a, b = space.factor.jitter, time.factor.jitter
    factor = Factor(
        jnp.kron(time.factor.lower, space.factor.lower),
        jnp.kron(time.factor.inverse, space.factor.inverse),
        a * time.scale(time.z) + b * space.scale(space.z) + a * b,
        None,  # only factors of separate outputs are asked for their change
    )
    return Sparse(kernel, grid.points, factor, out, (space, time))
