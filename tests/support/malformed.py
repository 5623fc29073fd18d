"""Malformed files of tables, made at random from a seed."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    cell = "1" + "0" * int(random.integers(39, 5000))
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
SUITS_PREDICTIONS = (_few_rows, _constant_target)  # malformed for fits alone


def name_of(case):
    """Return the name of a case, for pytest."""
    return case if isinstance(case, str) else case.__name__


def malformed(folder, case, seed):
    """Write a malformed file of one kind, with the columns a, b and y; return its path."""
    random = np.random.default_rng((seed, CASES.index(case)))
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
