import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.data_samples import CSV, X, Y, assert_words, message

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
        assert_words(
            text, "'diabets'", "did you mean 'diabetes'?", "DGP_PPL_DATA is not set", ".csv"
        )

    def test_unknown_with_a_folder(self, folder):
        text = message("enrgy")
        assert_words(text, "did you mean 'uci/energy'?", repr(str(folder)), "has no 'enrgy.npz'")
        assert "did you mean" not in message("nothing-like-it")

    def test_unknown_with_a_folder_that_is_none(self, monkeypatch):
        monkeypatch.setenv("DGP_PPL_DATA", "/no/such\nfolder")
        assert_words(message("energy"), r"'/no/such\nfolder', which is not a folder")
        with pytest.raises(DataError, match=r"DGP_PPL_DATA: .* is not a folder; set it"):
            datasets.names()

    @pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 5000, "../..", "~"])
    def test_strange_names(self, name, folder):
        message(name)

    def test_only_npz_files_have_splits(self, csv):
        assert_words(message(csv(CSV), target="y", split_key="folds"), "'folds'", "only .npz files")
        path = csv("", "data.parquet")
        assert_words(message(path, target="y", split_key="folds"), "'folds'", "only .npz files")

    def test_a_folder(self, tmp_path):
        assert_words(message(str(tmp_path)), "a folder", "wanted a .csv, .parquet or .npz file")
        assert_words(message(tmp_path), "not a file", "wanted a .csv, .parquet or .npz file")

    def test_another_kind_of_file(self, tmp_path):
        path = tmp_path / "data.xlsx"
        path.write_text("")
        assert_words(message(str(path)), "data.xlsx", "wanted a .csv, .parquet or .npz file")
        assert_words(message(path), "ends in '.xlsx'", "wanted .csv, .parquet or .npz")

    @pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
    def test_a_folder_with_the_ending_of_a_file(self, ending, tmp_path):
        (tmp_path / f"x.{ending}").mkdir()
        assert_words(message(tmp_path / f"x.{ending}", target=None), "not a file")

    def test_a_missing_file(self, csv):
        csv(CSV, "energy.csv")
        path = csv(CSV).with_name("enrgy.csv")
        assert_words(message(path), "no such file", "did you mean 'energy.csv'?", "check the path")
        assert_words(message("/no/such/place/x.npz"), "'/no/such/place/x.npz': no such file;")
        assert_words(message("a\0b.csv"), r"'a\x00b.csv': no such file")

    @pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
    def test_a_file_that_may_not_be_read(self, ending, tmp_path, monkeypatch):
        path = tmp_path / f"data.{ending}"
        path.touch()

        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        target = None if ending == "npz" else "y"
        assert_words(message(path, target=target), f"data.{ending}", "Permission denied")

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
        np.savez(folder / "step.npz", X=X, y=Y)  # the bundled data set takes precedence
        np.savez(folder / "outputs.npz", X=X, y=X)
        np.savez(folder / "texts.npz", X=X.astype(str), y=Y)
        np.savez(folder / "objects.npz", X=X, y=Y.astype(object))
        listed = datasets.names()[8:]
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
        assert_words(message("images"), "'X' [N, D]", "'x_train', 'x_test'")
