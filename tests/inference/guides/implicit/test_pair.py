"""The generator and the discriminator of an implicit posterior."""

import numpy as np
import pytest
from jax import random
from scipy import special
from support.adversarial import (
    columns,
    dense,
    idle,
    random_params,
    small,
)
from support.helpers import (
    KEY,
    assert_mean,
    regression,
)

from dgp_ppl.inference.guides.implicit._guide import Implicit


@pytest.mark.slow
def test_a_statistic_of_few_numbers_loses_nothing():
    """The KL of the statistic of K numbers equals that of all inducing values, by brute force."""
    guide = Implicit(idle, **small, noise_dim=2)
    params = random_params(guide, *regression(rows=5))
    params = {n: 2 * a if ".generator." in n else a for n, a in params.items()}
    mean, R = dense(guide, params)
    pair = guide.adversarial_pair(params)
    h, others = (pair.features(k, n) for k, n in zip(random.split(KEY), (8000, 300), strict=True))
    v = columns(pair.values(KEY, h))
    centres = np.asarray(others) @ columns(pair.directions)
    e = np.linalg.solve(R, (v - mean).T).T
    squares = ((e[:, None, :] - centres) ** 2).sum(axis=-1)
    own = ((e - np.asarray(h) @ columns(pair.directions)) ** 2).sum(axis=-1)
    sums = special.logsumexp(-0.5 * np.c_[squares, own], axis=1)
    log_q = sums - np.log(301) - np.linalg.slogdet(R)[1]
    brute = log_q + 0.5 * (v**2).sum(axis=1)
    found = np.asarray(pair.kl_bound(random.key(7), h, others), float)
    pairs = (brute - found).reshape(-1, 2).mean(axis=1)  # antithetic
    assert_mean(pairs, 0)
    assert pairs.std() / np.sqrt(len(pairs)) < 0.1
    assert np.mean(found) - np.mean(np.asarray(pair.gaussian_kl(h))) > 0.05  # q is not a Gaussian
