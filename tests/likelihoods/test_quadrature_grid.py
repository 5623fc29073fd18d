"""Expectations of every likelihood for variances from 1e-12 to 1e6, against adaptive quadrature."""

import jax
import numpy as np
import pytest
from support import integrals
from support.helpers import slow
from support.likelihood_cases import CASES

import dgp_ppl as dgp
from dgp_ppl.core import Marginals

VARIANCES = 10.0 ** np.array([-12, -6, -2, 0, 1, 3, 6])
ROWS = 57  # of one call: jaxlib 0.10's CPU compiler miscompiles Beta on much larger arrays


def terms(name, guided, mean, var, y):
    marginals = Marginals(mean[:, None], var[:, None], guided)
    return dgp.observe(marginals, CASES[name].likelihood).log_prob(y)


def overflows(case, mean, var, dtype):
    """Whether the integrand of E[exp(±f)] lies where exp overflows: within 5 sd of mean ± var."""
    reach = abs(mean) + var + 5 * np.sqrt(var)
    return case.exponential and reach > np.log(np.finfo(dtype).max)


SLOW = {"beta", "censored", "censored below"}  # to compile
BOUNDS = [slow(name, True) if name in SLOW else (name, True) for name in CASES]
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
        values = terms(name, guided, mean, var, y)
        total = lambda m, v: terms(name, guided, m, v, y).sum()  # noqa: E731
        return values, jax.grad(total, (0, 1))(mean, var)

    for i in range(0, len(grid), ROWS):
        rows = mean[i : i + ROWS], var[i : i + ROWS], y[i : i + ROWS]
        found, gradients = both(*rows)
        assert all(np.isfinite(g).all() for g in gradients)
        for value, m, v, target in zip(np.float64(found), *rows, strict=True):
            m, v, target = m.item(), v.item(), target.item()
            if guided and overflows(case, m, v, dtype):
                assert value < -1e10, (m, v, target)
                continue
            log_p = lambda f, y=target: case.log_p(f, y)  # noqa: E731
            exact = reference(log_p, m, np.sqrt(v), case.places(target))
            assert abs(value - exact) < 1e-3 * max(1, abs(exact)), (m, v, target, value, exact)
