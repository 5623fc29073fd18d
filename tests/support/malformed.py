"""Malformed files of tables, with the columns a, b and y."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

_HEADER = ["a", "b", "y"]
_ROWS = [[f"{i / 7:.3f}", f"{i * 37 % 11 / 3:.3f}", f"{i / 3:.3f}"] for i in range(30)]


def _text(rows=_ROWS, header=_HEADER, separator=","):
    return "\n".join(separator.join(row) for row in [header, *rows])


def _edited(row, column, cell):
    rows = [list(cells) for cells in _ROWS]
    rows[row][column] = cell
    return _text(rows)


def _column(column, cells):
    return _text([[*row[:column], cell, *row[column + 1 :]] for row, cell in zip(_ROWS, cells)])  # noqa: B905


_DATES = [f"2024-01-{1 + i % 28:02d}" for i in range(30)]
_CSV = {
    "ragged": _edited(5, 2, "1,1"),
    "short": _text([*_ROWS[:7], _ROWS[7][:2], *_ROWS[8:]]),
    "open quote": _edited(9, 0, '"1'),
    "text among numbers": _edited(3, 1, "12kg"),
    "infinite": _edited(4, 0, "-inf"),
    "too large": _edited(6, 2, "1" + "0" * 400),
    "long identifier": _edited(8, 0, str(2**60 + 7)),
    "decimal commas": _column(1, [f'"{i % 9},{10 + i}"' for i in range(30)]),
    "repeated name": _text(header=["y", "b", "y"]),
    "no name": _text(header=["a", "  ", "y"]),
    "no header": _text(_ROWS[1:], _ROWS[0]),
    "header only": _text([]),
    "few rows": _text(_ROWS[:2]),
    "other separator": _text(separator=";"),
    "constant target": _column(2, ["7"] * 30),
    "no targets": _column(2, ["", "NA", "?"] * 10),
    "constant inputs": _text([["1", "x", y] for _, _, y in _ROWS]),
    "broken dates": _column(1, [*_DATES[:20], "2024-13-45", *_DATES[21:]]),
    "empty": "",
    "not UTF-8": _edited(2, 1, "1").encode() + b"\n1,\x80,2",
    "UTF-16": _text().encode("utf-16"),
    "noise": b"\xff" + bytes(range(256)) * 4,
}
_PARQUET = ("truncated", "no parquet", "lists", "no rows")
CASES = (*_CSV, *_PARQUET)


def malformed(folder, case):
    """Write a malformed file of one kind; return its path."""
    if case in _CSV:
        path, content = folder / "data.csv", _CSV[case]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
    path, stream = folder / "data.parquet", io.BytesIO()
    a = [[1.0]] * 30 if case == "lists" else [float(row[0]) for row in _ROWS]
    table = pa.table({"a": a, "y": [float(row[2]) for row in _ROWS]})
    pq.write_table(table.slice(0, 0) if case == "no rows" else table, stream)
    content = {"truncated": stream.getvalue()[:200], "no parquet": b"nonsense" * 60}
    path.write_bytes(content.get(case, stream.getvalue()))
    return path
