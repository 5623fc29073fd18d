"""Folders of runs: those of other runs are refused, and damaged ones are detected."""

import pytest
from support.mcmc_runs import assert_same, sampled, slope

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._sghmc import SGHMC


@pytest.mark.slow
def test_another_run_in_the_folder(tmp_path):
    """The error names the difference, and the folder stays intact."""
    first = sampled(num_samples=5, checkpoint=tmp_path / "run")
    for differing, options in (
        ("thinning", {"thinning": 2}),
        ("options", {"kernel": SGHMC(slope, friction=0.3)}),
        ("arguments", {"batch_size": 10}),
    ):
        with pytest.raises(dgp.DataError, match=f"holds another run: its {differing}"):
            sampled(**({"num_samples": 5, "checkpoint": tmp_path / "run"} | options))
    assert_same(first, sampled(num_samples=5, checkpoint=tmp_path / "run"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(dgp.DataError, match="not empty and holds no run"):
        sampled(checkpoint=tmp_path / "other")
    draws, latest = (tmp_path / "run" / n for n in ("draws-0.npz", "latest.json"))
    for path, broken in (
        (draws, draws.read_bytes()[:200]),
        (draws, b"PK"),
        (latest, b"{}"),
        (latest, b"[1"),
    ):
        whole = path.read_bytes()
        path.write_bytes(broken)
        with pytest.raises(dgp.DataError, match="is damaged"):
            sampled(num_samples=5, checkpoint=tmp_path / "run")
        path.write_bytes(whole)


def test_another_model_in_the_folder(tmp_path):
    """Functions cannot be compared, but the energies they compute can."""

    def shifted(x, y, batch_size=None):
        slope(x, y + 1, batch_size)

    sampled(num_samples=5, checkpoint=tmp_path / "run")
    with pytest.raises(dgp.DataError, match="holds another run: its energy differ"):
        sampled(SGHMC(shifted), num_samples=5, checkpoint=tmp_path / "run")
