"""Expectations of every likelihood for variances from 1e-12 to 1e6, against adaptive quadrature."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from support import integrals
from support.helpers import slow

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals


class Case(NamedTuple):
    """A likelihood, its log density by SciPy, targets, and means of f."""

    likelihood: object
    log_p: object
    y: tuple
    means: tuple
    places: object = lambda y: (0.0,)  # where log p is not smooth
    exponential: bool = False  # whether log p falls exponentially in f or -f


TARGETS, AWAY, LOGS = (-2.0, 0.3, 50.0), (-5.0, 0.0, 0.29, 100.0), (-10.0, -1.0, 0.0, 3.0, 10.0)
COUNTS, BINARY, LINKS = (0, 1, 7, 1000), (0, 1), (-30.0, -3.0, 0.0, 0.5, 100.0)


def at_y(y):
    return (0.0, y)


def log_of_y(y):
    return (0.0, np.log(max(y, 1e-3)))


def student(scale, noise=dist.StudentT):
    return Case(
        lambda f: noise(4.0, f, scale),
        lambda f, y: stats.t.logpdf(y, 4, f, scale), TARGETS, AWAY, at_y,
    )  # fmt: skip


def laplace(scale):
    return Case(
        lambda f: dist.Laplace(f, scale),
        lambda f, y: -np.abs(y - f) / scale - np.log(2 * scale), TARGETS, AWAY, at_y,
    )  # fmt: skip


def censored(scale):
    def log_p(f, y):
        inside = stats.norm.logpdf(y, f, scale)
        return special.log_ndtr((f - 1) / scale) if y >= 1 else inside

    make = lambda f: likelihoods.CensoredNormal(f, scale, high=1.0)  # noqa: E731
    return Case(make, log_p, (-2.0, 0.3, 1.0), AWAY, lambda y: (0.0, y, 1.0))


def censored_below(scale):
    """The mirror image of `censored`."""
    above = censored(scale)
    make = lambda f: likelihoods.CensoredNormal(f, scale, low=-1.0)  # noqa: E731
    log_p = lambda f, y: above.log_p(-f, -y)  # noqa: E731
    return Case(make, log_p, (2.0, -0.3, -1.0), AWAY, lambda y: (0.0, y, -1.0))


def negative_binomial(f, y, r=3.0):
    normal = special.gammaln(y + r) - special.gammaln(r) - special.gammaln(y + 1)
    return normal + r * special.log_expit(np.log(r) - f) + y * special.log_expit(f - np.log(r))


def beta(f, y):
    return stats.beta.logpdf(y, 5 * special.ndtr(f) + 1, 5 * special.ndtr(-f) + 1)


CASES = {
    "bernoulli_probit": Case(
        likelihoods.bernoulli_probit,
        lambda f, y: special.log_ndtr(f if y else -f), BINARY, LINKS,
    ),
    "bernoulli_logit": Case(
        likelihoods.bernoulli_logit,
        lambda f, y: special.log_expit(f if y else -f), BINARY, LINKS,
    ),
    "poisson": Case(
        likelihoods.PoissonLog,
        lambda f, y: y * f - np.exp(f) - special.gammaln(y + 1), COUNTS, LOGS, log_of_y,
        exponential=True,
    ),
    "negative_binomial": Case(
        lambda f: likelihoods.NegativeBinomialLog(f, 3.0), negative_binomial, COUNTS, LOGS, log_of_y
    ),
    "censored narrow": censored(1e-3),
    "censored below": censored_below(1e-3),
    "student narrow": student(1e-3),
    "integrated student narrow": student(1e-3, likelihoods.StudentT),
    "laplace": laplace(0.3),
    "logistic": Case(
        lambda f: dist.Logistic(f, 0.1),
        lambda f, y: stats.logistic.logpdf(y, f, 0.1), TARGETS, AWAY, at_y,
    ),
    "gamma": Case(
        lambda f: dist.Gamma(2.0, 2.0 * jnp.exp(-f)),
        lambda f, y: 2 * (np.log(2) - f) + np.log(y) - 2 * y * np.exp(-f),
        (1e-3, 0.5, 100.0), (-5.0, 0.0, 3.0, 8.0), log_of_y, exponential=True,
    ),
    "lognormal": Case(
        lambda f: dist.LogNormal(f, 0.1),
        lambda f, y: stats.norm.logpdf(np.log(y), f, 0.1) - np.log(y),
        (0.1, 1.0, 50.0), AWAY, log_of_y,
    ),
    "beta": Case(
        lambda f: dist.Beta(
            5 * jax.scipy.special.ndtr(f) + 1, 5 * jax.scipy.special.ndtr(-f) + 1
        ),
        beta, (1e-3, 0.5, 0.99), (-10.0, 0.0, 0.5, 3.0),
    ),
    "binomial": Case(
        lambda f: dist.BinomialLogits(f, 50),
        lambda f, y: (
            -special.betaln(y + 1, 51 - y) - np.log(51)
            + y * special.log_expit(f) + (50 - y) * special.log_expit(-f)
        ), (0, 1, 25), LOGS, lambda y: (0.0, special.logit((y + 1e-3) / 51)),
    ),
}  # fmt: skip


VARIANCES = 10.0 ** np.array([-12, -6, -2, 0, 1, 3, 6])
ROWS = 57  # of one call: jaxlib 0.10's CPU compiler miscompiles Beta on much larger arrays


def terms(name, guided, mean, var, y):
    marginals = Marginals(mean[:, None], var[:, None], guided)
    return dgp.observe(marginals, CASES[name].likelihood).log_prob(y)


def overflows(case, mean, var, dtype):
    """Whether the integrand of E[exp(±f)] lies where exp overflows: within 5 sd of mean ± var."""
    reach = abs(mean) + var + 5 * np.sqrt(var)
    return case.exponential and reach > np.log(np.finfo(dtype).max)


# One likelihood of each rule: a closed form, tails that grow, heavy tails, a corner and a censor.
QUICK = {"bernoulli_probit", "poisson", "student narrow", "laplace", "censored narrow"}
BOUNDS = [(name, True) if name in QUICK else slow(name, True) for name in CASES]
DENSITIES = [slow(name, False) if name != "bernoulli_probit" else (name, False) for name in CASES]


@pytest.mark.parametrize(("name", "guided"), [*BOUNDS, *DENSITIES])
def test_expectations_at_any_variance(name, guided):
    """To 1e-3 nats, or 1e-3 of the value if it is larger than 1, with finite gradients.

    An expectation of exp(f) beyond the range of a dtype comes out as a huge negative number.
    """
    case, dtype = CASES[name], np.dtype("float32")
    grid = [(m, v, y) for y in case.y for m in case.means for v in VARIANCES]
    grid += grid[: -len(grid) % ROWS]
    mean, var = (np.array([row[i] for row in grid], dtype) for i in (0, 1))
    y = np.array([row[2] for row in grid], int if isinstance(case.y[0], int) else dtype)
    reference = integrals.expectation if guided else integrals.log_expectation

    @jax.jit
    def both(mean, var, y):
        total = lambda m, v: ((t := terms(name, guided, m, v, y)).sum(), t)  # noqa: E731
        return jax.grad(total, (0, 1), has_aux=True)(mean, var)

    for i in range(0, len(grid), ROWS):
        rows = mean[i : i + ROWS], var[i : i + ROWS], y[i : i + ROWS]
        gradients, found = both(*rows)
        assert all(np.isfinite(g).all() for g in gradients)
        for value, m, v, target in zip(np.float64(found), *rows, strict=True):
            m, v, target = m.item(), v.item(), target.item()
            if guided and overflows(case, m, v, dtype):
                assert value < -1e10, (m, v, target)
                continue
            log_p = lambda f, y=target: case.log_p(f, y)  # noqa: E731
            exact = reference(log_p, m, np.sqrt(v), case.places(target))
            assert abs(value - exact) < 1e-3 * max(1, abs(exact)), (m, v, target, value, exact)
