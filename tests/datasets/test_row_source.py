"""`RowSource`: the task of a source of rows, its test rows, and folders of .parquet files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_samples import refused

import dgp_ppl as dgp
from dgp_ppl.datasets import RowSource, open_source

X = np.arange(60.0).reshape(30, 2)


def source_of(y):
    return open_source(dgp.Rows.from_arrays(X, np.asarray(y)))


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


@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        (np.linspace(0, 1, 30), "regression", 0),
        (np.arange(30) % 2, "binary", 2),
        (np.arange(30) % 2 == 0, "binary", 2),
        (np.zeros(30, np.int64), "binary", 2),
        (np.arange(30) % 3, "regression", 0),
        ((np.arange(30) % 2).astype(float), "regression", 0),
    ],
)
def test_the_task_is_that_of_a_file_with_these_targets(y, task, classes):
    source = source_of(y)
    assert (source.task, source.num_classes, len(source)) == (task, classes, 30)
    found = source.rows.take(np.arange(30))[1]
    np.testing.assert_array_equal(found, y)
    assert found.dtype == (np.int32 if classes else np.asarray(y).dtype)
    of_column = source_of(np.asarray(y)[:, None])  # scikit-learn's other shape of a target
    assert (of_column.task, of_column.num_classes) == (task, classes)
    again = of_column.rows.take(np.arange(30))[1]
    np.testing.assert_array_equal(again, found, strict=True)


def test_test_rows_are_a_tenth_and_differ_between_splits():
    source = source_of(np.linspace(0, 1, 30))
    first, again, second = (source.test_rows(5, s) for s in (0, 0, 1))
    assert len(first) == 3
    np.testing.assert_array_equal(first, again)
    assert list(first) != list(second)
    assert (np.diff(first) > 0).all()
    long = dgp.Rows.from_arrays(np.zeros((300_000, 1)), np.zeros(300_000))
    assert len(open_source(long).test_rows(0, 0)) == 10_000


def test_a_folder_has_the_names_of_its_columns(folder):
    source = open_source(str(folder), target="fare", drop="kind")
    assert isinstance(source, RowSource)
    assert (source.name, source.y_name, source.x_names) == ("trips", "fare", ("hour", "long"))
    assert repr(source) == "RowSource('trips': regression of fare on 2 inputs, 30 rows)"
    assert str(folder) in source.source
    assert open_source(folder, target="long").task == "binary"
    classes = open_source(folder, target="kind", categorical=["kind"])
    assert (classes.task, classes.num_classes) == ("multiclass", 3)


def test_the_name_of_a_data_set_is_not_a_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "step").mkdir()
    assert not isinstance(open_source("step"), RowSource)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["no target", "'hour', 'fare', 'long', 'kind'"]),
        ({"target": "fair"}, ["'fair'", "did you mean 'fare'"]),
        ({"target": "fare", "drop": ["x"]}, ["no column 'x'", "'hour'"]),
        ({"target": "fare", "categorical": ["kind"]}, ["categorical is 'kind'", ".parquet file"]),
        ({"target": "fare", "categorical": "fare"}, ["'fare'", "number the classes from 0"]),
        ({"target": "fare", "split_key": "test"}, ["split_key"]),
        ({"target": "fare", "drop": "fare"}, ["drop has 'fare', which is the target"]),
    ],
)
def test_faults_of_a_folder_are_named(folder, options, words):
    refused((lambda: open_source(folder, **options), *words))


def test_a_folder_without_files_and_text_are_refused(tmp_path):
    refused((lambda: open_source(tmp_path, target="y"), "without .parquet files"))
    pq.write_table(pa.table({"a": ["u", "v"], "y": [0.0, 1.0]}), tmp_path / "0.parquet")
    refused((lambda: open_source(tmp_path, target="y"), "'a'", "--drop"))


def test_other_arrays_are_refused():
    refused((lambda: open_source(dgp.Rows.from_arrays(X)), "a row has arrays of shapes [[2]]"))
    columns = dgp.Rows.from_arrays(X, np.zeros((30, 3)))
    refused((lambda: open_source(columns), "[[2], [3]]"))
    two = dgp.Rows.from_arrays(X[:2], np.zeros(2))
    refused((lambda: open_source(two), "2 rows, wanted at least 3"))
    text = dgp.Rows.from_arrays(X, np.array(["a"] * 30))
    refused((lambda: open_source(text), "wanted numbers", "Rows.map"))


def test_files_with_other_columns_are_named(folder):
    pq.write_table(pa.table({"hour": [1.0], "price": [2.0]}), folder / "9.parquet")
    refused((lambda: open_source(folder, target="fare"), "9.parquet", "no column 'fare'"))
