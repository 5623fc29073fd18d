"""Student t noise: its params, and what it gains where targets have outliers."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from scipy import stats
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import likelihoods, models


def test_it_is_the_students_t_of_its_params():
    f, y = jnp.linspace(-1, 1, 5), np.linspace(-3, 3, 5)
    with handlers.substitute(data={"noise": 0.4, "df": 3.5}):
        found = likelihoods.student_t(f)
    np.testing.assert_allclose(found.log_prob(y), stats.t(3.5, f, 0.4).logpdf(y), rtol=1e-5)
    np.testing.assert_allclose(found.variance, stats.t(3.5, f, 0.4).var(), rtol=1e-5)


def test_degrees_of_freedom_leave_a_variance():
    trace = handlers.trace(lambda: likelihoods.student_t(jnp.zeros(2))).get_trace()
    constraint = trace["df"]["kwargs"]["constraint"]
    assert not constraint(2.0)
    assert constraint(2.001)
    assert numpyro.distributions.biject_to(constraint)(-50.0) >= 2


@pytest.mark.slow
def test_outliers_cost_less_than_with_gaussian_noise():
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 120)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(120)
    y[::12] += rng.choice([-2.0, 2.0], 10)
    guide = dgp.MeanField(models.svgp)
    density, rmse = {}, {}
    for name, options in {"gaussian": {}, "t": {"likelihood": likelihoods.student_t}}.items():
        options = {"z": x[::8], **options}
        fit = dgp.fit(KEY, models.svgp, guide, x, y, steps=1000, progress=False, **options)
        p = dgp.predict(KEY, models.svgp, guide, fit, x, **options)
        density[name] = float(p.log_prob(y).mean())
        rmse[name] = float(np.sqrt(np.mean((p.mean - np.sin(3 * x[:, 0])) ** 2)))
    assert density["t"] > density["gaussian"] + 0.5
    assert rmse["t"] < 0.5 * rmse["gaussian"]
    assert 2 < fit.params["df"] < 4
