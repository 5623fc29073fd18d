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

    def test_they_are_as_documented(self, tmp_path, monkeypatch):
        """A folder of the same name does not hide them."""
        (tmp_path / "step").mkdir()
        monkeypatch.chdir(tmp_path)
        data = load("diabetes", target="disease_progression")
        assert (data.x[0, 0], data.y.min(), data.y.max()) == (59, 25, 346)  # in their own units
        data = load("step")
        assert (data.y - (data.x[:, 0] > 0)).std() == pytest.approx(0.05, rel=0.2)
        data = load("heteroscedastic")
        x = data.x[:, 0]
        noise = (data.y - np.sin(2 * np.pi * x)) / (0.05 + 0.225 * (x + 1))
        assert noise.std() == pytest.approx(1, rel=0.15)
        assert noise[x > 0].std() == pytest.approx(noise[x < 0].std(), rel=0.3)
        refused((lambda: load("diabetes", target="bmi"), "'bmi'", "disease_progression"))

    def test_the_robot_arm_is_as_documented(self):
        """Its hand, added up link by link; noise of 5 % of the distance's standard deviation."""
        data = load("robot_arm")
        lengths = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5]) / 4.5
        hand = sum(
            length * np.exp(1j * data.x[:, : j + 1].sum(axis=1)) for j, length in enumerate(lengths)
        )
        distance = np.abs(hand - (0.3 + 0.2j))
        residual = data.y - distance
        assert abs(residual.mean()) < 4.5 * residual.std() / np.sqrt(2000)
        assert residual.std() == pytest.approx(0.05 * distance.std(), rel=0.1)
