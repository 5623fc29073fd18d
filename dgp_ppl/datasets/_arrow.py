"""PyArrow, which reads .csv and .parquet files and data frames; loaded when it is needed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from dgp_ppl._errors import DataError, one_line


def arrow(module: str = "") -> Any:
    """Import PyArrow, or one of its modules such as ``csv``; say how to install what is missing."""
    try:
        return importlib.import_module(f"pyarrow.{module}".rstrip("."))
    except ImportError as error:
        raise DataError("tables and Parquet need PyArrow: pip install 'dgp_ppl[tables]'") from error


@contextlib.contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn the errors that PyArrow raises on a .parquet file into `DataError`."""
    pa = arrow()
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{where}: not a readable .parquet file, or folder of them ({one_line(error)}); write "
            "it again"
        ) from error


def without_index(where: str, data: Any) -> Any:
    """Leave out the columns in which pandas stored an index."""
    try:
        metadata: dict[str, Any] = data.schema.pandas_metadata or {}
        index = [name for name in metadata.get("index_columns", ()) if isinstance(name, str)]
    except ValueError as error:
        raise DataError(f"{where}: no readable table ({one_line(error)}); write again") from error
    return data.select([i for i, name in enumerate(data.column_names) if name not in index])


@runtime_checkable
class ArrowFrame(Protocol):
    """A data frame of any library with Arrow's PyCapsule interface, such as pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_frame(x: object) -> bool:
    """Return whether this has named columns: a data frame, also of Dask, and no Series."""
    is_of_arrow = isinstance(x, ArrowFrame) and not hasattr(x, "__array__")
    return is_of_arrow or hasattr(type(x), "columns")


def frame_name(frame: object) -> str:
    """Return the library and the class of a frame, for messages: ``pandas DataFrame``."""
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"


def frame_columns(frame: Any) -> Any:
    """Convert a frame to a `pyarrow.Table`."""
    where = frame_name(frame)
    if not isinstance(frame, ArrowFrame):
        todo = "collect it first" if hasattr(frame, "collect") else "make a frame of it"
        raise DataError(f"{where}: wanted a file, or a data frame such as pandas'; {todo}")
    pa = arrow()
    try:
        return pa.table(frame)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"{where}: cannot be read ({one_line(error)}); give each column one type, for example "
            "by frame[column].astype('string')"
        ) from error
