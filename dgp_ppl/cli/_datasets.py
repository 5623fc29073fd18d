"""`dgp-ppl datasets`: the data sets that have names."""

from __future__ import annotations

from dgp_ppl import datasets
from dgp_ppl.cli._app import app

__all__: list[str] = []


@app.command("datasets")
def _datasets() -> None:
    """List the data sets that can be loaded by name without a network."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "columns", "task", "source"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left")
    for info in datasets.names():
        table.add_row(info.name, str(info.rows), str(info.columns), info.task, info.source)
    console = Console()
    console.print(table)
    console.print(
        "To add data sets, set DGP_PPL_DATA to a folder of .npz files. `dgp-ppl compare` also "
        "takes openml:NAME and .csv, .parquet and .npz files."
    )
