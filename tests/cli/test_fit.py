"""`dgp-ppl fit`: the fit of `compare`, its check and its files, and bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from jax import random
from support.commands import command
from support.malformed import CASES, malformed, name_of
from support.tables import houses

import dgp_ppl
from dgp_ppl._errors import Interrupted
from dgp_ppl.cli import _fit

TINY = ["--method", "svgp", "--steps", "3", "--inducing", "4", "--samples", "4"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "houses.csv"
    pd.DataFrame(houses(30)).to_csv(path, index=False)
    return path


def test_the_fit_is_that_of_compare(table, tmp_path, monkeypatch, capsys):
    out = tmp_path / "price.dgp"
    args = ["--target", "price", "--out", out, "--drop", "id,owner", "--split", "1", "--seed", "3"]
    code, printed, err = command(monkeypatch, capsys, "fit", table, *args, *TINY)
    assert code == 0, err
    assert "houses: 3 of 29 rows held out" in printed
    assert "RMSE" in printed
    assert "26 training rows" in err  # the report
    assert "svgp 1/1: 3 of 3 steps" in err
    assert {p.name for p in tmp_path.iterdir()} == {"houses.csv", "price.dgp", "price.png"}
    assert (tmp_path / "price.png").read_bytes()[:4] == b"\x89PNG"

    same = dgp_ppl.compare(
        table, ["svgp"], target="price", drop=["id", "owner"], splits=[1], seed=3, steps=3,
        inducing=4, samples=4, progress=False,
    )  # fmt: skip
    kept, run = dgp_ppl.load(out), same.fits["svgp"]
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


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--method", "magic"], ["fit: method is 'magic'", "dsvi"]),
        (["--steps", "0"], ["fit: steps is 0"]),
        (["--split", "-1"], ["fit: split is -1, wanted the number"]),
        (["--target", "pryce"], ["'pryce'", "'price'"]),
        (["--out", "price.pkl"], ["'.pkl'", ".dgp"]),
        (["--out", "nowhere/price.dgp"], ["no folder"]),
        (["--kernel", "cosine"], ["fit: kernel is 'cosine'"]),
        (["--model", "deep"], ["fit: model is 'deep'"]),
        (["--target", "colour", "--method", "sgpr"], ["Gaussian noise"]),
    ],
)
def test_bad_options(table, tmp_path, monkeypatch, capsys, args, words):
    monkeypatch.chdir(tmp_path)
    given = ["fit", table, "--target", "price", "--quiet", *TINY, *args]
    code, printed, err = command(monkeypatch, capsys, *given)
    assert (code, len(err.strip().splitlines()), printed) == (2, 1, "")
    assert all(word in err for word in words)
    assert [p.name for p in tmp_path.iterdir()] == ["houses.csv"]


@pytest.mark.parametrize("name", ["houses.dgp", "houses.png"])
def test_earlier_files_are_kept(name, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("mine")
    code, _, err = command(monkeypatch, capsys, "fit", table, "--target", "price", *TINY)
    assert (code, "--overwrite" in err) == (2, True)
    assert (tmp_path / name).read_text() == "mine"


def test_a_failed_fit_writes_nothing(table, tmp_path, monkeypatch, capsys):
    def fail(*_, **options):
        raise_row = {"split": 0, "method": options["splits"] and "svgp", "error": "not finite"}
        return dgp_ppl.Comparison({"splits": [raise_row], "summary": []})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_fit, "compare", fail)
    code, printed, err = command(monkeypatch, capsys, "fit", table, "--target", "price", *TINY)
    assert (code, printed, err) == (1, "", "svgp: not finite\n")
    assert [p.name for p in tmp_path.iterdir()] == ["houses.csv"]


def test_an_interrupted_fit_writes_nothing(table, tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise Interrupted("compare: interrupted with 0 of 1 fits finished", None)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_fit, "compare", interrupt)
    code, printed, err = command(monkeypatch, capsys, "fit", table, "--target", "price", *TINY)
    assert (code, printed) == (130, "")
    assert err == "dgp-ppl: fit: interrupted; houses.dgp is not written\n"
    assert [p.name for p in tmp_path.iterdir()] == ["houses.csv"]


@pytest.mark.parametrize("seed", range(10, 12))
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_malformed_files(case, seed, tmp_path, monkeypatch, capsys):
    """52 generated files end with exit code 2 and one line, and nothing is written."""
    path = malformed(tmp_path, case, seed)
    monkeypatch.chdir(tmp_path)
    code, printed, err = command(monkeypatch, capsys, "fit", path, "--target", "y", *TINY)
    assert (code, len(err.strip().splitlines()), printed) == (2, 1, ""), err
    assert path.name in err
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
def test_tables_of_parquet_their_categories_and_strictness(tmp_path, monkeypatch, capsys):
    def run(name, *args):
        given = ["fit", f"{name}.parquet", "--target", "price", "--no-picture", "--quiet", *args]
        return command(monkeypatch, capsys, *given, *TINY)

    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(houses(30)).drop(columns=["id", "owner"])
    table.to_parquet("messy.parquet", index=False)
    code, printed, err = run("messy", "--categorical", "rooms")
    assert code == 0, err
    assert "messy: 3 of 29 rows held out" in printed
    kept = dgp_ppl.load("messy.dgp")
    rooms = [name for name in kept.columns if name.startswith("rooms")]
    assert rooms == [f"rooms={n}" for n in (1, 2, 3, 4, 5, "(missing)")]
    assert kept.columns == kept.preprocessor.names
    assert np.isfinite(kept.predict(random.key(0), "messy.parquet", num_samples=4).mean).all()

    code, printed, err = run("messy", "--strict", "--overwrite")
    assert (code, len(err.strip().splitlines()), printed) == (2, 1, ""), err
    assert "of type" in err
    assert dgp_ppl.load("messy.dgp").columns == kept.columns  # the earlier file
    numbers = table[["rooms", "price"]].dropna().assign(size=1.0, area=np.arange(28) / 2)
    numbers.to_parquet("numbers.parquet", index=False)
    assert run("numbers", "--strict")[0] == 0
    strict = dgp_ppl.load("numbers.dgp")
    assert (strict.columns, strict.preprocessing) == (("rooms", "size", "area"), None)


OTHERS = [("bnn", "deep_gp"), ("nuts_priors", "deep_gp"), ("dsvi", "latent")]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "model"), OTHERS)
def test_other_methods_and_models_are_kept(method, model, tmp_path):
    """The loaded fit predicts what the fit of `compare` predicts."""
    setting = {"steps": 4, "inducing": 4, "samples": 4, "draws": 4, "width": 2}
    outcome = dgp_ppl.compare(
        pd.DataFrame(houses(20)), [method], model=model, target="price", drop=("id", "owner"),
        splits=1, progress=False, **setting,
    )  # fmt: skip
    run = outcome.fits[method]
    run.save(tmp_path / "fit.dgp")
    kept, key = dgp_ppl.load(tmp_path / "fit.dgp"), random.key(1)
    found = kept.predict(key, run.x_test, num_samples=4)
    wanted = run.fitted.predict(
        key, run.x_test, num_samples=4, standardizer=run.standardizer
    )  # fmt: skip
    np.testing.assert_array_equal(found.mean, wanted.mean)
    assert json.loads(json.dumps(kept.info)) == kept.info
