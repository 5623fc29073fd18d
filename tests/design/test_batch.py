"""Batches against dense algebra and against many draws."""

import numpy as np
import pytest

from dgp_ppl.design._batch import greedy

X = np.linspace(0, 3, 12)
K = np.exp(-0.5 * np.square((X[:, None] - X) / 0.5)) + 1e-8 * np.eye(12)
MEAN = np.sin(2 * X)
ABOUT = {"best": -0.6, "level": 0.0, "nearest": np.zeros((1, 12))}


def draws(num, seed=0):
    noise = np.random.default_rng(seed).standard_normal((num, 12))
    return MEAN + noise @ np.linalg.cholesky(K).T


def test_variances_are_those_given_the_runs_under_way():
    """The order is that of exact conditioning of two outputs, from two runs under way."""
    scales = np.linspace(1, 1.5, 12), np.linspace(2, 0.5, 12)  # no ties
    left, wanted = [K * np.outer(scale, scale) for scale in scales], []
    for i in range(6):
        place = i if i < 2 else int(np.argmax(sum(map(np.diag, left))))
        wanted.append(place)
        left = [a - np.outer(a[:, place], a[place]) / a[place, place] for a in left]
    f = [MEAN + (draws(4000, i) - MEAN) * scale for i, scale in enumerate(scales)]
    weights, about = np.where(np.arange(12) < 2, -np.inf, 0.0), {"nearest": np.zeros((2, 12))}
    found = greedy("variance", 4, f, [MEAN] * 2, 2, ABOUT | about, weights)
    assert [0, 1, *found] == wanted


@pytest.mark.parametrize("criterion", ["integrated_variance", "vigf"])
def test_criteria_are_summed_over_outputs(criterion):
    """Against the exact covariance: of the second output only the right is uncertain."""
    scales = np.ones(12), np.linspace(0, 3, 12)
    near = np.array([MEAN + 0.1, MEAN - 0.5])
    parts = []
    for scale, off in zip(scales, MEAN - near, strict=True):
        cov = K * np.outer(scale, scale)
        var = np.maximum(np.diag(cov), 1e-30)
        if criterion == "vigf":
            parts.append(4 * off**2 * var + 2 * var**2)
        else:
            parts.append(np.square(cov).mean(axis=0) / var)
    f = [MEAN + (draws(20_000, i) - MEAN) * scale for i, scale in enumerate(scales)]
    (found,) = greedy(criterion, 1, f, [MEAN] * 2, 0, ABOUT | {"nearest": near}, np.zeros(12))
    assert found == np.argmax(sum(parts)) != np.argmax(parts[0])


def test_a_batch_has_the_highest_joint_improvement():
    """Each input against all others by 100,000 draws, given those before it."""
    many = draws(100_000, seed=1)
    gains = np.zeros(len(many))
    for place in greedy("log_ei", 5, [draws(4000)], [MEAN], 0, ABOUT, np.zeros(12)):
        joint = np.maximum(gains[:, None], ABOUT["best"] - many)
        behind = joint - joint[:, [place]]
        error = behind.std(axis=0) / np.sqrt(len(many))
        assert (behind.mean(axis=0) < 5 * error + 1e-3).all()
        gains = joint[:, place]


@pytest.mark.parametrize("criterion", ["integrated_variance", "variance", "vigf"])
def test_where_nothing_is_left_to_learn_inputs_are_new(criterion):
    """All scores are 0, whose logarithm would be that of inputs that may not be chosen."""
    weights, flat = np.where(np.arange(12) < 4, -np.inf, 0.0), np.zeros((8, 12))
    found = greedy(criterion, 8, [flat], [flat[0]], 0, ABOUT, weights)
    assert sorted(found) == list(range(4, 12))
