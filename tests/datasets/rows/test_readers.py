"""Rows of arrays in memory and in files: what is read, sent to other processes, kept in memory."""

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import dgp_ppl as dgp

N = 50
X = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
Y = np.arange(N)


def opened(path, array, mode="r"):
    np.save(path, array)
    return np.load(path, mmap_mode=mode)


def sources(folder):
    """Yield the rows of X and Y as each kind of source."""
    arrays = dgp.Rows.from_arrays
    yield arrays(opened(folder / "x.npy", X), opened(folder / "y.npy", Y))
    whole = opened(folder / "xy.npy", np.asfortranarray(np.c_[X, Y]))
    yield arrays(whole[:, :2], whole[:, 2])
    file = h5py.File(folder / "xy.h5", "w")
    yield arrays(file.create_dataset("x", data=X, chunks=(7, 2)), file.create_dataset("y", data=Y))
    x = zarr.create_array(folder / "x.zarr", data=X, chunks=(7, 2))
    yield arrays(x, zarr.create_array(folder / "y.zarr", data=Y, chunks=(9,)))
    yield arrays(X / 2, Y).map(lambda x, y: (2 * x, y + 3)).map(lambda x, y: (x, y - 3))
    x, y = np.insert(X, [0, 3, 3, N], -1, axis=0), np.insert(Y, [0, 3, 3, N], -1)
    yield arrays(x, y).without(np.flatnonzero(y == -1))
    # Of the rows that are left, the numbers 3 and 4 are the other two.
    yield arrays(x, y).without([0, N + 3]).map(lambda x, y: (x, y)).without([3, 4])


def test_rows_of_each_source(tmp_path):
    chunks = []
    for rows in sources(tmp_path):
        chunks.append(rows._reader.chunk_rows)
        assert len(rows) == N
        for intervals in ([(0, N)], [(3, 17), (40, 50), (5, 5), (0, 1)], [(30, 50), (0, 20)]):
            wanted = np.concatenate([np.arange(a, b) for a, b in intervals])
            x, y = rows.read(intervals)
            np.testing.assert_array_equal(x, X[wanted])
            np.testing.assert_array_equal(y, Y[wanted])
        some = np.array([0, 1, 8, 21, 48, 49])
        np.testing.assert_array_equal(rows.take(some)[1], Y[some])
    # 64 kB of rows of 16 and of 24 bytes; the largest chunks of HDF5 and of zarr.
    assert chunks[:4] == [4096, 2730, 7, 9]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_pages_that_were_read_do_not_stay_in_memory(tmp_path):
    """Pages of a file count as memory as long as they are mapped."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[2]) * 4096  # of mapped files

    for order in "CF":
        x = opened(tmp_path / f"{order}.npy", np.ones((2**20, 8), np.float32, order))  # 32 MB
        rows, before = dgp.Rows.from_arrays(x), resident()
        for start in range(0, 2**20, 2**16):
            assert rows.read([(start, start + 2**16)])[0].all()
        assert resident() - before < 2**23
        assert x.sum() == 2**23
        assert resident() - before > 2**24
        del x, rows  # with their pages


def test_rows_far_into_a_file(tmp_path):
    """Row numbers of NumPy's int32 do not overflow as bytes."""
    far = 300_000_000
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (far + 8, 1))  # sparse
    x[far] = 5.0
    x.flush()
    rows = dgp.Rows.from_arrays(np.load(tmp_path / "x.npy", mmap_mode="r"))
    (found,) = rows.read([(np.int32(far), np.int32(far + 2))])
    np.testing.assert_array_equal(found, [[5.0], [0.0]])


def test_a_mapping_is_sent_as_its_file_and_read_as_it_is(tmp_path):
    """What was written to a copy-on-write mapping is not in the file, so its rows are sent."""
    rows = dgp.Rows.from_arrays(opened(tmp_path / "r.npy", np.ones((20_000, 2))))
    assert len(pickle.dumps(rows)) < 2000
    for mode in ("r+", "c"):
        x = opened(tmp_path / f"{mode}.npy", np.zeros((10, 2)), mode)
        rows = dgp.Rows.from_arrays(x)
        x[3] = 7.0
        for found in (rows, pickle.loads(pickle.dumps(rows))):
            np.testing.assert_array_equal(found.read([(3, 5)])[0], [[7.0, 7.0], [0.0, 0.0]])


def test_a_file_that_became_shorter(tmp_path):
    path = tmp_path / "x.npy"
    rows = dgp.Rows.from_arrays(opened(path, X))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    with pytest.raises(dgp.DataError, match=r"x.npy is shorter than.*wanted 50 rows"):
        rows.read([(0, 3), (40, 50)])
