"""`dgp-ppl compare`: its files, exit codes, and one-line errors for bad input."""

import json
import sys

import pandas as pd
import pytest
import xarray
from support.commands import command, frame, refused
from support.comparisons import no_fit

from dgp_ppl._errors import DataError
from dgp_ppl.cli import _compare
from dgp_ppl.comparison import Run, _compare as _comparison

TINY = ["--steps", "3", "--inducing", "4", "--samples", "4", "--splits", "1", "--depth", "1"]
TINY += ["--methods", "dsvi"]


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "houses.csv"
    frame().to_csv(path, index=False)
    return path


def test_a_good_file_is_compared(messy, tmp_path, monkeypatch):
    """Overwriting removes the files of the earlier comparison and keeps the user's."""
    monkeypatch.setattr(Run, "tree", xarray.DataTree())  # it takes most of the time
    out = tmp_path / "out"
    out.mkdir()
    for name in ("results.json", "sgpr.nc", "function.png", "notes.txt"):
        (out / name).write_text("{}")
    args = ["compare", messy, "--target", "price", "--drop", "house", "--out", out, "--quiet"]
    assert "--overwrite" in refused(*args, *TINY)
    assert (out / "results.json").read_text() == "{}"
    code, text, err = command(*args, *TINY, "--overwrite")
    assert (code, err) == (0, "")
    assert "dsvi" in text
    assert {p.name for p in out.iterdir()} == {
        "results.json", "dsvi.nc", "training.png", "predictions.png", "pit.png", "notes.txt",
    }  # fmt: skip


def test_the_report_of_a_messy_file_is_printed(messy, tmp_path, monkeypatch):
    monkeypatch.setattr(_comparison, "run_method", no_fit)
    args = ["compare", messy, "--target", "price", "--out", tmp_path / "out", *TINY]
    code, _, err = command(*args, "--drop", "garage, country", "--categorical", "rooms")
    assert code == 0
    for words in ("categories  rooms: 1, 2, 3, 4, 5, and missing", "left out    garage: as asked",
                  "left out    1 row without",
                  "Warning: column 'house' has 26"):  # fmt: skip
        assert words in err
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["config"]["drop"] == ["garage", "country"]
    assert record["config"]["categorical"] == ["rooms"]


def test_rivals_and_repeated_rows(tmp_path, monkeypatch):
    rows = frame(40)
    pd.concat([rows, rows]).to_csv(tmp_path / "twice.csv", index=False)
    args = ["compare", tmp_path / "twice.csv", "--target", "price", "--splits", "1", "--quiet"]
    args += ["--methods", "hist_gradient_boosting", "--out", tmp_path / "out"]
    code, text, _ = command(*args)
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["splits"]
    assert code == 0
    assert row["repeated"] > 0
    assert "Without held-out rows whose inputs are training rows" in text
    assert "density of hist_gradient_boosting is a Gaussian" in " ".join(text.split())
    code, text, _ = command(*args, "--overwrite", "--groups", "inputs")
    assert (code, "Without held-out rows" in text) == (0, False)
    monkeypatch.setitem(sys.modules, "ngboost", None)
    said = refused("compare", "step", "--methods", "ngboost", "--out", tmp_path / "more")
    assert said == "dgp-ppl: ngboost is not installed; pip install 'dgp_ppl[rivals]'\n"


def test_bad_input_is_one_line(messy, tmp_path):
    """Exit code 2, and nothing is written."""
    price = [messy, "--target", "price"]
    for args, word in (
        (["no-such-file.csv", "--target", "y"], "no-such-file.csv"),
        (["diabetez"], "diabetes"),
        (["diabetes", "--steps", "0"], "steps"),
        (["diabetes", "--steps", "many"], "'--steps'"),
        (["diabetes", "--stepz", "3"], "No such option: --stepz"),
        (["diabetes", "--workers", "0"], "workers"),
        (["diabetes", "--seed", "99999999999999999999"], "seed"),
        (["diabetes", "--split-key", "mine"], "mine"),
        (["breast_cancer", "--methods", "sgpr,dsvi"], "sgpr"),
        ([*price, "--strict"], "houses.csv"),
        ([*price, "--drop", "nothing"], "drop: no column 'nothing'"),
        ([*price, "--categorical", '"a, b"'], "no column 'a, b'"),
    ):
        assert word in refused("compare", *TINY, *args, "--out", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["houses.csv"]


def test_a_malformed_file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;y\n1;2\n")
    for name in ("compare", "fit"):
        assert path.name in refused(name, path.name, "--target", "y", folder=tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_options_reach_the_comparison(tmp_path, monkeypatch):
    seen = {}

    def record(*_, **options):
        seen.update(options)
        raise DataError("stop here")

    monkeypatch.setattr(_compare, "compare", record)
    wanted = {
        "category_kernel": True, "kernel": "matern52", "restarts": 3, "elbo_share": 0.2,
        "likelihood": "heteroscedastic", "width": 3, "as_published": True,
    }  # fmt: skip
    args = [f"--{n.replace('_', '-')}" + f"={v}" * (v is not True) for n, v in wanted.items()]
    assert refused("compare", "step", "--out", tmp_path / "out", *args) == "dgp-ppl: stop here\n"
    assert seen.items() >= wanted.items()
    assert (seen["depth"], seen["batch"]) == (2, 1000)
