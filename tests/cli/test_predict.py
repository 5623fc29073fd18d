"""`dgp-ppl predict`: rows, columns and files of predictions, and bad input."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from jax import random
from support.commands import command, frame, refused

import dgp_ppl
from dgp_ppl.cli import _predict
from dgp_ppl.models import svgp
from dgp_ppl.persistence import KeptFit

TINY = {"splits": 1, "steps": 3, "inducing": 4, "samples": 4, "progress": False}
NEW = ["--samples", "4", "--quiet"]
ABOUT = {
    "task": "regression", "classes": [], "source": "", "target": "t",
    "rows": {"training": 2, "held_out": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def empty_fit(tmp_path_factory):
    """Return the file of a fit of the columns a, b and y that cannot predict."""
    path = tmp_path_factory.mktemp("empty") / "fit.dgp"
    dgp_ppl.save(path, svgp, None, {}, columns=["a", "b", "y"], info={"comparison": ABOUT})
    return path


def test_rows_keep_their_order_and_id(fit, tmp_path):
    """Chunks and the formats of the files change nothing."""
    table = frame().drop(columns="price").sample(frac=1, random_state=0)[:20]
    table.to_csv(tmp_path / "new.csv", index=False)
    table.to_parquet(tmp_path / "new.parquet", index=False)
    args = [fit.path, tmp_path / "new.csv", "--out", tmp_path / "p.parquet", "--id", "house,colour"]
    code, printed, err = command("predict", *args, "--samples", "4")
    assert (code, printed) == (0, "")
    assert "20 rows predicted" in err
    found = pq.read_table(tmp_path / "p.parquet").to_pandas()
    assert list(found) == ["house", "colour", "mean", "sd", "q05", "q50", "q95"]
    assert found["house"].tolist() == table["house"].tolist()
    p = dgp_ppl.load(fit.path).predict(random.key(0), tmp_path / "new.csv", num_samples=4)
    np.testing.assert_array_equal(found["mean"], p.mean)
    np.testing.assert_array_equal(found["sd"], np.sqrt(p.var))
    np.testing.assert_array_equal(found[["q05", "q50", "q95"]].T, p.quantile([0.05, 0.5, 0.95]))

    args = [fit.path, tmp_path / "new.parquet", "--out", tmp_path / "p.csv", "--id", "house"]
    code, printed, err = command("predict", *args, "--chunk", "10", *NEW)
    assert (code, printed, err) == (0, "", "")
    again = pd.read_csv(tmp_path / "p.csv", dtype={"house": str})
    assert again["house"].tolist() == table["house"].tolist()
    np.testing.assert_allclose(again.iloc[:, 1:], found.iloc[:, 2:], rtol=1e-4)


@pytest.mark.slow
def test_predictions_of_local_know_the_training_rows(tmp_path):
    """Targets are white noise, so that f knows nothing of them."""
    price = np.random.default_rng(0).normal(size=30)
    frame().assign(price=price).to_csv(tmp_path / "houses.csv", index=False)
    args = ["--target", "price", "--drop", "house", "--method", "local", "--split", "1"]
    args += ["--steps", "3", "--inducing", "4", "--samples", "4", "--quiet"]
    code, _, err = command("fit", "houses.csv", *args, folder=tmp_path)
    assert code == 0, err
    args = ["houses.dgp", "houses.csv", "--out", "p.csv", *NEW]
    assert command("predict", *args, folder=tmp_path) == (0, "", "")
    mean = pd.read_csv(tmp_path / "p.csv")["mean"]
    kept = dgp_ppl.load(tmp_path / "houses.dgp")
    wanted = kept.predict(random.key(0), tmp_path / "houses.csv", num_samples=4).mean
    np.testing.assert_array_equal(mean, wanted)
    known = np.isin(kept.standardizer.outputs(price).astype(np.float32), kept.kwargs["local"].y)
    assert known.sum() == 27
    assert np.corrcoef(mean[known], price[known])[0, 1] > 0.8


def test_classes_have_the_labels_that_people_wrote(tmp_path, monkeypatch):
    labels = ["Yes", "no way", "perhaps, later"]
    probabilities = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]])
    found = SimpleNamespace(probabilities=probabilities)
    monkeypatch.setattr(KeptFit, "predict", lambda *_, **__: found)
    about = {"comparison": ABOUT | {"task": "multiclass", "classes": labels}}
    dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, columns=["a"], info=about)
    (tmp_path / "new.csv").write_text("a\n1\n2\n")
    assert command("predict", "fit.dgp", "new.csv", *NEW, folder=tmp_path)[0] == 0
    table = pd.read_csv(tmp_path / "new-predictions.csv")
    assert list(table) == ["class", "P(Yes)", "P(no way)", "P(perhaps, later)"]
    assert table["class"].tolist() == ["no way", "Yes"]
    np.testing.assert_array_equal(table.iloc[:, 1:], probabilities)
    _, printed, _ = command("show", "fit.dgp", folder=tmp_path)
    assert "t (multiclass: Yes, no way, perhaps, later)" in printed


def test_new_categories_as_none_of_the_known_ones(fit, tmp_path):
    table = frame().drop(columns="price").assign(colour="mauve")
    table.to_csv(tmp_path / "new.csv", index=False)
    args = [fit.path, tmp_path / "new.csv", "--out", tmp_path / "p.csv", *NEW]
    code, _, err = command("predict", *args)
    assert (code, "--unseen zeros" in err) == (2, True)
    code, _, err = command("predict", *args, "--unseen", "zeros")
    assert (code, err) == (0, "")
    loaded = dgp_ppl.load(fit.path)
    x = loaded.preprocessor.inputs(table, unseen="zeros")
    assert not x[:, [n.startswith("colour") for n in loaded.preprocessor.names]].any()
    wanted = loaded.predict(random.key(0), x, num_samples=4).mean
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "p.csv")["mean"], wanted)


def test_bad_input_is_one_line(fit, tmp_path, monkeypatch):
    """Exit code 2, and nothing is written; earlier predictions are kept."""
    monkeypatch.setattr(_predict, "_summary", lambda *_: {"mean": np.zeros(30)})
    new = frame().drop(columns="price")
    for table, args, words in (
        (new.assign(colour="mauve"), [], ["'mauve' in line 2", "no category", "'red'"]),
        (new.drop(columns="area"), [], ["no column 'area'"]),
        (new, ["--id", "nr"], ["id has 'nr'", "'house'"]),
        (new.assign(mean=1), ["--id", "mean"], ["id has 'mean'", "rename"]),
        (new, ["--quantiles", "0,1"], ["quantiles is '0,1'"]),
        (new, ["--quantiles", "x"], ["quantiles is 'x'"]),
        (new, ["--quantiles", "0.12345678,0.12345679"], ["differ in six digits"]),
        (new, ["--samples", "0"], ["--samples"]),
        (new, ["--chunk", "0"], ["--chunk"]),
        (new, ["--seed", "-1"], ["--seed"]),
        (new, ["--unseen", "skip"], ["unseen is 'skip'", "zeros"]),
        (new, ["--out", "p.xlsx"], ["'.xlsx'", ".parquet"]),
    ):
        table.to_csv(tmp_path / "new.csv", index=False)
        given = ["predict", fit.path, "new.csv", "--out", "p.csv", *NEW, *args]
        err = refused(*given, folder=tmp_path)
        assert all(word in err for word in words), err
        assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]
    values = np.where(np.arange(30) == 4, np.nan, 1.0)
    monkeypatch.setattr(_predict, "_summary", lambda *_: {"mean": values})
    new.to_csv(tmp_path / "new.csv", index=False)
    err = refused("predict", fit.path, "new.csv", "--out", "p.csv", *NEW, folder=tmp_path)
    assert "line 6 is not finite (1 such rows)" in err
    assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]
    (tmp_path / "new-predictions.csv").write_text("mine")
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    assert "'bad.parquet'" in refused("predict", fit.path, "bad.parquet", folder=tmp_path)
    assert "--overwrite" in refused("predict", fit.path, "new.csv", *NEW, folder=tmp_path)
    assert (tmp_path / "new-predictions.csv").read_text() == "mine"


def test_an_interrupted_prediction_writes_nothing(empty_fit, tmp_path, monkeypatch):
    """While the fit is loaded, and when the first rows have been written."""
    passes = iter(["the first rows"])

    def interrupt(*_, **__):
        for done in passes:
            return done
        raise KeyboardInterrupt

    (tmp_path / "new.csv").write_text("a,b,y\n1,2,3\n4,5,6\n")
    monkeypatch.setattr(_predict, "_summary", lambda *_: {"mean": np.zeros(1)})
    given = ["predict", empty_fit, "new.csv", "--out", "p.csv", "--chunk", "1"]
    for place, name in ((KeptFit, "predict"), (_predict, "load")):
        monkeypatch.setattr(place, name, interrupt)
        code, printed, err = command(*given, folder=tmp_path)
        assert (code, printed) == (130, "")
        assert err.strip().splitlines()[-1] == "dgp-ppl: predict: interrupted; p.csv is not written"
        assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.slow
def test_fits_of_numbers_take_the_columns_by_name(tmp_path):
    """Bundled data, .npz files and `strict` have no preprocessor."""
    outcome = dgp_ppl.compare("step", ["dsvi"], depth=1, **TINY)
    path = tmp_path / "fit.dgp"
    outcome.fits["dsvi"].save(path)
    kept = dgp_ppl.load(path)
    table = pd.DataFrame({name: [0.1, 0.2] for name in kept.columns}).assign(row=[0, 1])
    table.to_csv(tmp_path / "new.csv", index=False)
    args = [path, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--id", "row", *NEW]
    assert command("predict", *args) == (0, "", "")
    assert pd.read_csv(tmp_path / "p.csv")["row"].tolist() == [0, 1]


def test_fits_that_the_command_cannot_use(tmp_path):
    """A fit of another program, and a kernel over categories at a row of none of them.

    The function of such a row would be 0, with variance 0.
    """
    (tmp_path / "new.csv").write_text("a\n1\n")
    about = ABOUT | {"config": {"category_kernel": True}}
    for info, args, words in (
        ({}, [], "dgp_ppl.load"),
        ({"comparison": about}, ["--unseen", "zeros"], "kernel over categories"),
    ):
        dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, columns=["a"], info=info)
        assert words in refused("predict", "fit.dgp", "new.csv", *args, folder=tmp_path)
    assert not (tmp_path / "new-predictions.csv").exists()


@pytest.mark.slow
def test_a_new_process_predicts_the_same(fit, tmp_path):
    """Also in float64, which the file asks for."""
    outcome = "import sys; from dgp_ppl.cli.__main__ import main; main()"
    frame().to_csv(tmp_path / "new.csv", index=False)

    def run(*args):
        done = subprocess.run(
            [sys.executable, "-c", outcome, *map(str, args)], cwd=tmp_path, text=True,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    run("predict", fit.path, "new.csv", "--out", "p.csv", *NEW)
    found = pd.read_csv(tmp_path / "p.csv")["mean"]
    wanted = dgp_ppl.load(fit.path).predict(random.key(0), tmp_path / "new.csv", num_samples=4).mean
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    options = ["--depth", "1", "--steps", "3", "--inducing", "4", "--samples", "4", "--x64"]
    run("fit", "new.csv", "--target", "price", "--drop", "house", *options, "--no-picture")
    run("predict", "new.dgp", "new.csv", "--out", "q.csv", *NEW)
    assert len(pd.read_csv(tmp_path / "q.csv")) == 30
