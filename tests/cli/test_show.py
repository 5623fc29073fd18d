"""`dgp-ppl show`: what a kept fit is."""

import json

import numpy as np
import pandas as pd
import pytest
from support.commands import command
from support.tables import houses

import dgp_ppl
from dgp_ppl.comparison import METRICS
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.models import svgp


@pytest.fixture
def fit(tmp_path):
    """Return the file of a fit with all that `Run.save` writes, without fitting."""
    table = pd.DataFrame(houses(30)).drop(columns=["id", "owner"])
    columns = Preprocessor.fit(table, "price")
    row = dict.fromkeys(METRICS["regression"]) | {
        "split": 0, "method": "svgp", "rmse": 12.345, "elbo_per_datum": -0.5, "seconds": 1.5,
        "steps": 3,
    }  # fmt: skip
    about = {
        "name": "houses", "source": "file houses.csv", "target": "price", "task": "regression",
        "classes": [], "rows": {"training": 26, "held_out": 3}, "row": row,
        "config": {"model": "deep_gp", "depth": 2, "seed": 3, "x64": False},
    }  # fmt: skip
    dgp_ppl.save(
        tmp_path / "fit.dgp", svgp, dgp_ppl.MeanField(svgp), {"noise": np.ones(2)},
        columns=columns.names, info={"comparison": about}, preprocessing=columns.to_state(),
    )  # fmt: skip
    return tmp_path / "fit.dgp"


def test_everything_is_said(fit, monkeypatch, capsys):
    code, printed, err = command(monkeypatch, capsys, "show", fit)
    assert (code, err) == (0, "")
    for words in (
        "method      svgp", "model       dgp_ppl.models.svgp", "guide       MeanField",
        "params      1 of 2 numbers", "depth 2, seed 3", "data        file houses.csv",
        "numbers     area, rooms", "target      price (regression)",
        "rows        26 for training, 3 held out", "bound       -0.5 nats per datum",
        "held out    RMSE 12.35", "time        1.5 s, 3 steps", f"dgp_ppl {dgp_ppl.__version__}",
    ):  # fmt: skip
        assert words in printed, printed


def test_json(fit, monkeypatch, capsys):
    code, printed, _ = command(monkeypatch, capsys, "show", fit, "--json")
    assert code == 0
    record = json.loads(printed)
    assert record["info"]["comparison"]["row"]["rmse"] == 12.345
    assert record["model"] == "dgp_ppl.models.svgp"


def test_fits_of_other_programs_are_shown(tmp_path, monkeypatch, capsys):
    data = (np.ones((4, 1)), np.ones(4))
    dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, columns=["age"], data=data)
    code, printed, _ = command(monkeypatch, capsys, "show", tmp_path / "fit.dgp")
    assert code == 0
    assert "columns  age" in printed
    assert "rows     4" in printed
