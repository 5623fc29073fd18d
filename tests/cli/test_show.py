"""`dgp-ppl show`, what a kept fit is, and `dgp-ppl datasets`."""

import json

import numpy as np
from support.commands import command

import dgp_ppl
from dgp_ppl.models import svgp


def test_everything_is_said(fit):
    code, printed, err = command("show", fit.path)
    assert (code, err) == (0, "")
    for words in (
        "method      dsvi", "model       dgp_ppl.models.deep_gp", "guide       MeanField",
        "inducing 4", "steps 3", "seed 3", "data        file houses.csv",
        "numbers     area, rooms", "target      price (regression)",
        "rows        26 for training, 3 held out", "nats per datum (ELBO)", "held out    ",
        "RMSE ", " s, 3 steps", f"dgp_ppl {dgp_ppl.__version__}",
    ):  # fmt: skip
        assert words in printed, printed
    code, printed, _ = command("show", fit.path, "--json")
    assert code == 0
    record = json.loads(printed)
    assert record["info"]["comparison"]["row"]["method"] == "dsvi"
    assert record["model"] == "dgp_ppl.models.deep_gp"


def test_fits_of_other_programs_are_shown(tmp_path):
    data = (np.ones((4, 1)), np.ones(4))
    dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, columns=["age"], data=data)
    code, printed, _ = command("show", tmp_path / "fit.dgp")
    assert code == 0
    assert "columns  age" in printed
    assert "rows     4" in printed


def test_data_sets_are_listed():
    code, out, _ = command("datasets")
    assert code == 0
    assert all(name in out for name in ("diabetes", "breast_cancer", "digits", "step"))
