"""Hyperparameters of kernels, kernels per output, pytrees, and rounding of distances."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from numpyro import handlers
from numpyro.distributions import constraints
from support.helpers import KEY
from support.kernel_cases import CASES, CLASSES, V, contract, inputs

import dgp_ppl as dgp
from dgp_ppl import kernels


def registered(make):
    """Return what `make` returns, and the params that it registers."""
    with handlers.trace() as trace:
        value = make()
    return value, trace


def test_learned_registers_positive_params():
    cases = itertools.product(CLASSES, ((None, True), (None, False), (3, True)))
    for name, (out, ard) in cases:
        cls = getattr(kernels, name)
        fields = [f.name for f in dataclasses.fields(cls)]
        kernel, trace = registered(
            lambda cls=cls, out=out, ard=ard: cls.learned("l1", 2, out=out, ard=ard, variance=2.5)
        )
        assert list(trace) == [f"l1.{field}" for field in fields]
        for field in fields:
            site, lead = trace[f"l1.{field}"], () if out is None else (out,)
            assert site["kwargs"]["constraint"] is constraints.positive
            wanted = (*lead, 2) if field == "lengthscale" and ard else lead
            assert site["value"].shape == wanted
        assert (trace["l1.variance"]["value"] == 2.5).all()
        np.testing.assert_allclose(trace["l1.lengthscale"]["value"], np.sqrt(2))
        single = kernel if out is None else kernel.kernel
        assert type(single) is cls


def test_per_output_is_a_loop():
    single = [kernels.Matern52(np.float32(v), np.float32([v, 1.0])) for v in (0.5, 1.0, 2.0)]
    stacked = kernels.PerOutput(jax.tree.map(lambda *a: np.stack(a), *single))
    cross = jax.jit(lambda k, x, z: (k(x, z), k(x)))
    x, z = jnp.asarray(inputs(4, 6), float), jnp.asarray(inputs(3, 7), float)
    for got, *wanted in zip(cross(stacked, x, z), *(cross(k, x, z) for k in single), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_kernels_per_output_take_functions_as_terms():
    own = kernels.PerOutput(kernels.Matern32(jnp.ones(2), jnp.ones((2, 1))))
    x = jnp.asarray(inputs(3, 1)[:, :1], jnp.float32)
    doubled = lambda x, z=None: 2 * kernels.Matern32(1.0, 1.0)(x, z)  # noqa: E731
    np.testing.assert_allclose((own + doubled)(x, x), 3 * own(x, x), rtol=1e-6)
    with pytest.raises(TypeError, match=r"a term or factor is 2\.0, wanted"):
        own * 2.0


def test_kernels_are_pytrees():
    kernel = CASES["Sum"][0]
    doubled = jax.tree.map(lambda a: 2 * a, kernel)
    assert type(doubled) is kernels.Sum
    assert doubled.first.variance == 2 * V
    x = jnp.asarray(inputs(3, 10), float)
    gradient = jax.jit(jax.grad(lambda k: jnp.sum(k(x, x))))(kernel)
    np.testing.assert_allclose(gradient.first.variance, kernel.first(x, x).sum() / V, rtol=1e-5)


def test_kernels_per_output_add_and_multiply_output_by_output():
    """With each other, and with a kernel that all outputs share."""
    lengthscale = jnp.array([[0.5], [2.0]])
    own = kernels.PerOutput(kernels.Matern32(jnp.array([1.0, 3.0]), lengthscale))
    other = kernels.PerOutput(kernels.SquaredExponential(jnp.ones(2), lengthscale))
    shared = kernels.SquaredExponential(2.0, jnp.array([0.7]))
    x, z = jnp.linspace(-1, 1, 4)[:, None], jnp.linspace(-1, 1, 3)[:, None]

    @jax.jit
    def pairs():
        both = [((own + other)(x, z), own(x, z) + other(x, z))]
        both += [((own * other)(x), own(x) * other(x))]
        both += [(k(x, z), own(x, z) + shared(x, z)[None]) for k in (own + shared, shared + own)]
        both += [(k(x), own(x) * shared(x)[None]) for k in (own * shared, shared * own)]
        return both

    for found, wanted in pairs():
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_kernel_of_some_columns_ignores_all_other_columns():
    x, z = jnp.asarray(inputs(4, 6), float), jnp.asarray(inputs(3, 7), float)
    kernel = kernels.Matern52(0.5, 0.7)
    own = kernels.PerOutput(kernels.Matern32(jnp.array([1.0, 3.0]), jnp.array([0.5, 2.0])))

    @jax.jit
    def pairs():
        both = [(own.on(1)(x, z), own(x[:, 1:], z[:, 1:]))]
        for columns, at in [(1, [1]), ([1, 0], [1, 0]), (slice(0, 2), [0, 1]), (range(1), [0])]:
            at, found = np.array(at), kernel.on(columns)
            both += [(found(x, z), kernel(x[:, at], z[:, at])), (found(x), kernel(x[:, at]))]
        return both

    for found, wanted in pairs():
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


class Laplace(kernels.Kernel):
    """A user's kernel: no features, and a diagonal of its own."""

    scale: Any = 1.0

    def __call__(self, x, z):
        return jnp.exp(-jnp.abs(x - z.T) / self.scale)

    def diag(self, x):
        return jnp.ones(len(x))


class Wrong(Laplace):
    def diag(self, x):
        return self(x, x)


def test_an_own_kernel_needs_a_covariance_and_a_diagonal():
    x, z, own = jnp.asarray(inputs(4, 6)[:, :1]), jnp.zeros((3, 1)), Laplace()
    np.testing.assert_allclose((own + kernels.Matern12(1.0, 1.0))(x, z), 2 * own(x, z), rtol=1e-5)
    np.testing.assert_allclose((own * own).on(0)(x), 1.0)
    with handlers.seed(rng_seed=0):
        f = dgp.gp("f", own, z + jnp.arange(3.0)[:, None])
        np.testing.assert_allclose(f.joint(x)[1][0].diagonal(), f(x).var[:, 0], rtol=1e-5)


@pytest.mark.wrong_types
def test_errors():
    one, x = jnp.ones(()), jnp.zeros((3, 1))
    for error, pattern, call in (
        (TypeError, "Matern32.learned got 'alpha'.*variance.*lengthscale",
         lambda: kernels.Matern32.learned("k", 1, alpha=1.0)),
        (TypeError, "Laplace.learned has no starting value of 'scale', wanted scale=",
         lambda: Laplace.learned("k", 1)),
        (TypeError, "kernel Laplace has no random features.*features.*joint",
         lambda: (Laplace() + kernels.Linear(one, one)).features(KEY, 2, 1)),
        (ValueError, r"kernel Wrong returns shape \(3, 3\) for k\(x\).*wanted \(3,\)",
         lambda: (Wrong() * kernels.Linear(one, one))(x)),
        (TypeError, r"kernel <lambda> has no k\(x\): .*diag",
         lambda: (kernels.Linear(one, one) + (lambda a, b: a @ b.T))(x)),
        (ValueError, r"Separable: x has shape \(3, 1\), wanted columns for k_x and a last one",
         lambda: kernels.Separable(kernels.Linear(one, one), kernels.Linear(one, one))(x)),
    ):  # fmt: skip
        with pytest.raises(error, match=pattern):
            call()
    with handlers.seed(rng_seed=0):
        assert Laplace.learned("k", 1, scale=0.3).scale == pytest.approx(0.3)
    for columns in ([], [0, 0], -1, 0.5, slice(1, None), slice(-2, 3), "ab", [True, False]):
        with pytest.raises(ValueError, match=r"Columns: columns is .*wanted"):
            kernels.Linear(1.0, 1.0).on(columns)
    with pytest.raises(ValueError, match=r"Columns: columns has 2, and the inputs have 2 columns"):
        kernels.Linear(1.0, 1.0).on([0, 2])(jnp.zeros((3, 2)))


def test_a_kernel_of_tinygp_can_have_some_columns():
    x = jnp.asarray(inputs(4, 6), float)
    kernel = tinygp.kernels.Matern32(jnp.float32(0.7))
    found = kernels.Columns(kernel, 1) * kernels.Linear(1.0, 1.0).on(0)
    wanted = kernel(x[:, 1:], x[:, 1:]) * x[:, :1] * x[None, :, 0]
    np.testing.assert_allclose(found(x, x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, 2, 3, 6])
def test_distances(dim):
    """Up to two inputs may span a thousand lengthscales, as a long series does."""
    x = np.random.default_rng(dim).normal(size=(40, dim)) * [1000 if dim < 3 else 1]
    x[20:] = x[:20] + 0.3 * np.random.default_rng(9).normal(size=(20, dim))
    x = x.astype(np.float32)
    found = kernels.Matern32(1.0, 0.7)(jnp.asarray(x), jnp.asarray(x[::3]))
    r = np.sqrt(3 * np.square(x[:, None] - np.float64(x[None, ::3])).sum(-1)) / 0.7
    np.testing.assert_allclose(found, (1 + r) * np.exp(-r), atol=3e-4 if dim < 3 else 1e-5)


def three(name):
    """Return a kernel of three inputs, and rows of them that are multiples of 1/64."""
    kernel = dataclasses.replace(CASES[name][0], lengthscale=jnp.array([0.7, 1.9, 1.2]))
    x = np.concatenate([inputs(7, 4), inputs(7, 5)[:, :1]], axis=1)
    return kernel, np.round(64 * x) / 64


def test_a_common_shift_costs_no_digits():
    for name in ("SquaredExponential", "Matern12", "RationalQuadratic"):
        kernel, rows = three(name)
        x, z = (jnp.asarray(a, jnp.float32) for a in (rows, rows[::-1] / 2))
        shifted = contract(kernel, x + 2**16, z + 2**16)[0]
        np.testing.assert_allclose(shifted, contract(kernel, x, z)[0], atol=2e-6)


def test_outliers_cost_the_other_inputs_no_digits():
    is_near = np.arange(7) % 3 != 1
    for name in ("SquaredExponential", "Matern12", "RationalQuadratic"):
        kernel, x = three(name)
        far = x + np.where(is_near, 0.0, 1e6 * np.arange(7))[:, None]
        found, expected = (
            kernel(a, a) for a in (jnp.asarray(far, jnp.float32), jnp.asarray(x, jnp.float32))
        )
        near = np.ix_(is_near, is_near)
        np.testing.assert_allclose(found[near], expected[near], atol=2e-6)


@pytest.mark.parametrize("dim", [1, 3])
def test_second_derivatives_where_inputs_coincide(dim):
    """A floor of distances, or a clip of rounding errors, would make them 0, or halve them."""
    at = jnp.full(dim, 0.3)
    for kind, slope in (("SquaredExponential", 1.0), ("Matern32", 3.0), ("Matern52", 5 / 3)):
        kernel = getattr(kernels, kind)(2.0, 0.7)
        found = jax.jit(jax.hessian(lambda x: kernel(x[None], at[None])[0, 0]))(at)  # noqa: B023
        np.testing.assert_allclose(found, -2 * slope / 0.7**2 * np.eye(dim), rtol=1e-5, atol=1e-5)
