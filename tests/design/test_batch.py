"""Batches against dense algebra and against many draws."""

import numpy as np

from dgp_ppl.design._batch import greedy

X = np.linspace(0, 3, 12)
K = np.exp(-0.5 * np.square((X[:, None] - X) / 0.5)) + 1e-8 * np.eye(12)
MEAN = np.sin(2 * X)
ABOUT = {"best": -0.6, "level": 0.0, "nearest": np.zeros(12)}


def draws(num, seed=0):
    noise = np.random.default_rng(seed).standard_normal((num, 12))
    return MEAN + noise @ np.linalg.cholesky(K).T


def test_variances_are_those_given_the_runs_under_way():
    """The order is that of exact conditioning, from two runs under way."""
    scale = np.linspace(1, 1.5, 12)  # no ties
    left, wanted = K * np.outer(scale, scale), []
    for i in range(6):
        place = i if i < 2 else int(np.argmax(np.diag(left)))
        wanted.append(place)
        left = left - np.outer(left[:, place], left[place]) / left[place, place]
    f = MEAN + (draws(4000) - MEAN) * scale
    weights = np.where(np.arange(12) < 2, -np.inf, 0.0)
    found = greedy("variance", 4, f, MEAN, 2, ABOUT, weights)
    assert [0, 1, *found] == wanted


def test_the_second_of_two_has_the_highest_joint_improvement():
    first, second = greedy("log_ei", 2, draws(2000), MEAN, 0, ABOUT, np.zeros(12))
    many = draws(100_000, seed=1)
    one = np.maximum(ABOUT["best"] - many, 0.0)
    gains = np.maximum(one, one[:, [first]])
    joint, error = gains.mean(axis=0), gains.std(axis=0) / np.sqrt(len(many))
    assert first == np.argmax(one.mean(axis=0))
    assert joint[second] > joint.max() - 5 * error[second]
    assert abs(joint[second] - joint[first]) > 10 * error[second]  # the first again gains less


def test_thompson_takes_the_best_of_each_draw_once():
    f = draws(3)
    found = greedy("thompson", 3, f, MEAN, 0, ABOUT, np.zeros(12))
    assert found[0] == np.argmin(f[0])
    assert len(set(found)) == 3
