"""The contract of kernels: formula, shapes, gradients, random features and lengthscales."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, assert_mean
from support.kernel_cases import CASES, OURS, contract, inputs

from dgp_ppl import kernels


def test_kernels_with_the_same_leaves_are_not_one_program():
    """JAX would run one kernel's compiled program for another kernel of the same tree structure."""
    structures = [jax.tree.structure(kernel) for kernel, _ in CASES.values()]
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    """Check shapes, formula, diagonal, symmetry and positive semi-definiteness."""
    kernel, formula = CASES[name]
    kernel = jax.tree.map(lambda a: jnp.asarray(np.round(np.float64(a), 6)), kernel)
    x, z = inputs(12, 0), inputs(5, 1)
    cross, gram, diagonal = contract(kernel, jnp.asarray(x), jnp.asarray(z))
    assert (cross.shape, diagonal.shape) == ((12, 5), (12,))
    np.testing.assert_allclose(cross, [[formula(a, b) for b in z] for a in x], rtol=1e-8)
    # 1e-7, because distances are at least sqrt(eps).
    np.testing.assert_allclose(diagonal, [formula(a, a) for a in x], rtol=1e-7)
    np.testing.assert_allclose(diagonal, np.diag(gram), rtol=1e-7)
    np.testing.assert_allclose(gram, gram.T, rtol=1e-9)
    assert np.linalg.eigvalsh(gram).min() > -1e-7 * np.trace(gram)


@pytest.mark.parametrize("name", CASES)
def test_float32_gradients_are_finite_where_points_coincide(name):
    kernel = CASES[name][0]
    x = jnp.zeros((3, 2)).at[2].set(1.0)

    def total(kernel, x):
        return jnp.sum(kernel(x, x)) + jnp.sum(kernel(x))

    for gradient in jax.tree.leaves(jax.jit(jax.grad(total, (0, 1)))(kernel, x)):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", OURS)
def test_features_are_unbiased(name):
    kernel, formula = CASES[name]
    x, z = inputs(3, 2), inputs(2, 3)

    # Not compiled as one program, so that the kernels share the compiled `random.gamma`.
    phi = kernel.features(KEY, 40_000, 2)
    a, b = np.asarray(phi(jnp.asarray(x, float))).T, np.asarray(phi(jnp.asarray(z, float))).T
    truth = [[formula(a, b) for b in z] for a in x]
    assert_mean(a[:, :, None] * b[:, None, :], truth)


def test_every_kernel_of_the_module_is_in_the_contract():
    concrete = {
        name
        for name in kernels.__all__
        if isinstance(cls := getattr(kernels, name), type) and issubclass(cls, kernels.Kernel)
    }
    assert concrete - {"Kernel"} == set(OURS)
