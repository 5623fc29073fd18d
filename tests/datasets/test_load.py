"""`load` and `names`: names, files, frames, and what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.data_samples import CSV, X, Y, refused

from dgp_ppl.datasets import load
from dgp_ppl.datasets._load import named_files


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("DGP_PPL_DATA", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "energy.npz", X=X, y=Y, test_index=[[0, 1], [2, -1]])
    np.savez(tmp_path / "flags.npz", X=X, y=(Y > 1)[:, None])
    monkeypatch.setenv("DGP_PPL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def csv(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


class TestFiles:
    def test_columns_of_csv_parquet_and_frames(self, csv, tmp_path):
        frame = pd.read_csv(csv(CSV))
        frame.to_parquet(tmp_path / "data.parquet")
        frames = (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame))
        for source in (csv(CSV), str(csv(CSV, "data.CSV")), tmp_path / "data.parquet", *frames):
            data = load(source, target="b")
            np.testing.assert_array_equal(data.x, [[1, 0.5], [2, 1.5], [3, 2.5]])
            np.testing.assert_array_equal(data.y, [2, 1, 0])
            assert (data.x.dtype, data.y.dtype) == (np.float64, np.float64)
            assert (data.x_names, data.y_name) == (("a", "y"), "b")
            assert (data.task, data.test_index) == ("regression", None)
            assert data.name == ("data" if isinstance(source, str | Path) else "table")
        assert load(csv(CSV), target="b").source == f"file {csv(CSV)}"

    def test_tables_that_are_refused(self, csv):
        def read(text, target="y"):
            return lambda: load(csv(text), target=target)

        def frame(a, y=(1, 2, 3)):
            return lambda: load(pa.table({"a": a, "y": y}), target="y")

        refused(
            (read(CSV, None), "the column to predict", "--target", "'a', 'b', 'y'"),
            (read("Price,Rooms\n1,2\n", "price"), "no column 'price' (did you mean 'Price'?)"),
            (read("a,b\n1,2\n"), "no column 'y'; the columns are 'a', 'b'"),
            (read("1,2\n3,4\n5,6\n"), "is the header missing?"),
            (read("y\n1\n2\n3\n"), "'y' is the only column", "at least one input column"),
            (read("a,b,y\n1,2,3\n2,3,4\n"), "2 rows of data", "at least 3"),
            (read("a,b,y\n1,2,3\n2,1,3\n3,0,3\n"), "target 'y' is 3 in every row"),
            (read(CSV + "\n4,red,6\n5,blue,7\n"), "'b': 'red' in line 6", "2 such cells"),
            (read(CSV + "4,5,red\n"), "'y': 'red' in line 5"),
            (read(CSV + '"1\n2",5,6\n'), r"'1\n2' in line 6"),
            (read(CSV + "1\0,5,6\n"), r"'1\x00' in line 5"),
            (read(CSV + "4,,6\n,NA,7\n"), "'a': nan in line 6 is missing (1 such"),
            (read(CSV + "1e400,5,6\n"), "'a': inf in line 5 is infinite", "float32"),
            (frame(["u", "v", "w"]), "pyarrow Table", "'a': 'u' in row 0"),
            (frame([True, False, True]), "'a' holds categories or booleans", "Preprocessor"),
            (frame([1.0, None, None]), "'a': nan in row 1 (from 0) is missing", "(2 such cells)"),
            (frame([1, 2, 3], [1, None, 3]), "the target 'y': nan in row 1 (from 0) is missing"),
        )
        with pytest.warns(UserWarning, match="'y': 2 of 4 cells are numbers, such as '1' in row 0"):
            frame([1, 2, 3, 4], ["1", "red"] * 2)()
        assert load(csv("0,1\n3,4\n5,6\n7,8\n"), target="1").y_name == "1"
        assert load(csv("a,y\n1e20,0\n2.5e30,1\n3,0\n"), target="y").x[1, 0] == 2.5e30

    def test_files_that_are_not_there(self, csv, tmp_path, monkeypatch):
        csv(CSV, "energy.csv")
        (tmp_path / "data.xlsx").write_text("")
        names = "wanted a .csv, .parquet or .npz file"
        refused(
            (lambda: load(str(tmp_path)), "a folder", names, "Rows.from_parquet"),
            (lambda: load(tmp_path), "not a file"),
            (lambda: load(str(tmp_path / "data.xlsx")), "a file of another kind", names),
            (lambda: load(tmp_path / "data.xlsx"), "ends in '.xlsx'"),
            (lambda: load(tmp_path / "enrgy.csv"), "no such file (did you mean 'energy.csv'"),
            (lambda: load("/no/such/place/x.npz"), "'/no/such/place/x.npz': no such file;"),
            (lambda: load("a\0b.csv"), r"'a\x00b.csv': no such file"),
        )
        for ending in ("csv", "npz", "parquet"):
            (tmp_path / f"x.{ending}").mkdir()
            refused((lambda e=ending: load(tmp_path / f"x.{e}"), "not a file"))
            path = csv("", f"data.{ending}")
            target = None if ending == "npz" else "y"
            with monkeypatch.context() as patch:
                patch.setattr(Path, "open", _refuse)
                refused((lambda p=path, t=target: load(p, target=t), "Permission denied"))

    def test_only_npz_files_have_splits(self, csv):
        for source in (csv(CSV), csv("", "data.parquet"), "step", pa.table({"a": [1]})):
            refused((lambda s=source: load(s, split_key="folds"), "'folds'", "only .npz files"))


def _refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


class TestNames:
    def test_unknown_names(self, folder, monkeypatch):
        refused(
            (lambda: load("enrgy"), "mean 'uci/energy'?", repr(str(folder)), "no 'enrgy.npz'"),
            (lambda: load("diabets"), "did you mean 'diabetes'?", ".npz file"),
            *[(lambda n=n: load(n),) for n in ("", "a\nb", "a\0b", "x" * 500, "../..", "~")],
        )
        monkeypatch.setenv("DGP_PPL_DATA", "/no/such\nfolder")
        refused((lambda: load("energy"), r"'/no/such\nfolder', which is not a folder"))
        monkeypatch.delenv("DGP_PPL_DATA")
        refused((lambda: load("enrgy"), "DGP_PPL_DATA is not set"))

    def test_names_come_from_paths(self, folder):
        data = load("uci/energy")
        assert (data.name, data.task) == ("uci/energy", "regression")
        assert data.source == f"file {folder / 'uci' / 'energy.npz'}"
        np.testing.assert_array_equal(data.x, X)
        np.testing.assert_array_equal(data.y, Y)

    def test_files_of_the_folder_are_listed(self, folder):
        (folder / "a.npz").mkdir()
        assert named_files() == ["flags", "uci/energy"]
        assert load("flags").task == "binary"
