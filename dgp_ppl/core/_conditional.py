"""The algebra of a sparse Gaussian process: one home for the conditional.

Notation: K = k(Z, Z) + jitter I = L L', u = L v, and A(x) = L⁻¹ k(Z, x). Given v,
f(x) ~ N(A'v, k(x, x) - A'A) about the layer's mean; given q(v) = N(m, R R') with v integrated out,
f(x) ~ N(A'm, k(x, x) - A'A + A'R R'A) (Salimbeni & Deisenroth 2017, eq. 7 and 8, whitened).

Every public step is a `jax.jit` of its own: inside a compiled program that changes nothing, and
code that runs a model eagerly (`SVI.init`, `Predictive`) compiles a few programs in place of
hundreds of single operations.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from dgp_ppl._typing import Inputs, Outputs
from dgp_ppl.core._inducing import AbstractInducing, project
from dgp_ppl.kernels import Covariance, PerOutput, Separable
from dgp_ppl.linalg import Factor, computed_once, default_jitter, factorise, matmul

__all__ = ["Grid", "Sparse", "covariance"]

Law = AbstractInducing | Array


class Grid(eqx.Module):
    """Inducing inputs (z_m, t_j): every place at every time, M_t M in all.

    With a `kernels.Separable` kernel a layer factorises k(z, z) and k(t, t) apart, and the cost of
    its projections is that of M places and M_t times rather than of all M_t M pairs.

    Attributes:
        z: places, [M, D].
        times: [M_t].
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
        """All of them, time by time, [M_t M, D + 1]."""
        column = jnp.repeat(self.times, len(self.z))[:, None]
        return jnp.concatenate([jnp.tile(self.z, (len(self.times), 1)), column], axis=1)


class Sparse(eqx.Module):
    """A zero-mean sparse GP: kernel, inducing inputs and the factor of their Gram matrix.

    A `law` is a draw of the whitened inducing values, [M, P], or a Gaussian over them.

    Attributes:
        kernel: covariance function; a `PerOutput` gives each output its own.
        z: inducing inputs, [M, D], or [P, M, D] for a set per output.
        factor: Cholesky factor of k(z, z), its inverse and its jitter; stacked over outputs if they
            have kernels or inducing inputs of their own.
        out: number of outputs P.
        parts: of a `Grid`, the sparse GPs in space and in time whose product this one is.
    """

    kernel: Any
    z: Array
    factor: Factor
    out: int = eqx.field(static=True)
    parts: "tuple[Sparse, Sparse] | None" = None

    @staticmethod
    def build(kernel: Covariance, z: Array | Grid, out: int) -> "Sparse":
        """Factorise k(z, z) once.

        Raises:
            TypeError: for a `Grid` with a kernel that is not `kernels.Separable`, or whose parts
                are not one kernel of arrays each.
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
            return _build_grid(kernel, z, out)
        leaves = jax.tree.leaves(kernel)
        if any(callable(leaf) for leaf in leaves) or not leaves:
            kernel = Partial(kernel)  # a plain function: no pytree of arrays
        return _build(kernel, z, out)

    @property
    def separate(self) -> bool:
        """Whether outputs have kernels or inducing inputs of their own."""
        return isinstance(self.kernel, PerOutput) or self.z.ndim == 3

    def project(self, x: Inputs) -> Array:
        """A(x) = L⁻¹ k(Z, x), [M, N], or [P, M, N] for outputs that differ."""
        return _cross(self, x)

    def residual(self, A: Array, x: Inputs) -> Array:
        """k(x, x) - diag(A'A) for A = A(x): the variance that v leaves open, [N] or [P, N].

        Exactly, it is at least about the jitter's share of k: smaller values are rounding.
        """
        prior = jnp.asarray(self.kernel(x))
        explained = jnp.sum(jnp.square(A), axis=-2)
        return jnp.maximum(computed_once(prior - explained), default_jitter(A.dtype) * prior)

    def marginals(self, law: Law, x: Inputs) -> tuple[Outputs, Outputs]:
        """Mean and variance of f(x), [N, P] each, about the layer's mean function."""
        return _marginals(self, law, x)

    def joint(self, law: Law, x: Inputs) -> tuple[Outputs, Float[Array, "P N N"]]:
        """Mean [N, P] and covariance [P, N, N] of f(x), about the layer's mean function."""
        return _joint(self, law, x)

    def correction(
        self, law: Law, v: Float[Array, "M P"], at_z: Float[Array, "M P"], x: Inputs
    ) -> Array:
        """What takes a prior draw f to one of `law` with inducing values v, [N, P].

        A(x)'(v - L⁻¹ f(Z)), and the law's own shift.
        """
        return _correction(self, law, v, at_z, x)


def covariance(kernel: Any, a: Array, b: Array) -> Array:
    """k(a, b), [N, M]; [P, N, M] if the kernel or either set of inputs is per output."""
    own = isinstance(kernel, PerOutput)
    axes = (0 if own else None, *(0 if u.ndim == 3 else None for u in (a, b)))
    if axes == (None, None, None):
        return jnp.asarray(kernel(a, b))
    return jax.vmap(lambda k, u, w: k(u, w), axes)(kernel.kernel if own else kernel, a, b)


@partial(jax.jit, static_argnums=2)
def _build(kernel: Any, z: Array, out: int) -> Sparse:
    gram = covariance(kernel, z, z)
    return Sparse(kernel, z, factorise(gram) if gram.ndim == 2 else jax.vmap(factorise)(gram), out)


@partial(jax.jit, static_argnums=2)
def _build_grid(kernel: Separable, grid: Grid, out: int) -> Sparse:
    space = _build(kernel.space, grid.z, out)
    time = _build(kernel.time, grid.times[:, None], out)
    # What both jitters add to the diagonal together; K and this are the factor's own to rounding.
    own = [jnp.mean(jnp.asarray(k(z))) for k, z in ((kernel.space, grid.z), (kernel.time, time.z))]
    jitters = [own[0] + space.factor.jitter, own[1] + time.factor.jitter]
    factor = Factor(
        jnp.kron(time.factor.lower, space.factor.lower),
        jnp.kron(time.factor.inverse, space.factor.inverse),
        jitters[0] * jitters[1] - own[0] * own[1],
    )
    return Sparse(kernel, grid.points, factor, out, (space, time))


@jax.jit
def _cross(sparse: Sparse, x: Inputs) -> Array:
    """A = L⁻¹ k(Z, x), [M, N] or [P, M, N]."""
    if sparse.parts is not None:
        space, time = sparse.parts
        in_space, in_time = _cross(space, x[:, :-1]), _cross(time, x[:, -1:])
        return (in_time[:, None, :] * in_space[None]).reshape(-1, x.shape[0])
    return matmul(sparse.factor.inverse, covariance(sparse.kernel, sparse.z, x))


def _mean(law: Law, A: Array, x: Inputs) -> Outputs:
    if not isinstance(law, AbstractInducing):
        return project(A, law)
    return project(A, law.loc) + law.shift(A, x)


@jax.jit
def _marginals(sparse: Sparse, law: Law, x: Inputs) -> tuple[Outputs, Outputs]:
    A = _cross(sparse, x)
    var = sparse.residual(A, x)
    if isinstance(law, AbstractInducing):
        var = var + law.variance_of(A)
    mean = _mean(law, A, x)
    return mean, jnp.broadcast_to(var, (sparse.out, x.shape[0])).T


@jax.jit
def _joint(sparse: Sparse, law: Law, x: Inputs) -> tuple[Outputs, Array]:
    A = _cross(sparse, x)
    cov = covariance(sparse.kernel, x, x) - matmul(jnp.swapaxes(A, -1, -2), A)
    cov = jnp.broadcast_to(cov, (sparse.out, x.shape[0], x.shape[0]))
    if isinstance(law, AbstractInducing):
        root = law.root_of(A)
        cov = cov + matmul(jnp.swapaxes(root, -1, -2), root)
    return _mean(law, A, x), cov


@jax.jit
def _correction(sparse: Sparse, law: Law, v: Array, at_z: Array, x: Inputs) -> Outputs:
    # L⁻¹ f(Z), [M, P]: L⁻¹ is one matrix, or one for each output.
    axes = (0 if sparse.separate else None, 1)
    white = jax.vmap(matmul, axes, 1)(sparse.factor.inverse, at_z)
    A = _cross(sparse, x)
    shift = law.shift(A, x) if isinstance(law, AbstractInducing) else 0.0
    return project(A, v - white) + shift
