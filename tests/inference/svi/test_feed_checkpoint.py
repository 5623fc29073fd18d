"""A fit to a source of rows that is killed goes on where it stopped, from a folder."""

import json
import textwrap

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kills import kill_often
from support.streams import KEY, B, X, Y, sorted_rows, streamed

import dgp_ppl as dgp
from dgp_ppl.datasets.rows._order import seed_of
from dgp_ppl.inference.svi._loop import TrainingLoop


def assert_same(a, b):
    np.testing.assert_array_equal(a.losses, b.losses)
    for x, y in zip(*map(jax.tree.leaves, (a.params, b.params)), strict=True):
        np.testing.assert_array_equal(x, y)
    assert a.position == b.position


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_fit_that_was_stopped_goes_on(tmp_path, monkeypatch, chunks):
    whole, advance, calls = streamed(18), TrainingLoop.advance, iter(range(100))

    def stopped(self, *args):
        if next(calls) == chunks + 1:  # one call identifies the fit
            raise MemoryError
        return advance(self, *args)

    monkeypatch.setattr(TrainingLoop, "advance", stopped)
    with pytest.raises(MemoryError):
        streamed(18, checkpoint=tmp_path, every=4)
    monkeypatch.undo()
    assert (tmp_path / "latest.json").exists() == (chunks > 1)
    assert_same(streamed(18, checkpoint=tmp_path, every=4), whole)
    assert_same(streamed(18, checkpoint=tmp_path, every=4), whole)


def test_rows_that_the_first_minibatch_does_not_have_count_too(tmp_path):
    streamed(6, checkpoint=tmp_path)
    order = sorted_rows().order(seed_of(KEY), B)
    window = np.concatenate([np.arange(a, b) for a, b in order.intervals(0)])
    first = window[order.shuffle(0)[0]]
    y = Y + 1
    y[first] = Y[first]
    rows = dgp.Rows.from_arrays(X, y, buffer_rows=50)
    rows._reader.chunk_rows = 4
    with pytest.raises(dgp.DataError, match="holds another run: its source differ"):
        streamed(6, rows, checkpoint=tmp_path)
    assert_same(streamed(6, checkpoint=tmp_path), streamed(6))


PROGRAM = textwrap.dedent("""
    import sys
    import dgp_ppl as dgp
    from support.streams import streamed

    rows = dgp.Rows.from_parquet(sys.argv[1] + "/../data", target="y", buffer_rows=100)
    streamed(2000, rows, checkpoint=sys.argv[1], every=20)
""")


@pytest.mark.slow
def test_eight_kills(tmp_path):
    """SIGKILL at random moments of a fit to a sorted folder of Parquet files."""
    (tmp_path / "data").mkdir()
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    pq.write_table(table[:300], tmp_path / "data" / "0.parquet", row_group_size=60)
    pq.write_table(table[300:], tmp_path / "data" / "1.parquet", row_group_size=50)
    run = tmp_path / "run"
    run.mkdir()
    assert kill_often(PROGRAM, run, times=8) == 8
    assert json.loads((run / "latest.json").read_text())["steps"] < 2000
    rows = dgp.Rows.from_parquet(tmp_path / "data", target="y", buffer_rows=100)
    resumed = streamed(2000, rows, checkpoint=run, every=20)
    assert_same(resumed, streamed(2000, rows))
