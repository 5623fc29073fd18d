"""`dgp-ppl fit`: fit one method, check it on held-out rows, and keep it in a file."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from dgp_ppl import report
from dgp_ppl._errors import DataError
from dgp_ppl._files import replacing
from dgp_ppl.cli._app import app, console, print_note, writing
from dgp_ppl.cli._compare import print_results
from dgp_ppl.cli._options import (
    DATA,
    SHARED,
    Data,
    annotation,
    check_output,
    data_stem,
    keywords,
    option,
)
from dgp_ppl.comparison import METHODS, compare
from dgp_ppl.comparison._method import check_methods
from dgp_ppl.comparison._run import Run
from dgp_ppl.comparison._setting import MODEL, OPTIONS, RESULTS, with_options


@app.command("fit")
@with_options([*SHARED, *(o for o in OPTIONS if o.name != "restarts")], annotation)
def _fit(
    data: Data,
    method: Annotated[str, option(f"Method: {', '.join(METHODS)}.", MODEL)] = "dsvi",
    *,
    split: Annotated[
        int,
        option(
            "Number of the split, from 0: one that comes with the data, else a random one "
            "with 90 % of the rows for training.",
            DATA,
            min=0,
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        option("File of the fit, which ends in .dgp.", RESULTS, show_default="DATA.dgp"),
    ] = None,
    picture: Annotated[
        bool, option("Draw the predictions of the held-out rows, next to the fit's file.", RESULTS)
    ] = True,
    **options: Any,
) -> None:
    """Fit one method to a data set, check it on held-out rows, and keep the fit in a file.

    The checks are one table: what, its value, a verdict, and what to do.

    The fit equals the fit of `dgp-ppl compare` with the same options to one split.

    Example: `dgp-ppl fit houses.csv --target price --out price.dgp`.
    """
    check_methods([method], (), ())
    out = Path(f"{data_stem(data)}.dgp") if out is None else out
    overwrite = options.pop("overwrite")
    check_output(out, overwrite, (".dgp",), [data])
    image = out.with_suffix(".png")
    draw: Any = report.draw_held_out if picture else None  # without Matplotlib, the command ends
    if picture:
        check_output(image, overwrite, (".png",), [data])
    with writing("fit", out):
        outcome = compare(data, [method], splits=[split], **keywords(**options))
        (row,) = outcome.splits
        if "error" in row:
            print_note(console(stderr=True), f"{method}: {row['error']}")
            raise typer.Exit(1)
        run = outcome.fits[method]
        kept, fault = _kept(run, out, new=not overwrite)
    held_out, rows = len(run.y_test), run.num_data + len(run.y_test)
    shown, lines = console(), [*str(run.check).splitlines(), f"Kept in {kept}"]
    try:
        print_results(shown, outcome, f"{run.data.name}: {held_out:,} of {rows:,} rows held out")
        for line in lines:
            print_note(shown, line)
    except OSError as error:
        raise DataError(f"standard output: {error.strerror}; the fit is kept in {kept}") from error
    if fault is not None:
        raise fault
    if picture:
        with writing("fit", image), replacing(image, new=not overwrite) as draft:
            draw({method: run}).savefig(draft, format="png", dpi=150)
        print_note(shown, f"Picture: {image}")


def _kept(run: Run, out: Path, new: bool) -> tuple[Path, DataError | None]:
    """Write a fit, or where it cannot be written a temporary file; return the path and the error.

    A fit takes long, and a disk may be full by its end.
    """
    try:
        with replacing(out, new=new) as draft:
            run.save(draft)
        return out, None
    except DataError as error:
        with contextlib.suppress(OSError, DataError):
            spare = Path(tempfile.mkdtemp(prefix="dgp-ppl-")) / out.name
            run.save(spare)
            return spare, DataError(f"{error}; the fit is kept in {spare}")
        raise
