"""Sparse GP regression with the optimal q(u): the collapsed bound of Titsias (2009)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._checks import GivenParams, as_array, check_inputs, missing_params, params_of
from dgp_ppl._partition import TRACING
from dgp_ppl._typing import AnyArray, Fitted, InducingInputs, Inputs, Params, PRNGKey
from dgp_ppl.core._conditional import Sparse, given_values
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.kernels._scaled import start_value
from dgp_ppl.linalg import factorise
from dgp_ppl.linalg._products import as_float, matmul
from dgp_ppl.models._stack import KernelMaker, rows_that_count


class CollapsedNormal(dist.Distribution):
    """The normal N(y; 0, A'A + s² I), less Titsias's trace term (2009, eq. 9) in `log_prob`.

    A is L⁻¹ k(Z, x), [M, N], `residual` k(x, x) - diag(A'A), [N], and `noise` s. Rows that do not
    count, by `counts`, [N], add nothing.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "A": constraints.real_matrix,
        "residual": constraints.real_vector,
        "noise": constraints.positive,
    }
    support: Any = constraints.real_vector
    pytree_data_fields: Any = ("A", "residual", "noise", "counts")

    def __init__(
        self, A: Array, residual: Array, noise: ArrayLike, counts: Array | None = None, *,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if counts is not None:
            A, residual = jnp.where(counts, A, 0.0), jnp.where(counts, residual, 0.0)
        self.A, self.residual, self.noise, self.counts = A, residual, jnp.asarray(noise), counts
        super().__init__((), residual.shape, validate_args=validate_args)

    def log_prob(self, value: Float[Array, " N"]) -> Float[Array, ""]:
        """Return the collapsed bound on log p(y), in nats."""
        if value.shape != self.event_shape:
            raise ValueError(f"sgpr: y has shape {value.shape}, wanted {self.event_shape}")
        A, y, num = self.A / self.noise, value / self.noise, len(value)
        if self.counts is not None:
            y, num = jnp.where(self.counts, y, 0.0), jnp.sum(self.counts)
        # B = I + A A', w = B⁻¹ A y. B gets jitter only if needed; it lowers the bound.
        B = factorise(jnp.eye(len(A), dtype=A.dtype) + matmul(A, A.T), jitter=0.0)
        w = matmul(B.inverse.T, matmul(B.inverse, matmul(A, y)))
        log_det = jnp.sum(jnp.log(jnp.diagonal(B.lower))) + num * jnp.log(self.noise)
        # y'(I + A'A)⁻¹ y is the least |y - A'w|² + |w|². So errors of w lower the bound; y'y less
        # y'A'B⁻¹A y would lose all digits where the noise is tiny, and could be far below 0.
        fit = 0.5 * (jnp.sum(jnp.square(y - matmul(w, A))) + jnp.sum(jnp.square(w)))
        trace = 0.5 * jnp.sum(self.residual) / jnp.square(self.noise)
        return -0.5 * num * jnp.log(2 * jnp.pi) - log_det - fit - trace

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw y from N(0, A'A + s² I), sample_shape + [N]."""
        key_v, key_e = random.split(key)
        M, N = self.A.shape
        f = matmul(random.normal(key_v, (*sample_shape, M)), self.A)
        return f + self.noise * random.normal(key_e, (*sample_shape, N))


def sgpr(
    x: Inputs,
    y: AnyArray | None = None,
    *,
    z: InducingInputs,
    kernel: KernelMaker = SquaredExponential.learned,
    noise: float = 0.3,
    counts: AnyArray | None = None,
) -> None:
    """Sparse GP regression; the log density of its ``y`` site is the collapsed bound.

    The model has no latent site, so fit it with an empty guide. It has the params of `models.svgp`.
    To predict, compute q(v) with `optimal_inducing` and use `models.svgp`. It has no `local`: write
    ``deep_gp(z=(z,), local=near)``, whose natural gradients find the best q(v), too.

    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> from dgp_ppl import models
    >>> x, y = jnp.linspace(0.0, 1.0, 5)[:, None], jnp.zeros(5)
    >>> with handlers.trace() as sites:
    ...     models.sgpr(x, y, z=x[:3])
    >>> sites["y"]["fn"].log_prob(y).shape
    ()

    Args:
        x: inputs, [N, D].
        y: targets, [N]; None to draw them.
        z: initial inducing inputs, [M, D].
        kernel: makes the kernel from its name and number of inputs.
        noise: initial standard deviation of the Gaussian noise, in the units of y.
        counts: which rows and targets count, [N], of bool; None for all. With others one compiled
            program serves several numbers of rows.

    Source: Titsias (2009), eq. 9.
    """
    start_value("sgpr: noise", noise, (), constraints.positive)
    sparse, scale = _layer("sgpr", z, kernel, noise)
    y = None if y is None else as_array("sgpr", "y", y)
    A, residual = _projection("sgpr", sparse, x)
    kept = None if counts is None else rows_that_count("sgpr", counts, residual.shape)
    numpyro.sample("y", CollapsedNormal(A, residual, scale, kept), obs=y)


def optimal_inducing(
    params: Params | Fitted,
    x: Inputs,
    y: AnyArray,
    *,
    kernel: KernelMaker = SquaredExponential.learned,
    counts: AnyArray | None = None,
) -> Params:
    """Compute the optimal q(v) for params of `sgpr`, to predict with `MeanField` and `svgp`.

    q(v) = N(B⁻¹ A y / s², B⁻¹) with B = I + A A' / s².

    Args:
        params: fitted params of `sgpr`, or the result of the fit.
        x: training inputs, [N, D].
        y: training targets, [N].
        kernel: the `kernel` that the model was fitted with.
        counts: which rows count, [N], of bool; None for all.

    Returns:
        `params` with ``l1.v.loc`` [M, 1] and ``l1.v.scale_tril`` [1, M, M] added.

    Raises:
        DataError: if x or y is NaN or infinite.
        TypeError: if x or y holds no real numbers.
        ValueError: if a param of `sgpr` is missing, or a param, x or y has another shape.

    Source: Titsias (2009), eq. 10, whitened.
    """
    params = params_of("optimal_inducing", params)
    if "l1.z" not in params:
        raise missing_params("optimal_inducing", ["l1.z"], params)
    with TRACING, GivenParams(None, params, "optimal_inducing"):
        sparse, noise = _layer("optimal_inducing", params["l1.z"], kernel, 1.0)
    y = check_inputs("optimal_inducing", y, "y")
    A = _projection("optimal_inducing", sparse, check_inputs("optimal_inducing", x))[0]
    if jnp.shape(y) != A.shape[1:]:
        raise ValueError(f"optimal_inducing: y has shape {jnp.shape(y)}, wanted {A.shape[1:]}")
    if counts is not None:
        kept = rows_that_count("optimal_inducing", counts, jnp.shape(y))
        noise = jnp.where(kept, noise, jnp.inf)
    q = given_values(A, y, noise)
    return {**params, "l1.v.loc": q.loc, "l1.v.scale_tril": q.scale_tril}


def _layer(caller: str, z: InducingInputs, kernel: KernelMaker, noise: float) -> tuple[Sparse, Any]:
    """Make the sparse GP ``l1`` and the standard deviation ``noise``, with their params."""
    z = as_float(check_inputs(caller, z, "z"))
    if z.ndim != 2 or not z.shape[0]:
        raise ValueError(
            f"{caller}: z has shape {z.shape}, wanted [M, D] with M >= 1; see z[:, None]"
        )
    inducing: Any = numpyro.param("l1.z", z)
    sparse = Sparse.build(kernel("l1", z.shape[-1]), inducing, 1)
    return sparse, numpyro.param("noise", noise, constraint=constraints.positive)


def _projection(caller: str, sparse: Sparse, x: Inputs) -> tuple[Array, Array]:
    """Return A = L⁻¹ k(Z, x) and the conditional variance given v."""
    x, dim = as_float(as_array(caller, "x", x)), sparse.z.shape[-1]
    if x.ndim != 2 or x.shape[1] != dim or not len(x):
        raise ValueError(
            f"{caller}: x has shape {x.shape}, wanted [N, {dim}] to match z, with N >= 1; for one "
            "input dimension pass x[:, None]"
        )
    A = sparse.project(x)
    return A, sparse.residual(A, x)
