"""Tables that are written some rows at a time."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgp_ppl._errors import DataError
from dgp_ppl._storage import table_writer

ROWS = pa.table({"id": ["a,b", "c"], "mean": [1.5, None]})


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_are_written_in_order(name, tmp_path):
    path = tmp_path / name
    with table_writer(path) as write:
        write(ROWS)
        write(ROWS.slice(1))
        assert not path.exists()
    if path.suffix == ".csv":
        assert path.read_text() == 'id,mean\n"a,b",1.5\nc,\nc,\n'
    else:
        assert pq.read_table(path).to_pylist() == ROWS.to_pylist() + ROWS.to_pylist()[1:]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_nothing_is_left_of_a_failure(name, tmp_path):
    def fail():
        with table_writer(tmp_path / name) as write:
            write(ROWS)
            raise ValueError("stop")

    (tmp_path / name).write_text("earlier")
    with pytest.raises(ValueError, match="stop"):
        fail()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["earlier"]


def test_a_file_that_cannot_be_written(tmp_path):
    with (
        pytest.raises(DataError, match="cannot be written"),
        table_writer(tmp_path / "nowhere" / "t.csv"),
    ):
        pass
