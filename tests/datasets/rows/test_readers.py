"""Readers of arrays on disk and of batches, of mapped rows and of a part of the rows."""

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import dgp_ppl as dgp
from dgp_ppl.datasets.rows._readers import ArrayReader, MappedReader, WithoutRows

N = 50
X = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
Y = np.arange(N)


def memory_mapped(folder):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return ArrayReader([np.load(folder / f"{n}.npy", mmap_mode="r") for n in "xy"])


def columns_of_one_file(folder):
    np.save(folder / "xy.npy", np.asfortranarray(np.c_[X, Y]))
    whole = np.load(folder / "xy.npy", mmap_mode="r")
    return ArrayReader([whole[:, :2], whole[:, 2]])


def hdf5(folder):
    file = h5py.File(folder / "xy.h5", "w")
    return ArrayReader(
        [file.create_dataset("x", data=X, chunks=(7, 2)), file.create_dataset("y", data=Y)]
    )


def in_zarr(folder):
    x = zarr.create_array(folder / "x.zarr", data=X, chunks=(7, 2))
    return ArrayReader([x, zarr.create_array(folder / "y.zarr", data=Y, chunks=(9,))])


def mapped(folder):
    return MappedReader(ArrayReader([X / 2, Y - 1]), lambda x, y: (2 * x, y + 1))


def part(folder):
    x, y = np.insert(X, [0, 3, 3, N], -1, axis=0), np.insert(Y, [0, 3, 3, N], -1)
    return WithoutRows(ArrayReader([x, y]), np.flatnonzero(y == -1))


@pytest.mark.parametrize("make", [memory_mapped, columns_of_one_file, hdf5, in_zarr, mapped, part])
def test_rows_of_a_reader(make, tmp_path):
    reader = make(tmp_path)
    assert reader.num_rows == N
    for intervals in ([(0, N)], [(3, 17), (40, 50), (0, 1)], [(12, 13)], [(30, 50), (0, 20)]):
        wanted = np.concatenate([np.arange(a, b) for a, b in intervals])
        x, y = reader.read(intervals)
        np.testing.assert_array_equal(x, X[wanted])
        np.testing.assert_array_equal(y, Y[wanted])
    some = np.array([0, 1, 8, 21, 48, 49])
    np.testing.assert_array_equal(reader.take(some)[1], Y[some])


def test_neighbouring_rows_are_read_together(tmp_path):
    assert memory_mapped(tmp_path).chunk_rows == 4096  # of 16 bytes
    assert hdf5(tmp_path).chunk_rows == 7
    assert in_zarr(tmp_path).chunk_rows == 9


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("order", ["C", "F"])
def test_pages_that_were_read_do_not_stay_in_memory(order, tmp_path):
    """Pages of a file count as memory as long as they are mapped."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[2]) * 4096  # of mapped files

    np.save(tmp_path / "x.npy", np.ones((2**20, 8), np.float32, order))  # 32 MB
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    reader, before = ArrayReader([x]), resident()
    for start in range(0, 2**20, 2**16):
        assert reader.read([(start, start + 2**16)])[0].all()
    assert resident() - before < 2**23
    assert x.sum() == 2**23
    assert resident() - before > 2**24


def test_rows_far_into_a_file(tmp_path):
    """Row numbers of NumPy's int32 do not overflow as bytes."""
    far = 300_000_000
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (far + 8, 1))  # sparse
    x[far] = 5.0
    x.flush()
    reader = ArrayReader([np.load(tmp_path / "x.npy", mmap_mode="r")])
    (found,) = reader.read([(np.int32(far), np.int32(far + 2))])
    np.testing.assert_array_equal(found, [[5.0], [0.0]])


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_was_written_to_a_mapping_is_read(mode, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((10, 2)))
    x = np.load(tmp_path / "x.npy", mmap_mode=mode)
    reader = ArrayReader([x])
    x[3] = 7.0
    np.testing.assert_array_equal(reader.read([(3, 4)])[0], [[7.0, 7.0]])


def test_a_file_that_became_shorter(tmp_path):
    reader = memory_mapped(tmp_path)
    path = next(tmp_path.glob("*.npy"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    with pytest.raises(dgp.DataError, match=rf"{path.name} is shorter than.*wanted 50 rows"):
        reader.read([(0, 3), (40, 50)])


def test_a_map_that_loses_rows():
    reader = MappedReader(ArrayReader([X]), lambda x: x[:3])
    with pytest.raises(ValueError, match=r"made arrays of shapes \[\(3, 2\)\] of 9 rows"):
        reader.read([(0, 9)])


def test_readers_are_sent_without_their_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(40_000.0).reshape(-1, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    sent = pickle.dumps(ArrayReader([mapped]))
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).read([(7, 9)])[0], mapped[7:9])
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[0] = -1.0
    again = pickle.loads(pickle.dumps(ArrayReader([changed])))
    assert again.read([(0, 1)])[0][0, 0] == -1.0
