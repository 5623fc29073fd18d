import subprocess
import sys
import urllib.error
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from dgp_ppl import _read_csv, datasets
from dgp_ppl._errors import DataError
from dgp_ppl.datasets import load

CSV = "a,b,y\n1,2,0.5\n2,1,1.5\n3,0,2.5\n"
X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0) / 2


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


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **({"X": X, "y": Y} | arrays))
        return path

    return write


@pytest.fixture
def parquet(tmp_path):
    def write(columns, **options):
        path = tmp_path / "data.parquet"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, **options)
        return path

    return write


def message(name, **options):
    """The error's text, which is one line, and not a long one."""
    with pytest.raises(DataError) as caught:
        load(name, **options)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 700
    return text


def says(text, *words):
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


class TestBundled:
    @pytest.mark.parametrize("info", datasets.names(), ids=lambda info: info.name)
    def test_is_as_listed(self, info):
        data = load(info.name)
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
        again = load(info.name)
        np.testing.assert_array_equal(data.x, again.x)
        np.testing.assert_array_equal(data.y, again.y)

    def test_names_are_these(self):
        names = [info.name for info in datasets.names()]
        assert names == [
            "diabetes",
            "breast_cancer",
            "iris",
            "wine",
            "digits",
            "step",
            "heteroscedastic",
        ]

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
            "import sys; before = set(sys.modules); import dgp_ppl._openml, dgp_ppl._read_csv, "
            "dgp_ppl._read_parquet, dgp_ppl.datasets; new = set(sys.modules) - before; "
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


class TestNpz:
    def test_whole_number_classes(self, npz):
        for y in (np.array([0, 1, 1, 0, 1, 0], np.uint8), np.array([0, 1, 1, 0, 1, 0]) > 0):
            data = load(npz(y=y))
            assert (data.task, data.y.dtype) == ("binary", np.int64)
            np.testing.assert_array_equal(data.y, [0, 1, 1, 0, 1, 0])

    @pytest.mark.parametrize("y", [[0.0, 1, 1, 0, 1, 0], [0, 1, 2, 0, 1, 0], [-1, 1, 1, 1, 1, -1]])
    def test_else_regression(self, npz, y):
        data = load(npz(y=np.array(y)))
        assert (data.task, data.y.dtype) == ("regression", np.float64)

    def test_a_column_of_targets(self, npz):
        assert load(npz(y=Y[:, None])).y.shape == (6,)

    @pytest.mark.parametrize("kind", ["f2", ">f4", "g", "u1", "i8", "?"])
    def test_all_real_types(self, npz, kind):
        assert load(npz(X=X.astype(kind))).x.dtype == np.dtype(np.float64)

    def test_input_names(self, npz):
        assert load(npz()).x_names == ("x0", "x1")
        assert load(npz(columns=["a", "b"])).x_names == ("a", "b")
        for unfit in (["a"], np.array([1, 2]), np.array(["a", 1], object), np.array("ab")):
            assert load(npz(columns=unfit)).x_names == ("x0", "x1")

    def test_constant_inputs_are_fine(self, npz):
        assert load(npz(X=np.ones((6, 2)))).x.shape == (6, 2)

    def test_target(self, npz):
        assert load(npz(), target="y").y_name == "y"
        says(message(npz(), target="x0"), "data.npz", "'x0'", "array 'y'", "leave the target out")

    @pytest.mark.parametrize(
        ("arrays", "words"),
        [
            ({"X": X[:, 0]}, ["'X' has shape (6,)", "[N, D]", "X[:, None]"]),
            ({"X": X[None]}, ["'X' has shape (1, 6, 2)", "[N, D]"]),
            ({"X": X[:, :0]}, ["no input columns"]),
            ({"y": X}, ["'y' has shape (6, 2)", "several outputs", "one column"]),
            ({"y": X[None]}, ["'y' has shape (1, 6, 2)", "[N] or [N, 1]"]),
            ({"y": np.float64(1)}, ["'y' has shape ()", "[N] or [N, 1]"]),
            ({"y": Y[:5]}, ["'X' has 6 rows and 'y' has 5"]),
            ({"X": X[:2], "y": Y[:2]}, ["2 rows of data", "at least 3"]),
            ({"X": X[:1], "y": Y[:1]}, ["1 row of data", "at least 3"]),
            ({"X": X[:0], "y": Y[:0]}, ["0 rows of data", "at least 3"]),
            ({"y": np.full(6, 2.5)}, ["target 'y' is 2.5 in every row"]),
            ({"X": X.astype(object)}, ["'X' holds Python objects", "X.astype(float)"]),
            ({"y": Y.astype(object)}, ["'y' holds Python objects", "y.astype(float)"]),
            ({"X": X + 1j}, ["'X' is of type 'complex128'", "real numbers"]),
            ({"y": Y.astype(str)}, ["'y' is of type '<U", "real numbers"]),
            ({"X": X.astype("datetime64[s]")}, ["'X' is of type 'datetime64[s]'"]),
            ({"X": np.where(X == 5, np.nan, X)}, ["1 value missing", "nan", "'x1', row 2", "drop"]),
            ({"X": np.where(X > 8, np.inf, X)}, ["3 values in 2 columns", "inf", "'x1', row 4"]),
            ({"y": np.where(Y == 1, -np.inf, Y)}, ["1 value", "-inf", "column 'y', row 2"]),
            ({"X": np.where(X == 5, 1e39, X)}, ["1e+39", "'x1', row 2", "float32", "rescale"]),
            ({"y": np.where(Y == 1, -1e39, Y)}, ["-1e+39", "'y', row 2", "float32"]),
            ({"X": X.astype("g") * np.longdouble("1e4000")}, ["float32"]),
            ({"X": X.astype(int) + 2**53}, [str(2**53 + 1), "'x1', row 0", "2^53", "identifier"]),
            ({"X": X.astype("u8") + 2**63}, [str(2**63), "'x0', row 0", "2^53"]),
            ({"y": -np.arange(6) - 2**53 + 3}, [str(-(2**53) - 1), "'y', row 4", "2^53"]),
        ],
    )
    def test_bad_arrays(self, npz, arrays, words):
        says(message(npz(**arrays)), "data.npz", *words)

    def test_damaged_files(self, npz):
        path = npz()
        whole = path.read_bytes()
        says(message(path.with_name("x.npz")), "no such file")
        for damaged in (b"", b"nonsense", whole[:100], whole[:-30]):
            path.write_bytes(damaged)
            says(message(path), "data.npz", "not a readable .npz file", "write it again")
        path.write_bytes(whole.replace(X[3].tobytes(), b"?" * 16))
        says(message(path), "'X' cannot be read", "write the file again")

    def test_a_single_array(self, npz):
        path = npz()
        with path.open("wb") as stream:
            np.save(stream, X)
        says(message(path), "a single array", "wanted an .npz file with 'X' and 'y'")

    @pytest.mark.parametrize(
        "header",
        [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 3), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 3), }",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 3), }",
            "{'descr': 3, 'fortran_order': False, 'shape': (3, 3), }",
            "{'descr': '<f8', 'fortran_order': ((((",
            "",
        ],
    )
    def test_false_headers(self, npz, header):
        path = npz()
        text = header.encode() + b"\n"
        start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", start + text)
            archive.writestr("y.npy", start + text)
        message(path)

    def test_no_array_at_all(self, npz):
        path = npz()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X", "text")
        says(message(path), "'X' [N, D]")


class TestSplits:
    def test_padding_is_taken_out(self, npz):
        for kind in (np.int32, np.int64, np.int8):
            data = load(npz(test_index=np.array([[4, 1, -1], [0, -1, -1]], kind)))
            assert data.test_index is not None
            assert [split.tolist() for split in data.test_index] == [[4, 1], [0]]
            assert data.test_index[0].dtype == np.int64

    def test_a_vector_is_one_split(self, npz):
        data = load(npz(test_index=np.array([1, 3], np.uint64)))
        assert data.test_index is not None
        assert [split.tolist() for split in data.test_index] == [[1, 3]]

    def test_another_key(self, npz):
        path = npz(test_index=[[0]], folds=[[1], [2]], nothing=[[77]], words=["a"])
        data = load(path, split_key="folds")
        assert data.test_index is not None
        assert [split.tolist() for split in data.test_index] == [[1], [2]]
        text = message(path, split_key="fold")
        says(text, "no splits 'fold'", "did you mean 'folds'?", "'test_index', 'folds': choose")
        assert "nothing" not in text

    def test_another_key_where_there_are_none(self, npz):
        assert load(npz()).test_index is None
        says(message(npz(), split_key="folds"), "no splits 'folds'", "it has none")

    def test_only_npz_files_have_them(self, csv, parquet):
        path = parquet({"a": X[:, 0], "y": Y})
        for file in (csv(CSV), path):
            says(message(file, target="y", split_key="folds"), "'folds'", "only .npz files")

    @pytest.mark.parametrize(
        ("index", "words"),
        [
            ([[0, 6]], ["split 0", "row number 6", "0 to 5"]),
            ([[0, 1], [0, -2]], ["split 1", "row number -2", "0 to 5"]),
            (np.array([[2**64 - 1]], np.uint64), ["split 0", str(2**64 - 1)]),
            ([[0, 1], [3, 3]], ["split 1", "row number 3 comes more than once"]),
            ([[0, 1], [-1, -1]], ["split 1", "no test rows"]),
            ([[0, 1, 2, 3, 4, 5]], ["6 of 6 rows", "leave 0 to train on", "at least 2"]),
            ([[0, 1, 2, 3, 4]], ["5 of 6 rows", "leave 1 to train on"]),
            ([[0.0, 1.0]], ["of type float64", "row numbers"]),
            ([[True, False]], ["of type bool"]),
            (np.zeros((0, 3), int), ["shape (0, 3)"]),
            (np.zeros((1, 1, 1), int), ["shape (1, 1, 1)", "[splits, n]"]),
            (np.array([[1], [1, 2]], object), ["'test_index' holds Python objects"]),
        ],
    )
    def test_bad_splits(self, npz, index, words):
        says(message(npz(test_index=index)), "data.npz", "'test_index'", *words)

    def test_the_files_own_come_first(self, npz):
        data = load(npz(test_index=[[4, 1], [0, -1]]))
        (train, test), (second_train, second) = datasets.splits(data, 2, seed=5)
        assert (train.tolist(), test.tolist()) == ([0, 2, 3, 5], [4, 1])
        assert (second_train.tolist(), second.tolist()) == ([1, 2, 3, 4, 5], [0])
        assert len(datasets.splits(data, 1, seed=0)) == 1

    def test_no_more_than_the_file_has(self, npz):
        data = load(npz(test_index=[[4, 1], [0, -1]]))
        with pytest.raises(DataError, match="'data': 3 splits were asked for, and it has 2; ask"):
            datasets.splits(data, 3, seed=0)

    @pytest.mark.parametrize(("rows", "tests"), [(3, 1), (9, 1), (10, 1), (11, 2), (442, 45)])
    def test_random_ones_test_on_a_tenth_rounded_up(self, npz, rows, tests):
        data = load(npz(X=np.ones((rows, 1)), y=np.arange(rows, dtype=float)))
        for train, test in datasets.splits(data, 3, seed=1):
            assert len(test) == tests
            assert sorted([*train, *test]) == list(range(rows))
            assert train.dtype == test.dtype == np.int64

    def test_random_ones_depend_on_seed_and_split_alone(self):
        data = load("diabetes")
        first = datasets.splits(data, 3, seed=1)
        again = datasets.splits(data, 5, seed=1)
        for (_, test), (_, same) in zip(first, again, strict=False):
            np.testing.assert_array_equal(test, same)
        tests = [tuple(test) for _, test in again + datasets.splits(data, 5, seed=2)]
        assert len(set(tests)) == 10

    def test_random_ones_reach_every_row(self):
        data = load("step")
        seen = np.concatenate([test for _, test in datasets.splits(data, 100, seed=0)])
        np.testing.assert_array_equal(np.unique(seen), np.arange(100))

    def test_arguments(self):
        with pytest.raises(ValueError, match="num_splits: got 0, wanted at least 1"):
            datasets.splits(load("step"), 0, seed=0)
        with pytest.raises(ValueError, match="seed: got -1, wanted at least 0"):
            datasets.splits(load("step"), 1, seed=-1)


class TestCsv:
    def test_columns(self, csv):
        data = load(csv(CSV), target="b")
        np.testing.assert_array_equal(data.x, [[1, 0.5], [2, 1.5], [3, 2.5]])
        np.testing.assert_array_equal(data.y, [2, 1, 0])
        assert (data.name, data.x_names, data.y_name) == ("data", ("a", "y"), "b")
        assert (data.task, data.test_index) == ("regression", None)
        assert data.source == f"file {csv(CSV)}"

    @pytest.mark.parametrize(
        "text",
        [
            "\ufeff" + CSV,
            CSV.replace("\n", "\r\n"),
            CSV.replace("\n", "\r"),
            "\n\n" + CSV.replace("\n", "\n\n"),
            CSV.rstrip("\n"),
            CSV.replace(",", " , "),
            '"a","b","y"\n"1","2","0.5"\n"2",1,1.5\n3,0,2.5\n',
            CSV.replace("1.5", "+15e-1"),
        ],
        ids=["excel", "crlf", "cr", "blank", "open", "spaces", "quotes", "exponent"],
    )
    @pytest.mark.parametrize("fast", [True, False])
    def test_ways_to_write_the_same(self, csv, text, fast, monkeypatch):
        if not fast:
            monkeypatch.setattr(_read_csv, "_read_fast", lambda *_: None)
        data = load(csv(text), target="y")
        np.testing.assert_array_equal(data.x, [[1, 2], [2, 1], [3, 0]])
        np.testing.assert_array_equal(data.y, [0.5, 1.5, 2.5])
        assert data.x_names == ("a", "b")

    @pytest.mark.parametrize(
        "text",
        [CSV, "\ufeff" + CSV, CSV.replace("\n", "\r\n"), '\n"a\nb"' + CSV[1:] + "\n\n"],
        ids=["plain", "excel", "crlf", "quoted header"],
    )
    def test_clean_files_go_the_fast_way(self, csv, text, monkeypatch):
        monkeypatch.delattr(_read_csv, "_read_careful")
        np.testing.assert_array_equal(load(csv(text), target="y").y, [0.5, 1.5, 2.5])

    def test_names_with_line_breaks_and_commas(self, csv):
        data = load(csv('"a\nb","c,d",y\n1,2,0.5\n2,1,1.5\n3,0,2.5\n'), target="y")
        assert data.x_names == ("a\nb", "c,d")
        np.testing.assert_array_equal(data.y, [0.5, 1.5, 2.5])

    def test_the_ending_in_capitals(self, csv):
        assert load(str(csv(CSV, "DATA.CSV")), target="y").name == "DATA"

    def test_every_digit_is_read(self, csv):
        values = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-30, 31, 30)
        lines = "".join(",".join(map(repr, row)) + "\n" for row in values.tolist())
        data = load(csv("a,b,y\n" + lines), target="y")
        np.testing.assert_array_equal(np.column_stack([data.x, data.y]), values)

    def test_large_numbers_that_are_not_whole_go_the_careful_way(self, csv):
        data = load(csv("a,y\n1e20,0\n2.5e30,1\n3,0\n"), target="y")
        np.testing.assert_array_equal(data.x[:, 0], [1e20, 2.5e30, 3])
        assert data.task == "binary"
        assert load(csv("a,y\n1e20,0\n2,1.0\n3,0\n"), target="y").task == "regression"
        assert load(csv(f"a,y\n{2**53},0\n2,1.0\n3,0\n"), target="y").x[0, 0] == 2**53

    def test_zeros_and_ones_are_classes(self, csv):
        data = load(csv("a,y\n1,0\n2,1\n3,1\n"), target="y")
        assert (data.task, data.y.dtype) == ("binary", np.int64)
        assert load(csv("a,y\n1,0\n2,1\n3,1.0\n"), target="y").task == "regression"
        assert load(csv("a,y\n1,0\n2,1\n3,2\n"), target="y").task == "regression"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ["file is empty"]),
            ("\n\n", ["file is empty"]),
            ("a,b,y\n", ["a header and no rows"]),
            ("a,b,y\n1,2,3\n", ["1 row of data", "at least 3"]),
            ("a,b,y\n1,2,3\n2,3,4\n", ["2 rows of data", "at least 3"]),
            ("y\n1\n2\n3\n", ["'y' is the only column", "at least one input column"]),
            ("a,b,y\n1,2,3\n2,1,3\n3,0,3\n", ["target 'y' is 3 in every row"]),
            ("a,a,y\n1,2,3\n", ["'a' comes more than once", "rename"]),
            ("a, a ,y\n1,2,3\n", ["'a' comes more than once"]),
            (",a,y\n0,1,2\n", ["column 1 of 3 has no name", "index=False"]),
            ("a, ,y\n0,1,2\n", ["column 2 of 3 has no name"]),
            ("a;b;y\n1;2;3\n", ["'a;b;y' has no commas", "';'", "with commas"]),
            ("a\tb\ty\n1\t2\t3\n", [r"'a\tb\ty' has no commas", r"'\t'"]),
            (CSV + "4,5\n", ["line 5 has 2 fields", "wanted 3"]),
            (CSV + "4,5,6,7\n" + "1\n", ["line 5 has 4 fields", "wanted 3"]),
            (CSV + "7\n", ["line 5 has 1 field,", "wanted 3"]),
            (CSV + "\n4,red,6\n5,blue,7\n", ["2 cells not a number", "'red'", "'b', line 6"]),
            (CSV + "4,5,red\n", ["1 cell not a number", "'red'", "column 'y', line 5", "encode"]),
            (CSV + "True,x,1\nFalse,y,2\n", ["4 cells", "'True'", "'a', line 5 (and in 'b')"]),
            (CSV + "1_000,5,6\n", ["'1_000'", "'a', line 5"]),
            (CSV + '"1,000",5,6\n', ["'1,000'", "'a', line 5"]),
            (CSV + "0x10,5,6\n", ["'0x10'"]),
            (CSV + '"1\n2",5,6\n', [r"'1\n2'", "line 6"]),
            (CSV + "1\0,5,6\n", [r"'1\x00'", "line 5"]),
            (CSV + f"{'9' * 500},5,6\n", ["'9999", "...", "line 5"]),
            (CSV + "4,,6\n,NA,7\n", ["3 cells missing", "''", "'b', line 5 (and in 'a')", "drop"]),
            (CSV + "4,nan,6\n", ["1 cell missing", "'nan'", "'b', line 5"]),
            (CSV + "?,5,6\n", ["1 cell missing", "'?'", "'a', line 5"]),
            (CSV + ",,\n", ["3 cells missing", "line 5"]),
            (CSV + "-inf,5,6\n", ["1 cell infinite", "'-inf'", "'a', line 5"]),
            (CSV + "1e400,5,6\n", ["1 cell beyond the range of float32", "'1e400'", "rescale"]),
            (CSV + "4,5,-1e39\n", ["1 cell beyond the range of float32", "'-1e39'", "'y', line 5"]),
            (CSV + f"{2**53 + 1},5,6\n", [str(2**53 + 1), "2^53", "'a', line 5", "identifier"]),
            (CSV + f"-{2**64},5,6\n", [str(-(2**64)), "2^53", "'a', line 5"]),
            (CSV + '4,"5,6\n', ["line 5 is not valid CSV", "quotes"]),
            (CSV + '4,"5"6,6\n', ["line 5 is not valid CSV", "quotes"]),
            (CSV.encode() + b"4,\xe9,6\n", ["line 5 is not UTF-8", "CSV UTF-8"]),
            (CSV.replace("a", "\xe9").encode("latin-1"), ["line 1 is not UTF-8"]),
            (CSV.encode("utf-16"), ["line 1 is not UTF-8"]),
        ],
    )
    def test_bad_files(self, csv, text, words):
        says(message(csv(text), target="y"), "data.csv", *words)

    def test_the_target_must_be_named(self, csv):
        says(message(csv(CSV)), "which column", "--target", "'a', 'b', 'y'")

    def test_no_such_target(self, csv):
        path = csv("Price,Rooms\n1,2\n")
        says(message(path, target="price"), "no column 'price'", "did you mean 'Price'?", "'Rooms'")
        says(message(path, target="zzz"), "no column 'zzz'; the columns are 'Price', 'Rooms'")
        wide = csv(",".join(f"c{i}" for i in range(100)) + "\n" + ",".join("1" * 100) + "\n")
        says(message(wide, target="zzz"), "'c11', ... (100 in all)")

    def test_a_missing_header(self, csv):
        says(message(csv("1,2\n3,4\n5,6\n"), target="y"), "is the header missing?")
        assert load(csv("0,1\n3,4\n5,6\n7,8\n"), target="1").y_name == "1"

    def test_a_late_fault_in_a_long_file(self, csv):
        lines = ["a,b,y", *(f"{i},{i % 7},{i % 5}" for i in range(120_000))]
        lines[100_000] = "1,,2"
        says(message(csv("\n".join(lines)), target="y"), "1 cell missing", "'b', line 100001")


class TestParquet:
    def test_columns(self, parquet):
        data = load(parquet({"a": [1, 2, 3], "b": X[:3, 1].astype("f4"), "y": Y[:3]}), target="y")
        np.testing.assert_array_equal(data.x, np.column_stack([[1, 2, 3], X[:3, 1]]))
        np.testing.assert_array_equal(data.y, Y[:3])
        assert (data.x_names, data.y_name, data.task) == (("a", "b"), "y", "regression")

    @pytest.mark.parametrize(
        "kind",
        [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(5, 1)],
        ids=str,
    )
    def test_all_kinds_of_numbers(self, parquet, kind):
        column = pa.array([1.0, 2.0, 3.0], pa.float64())
        if pa.types.is_decimal(kind):
            column = pa.array([1, 2, 3]).cast(pa.decimal128(20, 1)).cast(kind)
        elif kind == pa.float16():
            column = pa.array(np.array([1, 2, 3], np.float16))
        else:
            column = column.cast(kind)
        data = load(parquet({"a": column, "y": [0, 1, 0]}), target="y")
        np.testing.assert_array_equal(data.x[:, 0], [1, 2, 3])
        assert (data.task, data.y.dtype) == ("binary", np.int64)

    def test_the_index_of_pandas_is_no_input(self, tmp_path):
        frame = pd.DataFrame({"a": [1.0, 2, 3], "y": [1.0, 3, 2]}, index=[5, 6, 8])
        frame.to_parquet(tmp_path / "f.parquet")
        assert load(tmp_path / "f.parquet", target="y").x_names == ("a",)
        frame.rename_axis("id").to_parquet(tmp_path / "f.parquet")
        assert load(tmp_path / "f.parquet", target="y").x_names == ("a",)
        assert load(tmp_path / "f.parquet", target="id").x_names == ("a", "y")

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"a": ["u", "v", "w"], "y": [1, 2, 3]}, ["'a' is of type 'string'", "'u' in row 0"]),
            ({"a": [True, False, True], "y": [1, 2, 3]}, ["'a' is of type 'bool'", "encode"]),
            ({"a": [[1], [2], [3]], "y": [1, 2, 3]}, ["'a' is of type 'list<"]),
            ({"a": pa.array(["u"] * 3).dictionary_encode(), "y": [1, 2, 3]}, ["'dictionary<"]),
            ({"a": [None, None, None], "y": [1, 2, 3]}, ["'a' is of type 'null'"]),
            ({"a": [1, None, 3], "y": [1, 2, 3]}, ["1 value missing", "'a', row 1"]),
            ({"a": [1.0, 2.0, float("nan")], "y": [1, 2, 3]}, ["1 value missing", "'a', row 2"]),
            ({"a": [1.0, 2, 3], "y": [1, 2, float("inf")]}, ["1 value", "inf", "'y', row 2"]),
            ({"a": [1.0, 1e39, 3], "y": [1, 2, 3]}, ["float32", "'a', row 1"]),
            ({"a": [1, 2, 2**53 + 1], "y": [1, 2, 3]}, ["2^53", "'a', row 2"]),
            ({"a": [1.0, 2], "y": [1, 2]}, ["2 rows of data", "at least 3"]),
            ({"a": pa.array([], pa.float64()), "y": pa.array([], pa.int8())}, ["0 rows of data"]),
            ({"a": pa.array([], pa.string()), "y": pa.array([], pa.int8())}, ["type 'string'"]),
            ({"a": [1, 2, 3], "y": [4, 4, 4]}, ["target 'y' is 4 in every row"]),
            ({"y": [1, 2, 3]}, ["'y' is the only column"]),
            ({"": [1, 2, 3], "y": [1, 2, 3]}, ["column 1 of 2 has no name"]),
            ({"a": [1, 2, 3], "b": [1, 2, 3]}, ["no column 'y'", "'a', 'b'"]),
        ],
    )
    def test_bad_columns(self, parquet, columns, words):
        says(message(parquet(columns), target="y"), "data.parquet", *words)

    def test_repeated_names(self, parquet):
        table = pa.table([pa.array([1, 2, 3])] * 3, names=["a", "a", "y"])
        says(message(parquet(table), target="y"), "'a' comes more than once")

    def test_the_target_must_be_named(self, parquet):
        says(message(parquet({"a": [1, 2], "y": [1, 2]})), "which column", "'a', 'y'")

    def test_damaged_files(self, parquet):
        path = parquet({"a": X[:, 0], "y": Y})
        whole = path.read_bytes()
        for damaged in (b"", b"nonsense", whole[:50], whole[:-20]):
            path.write_bytes(damaged)
            says(message(path, target="y"), "not a readable .parquet file", "write it again")


class TestOpenML:
    @pytest.fixture
    def fetched(self, monkeypatch):
        """Stands in for the network: what was asked for, and what to answer."""
        asked, answers = [], []

        def fetch(**which):
            asked.append(which)
            if isinstance(answers[0], Exception):
                raise answers[0]
            return answers[0]

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        return asked, answers

    @staticmethod
    def bunch(target, **columns):
        frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1, 2, 3, 4]} | columns)
        return Bunch(data=frame, target=target, url="https://www.openml.org/d/61")

    @pytest.mark.parametrize(
        ("text", "target", "which"),
        [
            ("openml:boston", None, {"name": "boston"}),
            ("openml:boston:2", None, {"name": "boston", "version": 2}),
            ("openml:531", None, {"data_id": 531}),
            ("openml:2dplanes", "y", {"name": "2dplanes", "target_column": "y"}),
        ],
    )
    def test_what_is_asked_for(self, fetched, text, target, which):
        asked, answers = fetched
        answers.append(self.bunch(pd.Series([1.0, 2, 3, 5], name="y")))
        data = load(text, target=target)
        assert asked == [which | {"as_frame": True, "n_retries": 1}]
        assert (data.name, data.task, data.y_name) == (text, "regression", "y")
        assert data.source == "openml.org, https://www.openml.org/d/61"
        np.testing.assert_array_equal(data.x, [[1, 1], [2, 2], [3, 3], [4, 4]])

    @pytest.mark.parametrize("kind", ["category", object, "str"])
    def test_labels_become_classes(self, fetched, kind):
        fetched[1].append(self.bunch(pd.Series(["v", "u", "v", "w"], dtype=kind, name="c")))
        data = load("openml:x")
        assert (data.task, data.y.tolist(), data.y.dtype) == ("multiclass", [1, 0, 1, 2], np.int64)
        fetched[1][0] = self.bunch(pd.Series(["v", "u", "v", "u"], dtype=kind, name="c"))
        assert load("openml:x").task == "binary"

    @pytest.mark.parametrize(
        "text", ["openml:", "openml::", "openml:x:", "openml:x:new", "openml:x:1:2"]
    )
    def test_other_forms_never_ask_the_network(self, fetched, text):
        says(message(text), repr(text), "openml:NAME:VERSION")
        assert fetched[0] == []

    def test_a_typo_never_asks_the_network(self, fetched):
        message("opemml:iris")
        assert fetched[0] == []

    def test_splits_are_random(self, fetched):
        says(message("openml:x", split_key="folds"), "'folds'", "only .npz files")

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (urllib.error.URLError("no route\nto host"), ["cannot be reached", "no route to host"]),
            (TimeoutError(), ["cannot be reached (TimeoutError)", "check the network"]),
            (ValueError("Unknown data set\nx"), ["cannot be used (Unknown data set x)"]),
            (KeyError("Could not find target_column='q'"), ["target_column='q'"]),
            (ImportError("needs pandas"), ["needs pandas"]),
        ],
    )
    def test_failures_are_one_line(self, fetched, error, words):
        fetched[1].append(error)
        says(message("openml:x"), "'openml:x'", *words)

    def test_warnings_come_only_with_a_result(self, monkeypatch):
        answers: list[object] = [OSError("down"), self.bunch(pd.Series([1.0, 2, 3, 5], name="y"))]

        def fetch(**which):
            warnings.warn("take two", UserWarning, stacklevel=2)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        message("openml:x")
        with pytest.warns(UserWarning, match="take two"):
            load("openml:x")

    @pytest.mark.parametrize(
        ("target", "columns", "words"),
        [
            (None, {}, ["no default target", "--target", "'a', 'b'"]),
            (pd.DataFrame({"y": [1] * 4, "z": [2] * 4}), {}, ["'y', 'z'", "wanted one"]),
            ([1.0, 2, np.nan, 4], {}, ["target 'y' is missing in 1 rows", "row 2"]),
            (["u", None, "v", "w"], {}, ["target 'y' is missing in 1 rows", "row 1"]),
            ([1.0, 2, np.inf, 4], {}, ["'y', row 2"]),
            ([2.0] * 4, {}, ["target 'y' is 2 in every row"]),
            ([1.0, 2, 3, 4], {"c": [1, np.nan, 2, 3]}, ["1 value missing", "'c', row 1"]),
            ([1.0, 2, 3, 4], {"c": ["u", "v", "w", "z"]}, ["'c' holds no numbers, first 'u'"]),
            ([1.0, 2, 3, 4], {"c": [2**60] * 4}, ["2^53", "'c', row 0"]),
        ],
    )
    def test_bad_data(self, fetched, target, columns, words):
        if isinstance(target, list):
            target = pd.Series(target, name="y")
        fetched[1].append(self.bunch(target, **columns))
        says(message("openml:x"), "'openml:x'", *words)
