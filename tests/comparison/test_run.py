"""One method on one split: failures, and notes on the evidence."""

import json

import pytest
from support.comparisons import TINY
from typer.testing import CliRunner

import dgp_ppl
from dgp_ppl.cli import app


def test_a_failed_fit_is_a_row_of_nulls(tmp_path):
    settings = TINY | {"learning_rate": 1e30}
    comparison = dgp_ppl.compare("step", ["svgp"], splits=1, out=tmp_path, **settings)
    row = json.loads((tmp_path / "results.json").read_text())["splits"][0]
    assert row["rmse"] is None
    assert "not finite at step" in row["error"]
    assert comparison.summary == []


@pytest.mark.slow
def test_a_sampler_that_fails_is_a_row_of_nulls():
    outcome = dgp_ppl.compare("step", ("sghmc",), splits=1, **(TINY | {"learning_rate": 1e30}))
    (row,) = outcome.splits
    assert "not finite" in row["error"]
    assert row["rmse"] is None


WHY = "guide is Decoupled, whose mean has separate inducing inputs"
FEW = "--inducing 4 --steps 4 --splits 1 --samples 3 --quiet --evidence"


@pytest.mark.slow
def test_a_method_that_is_not_measured_says_why():
    options = {"inducing": 4, "steps": 4, "splits": 1, "samples": 3, "progress": False}
    outcome = dgp_ppl.compare("step", ["decoupled"], evidence=True, **options)
    row = outcome.splits[0]
    assert row["evidence_note"].startswith(WHY)
    assert row["evidence_per_datum"] is row["gap"] is None
    assert "evidence_note" not in dgp_ppl.compare("step", ["decoupled"], **options).splits[0]


@pytest.mark.slow
def test_the_command_names_it(tmp_path):
    args = ["compare", "step", "--methods", "decoupled", "--out", str(tmp_path), *FEW.split()]
    found = CliRunner().invoke(app, args)
    assert found.exit_code == 0, found.output
    assert f"Evidence of decoupled: {WHY}" in " ".join(found.output.split())
    row = json.loads((tmp_path / "results.json").read_text())["splits"][0]
    assert row["evidence_note"].startswith(WHY)
