"""Runs of the command line in this process, and a table for them."""

import contextlib
import io

import pandas as pd
import pytest
from support.tables import houses

from dgp_ppl.cli.__main__ import run


def frame(rows=30):
    """Return a messy table whose houses have numbers such as 007."""
    table = pd.DataFrame(houses(rows)).drop(columns=["id", "owner"])
    return table.assign(house=[f"{i:03d}" for i in range(rows)])


def command(*args, folder=None):
    """Run `dgp-ppl` in a folder; return its exit code, standard output and standard error."""
    code, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["dgp-ppl", *map(str, args)])
        patch.delenv("DGP_PPL_DATA", raising=False)
        if folder is not None:
            patch.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run()
            except SystemExit as stop:
                code = stop.code or 0
    return code, out.getvalue(), err.getvalue()


def refused(*args, folder=None):
    """Run `dgp-ppl` with bad input; return its one line on standard error."""
    code, out, err = command(*args, folder=folder)
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1), (args, err)
    return err
