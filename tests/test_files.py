"""Files that are replaced or written row by row, fingerprints of data, and versions."""

import os
import resource
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgp_ppl import DataError, _files
from dgp_ppl._files import fingerprint, replacing, versions, write_tables

X = np.array([[1.0, 2.0], [3.0, np.nan]])
ROWS = pa.table({"id": ["a,b", "c"], "mean": [1.5, None]})


def write(path, text="half", error=None, **options):
    with replacing(path, **options) as draft:
        draft.write_text(text)
        if error is not None:
            raise error


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path):
    """Interrupted, or on a disk that is full: in the middle, and when the system writes it out."""
    path = tmp_path / "file"
    path.write_text("earlier")
    with pytest.raises(KeyboardInterrupt):
        write(path, error=KeyboardInterrupt)
    with pytest.raises(PermissionError, match=r"input\.csv"):
        write(path, error=PermissionError(13, "Permission denied", str(tmp_path / "input.csv")))
    full = OSError(28, "No space left on device")
    wanted = r"/file cannot be written: No space left .*make room"  # not the name of the draft
    with pytest.raises(DataError, match=wanted), replacing(path) as draft:
        write(draft, error=full)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(DataError, match="cannot be written: File too large"):
            write(path, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == ["file"]


def test_a_new_file_replaces_none(tmp_path):
    """Of two programs that write it, the second keeps its own under the name of its draft."""
    write(tmp_path / "a", "first", new=True)
    with pytest.raises(DataError, match=r"a exists by now: .* is in .*part") as error:
        write(tmp_path / "a", "second", new=True)
    assert (tmp_path / "a").read_text() == "first"
    assert Path(str(error.value).split(" is in ")[1]).read_text() == "second"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_are_written_in_order(name, tmp_path):
    path = tmp_path / name
    write_tables(path, [ROWS, ROWS.slice(1)])
    if path.suffix == ".csv":
        assert path.read_text() == 'id,mean\n"a,b",1.5\nc,\nc,\n'
    else:
        assert pq.read_table(path).to_pylist() == ROWS.to_pylist() + ROWS.to_pylist()[1:]


def test_tables_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written.*choose another path"):
        write_tables(tmp_path / "nowhere" / "t.csv", [ROWS])
    other = pa.table({"id": ["d"], "mean": ["text"]})
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(DataError, match=r"'mean' holds string .* and double"):
            write_tables(tmp_path / name, [ROWS, other])
    assert not list(tmp_path.iterdir())


def test_equal_values_have_one_fingerprint():
    for same in (X.tolist(), np.asfortranarray(X), X.astype(">f8"), X.astype(np.float32)):
        assert fingerprint(X, [0, 1]) == fingerprint(same, np.array([-0.0, 1.0]))
    for other in (X.T, X[:1], X + 1e-9, X.ravel()):
        assert fingerprint(X) != fingerprint(other)
    assert fingerprint(["a", "b"]) == fingerprint(np.array(["a", "b"], object))
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])
    assert fingerprint(["1"]) != fingerprint([1])


def test_versions_name_the_packages_the_device_and_the_commit(monkeypatch, tmp_path):
    """A run from a checkout names its commit, and a run of an installed package none."""
    assert {"dgp_ppl", "python", "jax", "numpyro", "device", "date"} <= set(versions())
    monkeypatch.setattr(_files, "__file__", str(tmp_path / "dgp_ppl" / "_files.py"))
    (tmp_path / "dgp_ppl").mkdir()
    (tmp_path / "dgp_ppl" / "_files.py").write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qma"]):
        _files._commit.cache_clear()
        assert "commit" not in versions()
        subprocess.run([*git, *command], check=True)
    _files._commit.cache_clear()
    commit = versions()["commit"]
    (tmp_path / "dgp_ppl" / "_files.py").write_text("changed")
    _files._commit.cache_clear()
    assert versions()["commit"] == f"{commit}-dirty"
    _files._commit.cache_clear()
