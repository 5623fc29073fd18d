"""One run of each command, which the tests of its results share."""

from types import SimpleNamespace

import pandas as pd
import pytest
from support.commands import command
from support.tables import houses

FIT = [
    "--target", "price", "--drop", "house,owner", "--split", "1", "--seed", "3",
    "--method", "svgp", "--steps", "3", "--inducing", "4", "--samples", "4",
]  # fmt: skip


def frame(rows=30):
    """Return a messy table whose houses have numbers such as 007."""
    table = pd.DataFrame(houses(rows)).drop(columns="id")
    return table.assign(house=[f"{i:03d}" for i in range(rows)])


@pytest.fixture(scope="session")
def fit(tmp_path_factory):
    """Return the outcome of `dgp-ppl fit`: the folder, the fit's file, and what was printed."""
    folder = tmp_path_factory.mktemp("fit")
    frame().to_csv(folder / "houses.csv", index=False)
    code, out, err = command("fit", "houses.csv", *FIT, folder=folder)
    assert code == 0, err
    return SimpleNamespace(folder=folder, path=folder / "houses.dgp", out=out, err=err)
