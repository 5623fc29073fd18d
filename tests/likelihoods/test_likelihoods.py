"""Every likelihood of the library, closed forms, mixtures, integrals of one variable."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import AnalyticLikelihood, BernoulliProbit
from dgp_ppl.likelihoods._mixture import Mixture
from dgp_ppl.likelihoods._quadrature import log_integral

F = jnp.linspace(-100.0, 80.0, 361)
SCALAR = {
    "bernoulli_logit": (likelihoods.bernoulli_logit, (0, 1)),
    "bernoulli_probit": (likelihoods.bernoulli_probit, (0, 1)),
    "CensoredNormal": (
        lambda f: likelihoods.CensoredNormal(f, 0.01, -1.0, 1.0), (-1.0, 0.3, 1.0)
    ),
    "PoissonLog": (likelihoods.PoissonLog, (0, 1, 10_000)),
    "NegativeBinomialLog": (lambda f: likelihoods.NegativeBinomialLog(f, 3.0), (0, 1, 10_000)),
    "RightCensored": (lambda f: likelihoods.RightCensored(dist.LogNormal(f, 0.1), True), (1e-3, 9)),
    "LeftCensored": (lambda f: likelihoods.LeftCensored(dist.LogNormal(f, 0.1), True), (1e-3, 9)),
    "IntervalCensored": (
        lambda f: likelihoods.IntervalCensored(dist.Normal(f, 0.1)),
        (jnp.array([1.0, 2.0]), jnp.array([0.0, jnp.inf]), jnp.array([1.0, 1.0])),
    ),
    "student_t": (likelihoods.student_t, (-50.0, 0.3)),
    "StudentT": (lambda f: likelihoods.StudentT(2.5, f, 1e-3), (-50.0, 0.3)),
}  # fmt: skip
CLASSES = {"softmax": likelihoods.softmax, "robust_max": likelihoods.robust_max}
NOISE = {"heteroscedastic": likelihoods.heteroscedastic}


def cases():
    """Yield each likelihood's name, its function, targets and latent values."""
    for name, (make, targets) in SCALAR.items():
        yield name, make, targets, F
    for name, make in CLASSES.items():
        yield name, make, (0, 1, 2), jnp.stack([F, 0 * F, F[::-1]], axis=-1)
    for name, make in NOISE.items():
        yield name, make, (-2.0, 80.0), jnp.stack([F, F[::-1] / 4], axis=-1)


def test_values_and_gradients_are_finite_for_any_latent():
    """In float32, for f from -100 to 80; the log of the noise from -25 to 20."""
    for name, make, targets, f in cases():
        total = jax.jit(jax.value_and_grad(lambda f, y, make=make: make(f).log_prob(y).sum()))
        for y in targets:
            value, gradient = total(f, y)
            assert np.isfinite(value), name
            assert np.isfinite(gradient).all(), name
    others = {"AnalyticLikelihood", "Likelihood", "Mixture", "Observed", "log_density", "observe"}
    others |= {"BernoulliProbit", "HeteroscedasticNormal", "RobustMax"}  # made by functions above
    others |= {"MixedNormal"}  # of several outputs
    assert set(likelihoods.__all__) == {name for name, *_ in cases()} | others


@pytest.mark.wrong_types
def test_a_latent_of_another_width_is_refused():
    for make, pattern in (
        (likelihoods.RobustMax, r"latent.*\[\.\.\., C\].*out=C"),
        (likelihoods.heteroscedastic, r"latent.*\[\.\.\., 2\].*out=2"),
    ):
        with pytest.raises(ValueError, match=pattern):
            make(jnp.zeros((3, 1)))


def test_probit_in_both_tails():
    f = jnp.array([-30.0, -1.0, 0.0, 5.0])
    distribution = BernoulliProbit(f)
    for y, exact in ((jnp.ones(4), stats.norm.logcdf(f)), (jnp.zeros(4), stats.norm.logsf(f))):
        np.testing.assert_allclose(distribution.log_prob(y), exact, rtol=1e-4, atol=1e-7)
    variance = stats.norm.cdf(f) * stats.norm.sf(f)
    np.testing.assert_allclose(distribution.variance, variance, rtol=1e-4, atol=1e-30)
    assert_mean(distribution.sample(KEY, (20_000,)), stats.norm.cdf(f))


def test_densities_of_whole_numbers_end_where_the_support_does():
    """Also those of NumPyro, which are finite at 0.5, and take class -1 for the last one."""
    f, y = jnp.zeros(3), jnp.array([-1.0, 0.5, 1.0])
    for kind in (
        BernoulliProbit,
        likelihoods.PoissonLog,
        lambda f: likelihoods.NegativeBinomialLog(f, 2.0),
        lambda f: likelihoods.RobustMax(jnp.array([0.0, 1.0]) * f),
    ):
        both = jax.jit(jax.vmap(jax.value_and_grad(lambda f, y: kind(f).log_prob(y))))  # noqa: B023
        log_p, slope = both(f, y)
        np.testing.assert_array_equal(jnp.isneginf(log_p), y < 1)
        assert jnp.isfinite(slope).all()
    f, none = f[:, None], -np.inf
    for make, at, wanted in (
        (lambda: dgp.observe(Marginals(f, f), likelihoods.bernoulli_logit),
         y, [none, none, np.log(0.5)]),
        (lambda: Mixture(f[0], dist.Categorical(logits=jnp.zeros((1, 3, 4)))),
         [-1.0, 3.5, 3.0], [none, none, np.log(0.25)]),
        (lambda: Mixture(f[0], dist.Binomial(jnp.array([[1, 2, 3]]), logits=jnp.zeros((1, 3)))),
         [2, 2, -1], [none, np.log(0.25), none]),
    ):  # fmt: skip
        found = jax.jit(lambda y, make=make: make().log_prob(y))(jnp.array(at))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_closed_forms_come_first():
    class Constant(BernoulliProbit):
        def expected_log_prob(self, var, value, num_nodes):
            return jnp.full(self.batch_shape, -7.0)

    assert issubclass(Constant, AnalyticLikelihood)
    marginals = Marginals(jnp.zeros((2, 1)), jnp.ones((2, 1)), True)
    assert dgp.observe(marginals, Constant).log_prob(jnp.ones(2)).tolist() == [-7.0, -7.0]


def test_peaks_and_their_gradients(x64):
    """A Gaussian much narrower than the interval, one that fills a sixth of it, and two peaks."""

    def integral(log_height, width):
        log_normal = lambda u: log_height - 0.5 * jnp.square((u - 4.321) / width)  # noqa: E731
        return log_integral(log_normal, jnp.array(-20.0), jnp.array(25.0))

    both = jax.jit(jax.value_and_grad(integral))
    for width in (0.03, 0.5, 3.0):
        found, slope = both(2.0, width)
        assert found == pytest.approx(2 + np.log(width * np.sqrt(2 * np.pi)), abs=1e-6)
        assert slope == pytest.approx(1.0)

    def log_sum(u):
        return jnp.logaddexp(-0.5 * jnp.square(u + 5), 3 - 0.5 * jnp.square(u - 7))

    found = jax.jit(lambda: log_integral(log_sum, jnp.array(-15.0), jnp.array(20.0)))()
    assert found == pytest.approx(np.log(np.sqrt(2 * np.pi) * (1 + np.exp(3))), abs=1e-6)


WEIGHTS = np.array([0.2, 0.5, 0.3])
LOC = np.array([[-1.0, 0.0], [0.5, 2.0], [3.0, -2.0]])
SCALE = np.array([[0.3, 1.0], [0.5, 0.2], [1.0, 0.4]])
Y = np.array([0.2, 1.5])


@pytest.fixture
def mixture(x64):
    return Mixture(jnp.log(WEIGHTS), dist.Normal(jnp.asarray(LOC), jnp.asarray(SCALE)))


def test_moments_density_and_distribution_function(mixture):
    mean = WEIGHTS @ LOC
    np.testing.assert_allclose(mixture.mean, mean)
    np.testing.assert_allclose(mixture.variance, WEIGHTS @ (SCALE**2 + LOC**2) - mean**2)
    parts = stats.norm(LOC, SCALE)
    np.testing.assert_allclose(mixture.log_prob(Y), np.log(WEIGHTS @ parts.pdf(Y)))
    np.testing.assert_allclose(mixture.cdf(Y), WEIGHTS @ parts.cdf(Y))
    assert np.isfinite(mixture.log_prob(1e3 * Y)).all()


def test_rows_pick_their_components_independently(mixture):
    rows = 4000
    wide = Mixture(
        mixture.log_weights, dist.Normal(jnp.tile(LOC[:, :1], rows), jnp.tile(SCALE[:, :1], rows))
    )
    draws = wide.sample(KEY)
    assert draws.shape == (rows,)
    assert_mean(draws, mixture.mean[0])
    assert_mean((draws - mixture.mean[0]) ** 2, mixture.variance[0])


def test_entries_of_a_row_share_their_component(x64):
    """The density of a row is a mixture of products, and the cdf is of each entry."""
    joint = Mixture(jnp.log(WEIGHTS), dist.Normal(LOC[:, None], SCALE[:, None]).to_event(1))
    parts = stats.norm(LOC, SCALE)
    wanted = np.log(WEIGHTS @ np.prod(parts.pdf(Y), axis=1))
    np.testing.assert_allclose(joint.log_prob(Y[None]), [wanted])
    np.testing.assert_allclose(joint.cdf(Y[None]), [WEIGHTS @ parts.cdf(Y)])
    assert joint.support is dist.constraints.real
