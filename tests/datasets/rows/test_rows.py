"""`Rows`: passes, samples, maps, rows that are held out, and bad arguments."""

import pickle

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dgp_ppl as dgp
from dgp_ppl.datasets.rows import _readers

KEY = jax.random.key(0)
N = 83
X, Y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
ROWS = dgp.Rows.from_arrays(X, Y)


def test_a_pass_in_order():
    x, y = (np.concatenate(a) for a in zip(*ROWS.blocks(10), strict=True))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    assert repr(ROWS) == "Rows(83 rows of [2], [])"


def test_rows_by_number_in_any_order():
    x, y = ROWS.take([5, 0, 82, 5])
    np.testing.assert_array_equal(y, [5, 0, 82, 5])
    np.testing.assert_array_equal(x, X[[5, 0, 82, 5]])


def test_a_sample_has_different_rows_of_equal_probability():
    counts = np.zeros(N)
    for i in range(400):
        _, y = ROWS.sample(jax.random.key(i), 20)
        assert len(set(y)) == 20
        counts[y] += 1
    z = (counts - 400 * 20 / N) / np.sqrt(400 * 20 / N * (1 - 20 / N))
    assert np.abs(z).max() < 4.5
    np.testing.assert_array_equal(ROWS.sample(KEY, 500)[1], Y)


def test_rows_that_are_held_out_are_not_among_the_others():
    rows, (x, y) = ROWS.hold_out(KEY, 20)
    assert len(rows) == 63
    others = np.concatenate([b[1] for b in rows.blocks(10)])
    np.testing.assert_array_equal(np.sort([*others, *y]), Y)
    np.testing.assert_array_equal(x, X[y])
    np.testing.assert_array_equal(rows.take([0, 62])[1], others[[0, 62]])


def test_the_buffer_is_a_number_of_minibatches():
    assert ROWS.order((0,), 10).window_rows == 80
    assert dgp.Rows.from_arrays(X, Y, buffer_rows=35).order((0,), 10).window_rows == 30
    assert dgp.Rows.from_arrays(X, Y, buffer_rows=5).order((0,), 10).window_rows == 10
    wide = dgp.Rows.from_arrays(np.zeros((40, 2**18)))
    assert wide.order((0,), 4).window_rows == 16  # 32 MB


def test_bad_arguments():
    arrays, read = dgp.Rows.from_arrays, ROWS.map(lambda x, y: x[:3]).read
    lazy = type("Lazy", (), {"dtype": X.dtype, "shape": X.shape, "__dask_graph__": dict})()
    in_order = r"an interval is \[{}, {}\), wanted"
    not_stored = r"array 1 is a \w+, wanted an array.*to_numpy\(\).*filled\(numpy.nan\)"
    for error, message, call in (
        (ValueError, r"\[\(83, 2\), \(82,\)\], wanted one common", lambda: arrays(X, Y[1:])),
        *((ValueError, "wanted one common length", lambda bad=bad: arrays(*bad))
          for bad in ((), (np.float64(3.0),), (X[:0],))),
        *((TypeError, not_stored, lambda bad=bad: arrays(X, bad))
          for bad in ([[1.0, 2.0]], pd.DataFrame(X), lazy, np.ma.masked_array(X))),
        (ValueError, "buffer_rows is 0", lambda: arrays(X, buffer_rows=0)),
        (TypeError, "key is 0, wanted one random key", lambda: ROWS.sample(0, 3)),
        (ValueError, "num_rows is 83, wanted fewer than the 83", lambda: ROWS.hold_out(KEY, 83)),
        (dgp.DataError, r"at most 2\^31 - 1", lambda: arrays(np.broadcast_to(0.0, 2**31))),
        (TypeError, r"Rows\(83 rows.* are not in memory, wanted arrays", lambda: np.asarray(ROWS)),
        (ValueError, r"made arrays of shapes \[\(3, 2\)\] of 83 rows", lambda: read([(0, N)])),
        *((ValueError, "wanted numbers of rows, from 0 to 82", lambda bad=bad: ROWS.take(bad))
          for bad in ([], [-1], [83])),
        *((TypeError, "numbers holds .*, wanted integers", lambda bad=bad: ROWS.take(bad))
          for bad in (np.arange(N) > 3, [1.5])),
        (TypeError, "Rows.without: numbers holds bool", lambda: ROWS.without(np.arange(N) > 3)),
        (ValueError, "Rows.blocks: num_rows is -3", lambda: list(ROWS.blocks(-3))),
        *((IndexError, in_order.format(*ends), lambda ends=ends: ROWS.read([(0, 2), ends]))
          for ends in ((-1, 3), (3, 2), (39, 84))),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def npy(folder, x, y):
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    return dgp.Rows.from_arrays(*(np.load(folder / f"{n}.npy", mmap_mode="r") for n in "xy"))


def parquet(folder, x, y):
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": y})
    pq.write_table(table, folder / "t.parquet", row_group_size=2000)
    return dgp.Rows.from_parquet(folder / "t.parquet", target="y")


@pytest.mark.parametrize("of", [npy, parquet])
def test_the_identity_of_a_source(of, tmp_path, monkeypatch):
    """It does not depend on where the files are, but on each number."""
    monkeypatch.setattr(_readers, "_CHUNK_BYTES", 2**8)
    x, y = np.arange(20_000.0).reshape(-1, 2), np.random.default_rng(0).normal(size=10_000).round(1)
    sources = {"same": (x, y), "again": (x, y), "a type": (x, y.astype(np.float32))}
    for start in (10, 5010, 9510):
        changed = y.copy()
        changed[[start, start + 1]] = y[[start + 1, start]]  # statistics and sizes stay
        sources[f"{start}"] = (x, changed)
    sources["fewer"] = x[:-1], y[:-1]
    found = {}
    for name, arrays in sources.items():
        (tmp_path / name).mkdir()
        rows = of(tmp_path / name, *arrays)
        found[name] = rows.identity()
        if name == "same":
            found["without"] = rows.without([7]).identity()
            found["mapped"], again = (
                rows.map(lambda x, y: (x, 2 * y)).identity() for _ in range(2)
            )
            assert again == found["mapped"]
            assert pickle.loads(pickle.dumps(rows)).identity() == found[name]
    assert found.pop("again") == found["same"]
    assert len(set(found.values())) == len(found)
