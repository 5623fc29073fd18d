"""`dgp-ppl fit`: fit one method, check it on held-out rows, and keep it in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgp_ppl import report
from dgp_ppl._errors import DataError
from dgp_ppl._files import replacing
from dgp_ppl.cli import _options as given
from dgp_ppl.cli._app import app, writing
from dgp_ppl.cli._compare import print_results
from dgp_ppl.cli._options import check_output, column_names, data_stem, use_x64
from dgp_ppl.comparison import METHODS, compare
from dgp_ppl.comparison._setting import OPTIONS, with_options
from dgp_ppl.datasets._npz import DEFAULT_SPLITS

__all__: list[str] = []


@app.command("fit")
@with_options([o for o in OPTIONS if o.name != "restarts"], given.setting_option)
def _fit(
    data: given.Data,
    method: Annotated[str, given.option(f"Method: {', '.join(METHODS)}.", given.MODEL)] = "dsvi",
    *,
    seed: given.Seed = 0,
    x64: given.X64 = False,
    target: given.Target = None,
    drop: given.Drop = None,
    categorical: given.Categorical = None,
    strict: given.Strict = False,
    split: Annotated[
        int,
        given.option(
            "Number of the split, from 0: one that comes with the data, else a random one "
            "with 90 % of the rows for training.",
            given.DATA,
        ),
    ] = 0,
    split_key: given.SplitKey = DEFAULT_SPLITS,
    out: Annotated[
        Path | None,
        given.option(
            "File of the fit, which ends in .dgp.", given.RESULTS, show_default="DATA.dgp"
        ),
    ] = None,
    picture: Annotated[
        bool,
        given.option(
            "Draw the predictions of the held-out rows, next to the fit's file.", given.RESULTS
        ),
    ] = True,
    overwrite: given.Overwrite = False,
    quiet: given.Quiet = False,
    **options: Any,
) -> None:
    """Fit one method to a data set, check it on held-out rows, and keep the fit in a file.

    The fit equals the fit of `dgp-ppl compare` with the same options to one split.

    Example: `dgp-ppl fit houses.csv --target price --out price.dgp`.
    """
    from rich.console import Console

    use_x64(x64)
    if method not in METHODS:
        raise DataError(f"fit: method is {method!r}, wanted one of {', '.join(METHODS)}")
    if split < 0:
        raise DataError(f"fit: split is {split}, wanted the number of a split, at least 0")
    out = Path(f"{data_stem(data)}.dgp") if out is None else out
    check_output(out, overwrite, (".dgp",), [data])
    image = out.with_suffix(".png")
    draw: Any = report.draw_held_out if picture else None  # without Matplotlib, the command ends
    if picture:
        check_output(image, overwrite, (".png",), [data])
    try:
        with writing("fit", out):
            outcome = compare(
                data,
                [method],
                splits=[split],
                seed=seed,
                target=target,
                drop=column_names(drop),
                categorical=column_names(categorical),
                strict=strict,
                split_key=split_key,
                progress=not quiet,
                **options,
            )
    except ValueError as error:
        if not str(error).startswith("compare: "):
            raise
        raise DataError(f"fit: {str(error).removeprefix('compare: ')}") from error
    (row,) = outcome.splits
    if "error" in row:
        Console(stderr=True).print(f"{method}: {row['error']}", highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    run = outcome.fits[method]
    with writing("fit", out):
        run.save(out)
    held_out, rows = len(run.y_test), run.num_data + len(run.y_test)
    console = Console()
    print_results(console, outcome, f"{run.data.name}: {held_out:,} of {rows:,} rows held out")
    console.print(f"Kept in {out}", soft_wrap=True, highlight=False)
    if picture:
        with writing("fit", image), replacing(image) as draft:
            draw({method: run}).savefig(draft, format="png", dpi=150)
        console.print(f"Picture: {image}", soft_wrap=True, highlight=False)
