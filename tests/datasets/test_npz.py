"""The reader of .npz files: arrays, splits, images, and what is refused."""

import zipfile

import numpy as np
import pytest
from support.data_samples import X, Y, refused

from dgp_ppl import datasets
from dgp_ppl.datasets import load

IMAGES = {
    "x_train": np.arange(48, dtype=np.uint8).reshape(4, 3, 4),
    "y_train": np.array([0, 1, 2, 1], np.uint8),
    "x_test": np.zeros((2, 3, 4), np.uint8),
    "y_test": np.array([2, 0], np.uint8),
}


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **(arrays if "x_train" in arrays else {"X": X, "y": Y} | arrays))
        return path

    return write


def test_targets(npz):
    whole = np.array([0, 1, 1, 0, 1, 0])
    for y, task in (
        (whole.astype(np.uint8), "binary"),
        (whole > 0, "binary"),
        (whole[:, None], "binary"),
        (whole.astype(float), "regression"),
        (np.array([0, 1, 2, 0, 1, 0]), "regression"),
        (2 * whole - 1, "regression"),
    ):
        data = load(npz(y=y), target="y")
        assert data.task == task
        assert data.y.dtype == (np.float64 if task == "regression" else np.int64)
        np.testing.assert_array_equal(data.y, y.reshape(-1))


def test_inputs(npz):
    for kind in ("f2", ">f4", "g", "u1", "i8", "?"):
        data = load(npz(X=X.astype(kind)))
        assert data.x.dtype == np.dtype(np.float64)
        np.testing.assert_array_equal(data.x, X.astype(kind).astype(float))
    assert load(npz(X=np.ones((6, 2)))).x_names == ("x0", "x1")
    assert load(npz(columns=["a", "b"])).x_names == ("a", "b")
    assert load(npz(columns=["y", "b"])).x_names == ("y_0", "b")
    assert load(npz(X=X[:, [0, 1, 0]], columns=["a", "a", "a_"])).x_names == ("a", "a_1", "a_")
    for unfit in (["a"], np.array(["a", 1], object), np.array("ab")):
        assert load(npz(columns=unfit)).x_names == ("x0", "x1")


def test_arrays_that_are_refused(npz):
    for arrays, *words in (
        ({"X": X[:, 0]}, "'X' has shape (6,)", "[N, D]"),
        ({"X": X[:, :0]}, "'X' has shape (6, 0)"),
        ({"y": X}, "'y' (6, 2)", "one column of y"),
        ({"y": np.float64(1)}, "'y' ()", "[N] or [N, 1]"),
        ({"y": Y[:5]}, "'X' has shape (6, 2) and 'y' (5,)"),
        ({"X": X[:0], "y": Y[:0]}, "0 rows of data", "at least 3"),
        ({"X": X.astype(object)}, "'X'", "Python objects", "X.astype(float)"),
        ({"X": X + 1j}, "'X' has dtype 'complex128'", "real numbers"),
        ({"y": Y.astype(str)}, "'y' has dtype '<U", "real numbers"),
        ({"X": X.astype("datetime64[s]")}, "'X' has dtype 'datetime64[s]'"),
        ({"X": np.where(X == 5, np.nan, X)}, "'x1': nan in row 2 (from 0) is missing"),
        ({"X": np.where(X > 8, np.inf, X)}, "'x0': inf in row 5", "; correct the cells, or leave"),
        ({"y": np.where(Y == 1, np.nan, Y)}, "the target 'y': nan in row 2"),
        ({"X": X.astype("g") * np.longdouble("1e4000")}, "float32"),
        ({"X": X.astype("u8") + 2**63}, str(2**63), "row 0", "float64"),
        ({"y": -np.arange(6) - 2**53 + 3}, str(-(2**53)), "row 3"),
    ):
        refused((lambda a=arrays: load(npz(**a)), "data.npz", *words))
    refused((lambda: load(npz(), target="x0"), "'x0'", "array 'y'", "leave the target out"))


def test_damaged_files(npz):
    path = npz()
    whole = path.read_bytes()
    for damaged in (b"", b"nonsense", whole[:100], whole[:-30]):
        path.write_bytes(damaged)
        refused((lambda: load(path), "data.npz", "not a readable .npz file", "write it again"))
    path.write_bytes(whole.replace(X[3].tobytes(), b"?" * 16))
    refused((lambda: load(path), "'X' cannot be read", "write the file again"))
    with path.open("wb") as stream:
        np.save(stream, X)
    refused((lambda: load(path), "a single array", "wanted an .npz file with 'X' and 'y'"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", "text")
    refused((lambda: load(path), "'X' [N, D]"))
    for content in (
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 3), }",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 3), }",
        "{'descr': '<f8', 'fortran_order': ((((",
    ):
        header = b"\x93NUMPY\x01\x00" + (len(content) + 1).to_bytes(2, "little")
        with zipfile.ZipFile(path, "w") as archive:
            for name in "Xy":
                archive.writestr(f"{name}.npy", header + content.encode() + b"\n")
        refused((lambda: load(path),))


def test_splits(npz):
    for kind in (np.int32, np.int64, np.int8):
        data = load(npz(test_index=np.array([[4, 1, -1], [0, -1, -1]], kind)))
        assert [split.tolist() for split in data.test_index] == [[4, 1], [0]]
        assert data.test_index[0].dtype == np.int64
    data = load(npz(test_index=np.array([1, 3], np.uint64)))
    assert [split.tolist() for split in data.test_index] == [[1, 3]]
    assert load(npz()).test_index is None
    path = npz(test_index=[[0]], folds=[[1], [2]], nothing=[[77]], words=["a"])
    folds = load(path, split_key="folds").test_index
    assert [split.tolist() for split in folds] == [[1], [2]]
    refused(
        (lambda: load(path, split_key="fold"), "no splits 'fold' (did you mean 'folds'?)",
         "wanted one of its other arrays, 'test_index', 'folds'"),
    )  # fmt: skip
    refused((lambda: load(npz(), split_key="folds"), "no splits 'folds'", "leave split_key out"))
    for index, *words in (
        ([[0, 6]], "split 0", "row numbers 0, 6", "0 to 5"),
        ([[0, 1], [3, 3]], "split 1", "different numbers"),
        ([[0, 1], [-1, -1]], "split 1", "has the 0 row numbers"),
        ([[0, 1, 2, 3, 4]], "has the 5 row numbers", "2 other rows for training"),
        ([[0.0, 1.0]], "dtype float64", "row numbers"),
        (np.zeros((0, 3), int), "shape (0, 3)"),
        (np.zeros((1, 1, 1), int), "shape (1, 1, 1)", "[splits, n]"),
        (np.array([[1], [1, 2]], object), "Python objects"),
    ):
        refused((lambda i=index: load(npz(test_index=i)), "data.npz", "'test_index'", *words))


def test_images_have_one_split(npz):
    data = load(npz(**IMAGES))
    assert (data.x.shape, data.task, data.shared_unit) == ((6, 12), "multiclass", True)
    labels = {name: IMAGES[name].astype(float) for name in ("y_train", "y_test")}
    assert load(npz(**(IMAGES | labels))).task == "regression"
    np.testing.assert_array_equal(data.x[0], np.arange(12))
    np.testing.assert_array_equal(data.y, [0, 1, 2, 1, 2, 0])
    ((train, test),) = datasets.splits(data, 1, 0)
    np.testing.assert_array_equal(train, np.arange(4))
    np.testing.assert_array_equal(test, [4, 5])


def test_images_that_are_refused(npz):
    refused((lambda: load(npz(**IMAGES), split_key="mine"), "no splits 'mine'"))
    for part, word in (
        ({"x_test": np.zeros((2, 4, 4))}, "images of one size"),
        ({"y_test": np.zeros(3, int)}, "'y' (7,)"),
    ):
        refused((lambda part=part: load(npz(**(IMAGES | part))), word))
