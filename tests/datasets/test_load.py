import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.data_samples import CSV, X, Y, message, says

from dgp_ppl import datasets
from dgp_ppl._errors import DataError
from dgp_ppl.datasets._load import load


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("DGP_PPL_DATA", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "energy.npz", X=X, y=Y, test_index=[[0, 1], [2, -1]])
    np.savez(tmp_path / "flags.npz", X=X, y=(Y > 1)[:, None])
    np.savez(tmp_path / "images.npz", x_train=X, x_test=X)
    monkeypatch.setenv("DGP_PPL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def csv(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


BUNDLED = ["diabetes", "breast_cancer", "iris", "wine", "digits", "step", "heteroscedastic"]


class TestBundled:
    @pytest.mark.parametrize("name", BUNDLED)
    def test_is_as_listed(self, name):
        (info,) = (info for info in datasets.names() if info.name == name)
        data = load(name)
        assert (data.name, data.task, data.source) == (info.name, info.task, info.source)
        assert data.x.shape == (info.rows, info.columns)
        assert data.x.dtype == np.float64
        assert len(data.x_names) == info.columns
        assert data.test_index is None
        assert np.isfinite(data.x).all()
        if data.task == "regression":
            assert data.y.dtype == np.float64
            assert np.isfinite(data.y).all()
        else:
            assert data.y.dtype == np.int64
            classes = np.unique(data.y)
            np.testing.assert_array_equal(classes, np.arange(len(classes)))
            assert (len(classes) == 2) == (data.task == "binary")
        again = load(name)
        np.testing.assert_array_equal(data.x, again.x)
        np.testing.assert_array_equal(data.y, again.y)

    def test_names_are_these(self):
        assert [info.name for info in datasets.names()] == BUNDLED

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

    def test_heteroscedastic_noise_grows(self):
        data = load("heteroscedastic")
        x = data.x[:, 0]
        standard = (data.y - np.sin(2 * np.pi * x)) / (0.05 + 0.225 * (x + 1))
        assert standard.std() == pytest.approx(1, rel=0.15)
        assert standard[x > 0].std() == pytest.approx(standard[x < 0].std(), rel=0.3)

    def test_options_that_do_not_apply_are_refused(self):
        assert load("diabetes", target="disease_progression").y_name == "disease_progression"
        says(message("diabetes", target="bmi"), "'diabetes'", "'bmi'", "'disease_progression'")
        says(message("step", split_key="folds"), "'step'", "'folds'", "only .npz files")

    def test_a_file_of_the_same_name_does_not_hide_it(self, tmp_path, monkeypatch):
        (tmp_path / "step").mkdir()
        monkeypatch.chdir(tmp_path)
        assert load("step").source.startswith("generated")


class TestImport:
    def test_leaves_the_slow_libraries_alone(self):
        code = (
            "import sys; before = set(sys.modules); import dgp_ppl.datasets._openml, "
            "dgp_ppl.datasets._csv, "
            "dgp_ppl.datasets._parquet, dgp_ppl.datasets; new = set(sys.modules) - before; "
            "datasets = dgp_ppl.datasets; datasets.names(); datasets.load('step'); "
            "sys.exit(sum(m in sys.modules for m in ('sklearn', 'pandas', 'pyarrow')))"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestNames:
    def test_unknown_without_a_folder(self):
        text = message("diabets")
        says(text, "'diabets'", "did you mean 'diabetes'?", "DGP_PPL_DATA is not set", ".csv")

    def test_unknown_with_a_folder(self, folder):
        text = message("enrgy")
        says(text, "did you mean 'uci/energy'?", repr(str(folder)), "has no 'enrgy.npz'")
        assert "did you mean" not in message("nothing-like-it")

    def test_unknown_with_a_folder_that_is_none(self, monkeypatch):
        monkeypatch.setenv("DGP_PPL_DATA", "/no/such\nfolder")
        says(message("energy"), r"'/no/such\nfolder', which is not a folder")
        with pytest.raises(DataError, match=r"DGP_PPL_DATA: .* is not a folder; set it"):
            datasets.names()

    @pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 5000, "../..", "~"])
    def test_strange_names(self, name, folder):
        message(name)

    def test_only_npz_files_have_splits(self, csv):
        says(message(csv(CSV), target="y", split_key="folds"), "'folds'", "only .npz files")
        path = csv("", "data.parquet")
        says(message(path, target="y", split_key="folds"), "'folds'", "only .npz files")

    def test_a_folder(self, tmp_path):
        says(message(str(tmp_path)), "a folder", "wanted a .csv, .parquet or .npz file")
        says(message(tmp_path), "not a file", "wanted a .csv, .parquet or .npz file")

    def test_another_kind_of_file(self, tmp_path):
        path = tmp_path / "data.xlsx"
        path.write_text("")
        says(message(str(path)), "data.xlsx", "wanted a .csv, .parquet or .npz file")
        says(message(path), "ends in '.xlsx'", "wanted .csv, .parquet or .npz")

    @pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
    def test_a_folder_with_the_ending_of_a_file(self, ending, tmp_path):
        (tmp_path / f"x.{ending}").mkdir()
        says(message(tmp_path / f"x.{ending}", target=None), "not a file")

    def test_a_missing_file(self, csv):
        csv(CSV, "energy.csv")
        path = csv(CSV).with_name("enrgy.csv")
        says(message(path), "no such file", "did you mean 'energy.csv'?", "check the path")
        says(message("/no/such/place/x.npz"), "'/no/such/place/x.npz': no such file;")
        says(message("a\0b.csv"), r"'a\x00b.csv': no such file")

    @pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
    def test_a_file_that_may_not_be_read(self, ending, tmp_path, monkeypatch):
        path = tmp_path / f"data.{ending}"
        path.touch()

        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        target = None if ending == "npz" else "y"
        says(message(path, target=target), f"data.{ending}", "Permission denied")

    def test_home_is_expanded(self, csv, monkeypatch):
        monkeypatch.setenv("HOME", str(csv(CSV).parent))
        assert load("~/data.csv", target="y").name == "data"


class TestFolder:
    def test_names_come_from_paths(self, folder):
        data = load("uci/energy")
        assert (data.name, data.task) == ("uci/energy", "regression")
        assert data.source == f"file {folder / 'uci' / 'energy.npz'}"
        np.testing.assert_array_equal(data.x, X)
        np.testing.assert_array_equal(data.y, Y)

    def test_are_listed_after_the_bundled_ones(self, folder):
        (folder / "broken.npz").write_bytes(b"PK\3\4 nothing")
        (folder / "a.npz").mkdir()
        np.savez(folder / "step.npz", X=X, y=Y)  # hidden by the bundled one
        np.savez(folder / "outputs.npz", X=X, y=X)
        np.savez(folder / "texts.npz", X=X.astype(str), y=Y)
        np.savez(folder / "objects.npz", X=X, y=Y.astype(object))
        listed = datasets.names()[7:]
        assert [(info.name, info.rows, info.columns, info.task) for info in listed] == [
            ("flags", 6, 2, "binary"),
            ("uci/energy", 6, 2, "regression"),
        ]
        assert listed[1].source == f"file {folder / 'uci' / 'energy.npz'}"

    def test_what_is_listed_loads_as_listed(self, folder):
        for info in datasets.names():
            data = load(info.name)
            assert (*data.x.shape, data.task) == (info.rows, info.columns, info.task)

    def test_without_inputs_and_targets_the_arrays_are_named(self, folder):
        says(message("images"), "'X' [N, D]", "'x_train', 'x_test'")
