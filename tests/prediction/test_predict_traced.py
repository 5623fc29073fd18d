"""`predict` inside `jax.jit`, `jax.vmap` and `jax.grad`: values, derivatives, what is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY, two_layer_params
from support.predictions import SHALLOW, X_TEST, deep

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.models import svgp

pytestmark = pytest.mark.wrong_types  # signatures promise NumPy's arrays; traced ones are JAX's
X, Y = np.float32(X_TEST), np.sin(2 * np.float32(X_TEST[:, 0]))
Z = X[::2]
PARAMS = {n: a for n, a in two_layer_params().items() if n == "noise" or n.startswith("l1.")}
SCALER = dgp.Standardizer(np.array([0.2]), np.array([1.5]), 3.0, 2.0)
SMOOTH = {
    "mean": lambda p: p.mean,
    "var": lambda p: p.var,
    "log_prob": lambda p: p.log_prob(Y),
    "quantile": lambda p: p.quantile([0.1, 0.7]),
}
LIKELIHOODS = {
    "student": lambda f: dist.StudentT(4.0, f, 0.3),
    "exponential": lambda f: dist.Exponential(jnp.exp(f)),
}


def ask(p, queries):
    return {name: query(p) for name, query in queries.items()}


def shallow(x=X, **options):
    options = {"z": PARAMS["l1.z"], "num_samples": 2} | options
    return dgp.predict(KEY, svgp, SHALLOW, PARAMS, x, **options)


def assert_close(found, wanted, **tolerances):
    tolerances = {"rtol": 2e-3, "atol": 2e-4} | tolerances
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **tolerances)


def test_compiled_values_and_derivatives():
    """Values are the host's, and derivatives along x its differences."""

    @jax.jit
    def along(x):
        one = jnp.ones_like(x)
        return jax.jvp(lambda x: ask(shallow(x, standardizer=SCALER), SMOOTH), (x,), (one,))

    host = lambda x: ask(shallow(x, standardizer=SCALER), SMOOTH)  # noqa: E731
    values, slopes = along(X)
    assert_close(values, host(X))
    above, below = host(X + 0.05), host(X - 0.05)
    assert all(isinstance(a, np.ndarray) for a in above.values())
    differences = {n: (above[n] - below[n]) / 0.1 for n in SMOOTH}
    assert_close(slopes, differences, rtol=0.02, atol=0.02)


def test_a_prediction_keeps_no_tracers():
    p = shallow()
    ask = lambda y: (p.mean, p.log_prob(y), p.sample(KEY, 3), p.function_draws(KEY, 2))  # noqa: E731
    for traced, host in zip(jax.jit(ask)(Y), ask(Y), strict=True):
        assert isinstance(host, np.ndarray)
        np.testing.assert_allclose(traced, host, rtol=1e-3, atol=1e-4)


def test_what_is_computed_in_numpy_says_so():
    with pytest.raises(TypeError, match=r"Prediction\.crps is computed in NumPy.*log_prob"):
        jax.jit(lambda x: shallow(x).crps(Y))(X)
    with pytest.raises(TypeError, match=r"Prediction\.crps"):
        jax.grad(lambda y: shallow().crps(y).sum())(Y)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_derivatives_are_finite_differences(likelihood):
    """In the inputs, and in a hyperparameter of the model; here with quadrature."""

    def queries(shift, variance):
        def model(x):
            f = dgp.gp("f", kernels.SquaredExponential(variance, 1.0), Z)
            numpyro.sample("y", dgp.observe(f(x), LIKELIHOODS[likelihood]))

        p = dgp.predict(KEY, model, None, {}, X.astype(np.float64) + shift, num_samples=3)
        found = list(p.quantile([0.2, 0.9]))
        if likelihood != "student":  # its distribution function takes a minute to compile
            found += [p.mean, p.var, p.log_prob(jnp.abs(Y) + 0.1)]
        return jnp.stack(found).mean(axis=1)

    compiled, step = jax.jit(queries), 1e-3
    slopes = jax.jit(jax.jacrev(queries, (0, 1)))(0.0, 1.3)
    for slope, move in zip(slopes, [(step, 0.0), (0.0, step)], strict=True):
        above, below = (compiled(s * move[0], 1.3 + s * move[1]) for s in (1, -1))
        np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=3e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_derivative_in_the_level_is_one_over_the_density():
    p = deep(num_samples=4)
    q, slope = jax.jvp(lambda level: p.quantile(level), (0.7,), (1.0,))
    np.testing.assert_allclose(slope, np.exp(-p.log_prob(q)), rtol=1e-4)
