import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.data_samples import CSV, X, Y, assert_words, message
from support.tables import fault

from dgp_ppl.datasets import ArrowFrame, load
from dgp_ppl.datasets._frame import arrow_columns


def test_frames_load_as_files_do(tmp_path):
    (tmp_path / "data.csv").write_text(CSV)
    wanted = load(tmp_path / "data.csv", target="y")
    frame = pd.read_csv(tmp_path / "data.csv")
    for source in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert isinstance(source, ArrowFrame)
        data = load(source, target="y")
        np.testing.assert_array_equal(data.x, wanted.x)
        np.testing.assert_array_equal(data.y, wanted.y)
        assert (data.x_names, data.y_name, data.task) == (("a", "b"), "y", "regression")
        assert data.name == "table"


def test_loading_a_frame_is_strict():
    frame = pd.DataFrame({"a": ["u", "v", "w"], "y": [1.0, 2, 3]})
    assert_words(message(frame, target="y"), "pandas DataFrame", "'a'", "'u'", "Preprocessor")
    frame = pl.DataFrame({"a": [1, None, 2], "y": [1.0, 2, 3]})
    assert_words(message(frame, target="y"), "polars DataFrame", "1 value missing", "row 1")
    assert_words(message(frame), "no target")
    assert_words(message(frame, target="y", split_key="mine"), "mine")


def test_mixed_python_objects_become_text():
    frame = pd.DataFrame({"m": [1, "x", None, float("nan")], "n": [1, 2, 3, 4]}, index=[5, 6, 7, 8])
    found = arrow_columns(frame)
    assert found.column("m").to_pylist() == ["1", "x", None, None]
    assert found.column("n").to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros((3, 2)), ["numpy ndarray", "data frame such as pandas'"]),
        ([1, 2], ["builtins list"]),
        (pl.LazyFrame({"a": [1]}), ["polars LazyFrame", "collect it first"]),
        (pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"]), ["pandas DataFrame", "Duplicate"]),
    ],
)
def test_what_is_no_frame(source, words):
    fault(lambda: arrow_columns(source), *words)


def test_numbers_as_column_names():
    data = load(pd.DataFrame(np.column_stack([X, Y])), target="2")
    np.testing.assert_array_equal(data.x, X)
    assert data.x_names == ("0", "1")
