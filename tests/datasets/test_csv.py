import numpy as np
import pytest
from support.data_samples import CSV, assert_words, message

from dgp_ppl.datasets import _csv as _read_csv
from dgp_ppl.datasets._load import load


@pytest.fixture
def csv(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


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
            ("a,a,y\n1,2,3\n", ["'a' names more than one column", "rename"]),
            ("a, a ,y\n1,2,3\n", ["'a' names more than one column"]),
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
        assert_words(message(csv(text), target="y"), "data.csv", *words)

    def test_the_target_must_be_named(self, csv):
        assert_words(message(csv(CSV)), "the column to predict", "--target", "'a', 'b', 'y'")

    def test_no_such_target(self, csv):
        path = csv("Price,Rooms\n1,2\n")
        assert_words(
            message(path, target="price"), "no column 'price'", "did you mean 'Price'?", "'Rooms'"
        )
        assert_words(
            message(path, target="zzz"), "no column 'zzz'; the columns are 'Price', 'Rooms'"
        )
        wide = csv(",".join(f"c{i}" for i in range(100)) + "\n" + ",".join("1" * 100) + "\n")
        assert_words(message(wide, target="zzz"), "'c11', ... (100 in all)")

    def test_a_missing_header(self, csv):
        assert_words(message(csv("1,2\n3,4\n5,6\n"), target="y"), "is the header missing?")
        assert load(csv("0,1\n3,4\n5,6\n7,8\n"), target="1").y_name == "1"

    def test_a_late_fault_in_a_long_file(self, csv):
        lines = ["a,b,y", *(f"{i},{i % 7},{i % 5}" for i in range(120_000))]
        lines[100_000] = "1,,2"
        assert_words(
            message(csv("\n".join(lines)), target="y"), "1 cell missing", "'b', line 100001"
        )
