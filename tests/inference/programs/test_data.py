"""Data that are NaN or out of the support: the argument, the rows and the remedy are named."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import NUTS
from support.fits import OPTIMIZER, SHALLOW, Z
from support.helpers import KEY, no_guide, regression

import dgp_ppl as dgp
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.models import svgp

X, Y = regression()
BAD = np.asarray(Y).copy()
BAD[[3, 7]] = np.nan
CALL = dgp.inference.Call


def line(x, counts=None, mask=None, *, family=lambda f: dist.Poisson(jnp.exp(f)), batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1)) * numpyro.param("scale", 1.0)
    with dgp.minibatch(x, counts, mask, batch_size=batch_size) as (x, counts, mask):
        fn = family(w * x)
        numpyro.sample("y", fn if mask is None else fn.mask(mask), obs=counts)


WORDS = (
    r"argument 'y', observed at site 'y', is NaN in 2 of 20 rows \[3, 7\]: leave the values out by "
    r"a mask, observe\(..., mask=...\)"
)
CALLERS = {
    "fit": lambda y: dgp.fit(
        KEY, svgp, SHALLOW, X, y, z=Z, steps=2, optimizer=OPTIMIZER, batch_size=4, progress=False
    ),
    "evaluate": lambda y: dgp.evaluate(KEY, svgp, SHALLOW, {}, X, y, z=Z),
    "fit_mcem": lambda y: dgp.fit_mcem(KEY, svgp, X, y, z=Z, steps=2),
    "run_mcmc": lambda y: dgp.run_mcmc(KEY, NUTS(svgp), X, y, z=Z, num_warmup=1, num_samples=1),
}


def test_nan_is_named_before_the_first_step():
    for caller, call in CALLERS.items():
        with pytest.raises(dgp.DataError, match=rf"^{caller}: {WORDS}"):
            call(BAD)


COUNTS = np.array([0.0, 2.0, 1.0])
X3 = np.linspace(-1, 1, 3)


def test_values_out_of_the_support():
    """Many of these had finite, meaningless log densities."""
    cases = (
        ([0, 2, -1], lambda f: dist.Poisson(jnp.exp(f)), r"Poisson .* 3 rows \[2\], first -1"),
        ([0.0, 2.5, 1], lambda f: dist.Poisson(jnp.exp(f)), r"rows \[1\], first 2.5"),
        ([0, 2, 1], lambda f: dist.Bernoulli(logits=f), r"Bernoulli.* in 1 of 3"),
        ([0, 3, 5], lambda f: dist.Categorical(logits=jnp.stack([f] * 3, -1)), "2 of 3 rows .1, 2"),
        ([0.5, 0.2, -1], lambda f: dist.Gamma(jnp.exp(f)), "Gamma .* rows .2., first -1.0"),
        ([0.0, np.inf, 1], lambda f: dist.Normal(f, 1), r"Normal .Real.* rows \[1\], first inf"),
        ([0.5, np.inf, 1], lambda f: dist.LogNormal(f, 1.0), r"LogNormal .* rows \[1\], first inf"),
        ([0.0, 1.0, np.nan], lambda f: dist.Normal(f, 1), r"is NaN in 1 of 3 rows \[2\]"),
        ([0, 9, 1], lambda f: dist.Binomial(np.array([4, 4, 4]), logits=f), r"rows \[1\], first 9"),
    )
    for values, family, words in cases:
        call = CALL((X3, np.array(values)), {"family": family, "batch_size": 2})
        with pytest.raises(dgp.DataError, match=f"^f: argument 'counts', .*site 'y',.*{words}"):
            check_data("f", line, call)


def masked(x, y=None, mask=None, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
    mask = SEEN if mask is None else jnp.asarray(mask)
    with dgp.minibatch(x, y, mask) as (x, y, mask), handlers.mask(mask=mask):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.3)), obs=y)


SEEN = np.arange(20) % 2 > 0


def test_masks_around_a_site_that_are_no_arguments():
    """Values of such masks are not known when only shapes are; rows predicted are not masked."""
    call = CALL((X, np.where(SEEN, Y, np.nan)), {"z": Z})
    check_data("f", masked, call)
    check_data("f", lambda *a, **k: masked(*a, SEEN, **k), call)
    p = dgp.predict(KEY, masked, None, {}, X, None, SEEN, z=Z)
    np.testing.assert_allclose(p.var, 1.09, rtol=0.5)


def test_obs_mask_is_refused():
    """Its values at unknown rows would be draws with E[log p] under a guide: above the evidence."""

    def model(x, y=None, *, z):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
        y_given_f = dgp.observe(f(x), lambda f: dist.Normal(f, 0.3))
        numpyro.sample("y", y_given_f, obs=y, obs_mask=SEEN)

    words = r"site 'y' has obs_mask, .* wanted dgp_ppl.observe\(..., mask=...\)"
    with pytest.raises(ValueError, match=f"^f: {words}"):
        check_data("f", model, CALL((X, Y), {"z": Z}))
    with pytest.raises(ValueError, match=f"^MeanField: {words}"):
        dgp.MeanField(model).setup(X, Y, z=Z)


def test_masked_values_and_good_ones_pass():
    bad = np.array([0.0, np.nan, -3.0])
    check_data("f", line, CALL((X3, bad, np.array([True, False, False]))))
    check_data("f", line, CALL((X3, COUNTS)))
    check_data("f", line, CALL((X3,)))

    def seen(x, y, mask):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), Z)(x)
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3), mask=mask), obs=y)

    check_data("f", seen, CALL((X, BAD, np.isfinite(BAD))))
    with pytest.raises(dgp.DataError, match=r"'y', is NaN in 1 of 20 rows \[7\]"):
        check_data("f", seen, CALL((X, BAD, np.arange(20) != 7 - 4)))

    def steps(x, y):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), Z)
        given = lambda x: dgp.observe(f(x), lambda f: dist.TruncatedNormal(f, 0.3, low=-9 + 0 * f))  # noqa: E731
        scan(lambda c, row: (c, numpyro.sample("y", given(row[0]), obs=row[1])), 0, (x, y))

    check_data("f", steps, CALL((X.reshape(4, 5, 1), Y.reshape(4, 5))))

    def pairs(y, mask):
        fn = dist.Normal(numpyro.sample("w", dist.Normal()), 1).expand([20, 2])
        numpyro.sample("y", fn.mask(mask).to_event(1), obs=y)

    both = jnp.stack([BAD, BAD], 1)
    check_data("f", pairs, CALL((both, np.isfinite(both))))
    with pytest.raises(dgp.DataError, match="'y', is NaN in 2 of 20 rows"):
        check_data("f", pairs, CALL((both, np.ones((20, 2), bool))))


def test_rows_that_no_latent_value_can_produce():
    """Where the support does not decide: at its ends, or where f or params move it."""

    def model(x, y, make, masked=True):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), Z)
        scale = numpyro.param("scale", 0.1)
        with dgp.minibatch(x, y, batch_size=2) as (x, y):
            mask = ~jnp.isnan(y) if masked else None
            numpyro.sample("y", dgp.observe(f(x), lambda f: make(f, scale), mask=mask), obs=y)

    share = lambda f, s: dist.BetaProportion(1 / (1 + jnp.exp(-f)), 10.0)  # noqa: E731
    around = lambda f, s: dist.Uniform(f - s, f + s)  # noqa: E731
    shifted_t = lambda f, s: dist.TransformedDistribution(  # noqa: E731 - of Python's numbers
        dist.StudentT(4.0, 0.0, 1.0), dist.transforms.AffineTransform(f, 1.0)
    )

    def shifted(of, loc, scale=1.0):
        affine = dist.transforms.AffineTransform(loc, scale, domain=of.support)
        return dist.TransformedDistribution(of, affine)

    for make, good, bad in (
        (share, 0.5, 0.0),
        (share, 1e-6, 1.0),
        (lambda f, s: dist.Kumaraswamy(jnp.exp(f), 2.0), 0.5, 0.0),
        (lambda f, s: dist.Uniform(0 * f - 1, 1.0 + s), 1.05, 1.2),
        (lambda f, s: dist.TruncatedNormal(f, s, low=0.0), 1e3, -0.1),
        (lambda f, s: dist.Binomial(jnp.full(20, 4), logits=f), 4.0, 5.0),
        (around, 70.0, None),
        (lambda f, s: dist.Uniform(2 * f - 0.01, 2 * f + 0.01), 0.5, None),
        (lambda f, s: dist.TruncatedNormal(3 + 2 * f, s, low=3 + 2 * f, high=3.3 + 2 * f), 5, None),
        (shifted_t, 0.5, None),
        (lambda f, s: dist.Normal(f, 0.3 + 0.05 * f), 0.5, None),
        (lambda f, s: shifted(dist.Exponential(jnp.ones(20)), f), -7.0, None),
        (lambda f, s: shifted(dist.Exponential(jnp.ones(20)), jnp.exp(f)), 0.1, -0.1),
        (lambda f, s: shifted(dist.Beta(jnp.full(20, 2.0), 2.0), -5, 5 + jnp.exp(f)), 0.1, -5.1),
    ):
        y = np.full(20, good, np.float32)
        check_data("f", model, CALL((X, y, make, False)))
        y[5] = np.nan  # masked
        check_data("f", model, CALL((X, y, make)))
        if bad is not None:
            y[[3, 7]] = bad
            words = r"^f: argument 'y', observed at site 'y', .*in 2 of 20 rows \[3, 7\], first"
            with pytest.raises(dgp.DataError, match=words):
                check_data("f", model, CALL((X, y, make)))


@pytest.mark.parametrize(
    ("make", "good"),
    [
        (lambda f, g, s: dist.Pareto(jnp.exp(f - g), 2.0), 0.2),
        (lambda f, g, s: dist.Uniform(f - g - 0.5, f - g + 0.5), -7.0),
        (lambda f, g, s: dist.Uniform(f * g - 0.01, f * g + 0.01), -7.0),
        (lambda f, g, s: dist.Uniform(0 * f, s), 19.99),
        (lambda f, g, s: dist.Pareto(jnp.exp(f), jnp.where(s > 9, 1.0, jnp.nan)), 2.0),
        (lambda f, g, s: dist.Normal(f, s - 9 + 0.1 * g), 2.0),
        (lambda f, g, s: dist.TruncatedNormal(f, s, low=jnp.exp(f - g)), 1.0),
    ],
)
def test_rows_that_some_latent_values_can_produce(make, good):
    """Where outputs differ, or a latent site is not as drawn once."""

    def model(x, y):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), Z, out=2)
        s = numpyro.sample("s", dist.Uniform(3.0, 20.0))
        numpyro.sample("y", dgp.observe(f(x), lambda f: make(f[..., 0], f[..., 1], s)), obs=y)

    check_data("f", model, CALL((X, np.full(20, good, np.float32))))
    if good == 1.0:
        with pytest.raises(dgp.DataError, match=r"no finite density for any f in 20 of 20"):
            check_data("f", model, CALL((X, np.full(20, -0.1, np.float32))))


def test_numpyros_censored_sites_are_named():
    late = np.array([True, False, True])
    family = lambda f: dist.RightCensoredDistribution(dist.Weibull(jnp.exp(f), 2.0), late)  # noqa: E731
    call = CALL((X3, np.array([1.0, 2.0, 3.0])), {"family": family})
    with pytest.warns(UserWarning, match=r"site 'y' is NumPyro's .*likelihoods\.RightCensored,"):
        check_data("f", line, call)


def fitted(model, *args):
    options = {"steps": 2, "optimizer": OPTIMIZER, "progress": False}
    return dgp.fit(KEY, model, no_guide, *args, **options)


def test_inputs_and_computed_data_are_named_at_the_first_loss():
    def slope(x, y):
        w = numpyro.param("w", 1.0)
        numpyro.sample("y", dist.Normal(w * x, 1).to_event(1), obs=jnp.log(y))

    x, y = np.arange(1.0, 4.0), np.array([1.0, -2.0, 1.0])
    with pytest.raises(
        dgp.NonFiniteLossError, match=r"site 'y' observes NaN .* in 1 of 3 rows \[1"
    ):
        fitted(slope, x, y)
    x[2] = np.inf
    with pytest.raises(
        dgp.NonFiniteLossError, match=r"argument 'x' is NaN or inf.*rows \[2\]: fill in"
    ):
        fitted(slope, x, abs(y))
