"""`ParquetReader`: files and folders, row groups, missing cells, and what is refused."""

import decimal
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data_samples import refused

import dgp_ppl as dgp

N = 60
A, B = np.arange(N, dtype=np.float32), np.arange(N, 0, -1)
TABLE = pa.table({"a": A, "b": B, "name": ["x"] * N, "target": 2.0 * A})


@pytest.fixture
def folder(tmp_path):
    """Two files with row groups of several sizes."""
    (tmp_path / "trips").mkdir()
    pq.write_table(TABLE[:25], tmp_path / "trips" / "part-0.parquet", row_group_size=10)
    pq.write_table(TABLE[25:], tmp_path / "trips" / "part-1.parquet", row_group_size=9)
    return tmp_path / "trips"


def test_a_folder_is_read_as_one_table(folder):
    rows = dgp.Rows.from_parquet(folder, inputs=["b", "a"], target="target")
    assert len(rows) == N
    x, y = rows.take(np.arange(N))
    np.testing.assert_array_equal(x, np.stack([B, A], axis=1))
    np.testing.assert_array_equal(y, 2 * A)
    x, y = rows.read([(20, 40), (3, 4), (58, 60), (0, 12)])
    wanted = np.r_[20:40, 3, 58:60, 0:12]
    np.testing.assert_array_equal(y, 2 * A[wanted])
    np.testing.assert_array_equal(x[:, 1], A[wanted])


def test_inputs_are_all_other_columns_but_an_index(tmp_path):
    frame = pd.DataFrame({"a": A, "b": B, "t": A}, index=pd.Index(np.arange(N) + 100, name="id"))
    frame.to_parquet(tmp_path / "a.parquet")
    rows = dgp.Rows.from_parquet(tmp_path / "a.parquet", target="t")
    assert repr(rows) == "Rows(60 rows of [2], [])"
    (x,) = dgp.Rows.from_parquet(tmp_path / "a.parquet", inputs=["a"], target=None).take([5])
    assert (x.item(), x.dtype) == (5, np.float32)
    _, y = dgp.Rows.from_parquet(tmp_path / "a.parquet", target=["t", "b"]).take([0, 1])
    np.testing.assert_array_equal(y, [[0, 60], [1, 59]])


def test_kinds_of_numbers(tmp_path):
    columns = {
        "flag": [True, False, True],
        "whole": pa.array([1, None, 3], pa.int32()),
        "price": pa.array([decimal.Decimal("1.25")] * 3, pa.decimal128(9, 2)),
        "label": [2, 0, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    x, y = dgp.Rows.from_parquet(tmp_path / "a.parquet", target="label").take([0, 1, 2])
    np.testing.assert_array_equal(x, [[1, 1, 1.25], [0, np.nan, 1.25], [1, 3, 1.25]])
    assert y.dtype == np.int64


def test_types_that_differ_between_files_and_row_groups(tmp_path):
    """All have the first file's types; a target that misses cells anywhere has floats."""
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": A[:5], "y": A[:5]}), tmp_path / "t" / "0.parquet")
    pq.write_table(
        pa.table({"y": B[:5], "b": B[:5], "a": 1.0 * B[:5]}), tmp_path / "t" / "1.parquet"
    )
    x, y = dgp.Rows.from_parquet(tmp_path / "t", target="y").take(np.arange(10))
    assert x.dtype == y.dtype == np.float32
    np.testing.assert_array_equal(x[:, 0], np.r_[A[:5], B[:5]])
    long = pa.array([decimal.Decimal(2**60 + 1)] * 5)
    pq.write_table(pa.table({"a": long, "y": A[:5]}), tmp_path / "t" / "1.parquet")
    rows = dgp.Rows.from_parquet(tmp_path / "t", target="y")
    refused((lambda: rows.take([7]), "'a'", "row 2 (from 0) of", "1.parquet'", "beyond 2^53"))
    target = pa.array([1, 2, 3, None, 5, 6], pa.int64())
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": A[:6], "target": target}), path, row_group_size=2)
    rows = dgp.Rows.from_parquet(path, target="target")
    np.testing.assert_array_equal(rows.take(np.arange(6))[1], [1, 2, 3, np.nan, 5, 6])
    assert rows.take([0])[1].dtype == np.float64


def test_what_is_refused(folder, tmp_path):
    def opened(path=folder, **options):
        return lambda: dgp.Rows.from_parquet(path, target="target", **options)

    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    pq.write_table(TABLE[:0], tmp_path / "empty.parquet")
    unreadable = "not a readable .parquet file"
    refused(
        (opened(inputs=["c"]), "no column 'c'; the columns are 'a', 'b', 'name', 't"),
        (opened(), "column 'name' is of type 'string', wanted numbers; encode"),
        (opened(inputs=[]), "there are no inputs"),
        (opened(tmp_path / "none.parquet"), unreadable),
        (opened(tmp_path / "bad.parquet"), unreadable),
        (opened(tmp_path / "empty.parquet", inputs=["a"]), "no rows, wanted some"),
    )


def test_a_large_row_group_is_read_in_batches(tmp_path, monkeypatch):
    """Memory does not grow with the row group, and readings go on where others ended."""
    table = pa.table({"a": np.arange(100_000), "y": np.arange(100_000) / 2})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = dgp.Rows.from_parquet(tmp_path / "t.parquet", target="y")
    lengths, opened, batches = [], [], rows._reader._batches

    def note(group):
        opened.append(group)
        for batch in batches(group):
            lengths.append(len(batch))
            yield batch

    monkeypatch.setattr(rows._reader, "_batches", note)
    np.testing.assert_array_equal(rows.take([1, 60_000, 99_999])[1], [0.5, 30_000, 99_999 / 2])
    assert (len(opened), sum(lengths)) == (1, 100_000)
    assert max(lengths) < 20_000
    opened.clear()
    lengths.clear()
    for start in range(0, 5000, 700):  # three places side by side
        for first in (60_000, 0, 30_000):
            _, y = rows.read([(first + start, first + start + 700)])
            np.testing.assert_array_equal(y, np.arange(first + start, first + start + 700) / 2)
    assert len(opened) == 3
    assert sum(lengths) < 60_000 + 30_000 + 4 * max(lengths)
    for start in range(0, 40):
        rows.read([(2000 * start + 7000, 2000 * start + 7010)])
    assert len(rows._reader._cursors) <= rows._reader.most_arcs + 2
    monkeypatch.undo()
    sent = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(sent.take([3, 30])[1], [1.5, 15])


def test_threads_read_at_the_same_time(folder):
    rows = dgp.Rows.from_parquet(folder, inputs=["a"], target="target")

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            start = int(rng.integers(N - 10))
            _, y = rows.read([(start, start + 10)])
            np.testing.assert_array_equal(y, 2 * A[start : start + 10])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_minibatches_of_a_sorted_file_come_from_all_parts_of_it(tmp_path):
    """Also if a window is far smaller than a row group, in the first pass and across two."""
    y, path = np.arange(20_000.0), tmp_path / "t.parquet"
    for group_rows in (20_000, 1000):
        pq.write_table(pa.table({"a": y, "y": y}), path, row_group_size=group_rows)
        rows = dgp.Rows.from_parquet(path, target="y", buffer_rows=1000)
        order = rows.order((0,), 100)
        reads = [rows.read(order.intervals(window))[1] for window in range(25)]
        for window, found in enumerate(reads):
            wanted = np.concatenate([np.arange(*i) for i in order.intervals(window)])
            np.testing.assert_array_equal(found, wanted)
            assert abs(found.mean() - y.mean()) < 0.25 * y.std()
            assert len(np.unique(found // 2000)) >= 8  # of ten parts
        np.testing.assert_array_equal(np.sort(np.concatenate(reads[:20])), y)
