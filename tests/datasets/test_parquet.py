import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_samples import X, Y, assert_words, message

from dgp_ppl.datasets._load import load


@pytest.fixture
def parquet(tmp_path):
    def write(columns, **options):
        path = tmp_path / "data.parquet"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, **options)
        return path

    return write


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
        assert_words(message(parquet(columns), target="y"), "data.parquet", *words)

    def test_repeated_names(self, parquet):
        table = pa.table([pa.array([1, 2, 3])] * 3, names=["a", "a", "y"])
        assert_words(message(parquet(table), target="y"), "'a' names more than one column")

    def test_the_target_must_be_named(self, parquet):
        assert_words(
            message(parquet({"a": [1, 2], "y": [1, 2]})), "the column to predict", "'a', 'y'"
        )

    def test_damaged_files(self, parquet):
        path = parquet({"a": X[:, 0], "y": Y})
        whole = path.read_bytes()
        for damaged in (b"", b"nonsense", whole[:50], whole[:-20]):
            path.write_bytes(damaged)
            assert_words(
                message(path, target="y"), "not a readable .parquet file", "write it again"
            )
