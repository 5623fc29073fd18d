"""Censored likelihoods against SciPy, far into both tails, in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import IntervalCensored, LeftCensored, RightCensored, StudentT
from dgp_ppl.likelihoods._survival import with_exact_tails

TIMES = np.array([1e-6, 0.01, 0.4, 1.0, 1.1, 1.5, 3.0, 9.0, 40.0])
KINDS = {
    "normal": (dist.Normal(1.0, 0.3), stats.norm(1.0, 0.3)),
    "lognormal": (dist.LogNormal(0.1, 0.3), stats.lognorm(0.3, scale=np.exp(0.1))),
    "logistic": (dist.Logistic(1.0, 0.3), stats.logistic(1.0, 0.3)),
    "cauchy": (dist.Cauchy(1.0, 0.3), stats.cauchy(1.0, 0.3)),
    "laplace": (dist.Laplace(1.0, 0.3), stats.laplace(1.0, 0.3)),
    "soft laplace": (dist.SoftLaplace(1.0, 0.3), stats.hypsecant(1.0, 0.3)),
    "student": (dist.StudentT(3.0, 1.0, 0.3), stats.t(3, 1.0, 0.3)),
    "ours": (StudentT(50.0, 1.0, 0.3), stats.t(50, 1.0, 0.3)),
    "exponential": (dist.Exponential(1.5), stats.expon(scale=1 / 1.5)),
    "weibull": (dist.Weibull(1.2, 2.0), stats.weibull_min(2.0, scale=1.2)),
    "gompertz": (dist.Gompertz(0.7, 0.5), stats.gompertz(0.7, scale=2.0)),
    "gamma": (dist.Gamma(3.0, 2.0), stats.gamma(3.0, scale=0.5)),
    "small gamma": (dist.Gamma(0.3, 2.0), stats.gamma(0.3, scale=0.5)),
    "large gamma": (dist.Gamma(500.0, 480.0), stats.gamma(500.0, scale=1 / 480)),
    "inverse": (dist.InverseGamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0)),
    "log-logistic": (
        dist.TransformedDistribution(dist.Logistic(0.1, 0.5), dist.transforms.ExpTransform()),
        stats.fisk(2.0, scale=np.exp(0.1)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_tails_of_each_distribution(kind):
    ours, exact = KINDS[kind]
    y = jnp.asarray(TIMES, jnp.float32)
    flags = jnp.arange(9) < 8
    pairs = jnp.stack([y[:-1], y[1:]], -1)

    @jax.jit
    def both(ours):
        found = [make(ours, flags).log_prob(y) for make in (RightCensored, LeftCensored)]
        return *found, IntervalCensored(ours).log_prob(pairs)

    right, left, between = both(ours)
    y = np.asarray(y, float)
    for found, whole in ((right, exact.logsf(y)), (left, exact.logcdf(y))):
        wanted = np.append(whole[:-1], exact.logpdf(y[-1]))
        kept = np.isfinite(wanted)  # SciPy's own tails underflow
        np.testing.assert_allclose(found[kept], wanted[kept], rtol=2e-5, atol=5e-5)
    below, above = exact.logcdf(y), exact.logsf(y)
    upper = above[:-1] < below[1:]
    large, small = (np.where(upper, *a) for a in ((above[:-1], below[1:]), (above[1:], below[:-1])))
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = large + np.log(-np.expm1(small - large))
    kept = np.isfinite(wanted)
    np.testing.assert_allclose(between[kept], wanted[kept], rtol=2e-5, atol=1e-4)


def test_intervals_with_open_ends_and_flags():
    normal, exact = dist.Normal(0.2, 0.5), stats.norm(0.2, 0.5)
    log_prob = jax.jit(lambda d, y: d.log_prob(y))
    ends = jnp.array(
        [[-jnp.inf, 0.1], [0.1, jnp.inf], [0.3, 0.3], [-jnp.inf, jnp.inf], [-0.4, 1.0]]
    )
    found = log_prob(IntervalCensored(normal), ends)
    wanted = [exact.logcdf(0.1), exact.logsf(0.1), exact.logpdf(0.3), 0.0]
    np.testing.assert_allclose(found[:4], wanted, rtol=1e-5, atol=1e-6)
    for width in (1e-6, 1e-3, 0.05):
        thin = log_prob(IntervalCensored(normal), jnp.array([0.0, width]))
        wanted = np.log(exact.cdf(float(np.float32(width))) - exact.cdf(0.0))
        np.testing.assert_allclose(thin, wanted, rtol=1e-4)
    flags = jnp.array([1, 0, 1]), jnp.array([0, 1, 1])
    found = log_prob(IntervalCensored(normal, *flags), ends[4])
    outside = np.log(exact.cdf(-0.4) + exact.sf(1.0))
    np.testing.assert_allclose(found, [exact.logcdf(1.0), exact.logsf(-0.4), outside], rtol=1e-5)
    positive = log_prob(IntervalCensored(dist.LogNormal(0.0, 1.0)), jnp.array([-1.0, 1.0]))
    np.testing.assert_allclose(positive, np.log(0.5), rtol=1e-5)


def test_derivatives_in_both_tails(x64):
    """Of shapes too, of which JAX's incomplete beta function has none."""
    y, p = jnp.array([0.2, 1.0, 7.0]), jnp.array([2.3, 0.8])

    def total(p):
        right = RightCensored(StudentT(1 + p[0], p[1], 0.5), True).log_prob(y).sum()
        return right + LeftCensored(dist.Gamma(p[0], p[1]), True).log_prob(y).sum()

    slopes = jax.jit(jax.grad(total))(p)
    many = jax.jit(jax.vmap(total))(p + 1e-5 * jnp.array([[1, 0], [-1, 0], [0, 1], [0, -1]]))
    np.testing.assert_allclose(slopes, (many[::2] - many[1::2]) / 2e-5, rtol=1e-5)
    at_bend = jax.jit(jax.grad(RightCensored(dist.Laplace(1.0, 2.0), True).log_prob))
    np.testing.assert_allclose(at_bend(1.0), -0.5, rtol=1e-6)


def test_a_bound_is_below_the_evidence_far_in_the_tail():
    """NumPyro's log S is never below log eps, so that its bound stood 15 nats above the evidence.

    One censored row: y > 8 although f ~ N(0, 1) and the noise is 0.3.
    """
    mean, var = (jnp.ravel(a) for a in jnp.meshgrid(jnp.linspace(0, 9, 37), jnp.array([0.1, 1.0])))
    marginals = Marginals(mean[:, None], var[:, None], True)
    y, censored = jnp.full(len(mean), 8.0), jnp.ones(len(mean), bool)

    def observed(kind, *flags):
        return dgp.observe(marginals, lambda f: kind(dist.Normal(f, 0.3), *flags))

    bounds = jax.jit(lambda: observed(RightCensored, censored).log_prob(y))()
    best = jnp.max(bounds - 0.5 * (var + jnp.square(mean) - 1 - jnp.log(var)))
    evidence = stats.norm(0, np.sqrt(1.09)).logsf(8.0)
    assert evidence - 0.3 < best <= evidence
    # NumPyro's are replaced. Draws are of the time itself.
    for ours, numpyros, flags in (
        (RightCensored, dist.RightCensoredDistribution, (censored,)),
        (LeftCensored, dist.LeftCensoredDistribution, (censored,)),
        (IntervalCensored, dist.IntervalCensoredDistribution, (censored, ~censored)),
    ):
        found = observed(numpyros, *flags)
        assert type(found.at_mean) is type(found.likelihood(mean)) is ours
    assert (observed(RightCensored, censored).sample(KEY)[:10] < 8).all()


def test_what_cannot_be_censored_is_named():
    for flags in (np.nan, np.array([0.0, np.nan]), 2):
        with pytest.raises(ValueError, match=r"censored: censored is .*, wanted True or False"):
            RightCensored(dist.Normal(0.0, 1.0), flags)
    words = r"has shape \(3,\) and the distribution batch shape \(4,\)"
    with pytest.raises(ValueError, match=words):
        RightCensored(dist.Normal(jnp.zeros(4), 1.0), np.ones(3, bool))
    with pytest.raises(TypeError, match="censored: the distribution holds complex numbers"):
        RightCensored(dist.Normal(0.0, 1.0 + 0j), True)
    with pytest.raises(TypeError, match=r"censored: distribution is Gumbel, .*wanted Normal"):
        RightCensored(dist.Gumbel(0.0, 1.0), True).log_prob(1.0)


FAR = np.array([-30.0, -3.0, 0.2, 5.0, 30.0])


@pytest.mark.parametrize("ends", [(0.0, np.inf), (-np.inf, 0.5), (0.0, 0.7)])
def test_a_truncated_normal_far_from_its_ends(ends):
    """NumPyro's densities are infinite there, its distribution functions NaN, its draws outside."""
    low, high = (None if np.isinf(end) else end for end in ends)
    make = lambda f: with_exact_tails(dist.TruncatedNormal(f, 0.5, low=low, high=high))  # noqa: E731
    ours = make(jnp.asarray(FAR, jnp.float32))
    exact = stats.truncnorm(*((end - FAR) / 0.5 for end in ends), loc=FAR, scale=0.5)
    y = np.clip(np.stack([exact.ppf(0.1), exact.ppf(0.6), FAR]), *ends).astype(np.float32)
    beyond = jnp.asarray(ends)[:, None] + jnp.array([[-0.1], [0.1]])

    @jax.jit
    def everything(ours, y):
        draws = ours.sample(KEY, (4000,))
        log_p = ours.log_prob(y), ours.log_prob(beyond)
        return log_p, ours.cdf(y), (ours.mean, ours.variance), draws, ours.support(draws)

    (inside, outside), below, (mean, var), draws, possible = everything(ours, jnp.asarray(y))
    np.testing.assert_allclose(inside, exact.logpdf(y), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(below, exact.cdf(y), atol=2e-3)
    assert (outside == -np.inf).all()
    np.testing.assert_allclose(var, exact.var(), rtol=1e-2)
    assert_mean(np.asarray(draws, np.float64), mean)
    assert possible.all()
    moved = jax.jit(jax.value_and_grad(lambda f: make(f).sample(KEY).sum()))
    step = moved(jnp.float32(0.21))[0] - moved(jnp.float32(0.19))[0]
    np.testing.assert_allclose(moved(jnp.float32(0.2))[1], step / 0.02, rtol=1e-2)


@pytest.mark.parametrize("kind", [dist.Cauchy, dist.Laplace, dist.SoftLaplace, dist.Logistic])
def test_draws_of_truncated_distributions_have_their_distribution_function(kind):
    f = jnp.array([-20.0, 0.3, 20.0])
    ours = with_exact_tails(dist.TruncatedDistribution(kind(f, 0.5), 0.0, 0.7).to_event(1))
    below = jax.jit(lambda entries: entries.cdf(entries.sample(KEY, (4000,))))(ours.base_dist)
    assert_mean(np.asarray(below, np.float64), 0.5)


@pytest.mark.parametrize("case", [(0, -1e8, 3), (9, 0, np.inf), (0, -np.inf, np.inf)])
def test_draws_of_a_truncated_normal_whose_ends_are_far(case):
    loc, low, high = case
    ends = {"low": jnp.float32(low), "high": jnp.float32(high)}
    normal = with_exact_tails(dist.TruncatedNormal(loc, 1.0, **ends))
    draws = jax.jit(lambda normal: normal.sample(KEY, (2000,)))(normal)
    truth = stats.truncnorm(low - loc, high - loc, loc=loc)
    assert stats.kstest(np.asarray(draws, float), truth.cdf).pvalue > 1e-3
