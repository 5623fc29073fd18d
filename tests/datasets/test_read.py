"""One reader of .csv and .parquet files and of data frames, and what it refuses."""

import datetime
import decimal
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_samples import refused
from support.tables import DROP, arrow, fitted, houses

from dgp_ppl import DataError
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.datasets._read import read_table, table_chunks


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "t.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def cells(column):
    """Return the cells of a column: numbers, or texts; None where missing."""
    if column.kind == "text":
        return [None if code < 0 else column.texts[code] for code in column.values]
    return [None if np.isnan(v) else v for v in column.values]


def test_columns_of_a_csv_file(csv):
    """Blank lines, spaces around cells, a byte order mark and all ends of lines are accepted."""
    for end in ("\n", "\r\n", "\r", "\n\n"):
        lines = ["a, b ,c,d", "1,x,+15e-1,", "2, ,NA,", "NaN,x ,-3e2,"]
        quoted = ["", *lines[:1], '"1",x,"+15e-1",', *lines[2:], ""]
        for text in ("\ufeff" + end.join(lines), end.join(quoted)):
            table = read_table(csv(text))
            assert table.names == ("a", "b", "c", "d")
            assert [cells(c) for c in table.columns.values()] == [
                [1, 2, None], ["x", None, "x"], [1.5, None, -300], [None] * 3,
            ]  # fmt: skip
            assert (table.columns["a"].whole, table.columns["c"].whole) == (True, False)


def test_quotes_and_places(csv):
    table = read_table(csv('a,"b\nc,d"\n"1,421.48","say ""hi"""\n\n"3","x,\ny"\n4,z\n'))
    assert table.names == ("a", "b\nc,d")
    assert cells(table.columns["a"]) == ["1,421.48", "3", "4"]
    assert cells(table.columns["b\nc,d"]) == ['say "hi"', "x,\ny", "z"]
    assert [table.place(i) for i in range(3)] == ["line 3", "line 6", "line 7"]
    part = table.take(np.array([False, False, True]))
    assert (len(part), part.place(0), part.columns["a"].texts) == (1, "line 7", ("4",))
    assert read_table(arrow(a=[1, 2])).take(np.array([1])).place(0) == "row 1 (from 0)"


def test_every_digit_of_a_csv_file_is_read(csv):
    values = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-30, 31, 30)
    lines = "".join(",".join(map(repr, row)) + "\n" for row in values.tolist())
    table = read_table(csv("a,b,y\n" + lines))
    np.testing.assert_array_equal([c.values for c in table.columns.values()], values.T)
    assert cells(read_table(csv(f"a\n{2**53}\n")).columns["a"])[0] in (2**53, str(2**53))
    assert cells(read_table(csv(f"a\n{2**53 + 1}\n1\n")).columns["a"])[0] == str(2**53 + 1)


def test_malformed_csv_files(csv):
    """Read as a whole and in chunks."""
    for text, *words in (
        ("", "file is empty"),
        ("a,b\n", "a header and no rows"),
        ("a, a \n1,2\n", "'a' names more than one column"),
        (",a\n1,2\n", "column 1 of 2 has no name", "index=False"),
        ("a;b\n1;2\n", "separated by ';'"),
        ("a,b\n1,2\n\n3\n4,5,6\n", "line 4 has 1 field, wanted 2"),
        ('a,b\n1,2\n3,"2\n3,4\n', "not valid CSV", "quotes"),
        ('a,b\n1,"2"5\n3,4\n', "line 2 is not valid CSV"),
        (b"a,b\n1,2\n1,\xe9\n", "line 3 is not UTF-8", "CSV UTF-8"),
        ('a,b\n1,"' + "x" * 140_000, "more than 131,072 characters", "close its quote", "leave"),
        ("a,b\n1,2\n".encode("utf-16"), "line 1 is not UTF-8"),
        (b"\xff" + bytes(range(256)) * 4, "line 1 is not UTF-8"),
    ):
        path = csv(text)
        refused(
            (lambda path=path: read_table(path), "t.csv", *words),
            (lambda path=path: list(table_chunks(path, 9)), "t.csv", *words),
        )


def test_missing_files(csv, tmp_path):
    csv("a,b\n1,2\n")
    (tmp_path / "t.txt").write_text("a\n")
    (tmp_path / "x.csv").mkdir()
    (tmp_path / "none").mkdir()
    refused(
        (lambda: read_table(tmp_path / "tt.csv"), "no such file (did you mean 't.csv'"),
        (lambda: read_table(tmp_path / "x.csv"), "not a file"),
        (lambda: read_table(tmp_path / "t.txt"), "ends in '.txt', wanted .csv or .parquet"),
        (lambda: list(table_chunks(tmp_path / "none", 2)), "the folder has no .parquet files"),
    )


ARRAYS = [
    (pa.array([1, None, 3], pa.int8()), [1, None, 3]),
    (pa.array([2**60, None]), [str(2**60), None]),
    (pa.array([-(2**53) - 1]), [str(-(2**53) - 1)]),
    (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
    (pa.array(np.array([1.5, 2], np.float16)), [1.5, 2]),
    (pa.array([1.5, None, np.nan]), [1.5, None, None]),
    (pa.array([decimal.Decimal("1.5"), None, 2]), [1.5, None, 2]),
    (pa.array([decimal.Decimal(2**53 + 1), None]), [str(2**53 + 1), None]),
    (pa.array([datetime.date(1970, 1, 3), None] * 2), [2, None] * 2),
    (pa.array([datetime.datetime(1970, 1, 1, 12)], pa.timestamp("ns")), [0.5]),
    (pa.array([0], pa.timestamp("s", "Europe/Amsterdam")), [0]),
    (pa.array([86_400_000], pa.date64()), [1]),
    (pa.nulls(2), [None, None]),
    (pa.array(["x", None, " x ", "NA"]), ["x", None, "x", None]),
    (pa.array(["x"], pa.large_string()), ["x"]),
    (pa.array(["x"], pa.string_view()), ["x"]),
    (pa.array(["1", "2.5"]), [1, 2.5]),
    (pa.array([True, None, False]), ["true", None, "false"]),
    (pa.array(["u", "v", None]).dictionary_encode(), ["u", "v", None]),
    (pa.array([3, 1]).dictionary_encode(), ["3", "1"]),
    (pa.array(["1", "2"]).dictionary_encode(), ["1", "2"]),
]


def test_types_of_arrow():
    for array, wanted in ARRAYS:
        assert cells(read_table(arrow(a=array)).columns["a"]) == wanted, array.type
    columns = read_table(
        arrow(b=[True], c=pa.array(["1"]).dictionary_encode(), t=["u"], n=[1], f=[1.0], o=[[1]])
    ).columns
    assert {n for n, c in columns.items() if c.declared} == {"b", "c"}
    assert {n for n, c in columns.items() if c.whole} == {"n"}
    assert columns["o"].kind.startswith("list<")
    empty = read_table(arrow(a=pa.array([], pa.string()), b=pa.array([], pa.float32())))
    assert len(empty) == 0


def test_frames_that_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(arrow(a=[1, 2]), path)
    whole, unreadable = path.read_bytes(), "not a readable .parquet file"
    for damaged in (whole[:-20], whole[:200], b"nonsense" * 60):
        path.write_bytes(damaged)
        refused((lambda: read_table(path), unreadable, "write it again"))
        refused((lambda: list(table_chunks(path, 9)), unreadable))
    pq.write_table(arrow(a=[1, 2])[:0], path)
    refused(
        (lambda: list(table_chunks(path, 9)), "no rows, wanted some"),
        (lambda: read_table(pa.table({})), "no columns"),
        (lambda: read_table(np.zeros((3, 2))), "numpy ndarray", "data frame such as pandas'"),
        (lambda: read_table([1, 2]), "builtins list"),
        (lambda: read_table(pl.LazyFrame({"a": [1]})), "polars LazyFrame", "collect it first"),
        (lambda: read_table(pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"])), "Duplicate"),
        (lambda: read_table(pd.DataFrame({"m": [1, "x", None]})), "astype('string')"),
    )


def test_the_index_of_pandas_is_no_column(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "y": [3, 4]}, index=pd.Index([7, 9], name="id"))
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        assert read_table(source).names == ("a", "y")


def test_chunks_give_the_inputs_of_the_whole_file(tmp_path):
    frame, paths = pd.DataFrame(houses()), (tmp_path / "t.csv", tmp_path / "t.parquet")
    frame.to_csv(paths[0], index=False)
    frame.to_parquet(paths[1])
    for path, rows in itertools.product(paths, (7, 24, 100)):
        columns = fitted(path, **DROP)
        chunks = list(table_chunks(path, rows, texts=columns.text_columns))
        assert [len(t) for _, t in chunks] == [min(rows, 24 - i) for i in range(0, 24, rows)]
        found = np.concatenate([columns.inputs(table) for _, table in chunks])
        np.testing.assert_array_equal(found, columns.inputs(path))
        raw = pa.concat_tables([raw for raw, _ in chunks])
        assert [str(i) for i in raw["id"].to_pylist()] == [str(i) for i in houses()["id"]]


def test_long_files_are_read_in_batches(tmp_path):
    """A file of more than a block has the same rows, and a late fault is named."""
    lines = ["a,b", *(f"{i},{i % 7}" for i in range(200_000))]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    sizes = [len(table) for _, table in table_chunks(path, 150_000)]
    assert sizes == [150_000, 50_000]
    np.testing.assert_array_equal(read_table(path).columns["a"].values, np.arange(200_000))
    lines[180_000] = "1,2,3"
    path.write_text("\n".join(lines))
    chunks = table_chunks(path, 1000)
    assert len(next(chunks)[1]) == 1000
    with pytest.raises(DataError, match="line 180001 has 3 fields, wanted 2"):
        list(chunks)
    row = ",".join(["a" * 100_000] * 40)  # longer than a block of Arrow's
    path.write_text("\n".join([",".join(f"c{i}" for i in range(40)), row, row]) + "\n")
    assert len(read_table(path)) == 2


def test_categories_of_digits_stay_texts_in_every_chunk(csv):
    """007 stays 007, also in a chunk or a file where all cells of a category are digits."""
    columns = Preprocessor.fit(csv("code,y\n007,1\n01A,2\n007,3\n12B,4\n"), "y", categorical="code")
    path = csv("code\n007\n007\n")
    assert columns.inputs(path).tolist() == [[1, 0, 0], [1, 0, 0]]
    (_, table), _ = table_chunks(path, 1, texts=columns.text_columns)
    assert columns.inputs(table).tolist() == [[1, 0, 0]]


def test_the_files_of_a_folder_come_one_after_another(tmp_path):
    table = pa.table({"a": np.arange(7.0)})
    pq.write_table(table[:3], tmp_path / "1.parquet")
    (tmp_path / "more").mkdir()
    pq.write_table(table[3:], tmp_path / "more" / "2.parquet")
    chunks = [c for _, c in table_chunks(tmp_path, 2)]
    assert [len(c) for c in chunks] == [2, 1, 2, 2]
    assert [c.place(0) for c in chunks] == [f"row {n} (from 0)" for n in (0, 2, 0, 2)]
    found = np.concatenate([Preprocessor.of_numbers(["a"]).inputs(c)[:, 0] for c in chunks])
    np.testing.assert_array_equal(found, np.arange(7.0))


def test_without_pyarrow_one_line_says_what_to_install(monkeypatch, tmp_path):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    refused((lambda: read_table(tmp_path / "t.csv"), "pip install 'dgp_ppl[tables]'"))
