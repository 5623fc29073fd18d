"""`dgp-ppl compare` with tables as people have them, and with malformed ones."""

import json

import pandas as pd
import pytest
from support.commands import command
from support.comparisons import no_fit
from support.malformed import CASES, malformed, name_of
from support.tables import houses

from dgp_ppl.comparison import _executor

TINY = ["--steps", "3", "--inducing", "4", "--samples", "4", "--splits", "1", "--methods", "svgp"]


@pytest.fixture
def without_fits(monkeypatch):
    """Make `compare` do everything but the fits."""
    monkeypatch.setattr(_executor, "run_method", no_fit)


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "houses.csv"
    pd.DataFrame(houses(30)).to_csv(path, index=False)
    return path


@pytest.mark.usefixtures("without_fits")
def test_the_report_of_a_messy_file_is_printed(messy, tmp_path, monkeypatch, capsys):
    args = ["compare", messy, "--target", "price", "--out", tmp_path / "out", *TINY]
    code, _, err = command(
        monkeypatch, capsys, *args, "--drop", "owner, country", "--categorical", "rooms"
    )
    assert code == 0
    for words in ("categories  rooms: 1, 2, 3, 4, 5, and missing", "left out    owner: as asked",
                  "left out    1 row of the table without a target",
                  "Warning: column 'id' has 26 different whole numbers in 26"):  # fmt: skip
        assert words in err
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["config"]["drop"] == ["owner", "country"]
    assert record["config"]["categorical"] == ["rooms"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--strict"], "cell missing"),
        (["--strict", "--drop", "id"], "strict takes all columns"),
        (["--drop", "nothing"], "drop has 'nothing'"),
        (["--drop", "price"], "the target"),
        (["--categorical", '"a, b"'], "categorical has 'a, b'"),
    ],
)
def test_bad_options(messy, tmp_path, monkeypatch, capsys, args, word):
    out = tmp_path / "out"
    args = ["compare", messy, "--target", "price", "--out", out, *TINY, *args]
    code, _, err = command(monkeypatch, capsys, *args)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert word in err
    assert not out.exists()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_malformed_files(case, seed, tmp_path, monkeypatch, capsys):
    """104 generated files end with exit code 2 and one line, and nothing is written."""
    path, out = malformed(tmp_path, case, seed), tmp_path / "out"
    args = ["compare", path, "--target", "y", "--out", out, *TINY]
    args += [] if seed % 2 else ["--quiet"]
    code, printed, err = command(monkeypatch, capsys, *args)
    assert code == 2, (printed, err)
    assert len(err.strip().splitlines()) == 1
    assert path.name in err
    assert printed == ""
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
