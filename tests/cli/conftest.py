"""One run of each command, which the tests of its results share."""

from types import SimpleNamespace

import pytest
from support.commands import command, frame

FIT = [
    "--target", "price", "--drop", "house", "--split", "1", "--seed", "3",
    "--depth", "1", "--steps", "3", "--inducing", "4", "--samples", "4",
]  # fmt: skip


@pytest.fixture(scope="session")
def fit(tmp_path_factory):
    """Return the outcome of `dgp-ppl fit`: the folder, the fit's file, and what was printed."""
    folder = tmp_path_factory.mktemp("fit")
    frame().to_csv(folder / "houses.csv", index=False)
    code, out, err = command("fit", "houses.csv", *FIT, folder=folder)
    assert code == 0, err
    return SimpleNamespace(folder=folder, path=folder / "houses.dgp", out=out, err=err)
