"""Data frames of other libraries as Arrow tables.

Frames come through Arrow's PyCapsule interface, the method ``__arrow_c_stream__``, which pandas,
polars, pyarrow and DuckDB have. PyArrow reads it, and .parquet files need PyArrow in any case. The
older interchange protocol, ``__dataframe__``, is being retired.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from dgp_ppl._errors import DataError, one_line

__all__ = ["ArrowFrame", "arrow_columns", "frame_name"]


@runtime_checkable
class ArrowFrame(Protocol):
    """A data frame of any library that has Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def frame_name(frame: object) -> str:
    """Return the library and the class of a frame, for messages: ``pandas DataFrame``."""
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"


def arrow_columns(frame: object) -> Any:
    """Convert a frame to a `pyarrow.Table`.

    A column of mixed Python objects, which Arrow does not have, becomes text.

    Raises:
        DataError: if the object is no frame, or Arrow has no such columns.
    """
    import pyarrow as pa

    where = frame_name(frame)
    if not isinstance(frame, ArrowFrame):
        todo = "collect it first" if hasattr(frame, "collect") else "make a frame of it"
        raise DataError(
            f"{where}: wanted a file, or a data frame such as pandas' or polars'; {todo}"
        )
    try:
        return pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        if not hasattr(frame, "columns"):
            raise DataError(f"{where}: Arrow cannot hold it ({one_line(error)})") from error
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"{where}: cannot be read ({one_line(error)}); check its columns"
        ) from error
    mixed: Any = frame
    columns = {str(name): _arrow_column(mixed[name]) for name in mixed.columns}
    return pa.table(columns)


def _arrow_column(values: Any) -> Any:
    """Convert one column; cells of different types become text."""
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if _is_missing(v) else str(v) for v in values], pa.string())


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)
