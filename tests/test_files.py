"""Files that are replaced or written row by row, fingerprints of data, and versions."""

import os
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgp_ppl import DataError, _files
from dgp_ppl._files import fingerprint, replacing, versions, write_tables

X = np.array([[1.0, 2.0], [3.0, np.nan]])
ROWS = pa.table({"id": ["a,b", "c"], "mean": [1.5, None]})


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_write_that_fails_leaves_the_earlier_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("earlier")

    def failing():
        with replacing(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(error):
        failing()
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_are_written_in_order(name, tmp_path):
    path = tmp_path / name
    write_tables(path, [ROWS, ROWS.slice(1)])
    if path.suffix == ".csv":
        assert path.read_text() == 'id,mean\n"a,b",1.5\nc,\nc,\n'
    else:
        assert pq.read_table(path).to_pylist() == ROWS.to_pylist() + ROWS.to_pylist()[1:]


def test_tables_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written.*choose another name"):
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
