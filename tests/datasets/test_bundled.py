import numpy as np
import pytest
from support.data_samples import refused

from dgp_ppl import datasets
from dgp_ppl.datasets import load


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("DGP_PPL_DATA", raising=False)


BUNDLED = [
    "diabetes", "breast_cancer", "iris", "wine", "digits", "step", "heteroscedastic", "robot_arm",
]  # fmt: skip


class TestBundled:
    def test_all_are_as_listed(self):
        listed = datasets.names()
        assert [info.name for info in listed] == BUNDLED
        for info in listed:
            data, again = load(info.name), load(info.name)
            assert (data.name, data.task, data.source) == (info.name, info.task, info.source)
            assert data.x.shape == (info.rows, info.columns)
            assert (data.x.dtype, len(data.x_names)) == (np.float64, info.columns)
            assert data.test_index is None
            assert np.isfinite(data.x).all()
            assert np.isfinite(data.y).all()
            assert data.y.dtype == (np.float64 if data.task == "regression" else np.int64)
            if data.task != "regression":
                classes = np.unique(data.y)
                np.testing.assert_array_equal(classes, np.arange(len(classes)))
                assert (len(classes) == 2) == (data.task == "binary")
            np.testing.assert_array_equal(data.x, again.x)
            np.testing.assert_array_equal(data.y, again.y)

    def test_diabetes_is_in_its_own_units(self):
        data = load("diabetes")
        assert data.x_names[0] == "age"
        assert data.x[0, 0] == 59
        assert (data.y.min(), data.y.max()) == (25, 346)

    def test_step_is_a_step_with_noise_of_a_twentieth(self):
        data = load("step")
        residual = data.y - (data.x[:, 0] > 0)
        assert abs(residual.mean()) < 0.02
        assert residual.std() == pytest.approx(0.05, rel=0.2)
        assert np.abs(data.x).max() <= 1

    def test_the_robot_arm_is_as_documented(self):
        """Its hand, added up link by link; noise of 5 % of the distance's standard deviation."""
        data = load("robot_arm")
        assert np.abs(data.x).max() <= 1.5
        lengths = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5]) / 4.5
        hand = sum(
            length * np.exp(1j * data.x[:, : j + 1].sum(axis=1)) for j, length in enumerate(lengths)
        )
        distance = np.abs(hand - (0.3 + 0.2j))
        residual = data.y - distance
        assert abs(residual.mean()) < 4.5 * residual.std() / np.sqrt(2000)
        assert residual.std() == pytest.approx(0.05 * distance.std(), rel=0.1)

    def test_heteroscedastic_noise_grows(self):
        data = load("heteroscedastic")
        x = data.x[:, 0]
        standard = (data.y - np.sin(2 * np.pi * x)) / (0.05 + 0.225 * (x + 1))
        assert standard.std() == pytest.approx(1, rel=0.15)
        assert standard[x > 0].std() == pytest.approx(standard[x < 0].std(), rel=0.3)

    def test_options_that_do_not_apply_are_refused(self):
        assert load("diabetes", target="disease_progression").y_name == "disease_progression"
        refused(
            (lambda: load("diabetes", target="bmi"), "'diabetes'", "'bmi'", "disease_progression")
        )

    def test_a_file_of_the_same_name_does_not_hide_it(self, tmp_path, monkeypatch):
        (tmp_path / "step").mkdir()
        monkeypatch.chdir(tmp_path)
        assert load("step").source.startswith("generated")
