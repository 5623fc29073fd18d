import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import arrow, fault, houses

from dgp_ppl.datasets import read_table
from dgp_ppl.datasets.tables import _read as read_module
from dgp_ppl.datasets.tables._table import NumberColumn, OtherColumn, TextColumn


def values(column):
    """Return the cells of a column: numbers, or texts; None where missing."""
    if isinstance(column, NumberColumn):
        return [None if np.isnan(v) else v for v in column.values]
    return [None if code < 0 else column.texts[code] for code in column.codes]


class TestCsv:
    @pytest.fixture
    def csv(self, tmp_path):
        def write(text):
            path = tmp_path / "t.csv"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return path

        return write

    @pytest.mark.parametrize("fast", [True, False])
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
    def test_columns(self, csv, monkeypatch, fast, end):
        if not fast:
            monkeypatch.setattr(pa, "BufferReader", lambda _: pa.py_buffer(b""))
        lines = ["\ufeffa, b ,c,d", "1,x,1.5,", "2, ,NA,", "NaN,x ,-3e2,"]
        table = read_table(csv(end.join(lines) + end))
        assert table.names == ("a", "b", "c", "d")
        assert [values(c) for c in table.columns.values()] == [
            [1, 2, None], ["x", None, "x"], [1.5, None, -300], [None] * 3,
        ]  # fmt: skip
        assert (table.columns["a"].whole, table.columns["c"].whole) == (True, False)

    def test_clean_files_are_read_by_arrow(self, csv, monkeypatch):
        monkeypatch.setattr(read_module, "csv_rows", None)
        assert values(read_table(csv("a,b\n1,x\n")).columns["b"]) == ["x"]

    def test_quotes(self, csv):
        table = read_table(csv('a,"b,c"\n"1,421.48","say ""hi"""\n"3","x, y"\n'))
        assert table.names == ("a", "b,c")
        assert values(table.columns["a"]) == ["1,421.48", "3"]
        assert values(table.columns["b,c"]) == ['say "hi"', "x, y"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ["file is empty"]),
            ("a,b\n", ["a header and no rows"]),
            ("a,a\n1,2\n", ["'a' names more than one column"]),
            (",a\n1,2\n", ["column 1 of 2 has no name"]),
            ("a;b\n1;2\n", ["separated by ';'"]),
            ("a,b\n1,2\n3\n", ["line 3 has 1 field, wanted 2"]),
            ('a,b\n1,"2\n3,4\n', ["not valid CSV"]),
            (b"a,b\n1,\xe9\n", ["line 2 is not UTF-8"]),
        ],
    )
    def test_malformed_files(self, csv, text, words):
        fault(read_table, "t.csv", *words, source=csv(text))

    def test_no_such_file(self, csv, tmp_path):
        csv("a,b\n1,2\n")
        fault(read_table, "no such file (did you mean 't.csv'?)", source=tmp_path / "tt.csv")
        fault(read_table, "not a file", source=str(tmp_path))
        (tmp_path / "t.txt").write_text("a\n")
        fault(read_table, "ends in '.txt', wanted .csv or .parquet", source=tmp_path / "t.txt")


class TestArrow:
    @pytest.mark.parametrize(
        ("array", "wanted"),
        [
            (pa.array([1, None, 3], pa.int8()), [1, None, 3]),
            (pa.array([1.5, None, np.nan]), [1.5, None, None]),
            (pa.array([decimal.Decimal("1.5"), None, 2]), [1.5, None, 2]),
            (pa.array([datetime.date(1970, 1, 3), None] * 2), [2, None] * 2),
            (pa.array([datetime.datetime(1970, 1, 1, 12)], pa.timestamp("ns")), [0.5]),
            (pa.array([0], pa.timestamp("s", "Europe/Amsterdam")), [0]),
            (pa.array([86_400_000], pa.date64()), [1]),
            (pa.nulls(2), [None, None]),
            (pa.array(["x", None, " x ", "NA"]), ["x", None, "x", None]),
            (pa.array(["x"], pa.large_string()), ["x"]),
            (pa.array(["x"], pa.string_view()), ["x"]),
            (pa.array(["1", "2.5"]), [1, 2.5]),
            (pa.array([True, None, False]), ["True", None, "False"]),
            (pa.array(["u", "v", None]).dictionary_encode(), ["u", "v", None]),
            (pa.array([3, 1]).dictionary_encode(), ["3", "1"]),
            (pa.array(["1", "2"]).dictionary_encode(), ["1", "2"]),
        ],
        ids=lambda a: str(a.type) if isinstance(a, pa.Array) else "",
    )
    def test_types(self, array, wanted):
        assert values(read_table(pa.table({"a": array})).columns["a"]) == wanted

    def test_what_is_declared(self):
        table = read_table(
            arrow(b=[True], c=pa.array(["1"]).dictionary_encode(), t=["u"], n=[1], f=[1.0])
        )
        columns = table.columns
        assert (columns["b"].declared, columns["c"].declared, columns["t"].declared) == (1, 1, 0)
        assert (columns["n"].whole, columns["f"].whole) == (True, False)
        assert isinstance(read_table(arrow(a=[[1]])).columns["a"], OtherColumn)

    def test_no_rows_and_no_columns(self):
        table = read_table(arrow(a=pa.array([], pa.string()), b=pa.array([], pa.float32())))
        assert len(table) == 0
        fault(read_table, "no columns", source=pa.table({}))

    def test_a_damaged_parquet_file(self, tmp_path):
        path = tmp_path / "t.parquet"
        pq.write_table(arrow(a=[1, 2]), path)
        path.write_bytes(path.read_bytes()[:-20])
        fault(read_table, "not a readable .parquet file", source=path)

    def test_the_index_of_pandas_is_no_column(self, tmp_path):
        frame = pd.DataFrame({"a": [1, 2], "y": [3, 4]}, index=pd.Index([7, 9], name="id"))
        frame.to_parquet(tmp_path / "t.parquet")
        for source in (frame, tmp_path / "t.parquet"):
            assert read_table(source).names == ("a", "y")
            assert set(read_table(source, keep="id").names) == {"a", "y", "id"}


def test_the_same_columns_from_frames_and_files(tmp_path):
    table = houses()
    frame = pd.DataFrame(table)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    sources = (frame, pl.DataFrame(table), pa.table(table), str(tmp_path / "t.parquet"))
    first, *others = [read_table(source) for source in sources]
    for other in others:
        assert {n: values(c) for n, c in first.columns.items()} == {
            n: values(c) for n, c in other.columns.items()
        }
    written = read_table(tmp_path / "t.csv").columns
    assert isinstance(written["sold"], TextColumn)
    for name in ("id", "area", "rooms", "colour", "garage", "owner", "price"):
        assert values(written[name]) == values(first.columns[name])
    assert read_table(first) is first
