"""`dgp-ppl compare` with tables as people have them, and with malformed ones."""

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command
from support.comparisons import no_fit
from support.tables import houses

from dgp_ppl.comparison import _compare

TINY = ["--steps", "3", "--inducing", "4", "--samples", "4", "--splits", "1", "--methods", "svgp"]


@pytest.fixture
def without_fits(monkeypatch):
    """Make `compare` do everything but the fits."""
    monkeypatch.setattr(_compare, "run_method", no_fit)


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "houses.csv"
    pd.DataFrame(houses(30)).to_csv(path, index=False)
    return path


@pytest.mark.usefixtures("without_fits")
def test_the_report_of_a_messy_file_is_printed(messy, tmp_path, monkeypatch, capsys):
    args = ["compare", messy, "--target", "price", "--out", tmp_path / "out", *TINY]
    code, _, err = command(
        monkeypatch, capsys, *args, "--drop", "owner, country", "--categorical", "rooms"
    )
    assert code == 0
    for words in ("categories  rooms: 1, 2, 3, 4, 5, and missing", "left out    owner: as asked",
                  "left out    1 row of the table without a target",
                  "Warning: column 'id' has a different whole number"):  # fmt: skip
        assert words in err
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["config"]["drop"] == ["owner", "country"]
    assert record["config"]["categorical"] == ["rooms"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--strict"], "cells not a number"),
        (["--strict", "--drop", "id"], "strict takes all columns"),
        (["--drop", "nothing"], "drop has 'nothing'"),
        (["--drop", "price"], "the target"),
        (["--categorical", '"a, b"'], "categorical has 'a, b'"),
    ],
)
def test_bad_options(messy, tmp_path, monkeypatch, capsys, args, word):
    out = tmp_path / "out"
    args = ["compare", messy, "--target", "price", "--out", out, *TINY, *args]
    code, _, err = command(monkeypatch, capsys, *args)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert word in err
    assert not out.exists()


# What is done to a good file, as lines of CSV, to make it malformed.


def _edit(lines, row, column, cell):
    cells = lines[row].split(",")
    cells[column] = cell
    lines[row] = ",".join(cells)


def _ragged(lines, random):
    row = random.integers(1, len(lines))
    lines[row] = lines[row] + ",1" * random.integers(1, 4)


def _short(lines, random):
    row = random.integers(1, len(lines))
    lines[row] = lines[row].rpartition(",")[0]


def _open_quote(lines, random):
    row = random.integers(1, len(lines))
    lines[row] = '"' + lines[row]


def _text_among_numbers(lines, random):
    for row in random.integers(1, len(lines), random.integers(1, 5)):
        _edit(lines, row, random.integers(0, 3), random.choice(["abc", "1.2.3", "12kg", "0x1F"]))


def _infinite(lines, random):
    _edit(lines, random.integers(1, len(lines)), random.integers(0, 3), "-inf")


def _too_large(lines, random):
    cell = str(10 ** int(random.integers(39, 5000)))
    _edit(lines, random.integers(1, len(lines)), random.integers(0, 3), cell)


def _long_identifier(lines, random):
    _edit(lines, random.integers(1, len(lines)), 0, str(2**60 + int(random.integers(99))))


def _decimal_commas(lines, random):
    for row in range(1, len(lines)):
        _edit(lines, row, 1, f'"{random.integers(9)},{random.integers(10, 99)}"')


def _repeated_name(lines, random):
    _edit(lines, 0, random.integers(0, 2), "y")


def _no_name(lines, random):
    _edit(lines, 0, random.integers(0, 2), random.choice(["", "  "]))


def _no_header(lines, random):
    del lines[0]


def _header_only(lines, random):
    del lines[1:]


def _few_rows(lines, random):
    del lines[1 + random.integers(1, 3) :]


def _other_separator(lines, random):
    separator = random.choice([";", "\t", "|"])
    lines[:] = [line.replace(",", separator) for line in lines]


def _constant_target(lines, random):
    for row in range(1, len(lines)):
        _edit(lines, row, 2, "7")


def _no_targets(lines, random):
    for row in range(1, len(lines)):
        _edit(lines, row, 2, random.choice(["", "NA", "?"]))


def _constant_inputs(lines, random):
    for row in range(1, len(lines)):
        _edit(lines, row, 0, "1")
        _edit(lines, row, 1, "x")


def _broken_dates(lines, random):
    for row in range(1, len(lines)):
        _edit(lines, row, 1, f"2024-01-{1 + row % 28:02d}")
    _edit(lines, random.integers(1, len(lines)), 1, "2024-13-45")


def _empty(lines, random):
    lines[:] = [""] * random.integers(0, 3)


def _not_utf8(content, random):
    position = random.integers(len(content))
    return content[:position] + bytes([random.integers(0x80, 0xC0)]) + content[position:]


def _utf16(content, random):
    return content.decode().encode(random.choice(["utf-16", "utf-32"]))


def _noise(content, random):
    return bytes([255]) + random.bytes(random.integers(1, 2000))


FAULTS = [
    _ragged, _short, _open_quote, _text_among_numbers, _infinite, _too_large, _long_identifier,
    _decimal_commas, _repeated_name, _no_name, _no_header, _header_only, _few_rows,
    _other_separator, _constant_target, _no_targets, _constant_inputs, _broken_dates, _empty,
]  # fmt: skip
BYTE_FAULTS = [_not_utf8, _utf16, _noise]
PARQUET = ["truncated", "no parquet", "lists", "no rows"]
CASES = [*FAULTS, *BYTE_FAULTS, *PARQUET]


def malformed(folder, case, random):
    """Write a malformed file of one kind; return its path."""
    path = folder / "data.csv"
    rows = random.integers(20, 40)
    numbers = random.normal(size=(rows, 3)).round(3)
    lines = ["a,b,y", *(",".join(map(str, row)) for row in numbers.tolist())]
    if case in PARQUET:
        path = folder / "data.parquet"
        table = pa.table({"a": [[1.0]] * rows, "y": numbers[:, 2]})
        if case != "lists":
            table = pa.table({"a": numbers[:, 0], "y": numbers[:, 2]})
        stream = io.BytesIO()
        pq.write_table(table.slice(0, 0) if case == "no rows" else table, stream)
        content = stream.getvalue()
        content = content[: random.integers(len(content))] if case == "truncated" else content
        path.write_bytes(random.bytes(500) if case == "no parquet" else content)
        return path
    if case in BYTE_FAULTS:
        path.write_bytes(case("\n".join(lines).encode(), random))
        return path
    case(lines, random)
    path.write_text(random.choice(["\n", "\r\n"]).join(lines), newline="")
    return path


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES, ids=lambda c: c if isinstance(c, str) else c.__name__)
def test_malformed_files(case, seed, tmp_path, monkeypatch, capsys):
    """104 generated files end with exit code 2 and one line, and nothing is written."""
    random = np.random.default_rng((seed, CASES.index(case)))
    path, out = malformed(tmp_path, case, random), tmp_path / "out"
    args = ["compare", path, "--target", "y", "--out", out, *TINY]
    args += [] if seed % 2 else ["--quiet"]
    code, printed, err = command(monkeypatch, capsys, *args)
    assert code == 2, (printed, err)
    assert len(err.strip().splitlines()) == 1
    assert path.name in err
    assert printed == ""
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
