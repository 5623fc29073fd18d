"""`open_source`: tables whose inputs are made for each split, folders, and rows."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_samples import CSV, refused
from support.tables import arrow, houses

import dgp_ppl as dgp
from dgp_ppl.datasets import Dataset, load, splits
from dgp_ppl.datasets._source import RowSource, TableSource, open_source

X = np.arange(60.0).reshape(30, 2)
ROWS = np.arange(30)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "trips"
    path.mkdir()
    for part in range(3):
        table = {
            "hour": np.arange(10.0),
            "fare": np.arange(10.0) + part + 0.5,
            "long": np.arange(10) > 6 - part,
            "kind": np.arange(10) % 3.0,
        }
        pq.write_table(pa.table(table), path / f"{part}.parquet")
    return path


def test_a_table_is_encoded_for_each_split():
    source = open_source(pa.table(houses()), target="price", drop=("id", "owner"))
    assert (len(source), len(source.y)) == (23, 23)
    rooms = [r for i, r in enumerate(houses()["rooms"]) if i != 7]
    for train, _ in splits(source, 2, 0):
        columns = source.fit(train)
        data = source.dataset(columns)
        np.testing.assert_array_equal(data.y, [p for p in houses()["price"] if p is not None])
        assert data.x.shape == (23, len(data.x_names))
        assert (data.preprocessor, data.x_names) == (columns, columns.names)
        (fill,) = (c.fill for c in columns.columns if c.name == "rooms")
        assert fill == np.median([rooms[i] for i in train if rooms[i] is not None])
        assert "1 row without a target" in str(columns.report)


def test_files_names_and_strictness(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(CSV)
    source = open_source(path, target="y")
    assert (type(source), source.name, source.source) == (TableSource, "data", f"file {path}")
    strict = open_source(str(path), target="y", strict=True)
    assert isinstance(strict, Dataset)
    np.testing.assert_array_equal(source.dataset(source.fit(np.arange(3))).x, strict.x)
    path.write_text(CSV + "4,red,3\n")
    refused((lambda: open_source(path, target="y", strict=True), "'red' in line 5"))
    np.savez(tmp_path / "a.npz", X=np.arange(8.0)[:, None], y=np.arange(8.0))
    for name in ("step", tmp_path / "a.npz"):
        assert isinstance(open_source(name), Dataset)


def test_the_target_of_a_data_set_may_be_a_column():
    data = load("step")
    found = open_source(dataclasses.replace(data, y=data.y[:, None]))
    np.testing.assert_array_equal(found.y, data.y, strict=True)
    assert open_source(data) is data


def test_what_cannot_be_opened():
    def opened(data, **options):
        return lambda: open_source(data, **options)

    def rows(x, y):
        return lambda: open_source(dgp.Rows.from_arrays(x, y))

    one, two = arrow(a=[1], y=[1]), arrow(a=[1, 2], y=[1, 2])
    wide = dataclasses.replace(load("step"), y=np.zeros((100, 2)))
    refused(
        (opened("step", drop="x"), "drop is 'x'", "the data are no table"),
        (opened(one, categorical=["a"], strict=True), "categorical", "strict"),
        (opened(one), "no target, wanted the column to predict"),
        (opened(two, target="y"), "2 rows of data with a target"),
        (opened(two, target="y", split_key="mine"), "mine"),
        (opened(3, target="y"), "builtins int: wanted a file, or a data frame"),
        (opened(wide), "shape (100, 2), wanted [N] or [N, 1]", "y[:, j]"),
        (opened(dgp.Rows.from_arrays(X)), "a row has arrays of shapes [[2]]"),
        (opened(dgp.Rows.from_arrays(X, ROWS), drop="a"), "no columns but x and y"),
        (rows(X, np.zeros((30, 3))), "[[2], [3]]"),
        (rows(X[:2], np.zeros(2)), "2 rows of data", "at least 3"),
    )


def test_rows_have_the_task_of_a_file_with_their_targets():
    for y, task, classes in (
        (np.linspace(0, 1, 30), "regression", 0),
        (ROWS % 2, "binary", 2),
        (ROWS % 3, "regression", 0),
        ((ROWS % 2).astype(float), "regression", 0),
    ):
        for target in (y, y[:, None]):  # scikit-learn's other shape of a target
            source = open_source(dgp.Rows.from_arrays(X, target))
            assert (source.task, source.num_classes, len(source)) == (task, classes, 30)
            found = source.rows.take(ROWS)[1]
            np.testing.assert_array_equal(found, y)
            assert found.dtype == (np.int32 if classes else y.dtype)


def test_bad_cells_are_named_with_their_file_and_row(tmp_path, monkeypatch):
    """As in one file: of a folder, of files of NumPy and of arrays, in whatever rows are read."""
    # The pass that looks for classes ends after its first block.
    monkeypatch.setattr("dgp_ppl.datasets.rows._rows._BLOCK_ROWS", 5)

    def changed(values, cell):
        return [cell if i == 17 else v for i, v in enumerate(values)]

    numbers = list(np.arange(30) / 2)
    for case, (column, cells, *words) in enumerate((
        ("a", changed(numbers, 1e39), "column 'a': 1e+39", "beyond the range of float32"),
        ("a", changed(numbers, -np.inf), "column 'a': -inf", "is infinite"),
        ("a", changed(numbers, None), "column 'a': nan", "is missing"),
        ("a", changed(range(30), 2**53 + 1), "column 'a'", "beyond 2^53"),
        ("y", changed(numbers, None), "target 'y': nan", "is missing"),
        ("y", changed(numbers, 1e39), "target 'y': 1e+39", "beyond the range of float32"),
        ("y", changed(range(30), 2**53 + 1), "target 'y'", "beyond 2^53"),
    )):  # fmt: skip
        table = arrow(**{"a": numbers, "b": numbers, "y": numbers, column: cells})
        path = tmp_path / f"{case}"
        path.mkdir()
        for part in range(3):
            rows = table.slice(10 * part, 10)
            pq.write_table(rows, path / f"{part}.parquet", row_group_size=4)
        source = open_source(path, target="y").rows
        rows, place = source.without([2]), f"row 7 (from 0) of {str(path / '1.parquet')!r}"
        for read in (lambda r=rows: list(r.blocks()), lambda r=rows: r.take([3, 16])):
            refused((read, *words, place))
        rows.take(range(16))
    x = np.arange(60.0).reshape(30, 2)
    x[17, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for array, words in ((mapped, "x.npy'"), (x, "is missing")):
        rows = open_source(dgp.Rows.from_arrays(array, ROWS / 2)).rows
        refused((lambda rows=rows: rows.take(ROWS), "'x1': nan in row 17 (from 0)", words))
    refused(
        (lambda: open_source(dgp.Rows.from_arrays(X, 0 * ROWS)), "'y' is 0 in every row"),
        (lambda: open_source(dgp.Rows.from_arrays(X, 0.5 + 0 * X[:, 0])), "'y' is 0.5 in every"),
    )


def test_test_rows_are_a_tenth_and_differ_between_splits():
    source = open_source(dgp.Rows.from_arrays(X, np.linspace(0, 1, 30)))
    first, again, second = (source.test_rows(5, s) for s in (0, 0, 1))
    assert len(first) == 3
    np.testing.assert_array_equal(first, again)
    assert list(first) != list(second)
    assert (np.diff(first) > 0).all()
    long = dgp.Rows.from_arrays(np.zeros((300_000, 1)), np.arange(300_000.0))
    assert len(open_source(long).test_rows(0, 0)) == 10_000


def test_a_folder_has_the_names_of_its_columns(folder, monkeypatch):
    source = open_source(str(folder), target="fare", drop="kind")
    assert (source.name, source.y_name, source.x_names) == ("trips", "fare", ("hour", "long"))
    assert str(folder) in source.source
    assert open_source(folder, target="long").task == "binary"
    classes = open_source(folder, target="kind", categorical=["kind"])
    assert (classes.task, classes.num_classes) == ("multiclass", 3)
    monkeypatch.chdir(folder.parent)
    (folder.parent / "step").mkdir()
    assert not isinstance(open_source("step"), RowSource)  # the name of a data set


def test_folders_that_are_refused(folder, tmp_path):
    def opened(path=folder, **options):
        return lambda: open_source(path, **options)

    texts, none = tmp_path / "texts", tmp_path / "none"
    texts.mkdir()
    none.mkdir()
    pq.write_table(pa.table({"a": ["u", "v"], "y": [0.0, 1.0]}), texts / "0.parquet")
    refused(
        (opened(), "no target", "'hour', 'fare', 'long', 'kind'"),
        (opened(target="fair"), "'fair'", "did you mean 'fare'"),
        (opened(target="fare", drop=["x"]), "no column 'x'", "'hour'"),
        (opened(target="fare", categorical=["kind"]), "categorical is 'kind'", ".parquet file"),
        (opened(target="fare", categorical="fare"), "'fare'", "number the classes from 0"),
        (opened(target="fare", split_key="test"), "split_key"),
        (opened(target="fare", drop="fare"), "drop has 'fare', which is the target"),
        (opened(none, target="y"), "without .parquet files"),
        (opened(texts, target="y"), "'a'", "--drop"),
    )
    pq.write_table(pa.table({"hour": [1.0], "price": [2.0]}), folder / "9.parquet")
    refused((opened(target="fare"), "9.parquet", "no column 'fare'"))
