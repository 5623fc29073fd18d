"""A fit to a source of rows that is killed goes on where it stopped, from a folder."""

import json

import numpy as np
import pytest
from support.fits import assert_same
from support.streams import KEY, B, X, Y, sorted_rows, streamed

import dgp_ppl as dgp
from dgp_ppl.datasets.rows._order import seed_of


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_fit_that_was_stopped_goes_on(tmp_path, monkeypatch, stop_after, chunks):
    whole = streamed(18)
    stop_after(chunks + 3, MemoryError)  # three calls identify the fit
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
