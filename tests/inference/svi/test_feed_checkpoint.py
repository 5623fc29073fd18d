"""A fit to a source of rows that is killed goes on where it stopped, from a folder."""

import json

import jax
import numpy as np
import pytest
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
        if next(calls) == chunks + 3:  # three calls identify the fit
            raise MemoryError
        return advance(self, *args)

    monkeypatch.setattr(TrainingLoop, "advance", stopped)
    with pytest.raises(MemoryError):
        streamed(18, checkpoint=tmp_path, every=4)
    monkeypatch.undo()
    latest = json.loads((tmp_path / "latest.json").read_text())
    assert (latest["steps"] > 0) == (chunks > 1)
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
