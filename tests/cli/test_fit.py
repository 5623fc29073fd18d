"""`dgp-ppl fit`: the fit of `compare`, its check and its files, and bad input."""

import errno
import tempfile

import numpy as np
import pandas as pd
import pytest
from jax import random
from support.commands import command, refused
from support.tables import houses

import dgp_ppl
from dgp_ppl._errors import Interrupted
from dgp_ppl.cli import _fit
from dgp_ppl.comparison._run import Run

TINY = ["--depth", "1", "--steps", "3", "--inducing", "4", "--samples", "4"]


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame(houses(30)).to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path


def test_the_fit_is_that_of_compare(fit):
    assert "houses: 3 of 29 rows held out" in fit.out
    assert "RMSE" in fit.out
    assert "look  steps                   3\n" in fit.out  # the table of checks
    assert "26 training rows" in fit.err  # the report
    assert "dsvi 1/1: 100%" in fit.err
    assert {p.name for p in fit.folder.iterdir()} == {"houses.csv", "houses.dgp", "houses.png"}
    assert (fit.folder / "houses.png").read_bytes()[:4] == b"\x89PNG"

    same = dgp_ppl.compare(
        fit.folder / "houses.csv", ["dsvi"], depth=1, target="price", drop=["house"], splits=[1],
        seed=3, steps=3, inducing=4, samples=4, progress=False,
    )  # fmt: skip
    kept, run = dgp_ppl.load(fit.path), same.fits["dsvi"]
    assert kept.params.keys() == run.fitted.result.params.keys()
    for name, value in run.fitted.result.params.items():
        np.testing.assert_array_equal(kept.params[name], value)
    row = {n: v for n, v in same.splits[0].items() if n != "seconds"}
    assert {n: kept.info["comparison"]["row"][n] for n in row} == row
    key, options = random.key(0), {"num_samples": 4}
    np.testing.assert_array_equal(
        kept.predict(key, run.x_test, **options).mean,
        run.fitted.predict(key, run.x_test, standardizer=run.standardizer, **options).mean,
    )
    assert kept.was_fitted_to(run.x, run.y)


def test_bad_input_is_one_line(folder):
    """Exit code 2, and nothing is written; earlier files are kept."""
    for args, words in (
        (["--method", "magic"], ["no method 'magic'", "dsvi"]),
        (["--steps", "0"], ["dgp-ppl: steps is 0"]),
        (["--split", "-1"], ["--split"]),
        (["--target", "pryce"], ["'pryce'", "'price'"]),
        (["--out", "price.pkl"], ["'.pkl'", ".dgp"]),
    ):
        given = ["fit", "houses.csv", "--target", "price", "--quiet", *TINY, *args]
        err = refused(*given, folder=folder)
        assert all(word in err for word in words), err
    assert [p.name for p in folder.iterdir()] == ["houses.csv"]
    for name in ("houses.dgp", "houses.png"):
        (folder / name).write_text("mine")
        args = ["fit", "houses.csv", "--target", "price", *TINY]
        assert "--overwrite" in refused(*args, folder=folder)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()


def test_a_folder_is_checked_as_a_file_is(tmp_path):
    (tmp_path / "d").mkdir()
    table = pd.DataFrame({"a": [*np.arange(9.0), 1e39], "y": np.arange(10) / 2})
    table.to_parquet(tmp_path / "d" / "0.parquet")
    err = refused("fit", "d", "--target", "y", *TINY, folder=tmp_path)
    assert "column 'a': 1e+39 in row 9 (from 0) of 'd/0.parquet'" in err


def test_a_disk_is_tried_first_and_a_fit_outlives_a_full_one(folder, tmp_path_factory, monkeypatch):
    args = ["fit", "houses.csv", "--target", "price", *TINY]
    full = OSError(errno.ENOSPC, "No space left on device")
    save, spare = Run.save, tmp_path_factory.mktemp("spare")

    def fail(*_, **__):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", fail)
        assert "cannot be written to (No space left on device); make" in refused(
            *args, folder=folder
        )
    monkeypatch.setattr(
        Run, "save", lambda run, path: save(run, path) if spare in path.parents else fail()
    )
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    code, out, err = command(*args, folder=folder)
    (kept,) = spare.glob("*/houses.dgp")
    assert (code, [p.name for p in folder.iterdir()]) == (2, ["houses.csv"])
    assert f"Kept in {kept}" in out.replace("\n", "")
    assert err.splitlines()[-1].startswith("dgp-ppl: houses.dgp cannot be written: No space left")
    assert err.endswith(f"; the fit is kept in {kept}\n")
    assert dgp_ppl.load(kept).columns
    monkeypatch.setattr(_fit, "print_results", fail)
    err = command(*args, folder=folder)[2].splitlines()[-1]
    kept = f"dgp-ppl: standard output: No space left on device; the fit is kept in {spare}"
    assert err.startswith(kept)


def test_a_failed_or_interrupted_fit_writes_nothing(folder, monkeypatch):
    def fail(*_, **options):
        row = {"split": options["splits"][0], "method": "dsvi", "error": "not finite"}
        return dgp_ppl.Comparison({"splits": [row], "summary": []})

    def interrupt(*_, **__):
        raise Interrupted("compare: interrupted with 0 of 1 fits finished", None)

    for compare, code, err in (
        (fail, 1, "dsvi: not finite\n"),
        (interrupt, 130, "dgp-ppl: fit: interrupted; houses.dgp is not written\n"),
    ):
        monkeypatch.setattr(_fit, "compare", compare)
        args = ["fit", "houses.csv", "--target", "price", *TINY]
        assert command(*args, folder=folder) == (code, "", err)
        assert [p.name for p in folder.iterdir()] == ["houses.csv"]
