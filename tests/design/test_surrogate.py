"""Scores of a pool against dense algebra, and better inputs by gradients."""

from types import SimpleNamespace

import numpy as np
from support.helpers import KEY
from support.surrogates import dense, given_gp

from dgp_ppl import models
from dgp_ppl.comparison import Fitted
from dgp_ppl.design import global_improvement, log_expected_improvement
from dgp_ppl.design._surrogate import Emulator, search, search_draws

CODES = np.array([[0.05, 0.0], [0.3, 1.0], [0.55, 0.0], [0.7, 1.0], [0.9, 0.0]])
Y = np.array([1.0, 0.4, 0.2, 0.9, 1.5])


def test_scores_are_exact_and_ascents_reach_the_best_of_a_grid():
    emulator = Emulator.fit(given_gp, KEY, CODES, Y)
    best = emulator.standard(0.2)

    def exact(codes):
        x, at = ((c - emulator.arrays.x_loc) / emulator.arrays.x_scale for c in (CODES, codes))
        mean, covariance = dense(x, emulator.standard(Y), at)
        return np.asarray(log_expected_improvement(mean[None], np.diag(covariance)[None], best))

    pool = np.stack([np.linspace(0, 1, 12), np.arange(12) % 2], axis=1)
    about = {
        "sign": 1.0, "best": best, "level": np.nan, "limits": np.zeros(0), "runs": CODES,
        "values": emulator.standard(Y)[None],
    }  # fmt: skip
    free, new = np.array([True, False]), np.arange(12) != 4
    scores, weights, better, start = search("log_ei", [emulator], [], KEY, pool, free, new, about)
    np.testing.assert_allclose(scores[:12], exact(pool), rtol=1e-5)
    np.testing.assert_allclose(scores[12:], exact(better), rtol=1e-5)
    np.testing.assert_array_equal(weights, 0.0)
    assert 4 not in start
    np.testing.assert_array_equal(better[:, 1], pool[start, 1])  # it is not free
    grid = np.stack([np.repeat(np.linspace(0, 1, 501), 2), np.tile([0.0, 1.0], 501)], axis=1)
    assert scores[12:].max() > exact(grid).max() - 1e-3
    assert scores[12:].max() > scores[:12].max() + 0.01


def test_scores_are_summed_over_outputs():
    results = Y, np.square(Y[::-1])
    emulators = [Emulator.fit(given_gp, KEY, CODES, y) for y in results]
    values = np.stack([e.standard(y) for e, y in zip(emulators, results, strict=True)])
    pool, total = np.stack([np.linspace(0.02, 0.98, 12), np.arange(12) % 2], axis=1), 0.0
    nearest = np.square(pool[:, None] - CODES).sum(axis=-1).argmin(axis=1)
    for emulator, known in zip(emulators, values, strict=True):
        x, at = ((c - emulator.arrays.x_loc) / emulator.arrays.x_scale for c in (CODES, pool))
        mean, covariance = dense(x, known, at)
        var = np.diag(covariance)[None]
        total = total + np.asarray(global_improvement(mean[None], var, known[nearest]))
    about = {"sign": 1.0, "limits": np.zeros(0), "runs": CODES, "values": values}
    free = np.array([True, False])
    scores, *_ = search("vigf", emulators, [], KEY, pool, free, np.ones(12, bool), about)
    np.testing.assert_allclose(scores[:12], np.log(total), rtol=1e-4, atol=1e-4)


def test_scores_are_of_all_draws_of_a_posterior():
    """Of two lengthscales, whose mean has less to gain than their mixture."""
    scales = 0.5, 0.9

    def drawn(task):
        draws = {"l1.lengthscale": np.repeat(scales, 16)[:, None] * np.ones(2)}
        draws |= {"l1.variance": np.ones(32), "noise": np.full(32, 1e-2)}
        kwargs = {"given": tuple(np.asarray(a, np.float64) for a in task.data), "depth": 1}
        return Fitted(models.exact, None, kwargs, SimpleNamespace(params={}), draws=draws)

    emulator = Emulator.fit(drawn, KEY, CODES, Y)
    assert Emulator.fit(given_gp, KEY, CODES, Y).program.passes == 1  # all are equal
    best, pool = emulator.standard(0.2), np.linspace(0.02, 0.98, 12)[:, None] * np.ones(2)
    x, at = ((c - emulator.arrays.x_loc) / emulator.arrays.x_scale for c in (CODES, pool))
    found = [dense(x, emulator.standard(Y), at, lengthscale=s) for s in scales]
    means, variances = np.stack([m for m, _ in found]), np.stack([np.diag(C) for _, C in found])
    about = {
        "sign": 1.0, "best": best, "level": np.nan, "limits": np.zeros(0), "runs": CODES,
        "values": emulator.standard(Y)[None],
    }  # fmt: skip
    free, new = np.ones(2, bool), np.ones(12, bool)
    scores, *_ = search("log_ei", [emulator], [], KEY, pool, free, new, about)
    exact = log_expected_improvement(means, variances, best)
    np.testing.assert_allclose(scores[:12], exact, rtol=1e-3)


def test_the_best_value_of_each_draw_is_found():
    """The draws have the values of the runs, and ascents from a few places reach their best."""
    emulator, free = Emulator.fit(given_gp, KEY, CODES, Y), np.array([True, False])
    pool = np.concatenate([CODES, np.linspace(0, 1, 101)[:, None] * [1.0, 0.0]])
    new = (np.arange(106) >= 5) & (np.arange(106) % 10 == 5)
    values, better, start = search_draws(emulator, 6, -1.0, KEY, pool, free, new)
    np.testing.assert_allclose(values[:, :5], np.tile(emulator.standard(Y), (6, 1)), atol=0.1)
    assert new[start].all()
    np.testing.assert_array_equal(better[..., 1], pool[start, 1])  # it is not free
    best = values[:, 5:106].max(axis=1)
    assert (values[:, 106:].max(axis=1) > best - 1e-3).all()
    assert np.ptp(best) > 0.1
