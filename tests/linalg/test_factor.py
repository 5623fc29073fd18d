"""Cholesky factors with escalating jitter, their inverses, and moments."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_derivatives
from support.lowered import use_gpu_branches

from dgp_ppl.linalg import default_jitter, factorise, white_moments


def positive(seed, size=6):
    root = np.random.default_rng(seed).standard_normal((size, size))
    return jnp.asarray(root @ root.T / size + np.eye(size), float)


def log_det(K):
    return jnp.sum(jnp.log(jnp.diagonal(factorise(K).lower)))


compiled = jax.jit(factorise)
log_det_gradient = jax.jit(jax.grad(log_det))
SINGULAR = {
    "all alike": np.ones((40, 40)),
    "duplicates": np.kron(np.eye(20), np.ones((2, 2))),
    "rank one": np.outer(np.arange(1, 41), np.arange(1, 41)),
    "large units": 1e12 * np.ones((40, 40)),
    "small units": 1e-12 * np.ones((40, 40)),
}
INDEFINITE = {
    "by 1e-3": np.ones((40, 40)) - 1e-3 * np.eye(40),
    "by 1e-2": np.ones((40, 40)) - 1e-2 * np.eye(40),
    "one negative pivot": np.diag([1.0] * 39 + [-0.05]),
}
ALL = SINGULAR | INDEFINITE


@pytest.mark.usefixtures("x64")
def test_factor_is_numpys_on_a_well_conditioned_matrix():
    K = positive(0)
    factor = compiled(K)
    jitter = default_jitter(np.float64) * np.trace(K) / 6
    np.testing.assert_allclose(factor.jitter, jitter, rtol=1e-10)
    lower = np.linalg.cholesky(np.asarray(K) + jitter * np.eye(6))
    np.testing.assert_allclose(factor.lower, lower, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(factor.inverse, np.linalg.inv(lower), rtol=1e-9, atol=1e-11)


def test_a_singular_matrix_gets_the_jitter_that_is_reported():
    for name, dense in ALL.items():
        K = jnp.asarray(dense, jnp.float32)
        factor, gradient = compiled(K), log_det_gradient(K)
        lower, scale = np.asarray(factor.lower, np.float64), np.trace(dense) / 40
        shifted = dense + factor.jitter * np.eye(40)
        np.testing.assert_allclose(lower @ lower.T / scale, shifted / scale, atol=1e-4)
        assert np.isfinite(factor.inverse).all(), name
        assert np.isfinite(gradient).all(), name
        relative = float(factor.jitter) / scale
        if name in SINGULAR:
            assert default_jitter(jnp.float32) * (1 - 1e-4) < relative < 1e-3, name
        else:  # jitter grows tenfold until every pivot is at least a quarter of it
            needed = -np.linalg.eigvalsh(dense).min()
            assert needed < factor.jitter < 10 * needed * 4 / 3, name


def test_jitter_escalates_where_rounding_has_eaten_it():
    """A finite factor is not enough: its smallest pivot must keep a quarter of the jitter."""
    eaten = 0.8 * default_jitter(jnp.float32)
    K = jnp.eye(10).at[3, 3].set(-eaten)
    factor = compiled(K)
    assert 5 * eaten < factor.jitter < 20 * eaten
    assert compiled(K.at[3, 3].set(0.0)).jitter < 2 * eaten


def test_all_jitters_together_give_the_factor_of_one_after_another(monkeypatch):
    """A GPU factorises with all jitters, and takes the first sound factor."""
    cases = ALL | {"positive": positive(4, 40), "zero": np.zeros((40, 40))}
    cases["nan"] = positive(5, 40).at[20, 3].set(jnp.nan)
    cases = {name: jnp.asarray(K, jnp.float32) for name, K in cases.items()}
    wanted = {name: (compiled(K), log_det_gradient(K)) for name, K in cases.items()}
    use_gpu_branches(monkeypatch)
    factor, slope = jax.jit(lambda K: factorise(K)), jax.jit(jax.grad(lambda K: log_det(K)))
    for name, K in cases.items():
        found, (one_by_one, gradient) = factor(K), wanted[name]
        np.testing.assert_allclose(found.jitter, one_by_one.jitter, rtol=1e-6)
        scale = float(jnp.sqrt(jnp.max(jnp.abs(K)))) or 1.0
        np.testing.assert_allclose(found.lower / scale, one_by_one.lower / scale, atol=1e-5)
        if name == "nan":
            assert not np.isfinite(found.lower).all()
            continue
        product = np.asarray(found.inverse) @ np.asarray(found.lower)
        np.testing.assert_allclose(product, np.eye(40), atol=2e-3)
        if name != "zero":  # where the gradient overflows
            largest = np.max(np.abs(gradient), where=np.isfinite(gradient), initial=0.0)
            np.testing.assert_allclose(slope(K), gradient, rtol=0.02, atol=0.02 * largest)


def test_a_difference_is_factorised_at_the_scale_of_its_terms():
    """The trace of rounding errors can be tiny or negative while entries are not."""
    errors = np.diag(np.random.default_rng(0).standard_normal(8))
    for noise in (1e-6, -1e-6, 3e-6):
        K = jnp.asarray(noise * errors, jnp.float32)
        factor = jax.jit(partial(factorise, scale=1.0))(K)
        assert np.isfinite(factor.inverse).all()
        assert default_jitter(jnp.float32) * (1 - 1e-4) <= factor.jitter < 1e-4
        shifted = K + factor.jitter * jnp.eye(8)
        lower = np.asarray(factor.lower)
        np.testing.assert_allclose(lower @ lower.T, shifted, atol=1e-9)


def test_a_scale_below_the_mean_diagonal_changes_nothing():
    K = positive(4)
    np.testing.assert_array_equal(compiled(K).lower, factorise(K, scale=0.1).lower)


@pytest.mark.usefixtures("x64")
def test_derivatives_of_the_factor_are_finite_differences():
    """Check first and second derivatives of the factor and its inverse, in both modes."""
    weight = np.random.default_rng(2).standard_normal((2, 4, 4))

    def scalar(root):
        factor = factorise(root @ root.T + jnp.eye(4))
        return jnp.sum(weight[0] * factor.lower) + jnp.sum(weight[1] * factor.inverse)

    assert_derivatives(scalar, positive(3, 4), second=True)


def test_vmap_leaves_the_sound_matrices_of_a_batch_alone():
    stack = jnp.stack([positive(4), jnp.ones((6, 6)) - 1e-2 * jnp.eye(6), positive(5)])
    batched = jax.jit(jax.vmap(factorise))(stack)
    for i, K in enumerate(stack):
        alone = compiled(K)
        np.testing.assert_allclose(batched.jitter[i], alone.jitter, rtol=1e-5)
        np.testing.assert_allclose(batched.lower[i], alone.lower, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("x64")
def test_moments_with_a_rule_of_their_own_have_the_derivatives_of_the_formula():
    """Compare value, gradient, tangent and Hessian with the same of products that JAX derives."""
    rng = np.random.default_rng(8)
    root, k, loc, R, prior = (
        jnp.asarray(rng.standard_normal(shape))
        for shape in ((3, 4, 4), (3, 4, 5), (4, 3), (3, 4, 4), (3, 5))
    )
    R, prior, weight = jnp.tril(R), 9 + jnp.square(prior), rng.standard_normal((2, 3, 5))

    def factors(root):
        return jax.vmap(lambda a: factorise(a @ a.T + jnp.eye(4)))(root)

    def ruled(root, k, prior, loc, R):
        return jnp.stack(white_moments(factors(root), k, prior, loc, R))

    def plain(root, k, prior, loc, R):
        A = factors(root).inverse @ k
        var = prior - jnp.sum(A**2, axis=1) + jnp.einsum("pmn,pmk,pjk,pjn->pn", A, R, R, A)
        return jnp.stack([jnp.einsum("pmn,mp->pn", A, loc), var])

    arguments = (root, k, prior, loc, R)

    @partial(jax.jit, static_argnums=0)
    def everything(function, *a):
        weighed = lambda *a: jnp.sum(weight * jnp.sin(function(*a)))  # noqa: E731
        gradient = jax.grad(weighed, tuple(range(5)))
        tangent = jax.jvp(function, a, a)[1]
        return function(*a), gradient(*a), tangent, jax.jvp(gradient, a, a)[1]

    for got, wanted in zip(
        jax.tree.leaves(everything(ruled, *arguments)),
        jax.tree.leaves(everything(plain, *arguments)),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_moments_stay_positive_where_rounding_makes_them_negative():
    """At inducing inputs that nearly coincide, in float32, with a q(v) of almost no variance."""
    z = jnp.linspace(0, 1, 40)
    k = jnp.exp(-0.5 * jnp.square(z[:, None] - z[None]))
    one = factorise(k)
    factor = jax.tree.map(lambda a: a[None], one)
    R = 1e-5 * jnp.eye(40)[None]
    mean, var = white_moments(factor, k[None], jnp.ones((1, 40)), jnp.zeros((40, 1)), R)
    assert (var >= default_jitter(jnp.float32)).all()
    assert (var < 1e-4).all()
    assert (mean == 0).all()


def test_the_inverse_is_as_good_as_a_triangular_solve():
    """L⁻¹ L = I up to a few thousand eps; a plain inverse is a hundred times worse."""
    for M, lengthscale in ((50, 0.3), (100, 1.0), (200, 3.0)):
        x = np.linspace(-2, 2, M)
        K = np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2).astype(np.float32)
        factor = compiled(jnp.asarray(K))
        inverse, lower = (np.asarray(a, np.float64) for a in (factor.inverse, factor.lower))
        assert np.abs(inverse @ lower - np.eye(M)).max() < 5e-4
