"""`observe` against Monte Carlo estimates, which draw f and evaluate the likelihood."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from scipy import special, stats
from scipy.special import logsumexp
from support.helpers import KEY, assert_derivatives, assert_errors, assert_mean, bound, slow, start

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import BernoulliProbit
from dgp_ppl.likelihoods._mixture import Mixture
from dgp_ppl.likelihoods._observe import observe

MEAN, VAR = np.float32([-0.5, 0.3, 1.2, 0.0]), np.float32([0.2, 0.5, 1.0, 0.05])
DRAWS, TARGETS = 100_000, np.array([0.1, -0.4, 1.0, 0.2])
ROWS = np.float32([0.3, 0.5, 1.0, 0.2])


def marginals(guided, mean=MEAN, var=VAR):
    mean, var = (jnp.asarray(a).reshape(len(mean), -1) for a in (mean, var))
    return Marginals(mean, var, guided)


def test_closed_forms_need_arguments_that_do_not_depend_on_f():
    """With a scale of f, Student t is integrated as NumPyro's is, and others by Monte Carlo."""

    @partial(jax.jit, static_argnums=1)
    def log_prob(f, student):
        return observe(f, lambda f: student(4.0, f, 0.1 + f**2)).log_prob(jnp.ones(4))

    for guided in (True, False):
        found, wanted = (
            log_prob(marginals(guided), t) for t in (likelihoods.StudentT, dist.StudentT)
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    two = marginals(True, MEAN.reshape(2, 2), VAR.reshape(2, 2))
    own, of_f = lambda f: ROWS[:2], lambda f: ROWS[:2] * f[..., 0] ** 2
    for kind in (likelihoods.HeteroscedasticNormal, likelihoods.RobustMax):
        for scale, estimated in ((own, False), (of_f, True)):
            of = lambda f, kind=kind, scale=scale: kind(f, scale(f))  # noqa: E731
            y = jax.eval_shape(handlers.seed(lambda f, of=of: observe(f, of), KEY), two)
            assert y.estimated == estimated


def test_scalar_latent():
    """Check E log p(y|f) if guided, log E p(y|f) if not, and the mean and variance of y."""
    rng = np.random.default_rng(0)
    f = MEAN + np.sqrt(VAR) * rng.standard_normal((DRAWS, 4))
    given_f = stats.norm(f, np.exp(0.5 * f))
    draws, log_probs = given_f.rvs(random_state=rng), given_f.logpdf(TARGETS)

    @jax.jit
    def ours(y):
        likelihood = lambda f: dist.Normal(f, jnp.exp(0.5 * f))  # noqa: E731
        guided, unguided = (observe(marginals(g), likelihood) for g in (True, False))
        distribution = guided.predictive()
        terms = guided.log_prob(y), unguided.log_prob(y), distribution.log_prob(y)
        found = (
            guided.sample(KEY, (2, 3000)).reshape(6000, 4),
            jax.vmap(distribution.sample)(random.split(KEY, 6000)),
        )
        return terms, distribution.mean, distribution.variance, found

    (expected, log_expected, log_density), mean, variance, found = ours(jnp.asarray(TARGETS))
    assert_mean(log_probs, expected)
    assert_mean(np.exp(log_probs), np.exp(log_expected))
    np.testing.assert_array_equal(log_density, log_expected)
    for samples in (draws, *found):
        assert_mean(samples, mean)
        assert_mean((samples - np.asarray(mean)) ** 2, variance)


@pytest.mark.usefixtures("x64")
def test_closed_forms_to_all_digits():
    """Compare Normal and probit with a fine trapezoidal rule, and Normal's derivatives too."""
    mean, var, scale = (a.astype(float) for a in (MEAN, VAR, ROWS))
    grid = np.linspace(-12, 12, 4001)[:, None]
    density = stats.norm(mean, np.sqrt(var)).pdf(grid)
    y, f = TARGETS, marginals(True, mean, var)
    normal = lambda f: dist.Normal(f, scale)  # noqa: E731
    ours = observe(f, normal).log_prob(jnp.asarray(y))
    exact = np.trapezoid(density * stats.norm(grid, scale).logpdf(y), grid, axis=0)
    np.testing.assert_allclose(ours, exact, rtol=1e-9)
    distribution = observe(f, BernoulliProbit).predictive()
    assert distribution.log_weights.shape == (1,)  # closed form, no quadrature nodes
    exact = np.trapezoid(density * stats.norm.cdf(grid), grid, axis=0)
    np.testing.assert_allclose(distribution.mean, exact, rtol=1e-9)

    def total(mean, var):
        both = (observe(marginals(g, mean, var), normal) for g in (True, False))
        return sum(jnp.sum(observed.log_prob(jnp.asarray(y))) for observed in both)

    assert_derivatives(total, jnp.asarray(mean), jnp.asarray(var), rtol=1e-5)


WIDE_MEAN, WIDE_VAR = np.float32([[0.3, -0.2, 0.9], [-1.0, 0.4, 0.0]]), np.float32(0.3)
VECTOR = {
    "Categorical": (lambda f: dist.Categorical(logits=f), [2, 0]),
    "Normal, noise of its own latent": (
        lambda f: dist.Normal(f[..., 0], jnp.exp(f[..., 1])),
        [0.5, -1.5],
    ),
    "Normals": (lambda f: dist.Normal(f, 0.4).to_event(1), [[0.1, 0.2, 0.5], [-0.7, 0.3, 0.2]]),
    "Normals, noise of f": (
        lambda f: dist.Normal(f, jnp.exp(0.5 * f)).to_event(1),
        [[0.1, 0.2, 0.5], [-0.7, 0.3, 0.2]],
    ),
}


def wide(guided):
    return marginals(guided, WIDE_MEAN, np.broadcast_to(WIDE_VAR, (2, 3)))


@pytest.mark.parametrize("name", [slow(n) if n.startswith("Normal") else n for n in VECTOR])
def test_vector_latent(name):
    likelihood, y = VECTOR[name]
    y = jnp.asarray(y)

    @jax.jit
    def everything(key):
        def ours(guided):
            with handlers.seed(rng_seed=random.fold_in(key, 1)):
                distribution = observe(wide(guided), likelihood, num_draws=20_000)
            return distribution.log_prob(y), distribution.predictive().log_prob(y)

        f = WIDE_MEAN + jnp.sqrt(WIDE_VAR) * random.normal(key, (DRAWS, 2, 3))
        return ours(True), ours(False), likelihood(f).log_prob(y)

    guided, unguided, brute = everything(KEY)
    np.testing.assert_array_equal(unguided[0], unguided[1])
    for ours, draws in ((guided[0], brute), (np.exp(unguided[0]), np.exp(brute))):
        error = np.std(draws, axis=0) * np.sqrt(1 / 20_000 + 1 / DRAWS)  # of the difference
        assert (np.abs(ours - np.mean(draws, axis=0)) < 4.5 * error).all()


def test_few_draws_are_unbiased():
    """The mean of estimates with 10 draws each is E log p(y|f)."""
    likelihood, y = VECTOR["Categorical"][0], np.array([2, 0])

    @jax.jit
    @jax.vmap
    def estimate(key):
        with handlers.seed(rng_seed=key):
            return observe(wide(True), likelihood, num_draws=10).log_prob(jnp.asarray(y))

    few = np.asarray(estimate(random.split(KEY, 4000)))
    f = WIDE_MEAN + np.sqrt(WIDE_VAR) * np.random.default_rng(0).standard_normal((400_000, 2, 3))
    brute = f[:, [0, 1], y] - logsumexp(f, axis=-1)
    assert_mean(few - brute.mean(axis=0), 0.0)  # `brute` has ten times as many draws
    assert np.std(few[:, 0]) == pytest.approx(np.std(brute[:, 0]) / np.sqrt(10), rel=0.1)


@pytest.mark.wrong_types
def test_errors():
    normal = lambda f: dist.Normal(f, 0.3)  # noqa: E731
    one = observe(marginals(True), normal)
    branching = lambda f: dist.Normal(f if f.sum() > 0 else -f, 0.3)  # noqa: E731
    tested = lambda f: dist.Categorical(logits=f if f.sum() > 0 else -f)  # noqa: E731

    def only_rows(f):
        assert f.ndim == 1
        return dist.Poisson(jnp.exp(f))

    def observed(likelihood, f=None):
        return lambda: observe(marginals(True) if f is None else f, likelihood)

    with handlers.trace():
        without_key = observe(wide(True), VECTOR["Categorical"][0])
    with handlers.seed(rng_seed=0):
        assert_errors([
            (lambda: one.log_prob(jnp.zeros((4, 1))),
             r"ValueError: .*y has shape \(4, 1\), wanted \(4,\).*pass y\[:, 0\]"),
            (observed(lambda f: dist.Normal(f, 0.1), wide(True)),
             r"ValueError: .*batch shape \(2, 3\).*add \.to_event\(1\)"),
            # f has one row, and the noise four. Broadcasting would give four rows of y.
            (observed(lambda f: dist.Normal(f, ROWS), marginals(True, MEAN[:1], VAR[:1])),
             r"ValueError: .*batch shape \(4,\).*inside the same minibatch"),
            # Densities need many values of f for a row.
            (observed(lambda f: dist.StudentT(4.0, f.reshape(4), 0.1)),
             r"ValueError: .*an error \(TypeError: cannot reshape.*batch shape \(5, 4\).*end"),
            (observed(only_rows), r"ValueError: .*an error \(AssertionError: "),
            (observed(lambda f: dist.Poisson(jnp.exp(f[0]) * ROWS)),
             r"ValueError: .*likelihood has batch shape \(4,\), wanted batch shape \(5, 4\)"),
            (lambda: jax.jit(lambda v: observe(marginals(True, v), branching).mean)(MEAN),
             r"TypeError: .*branches on it, wanted.*jnp\.where"),
            (observed(tested, wide(True)), r"TypeError: .*branches on it, wanted.*jnp\.where"),
            (observed(lambda f: dist.Poisson(np.exp(f))),
             "TypeError: .*Python or NumPy from a traced array"),
            (observed(normal, jnp.zeros((4, 1))), r"TypeError: .*wanted Marginals: pass f\(x\)"),
            (observed(lambda f: dist.Levy(f, 1.0)), "TypeError: .*Levy loses its supp.*subclass"),
            (lambda: without_key.log_prob(jnp.array([0, 1])),
             "ValueError: .*Monte Carlo and needs a random key.*seed"),
        ])  # fmt: skip


def test_it_is_a_pytree():
    """The pytree includes the mask of missing rows."""
    marginals = Marginals(jnp.zeros((3, 1)), jnp.ones((3, 1)), True)
    distribution = observe(marginals, lambda f: dist.Normal(f, 0.5), mask=[True, True, False])
    again = jax.tree.map(lambda a: a, distribution)
    y = jnp.array([0.3, -0.2, jnp.nan])
    np.testing.assert_array_equal(again.log_prob(y), distribution.log_prob(y))
    assert isinstance(again.mask(jnp.zeros(3, bool)), dist.MaskedDistribution)


def test_within_numpyros_scan():
    """A scan over rows gives the same bound as all rows at once."""
    x, y = jnp.linspace(-1, 1, 5)[:, None], jnp.array([0, 1, 1, 0, 1])

    def model(rows):
        f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, 0.5), x[::2])

        def step(carry, row):
            inputs, targets = row
            student = observe(f(inputs), lambda f: likelihoods.StudentT(4.0, f, 0.5))
            numpyro.sample("y", student, obs=targets)
            return carry, None

        scan(step, None, rows)

    guide, values = dgp.MeanField(model), []
    for rows in ((x[:, None], y[:, None]), (x[None], y[None])):  # a scan of five steps, or of one
        values.append(float(bound(model, guide, start(model, guide, rows), rows)))
    assert values[0] == pytest.approx(values[1], rel=1e-6)


RNG = np.random.default_rng(0)
MANY_MEANS = jnp.asarray(1.5 * RNG.standard_normal((6, 4)), jnp.float32)
MANY_VARS = jnp.asarray(RNG.uniform(0.05, 2.0, (6, 4)), jnp.float32)


@pytest.mark.parametrize("name", ["normal", "robust_max"])
def test_missing_rows_add_nothing(name):
    """Missing rows do not affect values or gradients of the other rows."""
    likelihood = likelihoods.robust_max if name == "robust_max" else lambda f: dist.Normal(f, 0.3)
    wide = name == "robust_max"
    mean = MANY_MEANS if wide else MANY_MEANS[:, :1]
    y = jnp.array([0, 1, 1, 9, 0, -7]) if wide else jnp.array([0.0, 1, 1, jnp.nan, 0, -7])
    mask = jnp.arange(6) < 3

    @jax.jit
    def terms(mean, y, **options):
        with numpyro.handlers.seed(rng_seed=0):
            marginals = Marginals(mean, MANY_VARS[:, : mean.shape[1]], True)
            return dgp.observe(marginals, likelihood, **options).log_prob(y)

    found = terms(mean, y, mask=mask)
    np.testing.assert_allclose(found[:3], terms(mean, jnp.where(mask, y, 0))[:3], rtol=1e-6)
    np.testing.assert_array_equal(found[3:], 0.0)
    gradient = jax.jit(jax.grad(lambda m: terms(m, y, mask=mask).sum()))(mean)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[3:], 0.0)


@pytest.mark.parametrize(("closed", "guided"), [(True, True), slow(False, False)])
def test_missing_entries_add_nothing(closed, guided):
    """The density equals the density of a model of the observed entries alone."""
    y = jnp.asarray(RNG.standard_normal((6, 4)), jnp.float32)
    mask = jnp.asarray(RNG.uniform(size=(6, 4)) < 0.5).at[0].set(False)
    scale = (lambda f: 0.3) if closed else lambda f: 1 + 0 * f  # the latter needs Monte Carlo

    def terms(columns, y, **options):
        def likelihood(f):
            return dist.Normal(f, scale(f)).to_event(1)

        marginals = Marginals(MANY_MEANS[:, columns], MANY_VARS[:, columns], guided)
        with numpyro.handlers.seed(rng_seed=0):
            return dgp.observe(marginals, likelihood, num_draws=100_000, **options).log_prob(y)

    found = terms(slice(None), jnp.where(mask, y, jnp.nan), mask=mask)
    assert found[0] == 0.0
    for row in range(1, 6):
        kept = np.flatnonzero(mask[row])
        alone = terms(kept, y[:, kept])[row] if len(kept) > 1 else None
        if alone is not None:
            np.testing.assert_allclose(found[row], alone, rtol=1e-5 if closed else 0.05)


def test_a_mask_of_the_wrong_shape():
    f = Marginals(MANY_MEANS[:, :1], MANY_VARS[:, :1], True)
    for mask in (jnp.ones(5, bool), jnp.ones((6, 4), bool)):
        with pytest.raises(ValueError, match=r"mask has shape .*, wanted \(6,\) for this"):
            dgp.observe(f, BernoulliProbit, mask=mask)


def moments(f, likelihood, names=("mean", "variance"), **options):
    """Return moments of y by a compiled program."""

    def run(f):
        y = dgp.observe(f, likelihood, **options).predictive()
        return jnp.stack([getattr(y, name) for name in names])

    return jax.jit(handlers.seed(run, 0))(f)


def test_moments_under_an_exponential_link_are_exact():
    """At any sd of f, where exp(f) is made far from its mean, and where float32 overflows there."""
    mean, sd = np.full(6, 0.3), np.array([0.0, 0.5, 3.0, 4.0, 5.0, 6.0])
    marginals = Marginals(jnp.asarray(mean)[:, None], jnp.square(sd)[:, None])
    sds = jnp.stack([sd, sd[::-1]], axis=1)
    several = Marginals(jnp.full((6, 2), 0.3), jnp.square(sds))
    e1, e2 = np.exp(mean + sd**2 / 2), np.exp(2 * mean + 2 * sd**2)
    weibull = special.gamma(1 + np.array([1, 2]) / 1.5)
    for make, first, noise in (  # E[y | f] by exp(f), Var(y | f) by exp(f) and exp(2 f)
        (lambda f: dist.LogNormal(f, 0.1), np.exp(0.005), (0, np.expm1(0.01) * np.exp(0.01))),
        (lambda f: dist.Gamma(2.0, jnp.exp(-f)), 2, (0, 2)),
        (lambda f: likelihoods.NegativeBinomialLog(f, 2.0), 1, (1, 0.5)),
        (lambda f: dist.Weibull(jnp.exp(f), 1.5), weibull[0], (0, weibull[1] - weibull[0] ** 2)),
    ):
        found_mean, variance = moments(marginals, make)
        np.testing.assert_allclose(found_mean, first * e1, rtol=2e-3)
        exact = noise[0] * e1 + noise[1] * e2 + first**2 * (e2 - e1**2)
        np.testing.assert_allclose(variance, exact, rtol=5e-3)
    # Of the last one, entries of several outputs have the moments of each alone.
    found = moments(several, lambda f: make(f).to_event(1))
    for of_several, alone in zip(found, (found_mean, variance), strict=True):
        both_ways = np.stack([alone, alone[::-1]], axis=1)
        np.testing.assert_allclose(of_several, both_ways, rtol=1e-5)


def test_moments_of_functions_that_jump_between_nodes():
    # The row in between overflows at dense nodes.
    mean, sd = jnp.array([-2.0, 0.3, 1.1]), jnp.array([3.0, 5.0, 0.9])

    def total(mean, sd):
        likelihood = lambda f: dist.Poisson(jax.nn.sigmoid(200 * f) + jnp.exp(4 * f - 90))  # noqa: E731
        f = Marginals(mean[:, None], jnp.square(sd)[:, None])
        found = moments(f, likelihood, ["mean"])[0, ::2]
        return found.sum(), found

    z = (mean / sd)[::2]
    slopes, found = jax.jit(jax.grad(total, (0, 1), has_aux=True))(mean, sd)
    np.testing.assert_allclose(found, jax.scipy.stats.norm.cdf(z), rtol=1e-3)
    for slope, exact in zip(slopes, (1 / sd[::2], -z / sd[::2]), strict=True):
        np.testing.assert_allclose(slope[::2], exact * jax.scipy.stats.norm.pdf(z), rtol=5e-3)


def test_moments_of_entries_that_share_latents_are_means_over_draws():
    f = Marginals(jnp.zeros((3, 2)), jnp.ones((3, 2)), False)
    mix = jnp.array([[1.0, 0.0], [0.1, 1.0]])  # the second entry depends on its own latent alone
    for make in (
        lambda f: dist.Normal(f, jnp.exp(f @ mix)),
        lambda f: dist.Poisson(jnp.exp(f @ mix)),
    ):

        @jax.jit
        def moments_of(f, make=make):
            with handlers.seed(rng_seed=0):
                y = dgp.observe(f, lambda f: make(f).to_event(1)).predictive()
            draws = Mixture(y.log_weights, y.components)
            return ((y.mean, draws.mean), (y.variance, draws.variance)), y.roughness

        pairs, roughness = moments_of(f)
        for found, drawn in pairs:
            np.testing.assert_allclose(found[:, 0], drawn[:, 0], rtol=1e-6)
            assert (np.abs(found[:, 1] / drawn[:, 1] - 1) > 1e-5).all()
        assert (roughness[:, 1] == 0).all()


def test_entries_are_found_to_share_latents_behind_a_factor_of_0_or_an_offset():
    f, mix = Marginals(jnp.zeros((2, 2)), jnp.ones((2, 2))), jnp.array([[1.0, 0.4], [0.4, 1.0]])
    product = lambda f: jnp.stack([f[:, 0] * f[:, 1], f[:, 1]], axis=1)  # noqa: E731
    for function, var in (
        (lambda f: f @ mix, 1.16), (lambda f: 1e5 + f @ mix, 1.16), (product, 1.0)
    ):  # fmt: skip
        likelihood = lambda f, of=function: dist.Normal(of(f), 0.1).to_event(1)  # noqa: E731
        found = moments(f, likelihood, ["variance"], num_draws=5000)
        np.testing.assert_allclose(found - 0.01, np.full((1, 2, 2), var), rtol=0.15)


def test_moments_that_numpyro_lacks_or_that_are_infinite_for_some_f():
    f = Marginals(jnp.ones((1, 1)), jnp.full((1, 1), 0.25))
    pareto = lambda f: dist.Pareto(0.5, jnp.exp(f))  # noqa: E731
    assert np.isinf(moments(f, pareto, ["mean"]))  # where exp(f) <= 1
    with pytest.raises(NotImplementedError, match="an angle"):
        moments(f, lambda f: dist.VonMises(f, 1.0))
    # Of float32, 2 + exp(f) is 2 from -16 on, where the variance 1 + 2 exp(-f) is infinite. The
    # mean variance is made at -12.4, where rounding to 2**-22 is up to 3 % of exp(f).
    near, far = (
        Marginals(jnp.full((1, 1), m), jnp.full((1, 1), s**2))
        for m, s in ((2.0, 0.45), (-8.4, 2.0))
    )
    student = lambda f, least, scale: dist.StudentT(least + jnp.exp(f), 0.0, scale)  # noqa: E731
    variance = jax.jit(lambda f, *a: moments(f, lambda f: student(f, *a), ["variance"])[0])
    for scale in (1e-2, 1.0, 1e4):
        assert not np.isfinite(variance(near, 0.0, scale))
        found = variance(far, 2.0, scale) / scale**2
        np.testing.assert_allclose(found, 1 + 2 * np.exp(8.4 + 2.0**2 / 2), rtol=4e-2)
    # 1 / (exp(f) - 1) grows as exp(-f) until close to its pole, which nodes far apart do not see;
    # and 1 / (softplus(f) - 1) is finite only 5 sd above the mean, and 1 / (f² - 1) on both sides.
    inverse = lambda link: lambda f: dist.InverseGamma(link(f), 1.0)  # noqa: E731
    links = (3.0, 2.0, jnp.exp), (-1.0, 0.3, jax.nn.softplus), (3.0, 2.0, jnp.square)
    for mean, sd, link in links:
        f = Marginals(jnp.full((1, 1), mean), jnp.full((1, 1), sd**2))
        assert np.isinf(moments(f, inverse(link), ["mean"]))


def test_gradients_of_moments_of_functions_that_overflow_far_from_the_mean():
    # Of float32. The third row's variance overflows, and has no part in the others' gradients.
    at = jnp.array([0.0, 0.5, 0.0]), jnp.array([2.0, 2.5, 10.0]), 1.5
    e = lambda k, m, s: jnp.exp(k * m + (k * s) ** 2 / 2)  # noqa: E731
    poisson = lambda f, c: dist.Poisson(c * jnp.exp(f))  # noqa: E731
    of_counts = lambda m, s, c: c * e(1, m, s) + c**2 * (e(2, m, s) - e(1, m, s) ** 2)  # noqa: E731
    gamma = lambda f, c: dist.Gamma(c, jnp.exp(f))  # noqa: E731
    for outputs, make, name, exact in (
        (1, poisson, "variance", of_counts),
        (2, poisson, "variance", of_counts),
        (1, lambda f, c: dist.StudentT(4.0, f, c * jnp.exp(f)), "variance",
         lambda m, s, c: 2 * c**2 * e(2, m, s) + s**2),
        (1, gamma, "mean", lambda m, s, c: c * e(-1, m, s)),
        (1, gamma, "variance",
         lambda m, s, c: (c + c**2) * e(-2, m, s) - c**2 * e(-1, m, s) ** 2),
    ):  # fmt: skip

        def found(m, s, c, outputs=outputs, make=make, name=name):
            f = Marginals(*(jnp.stack([a] * outputs, axis=1) for a in (m, s**2)))
            likelihood = lambda f: make(f, c) if outputs == 1 else make(f, c).to_event(1)  # noqa: E731
            return moments(f, likelihood, [name]).reshape(3, outputs)[:2, 0].sum()

        true = lambda m, s, c, exact=exact: exact(m[:2], s[:2], c).sum()  # noqa: E731
        both = (jax.jit(jax.grad(of, (0, 1, 2)))(*at) for of in (found, true))
        for a, b in zip(*both, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5)
