"""Folders of runs: folders of other runs are refused, and damaged ones are detected."""

import io
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from support.helpers import KEY
from support.mcmc_runs import assert_same, sampled, slope

import dgp_ppl as dgp
from dgp_ppl.inference.runs._checkpoint import RunFolder, _checksum
from dgp_ppl.inference.samplers._sghmc import SGHMC


def test_another_run_in_the_folder(tmp_path):
    """The error names the difference, and the folder stays intact."""
    first = sampled(num_samples=5, checkpoint=tmp_path / "run")
    for differing, options in (
        ("thinning", {"thinning": 2}),
        ("program", {"kernel": SGHMC(handlers.scale(slope, 1.001))}),
    ):
        with pytest.raises(dgp.DataError, match=f"holds another run: different {differing}"):
            sampled(**({"num_samples": 5, "checkpoint": tmp_path / "run"} | options))
    assert_same(first, sampled(num_samples=5, checkpoint=tmp_path / "run"))
    sampled(num_samples=5, checkpoint=tmp_path / "foreign", thinning=2)
    foreign = (tmp_path / "foreign" / "draws-1.npz").read_bytes()
    damage(tmp_path / "run", foreign, lambda: sampled(num_samples=5, checkpoint=tmp_path / "run"))


def test_another_start(tmp_path, monkeypatch):
    """The first values are no part of the traced steps."""

    def fitted(*start):
        def model(y):
            numpyro.factor("f", -jnp.square(numpyro.param("w", jnp.array(start)) - y).sum())

        options = {"checkpoint": tmp_path / "run", "progress": False}
        return dgp.fit(KEY, model, lambda y: None, np.zeros(2), steps=3, **options).params["w"]

    first = fitted(1.0, -2.0)
    np.testing.assert_array_equal(fitted(1.0, -2.0), first)
    for other in ((-1.0, 2.0), (-2.0, 1.0), (1.0, -2.0001), (np.nextafter(np.float32(1), 2), -2.0)):
        with pytest.raises(dgp.DataError, match="holds another run: different start;"):
            fitted(*other)
    # Another machine may round them otherwise.
    monkeypatch.setattr("dgp_ppl.inference.runs._identity._processor", lambda: "another")
    with pytest.raises(dgp.DataError, match="holds another run: different start;"):
        fitted(-1.0, 2.0)
    with pytest.warns(UserWarning, match="was begun with platform .*, now cpu another; the run"):
        fitted(np.nextafter(np.float32(1), 2), -2.0)
    old = tmp_path / "run" / "latest.json"
    record = json.loads(old.read_text())
    record = {n: a for n, a in record.items() if n not in ("start", "checksum")}
    old.write_text(json.dumps(record | {"checksum": _checksum(record)}))
    with pytest.raises(dgp.DataError, match="is a run of an earlier version of dgp_ppl"):
        fitted(1.0, -2.0)


def damage(folder, foreign, run):
    """Damage the files of a run, one at a time, and assert that resuming says so."""
    latest, draws = folder / "latest.json", folder / "draws-1.npz"
    (state,) = folder.glob("state-*.npz")
    record = json.loads(latest.read_text())
    with np.load(state) as file:
        arrays = dict(file)
    fewer = io.BytesIO()
    np.savez(fewer, **{n: a for n, a in arrays.items() if n != "arr_0"})
    wrong = json.dumps(record | {"steps": 2}).encode()
    damages = [
        (latest, b"[1"), (latest, wrong), (draws, b"PK"), (draws, foreign),
        (draws, (folder / "draws-0.npz").read_bytes()), (state, fewer.getvalue()),
    ]  # fmt: skip
    for path, broken in damages:
        whole = path.read_bytes()
        path.write_bytes(broken)
        with pytest.raises(dgp.DataError, match="is damaged"):
            run()
        path.write_bytes(whole)


def test_files_of_others_stay(tmp_path):
    """A folder of other files is refused; drafts are deleted if a killed run left them."""
    draft = tmp_path / "draws-3.npz.1-2.part"
    draft.write_text("")
    with RunFolder(tmp_path):
        assert not draft.exists()
    for name in ("thesis.tex", "movie.mkv.part", "draws-3.npz.part"):
        other = tmp_path / name
        other.write_text("")
        with pytest.raises(dgp.DataError, match="not empty and holds no run"):
            RunFolder(tmp_path).__enter__()
        other.unlink()


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(600)
"""


def test_a_folder_in_use(tmp_path):
    """One run at a time, of this process or of another; a process that was killed counts not."""
    with RunFolder(tmp_path), pytest.raises(dgp.DataError, match="is in use by another run"):
        RunFolder(tmp_path).__enter__()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        for _ in range(2):  # the attempt leaves no lock of its own
            with pytest.raises(dgp.DataError, match="is in use by another run"):
                RunFolder(tmp_path).__enter__()
        holder.kill()
    with RunFolder(tmp_path):
        pass
