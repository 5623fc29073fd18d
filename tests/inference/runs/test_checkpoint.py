"""Folders of runs: folders of other runs are refused, and damaged ones are detected."""

import io
import json

import numpy as np
import pytest
from support.kills import kill_often
from support.mcmc_runs import assert_same, sampled, slope

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._sghmc import SGHMC


def test_another_run_in_the_folder(tmp_path):
    """The error names the difference, and the folder stays intact."""
    first = sampled(num_samples=5, checkpoint=tmp_path / "run")
    for differing, options in (
        ("thinning", {"thinning": 2}),
        ("options", {"kernel": SGHMC(slope, friction=0.3)}),
    ):
        with pytest.raises(dgp.DataError, match=f"holds another run: its {differing}"):
            sampled(**({"num_samples": 5, "checkpoint": tmp_path / "run"} | options))
    assert_same(first, sampled(num_samples=5, checkpoint=tmp_path / "run"))
    damage(tmp_path / "run", lambda: sampled(num_samples=5, checkpoint=tmp_path / "run"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(dgp.DataError, match="not empty and holds no run"):
        sampled(checkpoint=tmp_path / "other")


def damage(folder, run):
    """Damage the files of a run, one at a time, and assert that resuming says so."""
    latest, draws = folder / "latest.json", folder / "draws-0.npz"
    (state,) = folder.glob("state-*.npz")
    record = json.loads(latest.read_text())
    with np.load(state) as file:
        arrays = list(file.values())
    fewer = io.BytesIO()
    np.savez(fewer, *arrays[:-1])
    wrong = json.dumps(record | {"steps": 2.5}).encode()
    damages = [(latest, b"[1"), (latest, wrong), (draws, b"PK"), (state, fewer.getvalue())]
    for path, broken in damages:
        whole = path.read_bytes()
        path.write_bytes(broken)
        with pytest.raises(dgp.DataError, match="is damaged"):
            run()
        path.write_bytes(whole)


PROGRAM = """
import sys
from support.mcmc_runs import sampled
sampled(num_samples=3000, every=20, checkpoint=sys.argv[1])
"""


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path):
    """After SIGKILLs at random moments the draws equal the draws of an uninterrupted run."""
    assert kill_often(PROGRAM, tmp_path, times=6) == 6
    options = {"num_samples": 3000, "every": 20}
    assert_same(sampled(checkpoint=tmp_path, **options), sampled(**options))
