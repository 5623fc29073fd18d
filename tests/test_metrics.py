"""Metrics against definitions, closed forms and scikit-learn."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import metrics as sk

from dgp_ppl import metrics


def mixture(seed, points=7, components=5):
    random = np.random.default_rng(seed)
    y = random.normal(size=points)
    means = random.normal(size=(components, points))
    sds = random.uniform(0.1, 1.5, size=(components, points))
    weights = random.dirichlet(np.ones(components), size=points).T
    return y, means, sds, weights


def integrated(y, means, sds, weights):
    """Return the CRPS from its definition, the integral of (F(z) - [y <= z])^2, by quadrature."""

    def distribution(z):
        return float(np.sum(weights * stats.norm.cdf(z, means, sds)))

    below, _ = integrate.quad(lambda z: distribution(z) ** 2, y - 20, y, limit=400)
    above, _ = integrate.quad(lambda z: (1 - distribution(z)) ** 2, y, y + 20, limit=400)
    return below + above


def classification(seed, points=200, classes=4):
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(classes), size=points)
    y = np.array([random.choice(classes, p=row) for row in probabilities])
    return y, probabilities


class TestRegression:
    def test_rmse_by_hand(self):
        assert metrics.rmse([1.0, 2.0], [4.0, 6.0]) == pytest.approx(np.sqrt(12.5))

    def test_rmse_of_jax_arrays_is_a_python_float(self):
        assert type(metrics.rmse(jnp.ones(3), jnp.zeros(3))) is float

    def test_nan_predictions_give_nan(self):
        assert np.isnan(metrics.rmse([1.0, 2.0], [1.0, np.nan]))
        score = metrics.crps_gaussian_mixture([0.0, 0.0], [[np.nan, 0.0]], [[1.0, 1.0]])
        assert np.isnan(score[0])
        assert np.isfinite(score[1])
        assert np.isnan(metrics.crps_samples([0.0], [[np.nan], [1.0]])[0])
        assert np.isnan(metrics.interval_coverage([0.0], [np.nan], [1.0]))

    def test_mean_log_density(self):
        assert metrics.mean_log_density([-1.0, -2.0, -6.0]) == -3.0
        assert metrics.mean_log_density([-1.0, -np.inf]) == -np.inf

    def test_coverage_includes_the_ends(self):
        y = [0.0, 1.0, 2.0, 3.0]
        assert metrics.interval_coverage(y, [0.0, 0.0, 0.0, 3.5], [1.0, 1.0, 1.0, 4.0]) == 0.5

    def test_coverage_of_true_intervals_is_their_level(self):
        y = np.random.default_rng(0).normal(size=20_000)
        half = np.full(20_000, stats.norm.ppf(0.95))
        assert metrics.interval_coverage(y, -half, half) == pytest.approx(0.9, abs=0.01)

    def test_width(self):
        assert metrics.interval_width([0.0, 1.0], [1.0, 4.0]) == 2.0

    def test_crossed_intervals_are_refused(self):
        with pytest.raises(ValueError, match="upper: got 1 ends below"):
            metrics.interval_width([0.0, 1.0], [1.0, 0.0])
        with pytest.raises(ValueError, match="upper: got 1 ends below"):
            metrics.interval_coverage([0.0, 0.0], [0.0, 1.0], [1.0, 0.0])


class TestCrpsGaussianMixture:
    def test_is_the_integral_that_defines_it(self):
        y, means, sds, weights = mixture(0)
        expected = [integrated(y[n], means[:, n], sds[:, n], weights[:, n]) for n in range(len(y))]
        actual = metrics.crps_gaussian_mixture(y, means, sds, weights)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)

    def test_one_component_is_the_gaussian_closed_form(self):
        y = np.linspace(-3, 3, 11)
        sd = np.linspace(0.1, 2, 11)
        z = y / sd
        expected = sd * (
            z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
        )
        actual = metrics.crps_gaussian_mixture(y, np.zeros((1, 11)), sd[None])
        np.testing.assert_allclose(actual, expected, rtol=1e-12)

    def test_agrees_with_draws(self):
        y, means, sds, weights = mixture(1)
        random = np.random.default_rng(2)
        draws = np.stack(
            [
                random.normal(means[chosen, n], sds[chosen, n])
                for n in range(len(y))
                for chosen in [random.choice(len(means), size=40_000, p=weights[:, n])]
            ],
            axis=1,
        )
        np.testing.assert_allclose(
            metrics.crps_gaussian_mixture(y, means, sds, weights),
            metrics.crps_samples(y, draws),
            atol=0.02,
        )

    def test_none_means_equal_weights(self):
        y, means, sds, _ = mixture(2)
        for weights in (np.full(5, 0.2), np.full((5, 7), 0.2)):
            np.testing.assert_allclose(
                metrics.crps_gaussian_mixture(y, means, sds, weights),
                metrics.crps_gaussian_mixture(y, means, sds),
                rtol=1e-12,
            )

    def test_a_component_split_in_two_changes_nothing(self):
        y, means, sds, weights = mixture(3)
        split = np.concatenate([weights[:1] / 2, weights[:1] / 2, weights[1:]])
        np.testing.assert_allclose(
            metrics.crps_gaussian_mixture(
                y, np.concatenate([means[:1], means]), np.concatenate([sds[:1], sds]), split
            ),
            metrics.crps_gaussian_mixture(y, means, sds, weights),
            rtol=1e-12,
        )

    @pytest.mark.parametrize("sd", [0.0, 1e-320, 1e-300, 1e-160, 1e-12])
    def test_vanishing_deviations_are_point_masses(self, sd):
        y, means, _, _ = mixture(4)
        means[0] = y  # point masses exactly at the target
        means[1] = y
        np.testing.assert_allclose(
            metrics.crps_gaussian_mixture(y, means, np.full_like(means, sd)),
            metrics.crps_samples(y, means, fair=False),
            atol=1e-11,
        )

    def test_a_perfect_point_forecast_scores_zero(self):
        assert metrics.crps_gaussian_mixture([2.0], [[2.0]], [[0.0]])[0] == 0.0

    def test_a_shift_changes_nothing_and_a_scale_scales(self):
        y, means, sds, weights = mixture(5)
        score = metrics.crps_gaussian_mixture(y, means, sds, weights)
        shifted = metrics.crps_gaussian_mixture(y + 1e6, means + 1e6, sds, weights)
        np.testing.assert_allclose(shifted, score, rtol=1e-8)
        scaled = metrics.crps_gaussian_mixture(1e9 * y, 1e9 * means, 1e9 * sds, weights)
        np.testing.assert_allclose(scaled, 1e9 * score, rtol=1e-12)

    def test_chunks_change_nothing(self, monkeypatch):
        y, means, sds, weights = mixture(6, points=23)
        whole = metrics.crps_gaussian_mixture(y, means, sds, weights)
        monkeypatch.setattr(metrics, "_CELLS", 20)
        np.testing.assert_allclose(
            metrics.crps_gaussian_mixture(y, means, sds, weights), whole, rtol=1e-14
        )

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y": np.zeros((7, 1))}, r"y: got shape \(7, 1\), wanted \[N\]"),
            ({"means": np.zeros(7)}, r"means: got shape \(7,\), wanted \[S, N\].* N = 7"),
            ({"means": np.zeros((7, 5))}, r"means: got shape \(7, 5\), wanted"),
            ({"sds": np.ones(7)}, r"sds: got shape \(7,\), wanted \(5, 7\)"),
            ({"sds": np.full((5, 7), -0.5)}, r"sds: got -0.5, wanted at least 0"),
            ({"weights": np.full((5, 1), 0.2)}, r"weights: got shape \(5, 1\), wanted \(5,\) or"),
            ({"weights": np.ones(5)}, r"weights: got sums that differ from 1 by 4"),
            ({"weights": [np.nan, 0.0, 0.0, 0.0, 1.0]}, r"weights: got sums .* by nan"),
            ({"weights": [-0.5, 1.5, 0.0, 0.0, 0.0]}, r"weights: got -0.5, wanted at least 0"),
        ],
    )
    def test_wrong_arguments_are_named(self, changes, message):
        y, means, sds, weights = mixture(7)
        arguments = {"y": y, "means": means, "sds": sds, "weights": weights} | changes
        with pytest.raises(ValueError, match=message):
            metrics.crps_gaussian_mixture(**arguments)


class TestCrpsSamples:
    @pytest.mark.parametrize("fair", [True, False])
    def test_is_the_double_sum(self, fair):
        random = np.random.default_rng(0)
        y = random.normal(size=6)
        draws = random.normal(size=(9, 6)).round(1)  # with ties
        pairs = np.abs(draws[:, None] - draws[None]).sum(axis=(0, 1)) / (9 * (8 if fair else 9))
        expected = np.abs(draws - y).mean(axis=0) - pairs / 2
        np.testing.assert_allclose(
            metrics.crps_samples(y, draws, fair=fair), expected, rtol=1e-10, atol=1e-14
        )

    def test_the_plain_score_is_that_of_the_empirical_distribution(self):
        draws = np.array([[0.3], [1.1], [-0.4]])
        grid = np.linspace(-3, 3, 600_001)
        distribution = (draws <= grid).mean(axis=0)
        expected = np.sum((distribution - (grid >= 0.5)) ** 2) * (grid[1] - grid[0])
        assert metrics.crps_samples([0.5], draws, fair=False)[0] == pytest.approx(
            expected, abs=1e-4
        )

    def test_only_the_fair_score_is_unbiased(self):
        random = np.random.default_rng(1)
        y = np.full(200_000, 0.7)
        draws = random.normal(size=(3, 200_000))
        exact = metrics.crps_gaussian_mixture([0.7], [[0.0]], [[1.0]])[0]
        assert metrics.crps_samples(y, draws).mean() == pytest.approx(exact, abs=0.01)
        assert metrics.crps_samples(y, draws, fair=False).mean() > exact + 0.1

    def test_the_draws_are_left_as_they_were(self):
        draws = np.array([[2.0], [1.0]])
        metrics.crps_samples([0.0], draws)
        np.testing.assert_array_equal(draws, [[2.0], [1.0]])

    def test_one_draw(self):
        assert metrics.crps_samples([1.0], [[3.0]], fair=False)[0] == 2.0
        with pytest.raises(ValueError, match="samples: got 1 draw, wanted at least 2"):
            metrics.crps_samples([1.0], [[3.0]])

    def test_wrong_shapes_are_named(self):
        with pytest.raises(ValueError, match=r"samples: got shape \(3, 1\), wanted \[S, N\]"):
            metrics.crps_samples(np.zeros(3), np.zeros((3, 1)))


class TestClassification:
    def test_accuracy(self):
        assert metrics.accuracy([0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]) == 2 / 3

    def test_of_equal_probabilities_the_first_counts(self):
        assert metrics.accuracy([0, 1], [[0.5, 0.5], [0.5, 0.5]]) == 0.5

    def test_log_loss_is_scikit_learns(self):
        y, probabilities = classification(0)
        assert metrics.log_loss(y, probabilities) == pytest.approx(sk.log_loss(y, probabilities))

    def test_log_loss_of_an_excluded_truth_is_infinite(self):
        assert metrics.log_loss([1], [[1.0, 0.0]]) == np.inf

    def test_brier_of_two_classes_is_twice_scikit_learns(self):
        y, probabilities = classification(1, classes=2)
        expected = 2 * np.mean((probabilities[:, 1] - y) ** 2)
        assert metrics.brier(y, probabilities) == pytest.approx(expected)
        assert metrics.brier([1], [[1.0, 0.0]]) == 2.0

    def test_brier_of_three_classes_by_hand(self):
        actual = metrics.brier([2, 0], [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
        assert actual == pytest.approx((0.01 + 0.04 + 0.09) / 2)

    def test_calibration_error_by_hand(self):
        # Two bins. (0, 0.5]: confidence 0.5, wrong. (0.5, 1]: 0.6 right, 0.9 right, 0.8 wrong.
        confidence = np.array([0.5, 0.6, 0.9, 0.8])
        probabilities = np.stack([confidence, 1 - confidence], axis=1)
        y = [1, 0, 0, 1]
        expected = 1 / 4 * abs(0 - 0.5) + 3 / 4 * abs(2 / 3 - 2.3 / 3)
        actual = metrics.expected_calibration_error(y, probabilities, bins=2)
        assert actual == pytest.approx(expected)

    @pytest.mark.parametrize("bins", [1, 4, 10, 15])
    def test_calibration_error_is_the_sum_over_bins(self, bins):
        y, probabilities = classification(2)
        confidence = probabilities.max(axis=1)
        correct = probabilities.argmax(axis=1) == y
        expected = 0.0
        for m in range(bins):
            inside = (confidence > m / bins) & (confidence <= (m + 1) / bins)
            if inside.any():
                gap = correct[inside].mean() - confidence[inside].mean()
                expected += inside.mean() * abs(gap)
        actual = metrics.expected_calibration_error(y, probabilities, bins=bins)
        assert actual == pytest.approx(expected)

    def test_certain_and_right_is_calibrated(self):
        assert metrics.expected_calibration_error([0, 1], np.eye(2)) == 0.0

    def test_no_bins_are_refused(self):
        with pytest.raises(ValueError, match="bins: got 0, wanted at least 1"):
            metrics.expected_calibration_error([0], [[0.5, 0.5]], bins=0)

    @pytest.mark.parametrize(
        "score",
        [metrics.accuracy, metrics.log_loss, metrics.brier, metrics.expected_calibration_error],
    )
    @pytest.mark.parametrize(
        ("y", "probabilities", "message"),
        [
            ([0, 1], [0.5, 0.5], r"probabilities: got shape \(2,\), wanted \[N, C\].*stack 1 - p"),
            ([0, 1], [[1.0], [1.0]], r"probabilities: got shape \(2, 1\)"),
            ([0, 1, 1], np.full((2, 2), 0.5), r"probabilities: got shape \(2, 2\).* N = 3"),
            ([[0], [1]], np.full((2, 2), 0.5), r"y: got shape \(2, 1\), wanted \[N\]"),
            ([0, 2], np.full((2, 2), 0.5), "y: got the class 2, wanted .* 0 to 1"),
            ([0, 0.5], np.full((2, 2), 0.5), "y: got the class 0.5"),
            ([0, np.nan], np.full((2, 2), 0.5), "y: got the class nan"),
            ([0, -1], np.full((2, 2), 0.5), "y: got the class -1"),
            ([0, 1], [[0.5, 0.5], [0.5, 0.6]], r"probabilities: got \[0.5, 0.6\] in row 1"),
            ([0, 1], [[1.5, -0.5], [0.5, 0.5]], "probabilities: .* in row 0, .* sum 1"),
            ([0, 1], [[0.5, 0.5], [np.nan, 0.5]], "probabilities: .*nan.* in row 1"),
            ([0, 1], [[0.5, 0.5], [np.inf, -np.inf]], "probabilities: .*inf.* in row 1"),
            ([], np.zeros((0, 2)), r"y: got shape \(0,\), wanted \[N\] with N at least 1"),
        ],
    )
    def test_what_is_no_classification_is_refused(self, score, y, probabilities, message):
        with pytest.raises(ValueError, match=message):
            score(y, probabilities)

    def test_probabilities_in_float32_will_do(self):
        logits = jnp.asarray(np.random.default_rng(0).normal(size=(50, 200)), jnp.float32)
        probabilities = jnp.exp(logits) / jnp.exp(logits).sum(axis=1, keepdims=True)
        assert metrics.log_loss(jnp.zeros(50, int), probabilities) > 0

    def test_auc_is_the_share_of_pairs_in_order(self):
        random = np.random.default_rng(3)
        y = random.integers(0, 2, size=60)
        score = (random.normal(size=60) + y).round(1)  # with ties
        ahead = score[y == 1][:, None] - score[y == 0][None]
        expected = np.mean((ahead > 0) + 0.5 * (ahead == 0))
        assert metrics.auc(y, score) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("y", "score", "message"),
        [
            ([1, 1], [0.1, 0.2], r"y: got the classes \[1.0\], wanted both 0 and 1"),
            ([0, 2], [0.1, 0.2], r"y: got the classes \[0.0, 2.0\]"),
            ([0, 1], [0.1, np.nan], "score: got 1 NaN"),
            ([0, 1], [[0.1], [0.2]], r"score: got shape \(2, 1\), wanted \(2,\)"),
        ],
    )
    def test_auc_refuses(self, y, score, message):
        with pytest.raises(ValueError, match=message):
            metrics.auc(y, score)


class TestShapes:
    """A wrong shape, such as [N, 1] for [N], would broadcast to [N, N]."""

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda: metrics.rmse(np.zeros(3), np.zeros((3, 1))),
                r"mean: got shape \(3, 1\), wanted \(3,\)",
            ),
            (lambda: metrics.rmse(np.zeros((3, 1)), np.zeros(3)), r"y: got shape \(3, 1\)"),
            (lambda: metrics.rmse(np.zeros(3), 0.0), r"mean: got shape \(\), wanted \(3,\)"),
            (lambda: metrics.rmse([], []), r"y: got shape \(0,\), wanted \[N\] with N at least 1"),
            (
                lambda: metrics.mean_log_density(np.zeros((3, 2))),
                r"log_density: got shape \(3, 2\)",
            ),
            (
                lambda: metrics.interval_coverage(np.zeros(3), np.zeros((3, 1)), np.ones(3)),
                r"lower: got shape \(3, 1\), wanted \(3,\)",
            ),
            (
                lambda: metrics.interval_width(np.zeros(3), np.ones((3, 1))),
                r"upper: got shape \(3, 1\), wanted \(3,\)",
            ),
            (lambda: metrics.mean_and_standard_error([]), r"values: got shape \(0,\)"),
        ],
    )
    def test_are_exact(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


class TestStandardError:
    def test_by_hand(self):
        mean, error = metrics.mean_and_standard_error([1.0, 2.0, 3.0, 4.0])
        assert mean == 2.5
        assert error == pytest.approx(stats.sem([1.0, 2.0, 3.0, 4.0]))

    def test_of_one_value_is_nan(self):
        mean, error = metrics.mean_and_standard_error([2.0])
        assert mean == 2.0
        assert np.isnan(error)
