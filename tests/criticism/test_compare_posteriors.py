"""Distances from posteriors that are known exactly."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS
from scipy import signal, stats
from support.helpers import KEY, one_layer, regression, slow, squared_exponential
from support.tiny import TINY, X, Y, tiny

import dgp_ppl as dgp
from dgp_ppl.criticism._compare_posteriors import _groups, compare_posteriors, energy_distance
from dgp_ppl.inference.samplers._chains import Chains
from dgp_ppl.inference.samplers._mcmc import run_mcmc

RNG = np.random.default_rng


def normal_distance(shift):
    """Energy distance of N(0, 1) and N(shift, 1): 2 E|N(shift, 2)| - 2 E|N(0, 2)|."""
    folded = lambda m: stats.foldnorm(abs(m) / np.sqrt(2), scale=np.sqrt(2)).mean()  # noqa: E731
    return 2 * folded(shift) - 2 * folded(0)


# Of N(0, I) and N((0.5, 0.5), I) in two dimensions: norms of Gaussian vectors are Rice's.
SHIFTED = 2 * (stats.rice.mean(0.5, scale=2**0.5) - stats.rice.mean(0, scale=2**0.5))


def test_energy_distance_of_normals():
    a, b = RNG(0).standard_normal((8, 200, 1)), RNG(1).standard_normal((8, 150, 1))
    for shift in (0.0, 0.3, 2.0):
        found = energy_distance(a, shift + b)
        assert abs(found.value - normal_distance(shift)) < 4 * found.error
        assert found.error < 0.1


def test_energy_distance_far_from_zero():
    a, b = RNG(0).standard_normal((8, 50, 2)), RNG(1).standard_normal((8, 50, 2))
    far = energy_distance(a + 1e9, b + 1e9)
    np.testing.assert_allclose(far, energy_distance(a, b), atol=1e-6)


@pytest.mark.slow
def test_its_error_is_the_spread_of_repetitions():
    """For equal distributions the statistic is degenerate, and the error is conservative."""
    pairs = [np.split(RNG(i).standard_normal((16, 50, 1)), 2) for i in range(200)]
    for shift, low, high in ((0.5, 0.85, 1.3), (0.0, 1.0, 2.0)):
        values, errors = np.array([energy_distance(a, b + shift) for a, b in pairs]).T
        bias = values.mean() - normal_distance(shift)
        assert abs(bias) < 4 * values.std() / np.sqrt(200)
        assert low < np.sqrt((errors**2).mean()) / values.std() < high


@pytest.mark.parametrize(("chains", "steps", "rho"), [(4, 100, 0.9), slow(1, 1000, 0.97)])
def test_twice_the_error_holds_for_draws_that_depend_on_each_other(chains, steps, rho):
    """AR(1) chains of the same distribution; with unwidened errors 16 to 19 % lie beyond."""
    rng, beyond = RNG(0), []
    for _ in range(150):
        noise = rng.standard_normal((chains, steps, 2)) * np.sqrt(1 - rho**2)
        noise[:, 0] /= np.sqrt(1 - rho**2)
        draws = Chains({"a": signal.lfilter([1], [1, -rho], noise, axis=1)})
        a, b = _groups(draws, ["a"], 400)["a"], 0.5 + rng.standard_normal((8, 50, 2))
        found = energy_distance(a, b)
        beyond.append(abs(found.value - SHIFTED) > 2 * found.error)
    assert np.mean(beyond) < 0.05 + 3 * 0.018


def unmixed(rng, chains, dim, steps=60, rho=0.9):
    """AR(1) chains about different centres: half of the variance is between chains."""
    x = rng.standard_normal((chains, steps, dim))
    for i in range(1, steps):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * x[:, i]
    return np.sqrt(0.5) * (x + rng.standard_normal((chains, 1, dim)))


def test_chains_that_have_not_mixed():
    """With chains as groups there is no bias, and errors are the spread of repetitions."""
    rng = RNG(0)
    truth = energy_distance(rng.standard_normal((8, 200, 8)), rng.standard_normal((8, 200, 8)))
    pairs = [(rng.standard_normal((8, 60, 8)), unmixed(rng, 8, 8)) for _ in range(100)]
    values, errors = np.array([energy_distance(a, b) for a, b in pairs]).T
    bias = values.mean() - truth.value
    assert abs(bias) < 4 * np.hypot(values.std() / 10, truth.error)
    assert 0.85 < np.sqrt((errors**2).mean()) / values.std() < 1.7
    assert values.min() < -0.1
    assert (values > -2.5 * errors).all()


def line(x, y):
    """A model without layers that needs y."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def test_missing_targets_do_not_count():
    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)), numpyro.handlers.mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(w * x, 0.5), obs=jnp.nan_to_num(y))

    a, b = (Chains({"w": m + 0.2 * RNG(i).standard_normal((4, 50))}) for i, m in enumerate((1, 2)))
    x, y = jnp.linspace(-1, 1, 8), jnp.linspace(-1, 1, 8).at[5:].set(jnp.nan)
    compare = lambda *test: compare_posteriors(KEY, a, b, model, {}, x, x, test=test)  # noqa: E731
    np.testing.assert_allclose(compare(x, y).log_density, compare(x[:5], y[:5]).log_density, 1e-5)
    with pytest.raises(ValueError, match="all targets of test are missing"):
        compare(x, jnp.full(8, jnp.nan))


def test_a_model_without_layers():
    """Two normals give the log density of the test data in closed form."""
    x, (x_test, y_test) = (
        jnp.linspace(-1, 1, 10),
        (jnp.linspace(-2, 2, 30), jnp.linspace(-3, 4, 30)),
    )
    posteriors = {"exact": (1.0, 0.2), "off": (1.4, 0.3)}
    chains, truths = {}, {}
    for i, (name, (loc, scale)) in enumerate(posteriors.items()):
        chains[name] = Chains({"w": loc + scale * RNG(i).standard_normal((4, 500))})
        sd = np.sqrt(np.square(scale * x_test) + 0.25)
        truths[name] = stats.norm(loc * x_test, sd).logpdf(y_test).mean()
    found = compare_posteriors(
        KEY, chains["exact"], chains["off"], line, {}, x, x, test=(x_test, y_test)
    ).log_density
    assert found.error < 0.05
    assert abs(found.value - (truths["off"] - truths["exact"])) < 4 * found.error
    assert abs(found.value) > 10 * found.error


def test_a_guide_function_of_ones_own():
    x, chains = jnp.linspace(-1, 1, 10), Chains({"w": RNG(0).standard_normal((4, 500))})

    def guide(x, y=None):
        numpyro.sample("w", dist.Normal(numpyro.param("loc", 0.0), 1.0))

    for loc in (0.0, 2.0):
        found = compare_posteriors(KEY, chains, guide, line, {"loc": loc}, x, x).joint
        assert abs(found.value - normal_distance(loc)) < 4 * found.error


ROWS = regression(rows=12)


def comparison(steps):
    """Compare a fit with independent posterior draws of `one_layer` with Z = X, as four chains."""
    L = np.linalg.cholesky(squared_exponential(ROWS[0], ROWS[0]) + 1e-6 * 1.5 * np.eye(12))
    covariance = np.linalg.inv(np.eye(12) + L.T @ L / 0.09)
    mean = covariance @ L.T @ np.asarray(ROWS[1], np.float64) / 0.09
    v = RNG(0).multivariate_normal(mean, covariance, (4, 500))
    exact = Chains({"l1.v": v[..., None].astype(np.float32)}, {}, None, 500, 0.0)
    guide = dgp.MeanField(one_layer)
    fit = dgp.fit(KEY, one_layer, guide, *ROWS, z=ROWS[0], steps=steps, progress=False)
    test = regression(seed=1, rows=30)
    return compare_posteriors(
        KEY, exact, guide, one_layer, fit.params, *ROWS, z=ROWS[0], test=test
    )  # fmt: skip


@pytest.mark.slow
def test_the_exact_posterior_is_near_and_a_poor_fit_is_far():
    found = comparison(2000)
    assert abs(found.joint.value) < 4 * found.joint.error
    assert found.joint.error < 0.02
    assert found.joint == pytest.approx(found.sites["l1.v"])
    assert abs(found.log_density.value) < 4 * found.log_density.error
    assert found.khat < 0.5
    found = comparison(1)
    assert found.joint.value > 12 * found.joint.error  # of four groups, widened by 1.65
    assert found.log_density.value < -4 * found.log_density.error
    assert found.khat > 0.7


@pytest.mark.slow
def test_what_factors_miss():
    """Single sites agree, all together do not: one layer's draws are shuffled."""
    x, y = jnp.asarray(X, float), jnp.asarray(Y, float)
    options = {"num_warmup": 1000, "num_samples": 1000, "num_chains": 8, "progress": False}
    exact = run_mcmc(KEY, NUTS(tiny), x, y, **options)
    e, d = RNG(0).standard_normal((2, 2, 8, 1000, 1, 1))
    truth = Chains({"l1.v": e[0], "l2.v": e[0] + 0.1 * d[0]}, {}, None, 1000, 0.0)
    second = np.roll(e[1], 1, axis=0) + 0.1 * d[1]
    apart = Chains({"l1.v": e[1], "l2.v": second}, {}, None, 1000, 0.0)
    found = compare_posteriors(KEY, truth, apart, tiny, {}, x, y)
    assert found.khat is None
    assert found.log_density is None
    for site in found.sites.values():
        assert abs(site.value) < 4 * site.error
    assert found.joint.value > 10 * found.joint.error
    fitted = compare_posteriors(KEY, exact, dgp.MeanField(tiny), tiny, TINY, x, y)
    assert fitted.joint.value > 10 * fitted.joint.error
    assert set(fitted.sites) == {"l1.v", "l2.v"}  # the guide has no sites of unit noise


@pytest.mark.wrong_types
def test_wrong_use():
    x, y = jnp.asarray(X, float), jnp.asarray(Y, float)
    guide = dgp.MeanField(tiny)
    chains = lambda num, *sites: Chains({n: np.zeros((4, num, 1, 1)) for n in sites})  # noqa: E731
    one, few = chains(9, "l1.v"), chains(1, "l1.v", "l2.v")
    for error, call, pattern in (
        (ValueError, lambda: compare_posteriors(KEY, one, guide, tiny, TINY, x, y), "'l2.v'"),
        (ValueError, lambda: compare_posteriors(KEY, few, guide, tiny, TINY, x, y), "4 draws"),
        (ValueError, lambda: compare_posteriors(KEY, one, one, tiny, {}, x, y, test=(x, y)),
         "latent sites .*Leave out"),
        (ValueError, lambda: compare_posteriors(KEY, one, one, tiny, {}, x, y, test=(x, y[:2])),
         r"test .*\(3, 1\) .*\(2,\)"),
        (TypeError, lambda: compare_posteriors(0, one, one, tiny, {}, x, y), "key is 0"),
        (ValueError, lambda: energy_distance(np.zeros((2, 9, 1)), np.zeros((2, 9, 1))), "G and H"),
    ):  # fmt: skip
        with pytest.raises(error, match=pattern):
            call()
