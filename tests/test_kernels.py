import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from jax import random
from numpyro import handlers
from numpyro.distributions import constraints
from support.helpers import KEY, assert_mean

from dgp_ppl import kernels

V, L = 1.3, np.array([0.7, 1.9])  # variance, lengthscales
LENGTHSCALE = jnp.asarray(L, jnp.float32)


def distance(a, b):
    return np.sqrt(np.sum(((a - b) / L) ** 2))


def arc_cosine(a, b):
    a, b = np.append(a / L, 0.6), np.append(b / L, 0.6)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    theta = np.arccos(np.clip(a @ b / norms, -1, 1))
    return V / np.pi * norms * (np.sin(theta) + (np.pi - theta) * np.cos(theta))


def periodic(a, b):
    return V * np.exp(-0.5 * np.sum(np.sin(np.pi * (a - b) / 1.7) ** 2 / L**2))


def matern32(a, b):
    r = np.sqrt(3) * distance(a, b)
    return V * (1 + r) * np.exp(-r)


def matern52(a, b):
    r = distance(a, b)
    return V * (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)


# Each kernel, and its formula for two points, written apart from the library.
CASES = {
    "SquaredExponential": (
        kernels.SquaredExponential(V, LENGTHSCALE),
        lambda a, b: V * np.exp(-0.5 * distance(a, b) ** 2),
    ),
    "Matern12": (kernels.Matern12(V, LENGTHSCALE), lambda a, b: V * np.exp(-distance(a, b))),
    "Matern32": (kernels.Matern32(V, LENGTHSCALE), matern32),
    "Matern52": (kernels.Matern52(V, LENGTHSCALE), matern52),
    "RationalQuadratic": (
        kernels.RationalQuadratic(V, LENGTHSCALE, 0.8),
        lambda a, b: V * (1 + distance(a, b) ** 2 / 1.6) ** -0.8,
    ),
    "Periodic": (kernels.Periodic(V, LENGTHSCALE, 1.7), periodic),
    "Linear": (kernels.Linear(V, LENGTHSCALE), lambda a, b: V * np.sum(a * b / L**2)),
    "ArcCosine": (kernels.ArcCosine(V, LENGTHSCALE, 0.6), arc_cosine),
    "Sum": (  # of two whose features have a mean: their cross terms do not vanish by themselves
        kernels.ArcCosine(V, LENGTHSCALE, 0.6) + kernels.ArcCosine(0.5, LENGTHSCALE, 0.6),
        lambda a, b: (1 + 0.5 / V) * arc_cosine(a, b),
    ),
    "Product": (
        kernels.Matern32(V, LENGTHSCALE) * kernels.Periodic(V, LENGTHSCALE, 1.7),
        lambda a, b: matern32(a, b) * periodic(a, b),
    ),
    "Separable": (
        kernels.Separable(
            kernels.Matern32(V, LENGTHSCALE[0]), kernels.SquaredExponential(1.0, LENGTHSCALE[1])
        ),
        lambda a, b: (
            matern32(a * [1, 0], b * [1, 0]) * np.exp(-0.5 * distance(a * [0, 1], b * [0, 1]) ** 2)
        ),
    ),
    "tinygp": (
        V * tinygp.kernels.ExpSquared(jnp.float32(0.9)),
        lambda a, b: V * np.exp(-0.5 * np.sum((a - b) ** 2) / 0.81),
    ),
}
OURS = [n for n in CASES if n != "tinygp"]
CLASSES = [n for n in OURS if n not in ("Sum", "Product", "Separable")]


def inputs(rows, seed):
    return np.random.default_rng(seed).normal(size=(rows, 2))


@jax.jit
def contract(kernel, x, z):
    return kernel(x, z), kernel(x, x), kernel(x)


def test_kernels_with_the_same_leaves_are_not_one_program():
    """JAX's own dataclasses compare equal across classes, and jit then mixes them up."""
    structures = [jax.tree.structure(kernel) for kernel, _ in CASES.values()]
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    """Shapes, the closed formula, the diagonal, symmetry and positive semi-definiteness."""
    kernel, formula = CASES[name]
    kernel = jax.tree.map(lambda a: jnp.asarray(np.round(np.float64(a), 6)), kernel)
    x, z = inputs(12, 0), inputs(5, 1)
    cross, gram, diagonal = contract(kernel, jnp.asarray(x), jnp.asarray(z))
    assert (cross.shape, diagonal.shape) == ((12, 5), (12,))
    np.testing.assert_allclose(cross, [[formula(a, b) for b in z] for a in x], rtol=1e-8)
    # 1e-7: a distance is kept away from 0 by sqrt(eps).
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

    # Not compiled as one: so the kernels share what is slow to compile, `random.gamma`.
    phi = kernel.features(KEY, 40_000, 2)
    a, b = np.asarray(phi(jnp.asarray(x, float))).T, np.asarray(phi(jnp.asarray(z, float))).T
    truth = [[formula(a, b) for b in z] for a in x]
    assert_mean(a[:, :, None] * b[:, None, :], truth)


def test_features_are_functions_of_their_key():
    draw = lambda key: CASES["Linear"][0].features(key, 40_000, 2)(jnp.ones((1, 2)))  # noqa: E731
    assert (draw(KEY) == draw(KEY)).all()
    assert (draw(KEY) != draw(random.key(1))).all()


def test_a_common_shift_costs_no_digits():
    # Multiples of 1/64 are exact after the shift too.
    x, z = (jnp.asarray(np.round(64 * inputs(6, s)) / 64, jnp.float32) for s in (4, 5))
    for name in ("SquaredExponential", "Matern12", "RationalQuadratic"):
        kernel = CASES[name][0]
        shifted = contract(kernel, x + 2**16, z + 2**16)[0]
        np.testing.assert_allclose(shifted, contract(kernel, x, z)[0], atol=2e-6)


def test_gradients_keep_the_data_once():
    """No squares beside it: at MNIST's size a tenth of a step's memory."""
    x = random.normal(KEY, (50, 7))

    def cross(lengthscale, z):
        return kernels.SquaredExponential(1.0, lengthscale)(z, x)

    _, gradient = jax.vjp(cross, jnp.ones(7), x[:5])
    kept = [np.sort(a, axis=None) for a in jax.tree.leaves(gradient) if jnp.size(a) == x.size]
    assert kept
    for each in kept:
        np.testing.assert_array_equal(each, kept[0])


@pytest.mark.parametrize("name", ["Matern52", "Periodic", "Linear", "ArcCosine"])
def test_one_lengthscale_stands_for_all_inputs(name):
    values = {**vars(CASES[name][0]), "lengthscale": np.float32(0.8)}
    one = getattr(kernels, name)(**values)
    many = getattr(kernels, name)(**values | {"lengthscale": np.full(2, 0.8, np.float32)})
    x, z = jnp.asarray(inputs(4, 8), float), jnp.asarray(inputs(3, 9), float)
    for got, wanted in zip(contract(one, x, z), contract(many, x, z), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def registered(make):
    """What `make` returns, and the params it registers."""
    with handlers.trace() as trace:
        value = make()
    return value, trace


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("out", "ard"), [(None, True), (None, False), (3, True)])
def test_learned_registers_positive_params(name, out, ard):
    cls = getattr(kernels, name)
    fields = [f.name for f in dataclasses.fields(cls)]
    kernel, trace = registered(lambda: cls.learned("l1", 2, out=out, ard=ard, variance=2.5))
    assert list(trace) == [f"l1.{field}" for field in fields]
    for field in fields:
        site, lead = trace[f"l1.{field}"], () if out is None else (out,)
        assert site["type"] == "param"
        assert site["kwargs"]["constraint"] is constraints.positive
        wanted = (*lead, 2) if field == "lengthscale" and ard else lead
        assert site["value"].shape == wanted
    assert (trace["l1.variance"]["value"] == 2.5).all()
    np.testing.assert_allclose(trace["l1.lengthscale"]["value"], np.sqrt(2))
    if out is None:
        assert type(kernel) is cls
    else:
        assert type(kernel) is kernels.PerOutput
        assert type(kernel.kernel) is cls


def test_learned_takes_starting_values_of_any_shape():
    _, trace = registered(lambda: kernels.Matern52.learned("k", 2, lengthscale=[0.1, 0.2]))
    np.testing.assert_allclose(trace["k.lengthscale"]["value"], [0.1, 0.2])


def test_unknown_hyperparameter():
    with pytest.raises(TypeError, match=r"Matern32.learned got 'alpha'.*variance.*lengthscale"):
        kernels.Matern32.learned("k", 1, alpha=1.0)


def test_per_output_is_a_loop():
    single = [kernels.Matern52(np.float32(v), np.float32([v, 1.0])) for v in (0.5, 1.0, 2.0)]
    stacked = kernels.PerOutput(jax.tree.map(lambda *a: np.stack(a), *single))
    cross = jax.jit(lambda k, x, z: (k(x, z), k(x)))
    x, z = jnp.asarray(inputs(4, 6), float), jnp.asarray(inputs(3, 7), float)
    for got, *wanted in zip(cross(stacked, x, z), *(cross(k, x, z) for k in single), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_kernels_are_pytrees():
    kernel = CASES["Sum"][0]
    doubled = jax.tree.map(lambda a: 2 * a, kernel)
    assert type(doubled) is kernels.Sum
    assert doubled.first.variance == 2 * V
    x = jnp.asarray(inputs(3, 10), float)
    gradient = jax.grad(lambda k: jnp.sum(k(x, x)))(kernel)
    np.testing.assert_allclose(gradient.first.variance, kernel.first(x, x).sum() / V, rtol=1e-5)


def test_every_kernel_of_the_module_is_in_the_contract():
    concrete = {
        name
        for name in kernels.__all__
        if isinstance(cls := getattr(kernels, name), type) and issubclass(cls, kernels.Kernel)
    }
    assert concrete - {"Kernel"} == set(OURS)
