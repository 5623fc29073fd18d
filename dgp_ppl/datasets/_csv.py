"""Rows of .csv files: Arrow reads them, and Python's csv module says which line is at fault."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._arrow import arrow
from dgp_ppl.datasets._messages import named, quoted, shown

_BLOCK_BYTES = 2**20


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its last line, from 1."""
    line = 0
    try:
        # Bytes that are no UTF-8 become lone surrogates, so that their line is known.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in reader:
                line = reader.line_num
                "".join(row).encode()
                if row:
                    yield line, row
    except UnicodeEncodeError as error:
        raise DataError(
            f"{named(path)}: line {line} is not UTF-8 text; save the file as CSV UTF-8"
        ) from error
    except csv.Error as error:
        what, todo = f"line {line + 1} is not valid CSV ({one_line(error)})", "check its quotes"
        if "field limit" in str(error):  # so a quote that is left open does not fill the memory
            what = f"line {line + 1} has a cell of more than {csv.field_size_limit():,} characters"
            todo = "close its quote, leave the column out of the file, or save it as .parquet"
        raise DataError(f"{named(path)}: {what}; {todo}") from error
    except OSError as error:
        raise DataError(
            f"{named(path)}: cannot be read ({error.strerror or one_line(error)}); check the file"
        ) from error


def csv_batches(path: Path) -> Iterator[Any]:
    """Yield the rows of a UTF-8 file in batches, as `pyarrow.Table`s of texts."""
    pa, pa_csv = arrow(), arrow("csv")
    line, names = _header(path)
    has_quotes, longest = False, 0
    with path.open("rb") as stream:
        for text in stream:
            has_quotes, longest = has_quotes or b'"' in text, max(longest, len(text))
    if has_quotes:  # Arrow reads on to the end of the file after a quote that is left open
        _check_rows(path, len(names))
    try:
        with path.open("rb") as stream:
            yield from map(
                pa.Table.from_batches,
                ([batch] for batch in pa_csv.open_csv(
                    stream,
                    pa_csv.ReadOptions(
                        skip_rows=line, column_names=names, use_threads=False,
                        block_size=max(_BLOCK_BYTES, 4 * longest),  # a row lies in two at most
                    ),
                    pa_csv.ParseOptions(newlines_in_values=has_quotes),
                    pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
                )),
            )  # fmt: skip
    except (pa.ArrowException, ValueError) as error:
        _check_rows(path, len(names))
        raise DataError(
            f"{named(path)}: not a readable .csv file ({one_line(error)}); write it again"
        ) from error


def _header(path: Path) -> tuple[int, list[str]]:
    """Return the number of the header's last line, and the names of the columns."""
    rows = csv_rows(path)
    line, header = next(rows, (0, []))
    if next(rows, None) is None:
        held = "has a header and no rows of data" if header else "is empty"
        raise DataError(
            f"{named(path)}: the file {held}, wanted a header line and rows; check that it is "
            "complete"
        )
    for separator in (";", "\t", "|"):
        if len(header) == 1 and separator in header[0]:
            raise DataError(
                f"{named(path)}: the header {shown(header[0])} has no commas and seems to be "
                f"separated by {separator!r}, wanted commas; save the file with commas"
            )
    names = [name.strip() for name in header]
    check_names(named(path), names)
    return line, names


def _check_rows(path: Path, width: int) -> None:
    """Raise `DataError` unless each row has as many fields as the header."""
    for line, row in csv_rows(path):
        if len(row) != width:
            raise DataError(
                f"{named(path)}: line {line} has {len(row)} field{'s' * (len(row) != 1)}, wanted "
                f"{width} as in the header; add or remove fields, and put quotes around text with "
                "commas"
            )


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise `DataError` unless every column has a different name."""
    if not names:
        raise DataError(f"{where}: no columns, wanted some; check what wrote it")
    for position, name in enumerate(names):
        if not name:
            raise DataError(
                f"{where}: column {position + 1} of {len(names)} has no name; name it or leave it "
                "out (pandas writes its index as such a column: save with index=False)"
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(
            f"{where}: {quoted(repeated)} names more than one column, wanted different names; "
            "rename or leave out the repeats"
        )
