"""What a `Prediction` computes: densities with missing targets, distribution functions, CRPS."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import ndtr
from numpyro.distributions import constraints
from scipy import stats
from scipy.special import logsumexp
from support.helpers import KEY, spread
from support.predictions import X_TEST, Y_TEST

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods, metrics
from dgp_ppl._errors import DataError
from dgp_ppl.prediction import _functionals

Z, N = spread(5), len(X_TEST)
SCALE = dgp.Standardizer(np.zeros(1), np.ones(1), np.array([3.0, -1.0]), np.array([2.0, 0.5]))
Y2 = np.stack([3 + Y_TEST, -1 + np.cos(X_TEST[:, 0])], axis=1)


def two(likelihood, z=Z):
    """A prior of two outputs of one layer."""

    def model(x):
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), z, out=2)(x)
        numpyro.sample("y", dgp.observe(f, likelihood))

    return model


def single(likelihood, variance=1.0, shift=0.0):
    """A prior of one output, whose inputs are moved away from the inducing ones."""

    def model(x):
        f = dgp.gp("f", kernels.SquaredExponential(variance, 1.0), Z)(x + shift)
        numpyro.sample("y", dgp.observe(f, likelihood))

    return model


def normal(f):
    return dist.Normal(f, jnp.array([0.3, 0.6])).to_event(1)


def prior(model, **options):
    options = {"num_samples": 3} | options
    return dgp.predict(KEY, model, None, {}, X_TEST, **options)


@pytest.fixture(scope="module")
def gaussian():
    return prior(two(normal), standardizer=SCALE)


def outputs(p):
    """Means and standard deviations of all passes in the data's units, [S, N, 2]."""
    ((_, mixtures),) = p.components()
    base = mixtures.components.base_dist
    loc, scale = (np.asarray(a, np.float64)[:, 0] for a in (base.loc, base.scale))
    return 2 * loc * [1, 0.25] + [3, -1], np.broadcast_to(scale, loc.shape) * [2, 0.5]


def test_crps_of_several_outputs_is_each_outputs_own(gaussian):
    loc, scale = outputs(gaussian)
    found = gaussian.crps(Y2)
    assert found.shape == (N, 2)
    for i in range(2):
        wanted = metrics.crps_gaussian_mixture(Y2[:, i], loc[..., i], scale[..., i])
        np.testing.assert_allclose(found[:, i], wanted, rtol=1e-4, atol=1e-5)


def test_densities_of_several_standardised_outputs(gaussian):
    loc, scale = outputs(gaussian)
    by_entry = stats.norm(loc, scale).logpdf(Y2)
    wanted = logsumexp(by_entry.sum(-1), axis=0) - np.log(3)
    np.testing.assert_allclose(gaussian.log_prob(Y2), wanted, rtol=1e-3)
    np.testing.assert_allclose(gaussian.mean, loc.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(gaussian.var, (scale**2).mean(0) + loc.var(axis=0), rtol=1e-4)
    below = stats.norm(loc, scale).cdf(gaussian.quantile([0.1, 0.5])[1]).mean(axis=0)
    np.testing.assert_allclose(below, 0.5, atol=1e-4)
    assert gaussian.sample(KEY, 3).shape == gaussian.function_draws(KEY, 3).shape == (3, N, 2)
    # A scalar scale holds for both outputs.
    shared = prior(two(normal), standardizer=dgp.Standardizer(np.zeros(1), np.ones(1), 0.0, 2.0))
    plain = prior(two(normal))
    np.testing.assert_allclose(
        shared.log_prob(2 * Y2), plain.log_prob(Y2) - 2 * np.log(2), rtol=1e-4
    )


CENSORED = np.arange(N) % 3 == 0
CENSORING = {
    "right": lambda f: likelihoods.RightCensored(dist.Normal(f, 0.3), jnp.asarray(CENSORED)),
    "numpyro's": lambda f: dist.LeftCensoredDistribution(dist.Normal(f, 0.3), CENSORED),
    "ends": lambda f: likelihoods.CensoredNormal(f, 0.3, high=jnp.where(CENSORED, -2.0, 9.0)),
    "interval": lambda f: likelihoods.IntervalCensored(dist.Normal(f, 0.3)),
    "outputs": lambda f: likelihoods.RightCensored(
        dist.Normal(f, 0.3), jnp.asarray(CENSORED)[:, None]
    ).to_event(1),
}


@pytest.mark.parametrize("kind", CENSORING)
def test_probabilities_of_censored_rows_have_no_units(kind):
    def model(x):
        f = dgp.gp("f", kernels.Matern32(1.0, 1.0), Z, out=1 + (kind == "outputs"))(x)
        numpyro.sample("y", dgp.observe(f, CENSORING[kind]))

    y = Y2 if kind == "outputs" else Y_TEST
    if kind == "interval":
        y = np.stack([y, y + CENSORED], axis=1)
    scale = dgp.Standardizer(np.zeros(1), np.ones(1), 5.0, 20.0)
    found = prior(model, standardizer=scale).log_prob(5 + 20 * y)
    shift = np.where(CENSORED, 0, np.log(20)) * (1 + (kind == "outputs"))
    np.testing.assert_allclose(found, prior(model).log_prob(y) - shift, rtol=1e-4, atol=1e-4)
    drawn, plain = (prior(model, **o).function_draws(KEY, 2) for o in ({"standardizer": scale}, {}))
    np.testing.assert_allclose(drawn, 5 + 20 * plain, rtol=1e-5)


def test_functions_of_a_log_scale_stay_in_the_models_units():
    model = two(lambda f: dist.Normal(f[..., 0], jnp.exp(f[..., 1])))
    p = prior(model, standardizer=dgp.Standardizer(np.zeros(1), np.ones(1), 5.0, 20.0))
    with pytest.warns(UserWarning, match=r"outputs of shape \(2,\), unlike y"):
        found = p.function_draws(KEY, 3)
    np.testing.assert_allclose(found, prior(model).function_draws(KEY, 3), rtol=1e-5)
    np.testing.assert_allclose(p.f.mean, prior(model).f.mean, rtol=1e-5)


def test_prediction_of_the_function_has_no_noise(gaussian):
    """It has the mean of y and its variance less the noise's; of a pool, too."""
    noise = (np.array([0.3, 0.6]) * [2, 0.5]) ** 2
    for p in (gaussian, dgp.pool([gaussian, prior(two(normal), standardizer=SCALE)])):
        np.testing.assert_allclose(p.f.mean, p.mean, rtol=1e-5)
        np.testing.assert_allclose(p.f.var, p.var - noise, rtol=2e-3)
    assert gaussian.f is gaussian.f
    assert repr(gaussian.f).startswith("Prediction: f at")
    assert np.ptp(gaussian.f.interval(0.5), axis=0).max() > 0
    counts = prior(single(lambda f: dist.Poisson(jnp.exp(f))), num_samples=1)
    log_rate = counts.f.mean
    np.testing.assert_allclose(counts.mean, np.exp(log_rate + counts.f.var / 2), rtol=1e-2)


def test_missing_entries_add_nothing(gaussian):
    mask = np.ones((N, 2), bool)
    mask[0, 1] = mask[2] = False
    y = np.where(mask, Y2, np.nan)
    loc, scale = outputs(gaussian)
    by_entry = np.where(mask, stats.norm(loc, scale).logpdf(Y2), 0).sum(-1)
    assert gaussian.log_prob(y, mask)[2] == 0
    mixed = np.log(np.exp(by_entry).mean(axis=0))
    np.testing.assert_allclose(gaussian.log_prob(y, mask), mixed, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"log_prob: y is NaN in 2 of 7 rows \[0, 2\].*mask="):
        gaussian.log_prob(y)
    with pytest.raises(
        ValueError, match=r"mask has shape \(3,\), wanted the shape of the rows \(7,\)"
    ):
        gaussian.log_prob(y, np.ones(3, bool))


def test_outputs_that_depend_on_each_other_have_no_single_entries():
    p = prior(two(lambda f: dist.MultivariateNormal(f, covariance_matrix=jnp.eye(2))))
    with pytest.raises(ValueError, match="MultivariateNormal, which cannot leave out single"):
        p.log_prob(Y2, np.ones((N, 2), bool))
    assert p.log_prob(Y2, np.arange(N) > 2)[0] == 0


def one(likelihood):
    return prior(single(likelihood))


def test_distribution_functions_of_counts_and_classes():
    counts = one(lambda f: dist.Poisson(jnp.exp(f)))
    below, p0 = counts.cdf(1.5), np.exp(counts.log_prob(np.zeros(N, int)))
    p1 = np.exp(counts.log_prob(np.ones(N, int)))
    np.testing.assert_allclose(below, p0 + p1, rtol=1e-3)
    assert (counts.cdf(-1.0) == 0).all()
    below_0 = one(lambda f: dist.DiscreteUniform(jnp.full(f.shape, -3), jnp.full(f.shape, 3)))
    np.testing.assert_allclose(below_0.cdf(-1.5), 2 / 7, rtol=1e-5)
    classes = one(dgp.BernoulliProbit)
    np.testing.assert_allclose(classes.cdf(0), classes.probabilities[:, 0], rtol=1e-3)


def test_classes_have_probabilities_and_quantiles_but_no_mean():
    p = one(lambda f: dist.OrderedLogistic(f, jnp.array([-1.0, 0.0, 1.0])))
    for ask in (lambda: p.mean, lambda: p.var):
        with pytest.raises(ValueError, match=r"mean and var: .*OrderedLogistic.*see probabilities"):
            ask()
    below = np.cumsum(p.probabilities, axis=1)
    for level in (0.05, 0.5, 0.99):
        np.testing.assert_array_equal(p.quantile(level), (below < level).sum(axis=1))
    with pytest.raises(ValueError, match=r"interval: level is 90, wanted .*0\.9"):
        p.interval(90)
    with pytest.warns(UserWarning, match="NaN in .*'y'"):
        assert np.isnan(one(lambda f: dist.Cauchy(f, 1.0)).mean).all()


def test_several_labels_of_each_row():
    labels = prior(two(lambda f: dist.Bernoulli(logits=f).to_event(1)))
    found, zeros = labels.probabilities, np.zeros((N, 2), int)
    assert found.shape == (N, 2, 2)
    np.testing.assert_allclose(found[..., 1], labels.mean, rtol=1e-4)
    np.testing.assert_allclose(labels.cdf(zeros), found[..., 0], rtol=1e-4)
    np.testing.assert_array_equal(labels.quantile(0.4), found[..., 0] < 0.4)


@pytest.mark.slow
def test_intervals_of_counts_of_each_row():
    trials = np.full(N, 5.0)
    counts = one(lambda f: dist.BetaBinomial(1 + jnp.exp(f), 2.0, trials))
    low, high = counts.interval(0.8)
    assert (counts.cdf(high) >= 0.9).all()
    assert (counts.cdf(low - 1) < 0.1).all()


def test_means_of_counts_of_several_outputs_are_exact_or_a_warning():
    far = Z + 100  # so f has its prior's variance
    own = prior(two(lambda f: dist.Poisson(jnp.exp(2 * f)).to_event(1), far))
    np.testing.assert_allclose(own.mean, np.exp(2), rtol=0.01)
    shared = prior(two(lambda f: dist.Poisson(jnp.exp(3 * f @ jnp.ones((2, 2)))).to_event(1), far))
    with pytest.warns(UserWarning, match="mean and variance of y in 7 of 7 rows .* take quantiles"):
        _ = shared.mean


def test_values_out_of_the_support_have_no_density():
    """Whole numbers are refused where they count; below positive numbers the density is 0."""
    p = one(lambda f: dist.Binomial(2, logits=f))
    y = np.resize([0.5, 1.0, 3.0], N)
    words = r"log_prob: y is outside .* BinomialLogits .* rows \[0, 2, .*first 0\.5, wanted"
    with pytest.raises(DataError, match=words):
        p.log_prob(y)
    assert np.isfinite(p.log_prob(y, mask=y == 1)).all()
    assert np.isneginf(one(lambda f: dist.LogNormal(f, 1.0)).log_prob(-y)).all()


class WithoutCdf(dist.Distribution):
    """A Gaussian of which only densities and draws are known."""

    arg_constraints = {"loc": constraints.real}  # noqa: RUF012
    support = constraints.real
    pytree_data_fields = ("loc",)

    def __init__(self, loc, *, validate_args=None):
        self.loc = loc
        super().__init__(jnp.shape(loc), validate_args=validate_args)

    def log_prob(self, value):
        return dist.Normal(self.loc, 1.0).log_prob(value)

    def sample(self, key, sample_shape=()):
        return dist.Normal(self.loc, 1.0).sample(key, sample_shape)


def test_a_likelihood_without_moments_and_distribution_function():
    """They come from draws, as NumPyro has none."""
    p, same = one(WithoutCdf), one(lambda f: dist.Normal(f, 1.0))
    with pytest.warns(
        UserWarning, match=r"^cdf: .* of WithoutCdf is known: .* 4,000 draws, .* to 0\.0079"
    ):
        found = p.cdf(0.3, num=4000)
    np.testing.assert_allclose(found, same.cdf(0.3), atol=0.05)
    with pytest.warns(UserWarning, match=r"^quantile: .* of WithoutCdf is known: .* 1,000 draws"):
        np.testing.assert_allclose(p.interval()[0], same.interval()[0], atol=0.3)
    words = "no mean or variance of this likelihood: .* 4,000 draws; standard errors"
    with pytest.warns(UserWarning, match=words):
        mean = p.mean
    np.testing.assert_allclose(mean, same.mean, atol=0.1)
    np.testing.assert_allclose(p.var, same.var, rtol=0.15)


@pytest.mark.parametrize("kind", [lambda d: d, lambda d: likelihoods.RightCensored(d, False)])
def test_a_likelihood_without_a_variance(kind):
    """It has a mean and a distribution function, so its quantiles are exact."""
    p = one(lambda f: kind(dist.Gompertz(jnp.exp(f), 0.5)))
    np.testing.assert_allclose(p.cdf(p.quantile(0.3)), 0.3, atol=1e-4)
    with pytest.warns(UserWarning, match="no mean or variance of this likelihood: .* 4,000 draws"):
        mean = p.mean
    np.testing.assert_allclose(mean, p.quantile(np.arange(0.01, 1, 0.02)).mean(axis=0), rtol=0.1)


def test_few_passes_are_a_warning():
    """The standard error of a mean over passes, here sqrt(0.5 / S) of the predictive sd."""
    found = np.array([[0.0, 1.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match=r"1 of 2 rows \[0\] has .* 22% .* 10 passes: raise num"):
        _functionals.warn_if_rough(found, 10, of_draws=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _functionals.warn_if_rough(found, 51, of_draws=True)
        _functionals.warn_if_rough(found, 10, of_draws=False)  # spread evenly


def test_quantiles_take_few_evaluations():
    """One evaluation of a mixture's distribution function can be expensive."""
    levels = np.array([1e-3, 0.05, 0.3, 0.5, 0.9, 0.95, 0.999], np.float32)
    guess = stats.norm.ppf(levels).astype(np.float32)
    around, above_0 = (guess - 1, guess + 1), (guess * 0, np.abs(guess) + 2)
    for cdf, exact, ends, max_steps in (
        (ndtr, stats.norm, around, 10),
        (dist.Cauchy().cdf, stats.cauchy, around, 42),
        (dist.Exponential().cdf, stats.expon, above_0, 32),
    ):
        lower, upper, steps = _functionals._invert(
            cdf, jnp.asarray(levels), *map(jnp.asarray, ends), jnp.full(7, 1e-6), False
        )
        assert steps <= max_steps
        np.testing.assert_allclose(0.5 * (lower + upper), exact.ppf(levels), rtol=2e-4, atol=1e-5)
        assert (upper >= lower).all()


def test_a_search_is_right_or_nan_where_the_distribution_function_is_nan():
    """In a hole, at an end of the search, and where the quantile lies beyond that end."""
    levels, hole = jnp.array([0.5, 0.6, 0.85, 0.3, 0.8, 0.99]), (-0.1, 0.3)
    lower = jnp.array([-1.0, -1.0, 0.0, 0.0, -1.0, 0.4])
    upper = jnp.array([1.0, 1.1, 2.0, 2.0, 0.2, 3.0])
    cdf = lambda y: jnp.where((y > hole[0]) & (y < hole[1]), jnp.nan, ndtr(y))  # noqa: E731
    found = _functionals._invert(cdf, levels, lower, upper, jnp.full(6, 1e-6), False)
    known = np.array([False, False, True, False, False, True])
    np.testing.assert_array_equal(~jnp.isnan(found[0] + found[1]), known)
    np.testing.assert_allclose(found[0][known], stats.norm.ppf(levels[known]), rtol=2e-4)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda f: dist.TruncatedNormal(f - 20, 0.5, low=0.0),
        lambda f: dist.Uniform(f, f + 1),
        lambda f: dist.Pareto(jnp.exp(f), 3.0),
    ],
)
def test_quantiles_of_any_continuous_support_invert_its_distribution_function(likelihood):
    p, levels = prior(single(likelihood), num_samples=2), np.array([0.9, 0.05])
    found = p.quantile(levels)
    np.testing.assert_allclose([p.cdf(q) for q in found], levels[:, None] + 0 * found, atol=5e-4)


@pytest.mark.parametrize(
    "link", [lambda f: dist.LogNormal(f, 0.5), lambda f: dist.Poisson(jnp.exp(f))]
)
def test_quantiles_under_a_heavy_tail(link):
    """A deviation of 1e7 says nothing about the median, which is 1."""
    levels = np.array([0.5, 0.96, 0.95, 0.97])
    found = prior(single(link, 16.0, 100.0)).quantile(levels)[:, 0]
    assert (np.diff(found[np.argsort(levels)]) > 0).all()
    if link(0.0).support is constraints.positive:
        sd = np.sqrt(16 + 0.25)
        np.testing.assert_allclose(found, np.exp(sd * stats.norm.ppf(levels)), rtol=1e-3)


@pytest.mark.parametrize(
    "link", [likelihoods.PoissonLog, lambda f: dist.Binomial(20_000, logits=f - 5)]
)
def test_quantiles_of_counts_that_are_narrower_than_the_spread_of_f(link):
    """The least counts with this probability, also where f is the same and moves with the pass."""
    mean, sd = np.array([6.0, 6.0, 2.0, 20.0, 4.0, 6.0, 9.0]), np.array([1, 3, 5, 0.1, 0.5, 1, 2])
    far = np.array([[100.0], [100], [100], [100], [100], [0], [0]])
    p = prior(single(lambda f: link(mean + sd * f), shift=far), num_samples=2)
    levels = np.array([0.5, 1 / 8, 7 / 8])
    for level, found in zip(levels, p.quantile(levels), strict=True):
        assert (p.cdf(found) >= level - 1e-6).all(), level
        less = np.ceil((1 - 1e-6) * found) - 1  # by one, or by float32's digits
        assert (p.cdf(less) < level + 1e-6).all(), level
