"""Passes through a model: their average, and their chunks."""

import numpy as np
from scipy import stats
from support.helpers import KEY, assert_mean, hidden_nodes, layer_moments, spread, two_layer_params
from support.predictions import KERNEL, X_TEST, Y_TEST, components, deep

import dgp_ppl as dgp
from dgp_ppl.models import svgp


def test_the_passes_average_to_the_doubly_stochastic_prediction():
    """Against quadrature over the hidden layer, in NumPy."""
    loc, scale = components(deep(num_samples=4000))
    mean, density = np.zeros(7), np.zeros(7)
    for weight, h in hidden_nodes(two_layer_params(), X_TEST):
        f_mean, f_var = layer_moments(two_layer_params(), 2, h[:, None])
        mean += weight * f_mean
        density += weight * stats.norm(f_mean, np.sqrt(f_var + 0.3**2)).pdf(Y_TEST)
    assert_mean(loc, mean)
    assert_mean(stats.norm(loc, scale).pdf(Y_TEST), density)


def test_rows_of_different_chunks_have_noise_of_their_own():
    x = np.zeros((4, 1))  # four times the same input
    loc, _ = components(deep(x=x, chunk_size=2))
    assert (np.std(loc, axis=1) > 0).all()
    assert (loc[:, :2] != loc[:, 2:]).all()


def test_all_chunks_of_a_prior_pass_see_one_function():
    options = {"z": spread(5), "num_samples": 3}
    whole, parts = (
        dgp.predict(KEY, svgp, None, {"noise": 0.3} | KERNEL, X_TEST, chunk_size=n, **options)
        for n in (7, 2)
    )
    np.testing.assert_allclose(components(whole)[0], components(parts)[0], atol=1e-5)
