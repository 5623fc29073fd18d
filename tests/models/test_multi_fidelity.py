"""Two fidelities, against dense algebra in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import NUTS, init_to_median
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import kernels, models

KEY = jax.random.key(0)
SIZES = (9, 4)
MODEL = partial(models.multi_fidelity, sizes=SIZES, kernel=kernels.SquaredExponential.learned)


def low(x):
    return np.sin(8 * np.pi * x)


def high(x):
    """A nonlinear function of x and of the low fidelity (Perdikaris et al. 2017)."""
    return (x - np.sqrt(2)) * low(x) ** 2


def runs(sizes=SIZES):
    first = np.linspace(0, 1, sizes[0])
    second = first[np.random.default_rng(0).permutation(sizes[0])[: sizes[1]]] + 0.01
    return np.concatenate([first, second])[:, None], np.concatenate([low(first), high(second)])


DRAW = {
    "l1.variance": 1.2, "l1.lengthscale": np.array([0.15]), "noise1": 0.05,
    "l1.eps": np.array([0.3, -1.0, 0.7, 0.1]), "l2.variance": 0.8,
    "l2.lengthscale": np.array([0.6, 1.1]), "noise2": 0.02,
}  # fmt: skip


def kernel(a, b, name):
    apart = np.square((a[:, None] - b[None]) / DRAW[f"{name}.lengthscale"]).sum(axis=-1)
    return DRAW[f"{name}.variance"] * np.exp(-0.5 * apart)


def given(a, y, at, name, noise):
    """Return mean and covariance of f at inputs by dense algebra."""
    K = kernel(a, a, name) + np.diag(noise**2 + 1e-8 * DRAW[f"{name}.variance"] + 0 * y)
    A = np.linalg.solve(K, kernel(a, at, name))
    return A.T @ y, kernel(at, at, name) - kernel(at, a, name) @ A, K


def by_hand():
    """Return the log densities of both fidelities, and the last given values of the first."""
    x, y = runs()
    (x1, x2), (y1, y2) = np.split(x, [9]), np.split(y, [9])
    mean, cov, K1 = given(x1, y1, x2, "l1", DRAW["noise1"])
    f = mean + np.linalg.cholesky(cov + 2.3e-12 * DRAW["l1.variance"] * np.eye(4)) @ DRAW["l1.eps"]
    h = np.column_stack([x2, f])
    K2 = given(h, y2, h, "l2", DRAW["noise2"])[2]
    parts = ((K1, y1), (K2, y2))
    densities = [stats.multivariate_normal(np.zeros(len(K)), K).logpdf(v) for K, v in parts]
    return densities, f, h


def test_densities_equal_dense_algebra():
    with jax.enable_x64(True), handlers.trace() as sites:
        with handlers.substitute(data=jax.tree.map(jnp.asarray, DRAW)):
            MODEL(*map(jnp.asarray, runs()))
        found = [float(sites[n]["fn"].log_prob(sites[n]["value"])) for n in ("y1", "y2")]
    np.testing.assert_allclose(found, by_hand()[0], rtol=1e-7)


def test_predictions_go_through_the_first_fidelity_given_all_that_is_known_of_it():
    x, y = runs()
    _, f, h = by_hand()
    at = np.array([[0.13], [0.57]])
    draws = {n: np.stack([a] * 400) for n, a in DRAW.items()}
    options = {"given": (x, y), "posterior_samples": draws, "num_samples": 400}
    found = dgp.predict(KEY, MODEL, None, {}, at, **options).f.mean
    # By hand: the first function at `at`, given its runs and its values at the later rows.
    known = np.concatenate([x[:9], x[9:]])
    noise = np.where(np.arange(13) < 9, DRAW["noise1"], 0.0)
    mean, cov, _ = given(known, np.concatenate([y[:9], f]), at, "l1", noise)
    rng, exact = np.random.default_rng(0), []
    for _ in range(4000):
        first = mean + np.sqrt(np.diag(cov)) * rng.standard_normal(2)
        exact.append(given(h, y[9:], np.column_stack([at, first]), "l2", DRAW["noise2"])[0])
    error = np.std(exact, axis=0) * np.sqrt(1 / 4000 + 1 / 400)
    assert (np.abs(found - np.mean(exact, axis=0)) < 4 * error).all()
    assert (np.abs(found - given(x[9:], y[9:], at, "l1", 0.0)[0]) > 20 * error).all()


@pytest.mark.slow
def test_a_costly_function_is_learned_from_few_runs():
    sizes = (50, 14)
    x, y = runs(sizes)
    model, new = partial(models.multi_fidelity, sizes=sizes), np.linspace(0, 1, 300)[:, None]
    scale = dgp.Standardizer.fit(x, y)
    x, y = (np.asarray(a, float) for a in (scale.inputs(x), scale.outputs(y)))
    with jax.enable_x64(True):
        sampler = NUTS(model, max_tree_depth=6, init_strategy=init_to_median)
        chains = dgp.run_mcmc(
            KEY, sampler, jnp.asarray(x), jnp.asarray(y), num_warmup=100, num_samples=100,
            progress=False,
        )  # fmt: skip
    options = {"given": (x, y), "posterior_samples": chains, "standardizer": scale}
    p = dgp.predict(KEY, model, None, {}, new, **options)
    assert np.sqrt(np.mean(np.square(p.f.mean - high(new[:, 0])))) < 0.05  # alone .3


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("args", "options", "text"),
    [
        (runs(), {"sizes": (3, 4)}, r"shape \(13, 1\).*wanted\s+\[7, D\], as sizes is \(3, 4\)"),
        (runs(), {"sizes": (13.0,)}, "wanted numbers of runs, such as"),
        ((runs()[0], np.ones(5)), {"sizes": SIZES}, r"y has shape \(5,\), wanted \(13,\)"),
        (runs(), {"sizes": SIZES, "given": runs()}, "predicted from itself"),
    ],
)
def test_what_does_not_fit_is_named(args, options, text):
    with handlers.seed(rng_seed=0), pytest.raises((TypeError, ValueError), match=text):
        models.multi_fidelity(*args, **options)
