import zipfile

import numpy as np
import pytest
from support.data_samples import X, Y, assert_words, message

from dgp_ppl import datasets
from dgp_ppl._errors import DataError
from dgp_ppl.datasets._load import load


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **({"X": X, "y": Y} | arrays))
        return path

    return write


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
        assert_words(
            message(npz(), target="x0"), "data.npz", "'x0'", "array 'y'", "leave the target out"
        )

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
            ({"X": X + 1j}, ["'X' has dtype 'complex128'", "real numbers"]),
            ({"y": Y.astype(str)}, ["'y' has dtype '<U", "real numbers"]),
            ({"X": X.astype("datetime64[s]")}, ["'X' has dtype 'datetime64[s]'"]),
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
        assert_words(message(npz(**arrays)), "data.npz", *words)

    def test_damaged_files(self, npz):
        path = npz()
        whole = path.read_bytes()
        assert_words(message(path.with_name("x.npz")), "no such file")
        for damaged in (b"", b"nonsense", whole[:100], whole[:-30]):
            path.write_bytes(damaged)
            assert_words(message(path), "data.npz", "not a readable .npz file", "write it again")
        path.write_bytes(whole.replace(X[3].tobytes(), b"?" * 16))
        assert_words(message(path), "'X' cannot be read", "write the file again")

    def test_a_single_array(self, npz):
        path = npz()
        with path.open("wb") as stream:
            np.save(stream, X)
        assert_words(message(path), "a single array", "wanted an .npz file with 'X' and 'y'")

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
        assert_words(message(path), "'X' [N, D]")


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
        assert_words(
            text,
            "no splits 'fold'",
            "did you mean 'folds'?",
            "wanted one of its",
            "'test_index', 'folds'",
        )
        assert "nothing" not in text

    def test_another_key_where_there_are_none(self, npz):
        assert load(npz()).test_index is None
        assert_words(message(npz(), split_key="folds"), "no splits 'folds'", "it has no others")

    @pytest.mark.parametrize(
        ("index", "words"),
        [
            ([[0, 6]], ["split 0", "row number 6", "0 to 5"]),
            ([[0, 1], [0, -2]], ["split 1", "row number -2", "0 to 5"]),
            (np.array([[2**64 - 1]], np.uint64), ["split 0", str(2**64 - 1)]),
            ([[0, 1], [3, 3]], ["split 1", "row number 3 is repeated"]),
            ([[0, 1], [-1, -1]], ["split 1", "no test rows"]),
            ([[0, 1, 2, 3, 4, 5]], ["6 of 6 rows", "0 remain for training", "at least 2"]),
            ([[0, 1, 2, 3, 4]], ["5 of 6 rows", "1 remain for training"]),
            ([[0.0, 1.0]], ["dtype float64", "row numbers"]),
            ([[True, False]], ["dtype bool"]),
            (np.zeros((0, 3), int), ["shape (0, 3)"]),
            (np.zeros((1, 1, 1), int), ["shape (1, 1, 1)", "[splits, n]"]),
            (np.array([[1], [1, 2]], object), ["'test_index' holds Python objects"]),
        ],
    )
    def test_bad_splits(self, npz, index, words):
        assert_words(message(npz(test_index=index)), "data.npz", "'test_index'", *words)


class TestImages:
    PARTS = {  # noqa: RUF012 - never changed
        "x_train": np.arange(48, dtype=np.uint8).reshape(4, 3, 4),
        "y_train": np.array([0, 1, 2, 1], np.uint8),
        "x_test": np.zeros((2, 3, 4), np.uint8),
        "y_test": np.array([2, 0], np.uint8),
    }

    def test_train_and_test_are_one_split(self, tmp_path, monkeypatch):
        np.savez(tmp_path / "images.npz", **self.PARTS)
        monkeypatch.setenv("DGP_PPL_DATA", str(tmp_path))
        data = load("images")
        assert (data.x.shape, data.task, data.shared_unit) == ((6, 12), "multiclass", True)
        np.testing.assert_array_equal(data.x[0], np.arange(12))
        np.testing.assert_array_equal(data.y, [0, 1, 2, 1, 2, 0])
        ((train, test),) = datasets.splits(data, 1, 0)
        np.testing.assert_array_equal(train, np.arange(4))
        np.testing.assert_array_equal(test, [4, 5])
        (info,) = (i for i in datasets.names() if i.name == "images")
        assert (info.rows, info.columns, info.task) == (6, 12, "multiclass")

    def test_their_split_has_no_other_name(self, tmp_path):
        np.savez(tmp_path / "images.npz", **self.PARTS)
        with pytest.raises(
            DataError, match="split_key is 'mine', but a file of images has one split"
        ):
            load(tmp_path / "images.npz", split_key="mine")

    @pytest.mark.parametrize(
        ("part", "wanted"),
        [
            ({"x_test": np.zeros((2, 4, 4))}, "images of one size"),
            ({"y_test": np.zeros((2, 1))}, "one class for each image"),
            ({"y_test": np.zeros(3, int)}, "the same number"),
        ],
    )
    def test_parts_that_do_not_go_together(self, part, wanted, tmp_path):
        np.savez(tmp_path / "images.npz", **(self.PARTS | part))
        with pytest.raises(DataError, match=wanted):
            load(tmp_path / "images.npz")
