"""Files read some rows at a time."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import DROP, fault, fitted, houses

from dgp_ppl.datasets import Preprocessor, table_chunks


@pytest.fixture(scope="module", params=["csv", "parquet"])
def path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("chunks") / f"t.{request.param}"
    frame = pd.DataFrame(houses())
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("rows", [1, 7, 24, 100])
def test_chunks_give_the_inputs_of_the_whole_file(path, rows):
    columns = fitted(path, **DROP)
    chunks = list(table_chunks(path, rows, texts=columns.text_columns))
    assert [len(table) for _, table in chunks] == [rows] * (24 // rows) + [24 % rows] * (rows != 24
        and 24 % rows > 0)  # fmt: skip
    found = np.concatenate([columns.inputs(table) for _, table in chunks])
    np.testing.assert_array_equal(found, columns.inputs(path))
    raw = pa.concat_tables([raw for raw, _ in chunks])
    assert [str(i) for i in raw["id"].to_pylist()] == [str(i) for i in houses()["id"]]


def test_faults_name_the_line_of_the_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 5 + "1,x\n")
    columns = Preprocessor.of_numbers(["a", "b"])

    def read():
        for _, table in table_chunks(path, 2):
            columns.inputs(table)

    fault(read, "line 7", "'x'")
    path.write_text("a,b\n" + "1,2\n" * 5 + "1,2,3\n")
    fault(read, "line 7 has 3 fields, wanted 2")
    path.write_text("a,b\n")
    fault(read, "no rows of data")
    pq.write_table(pa.table({"a": [1.0]}).slice(0, 0), tmp_path / "t.parquet")
    fault(lambda: list(table_chunks(tmp_path / "t.parquet", 2)), "no rows")


def test_categories_of_digits_stay_texts_in_every_chunk(tmp_path):
    """A chunk, or a file, where all cells of a category are digits has the same inputs."""
    path = tmp_path / "t.csv"
    path.write_text("code,y\n007,1\n01A,2\n007,3\n12B,4\n")
    columns = Preprocessor.fit(path, "y", categorical="code")
    path.write_text("code\n007\n007\n")
    assert columns.inputs(path).tolist() == [[1, 0, 0], [1, 0, 0]]
    (_, table), _ = table_chunks(path, 1, texts=columns.text_columns)
    assert columns.inputs(table).tolist() == [[1, 0, 0]]


def test_the_files_of_a_folder_come_one_after_another(tmp_path):
    table = pa.table({"a": np.arange(7.0)})
    pq.write_table(table[:3], tmp_path / "1.parquet")
    (tmp_path / "more").mkdir()
    pq.write_table(table[3:], tmp_path / "more" / "2.parquet")
    chunks = [c for _, c in table_chunks(tmp_path, 2)]
    assert [len(c) for c in chunks] == [2, 1, 2, 2]
    assert [c.place(0) for c in chunks] == [f"row {n} (from 0)" for n in (0, 2, 0, 2)]
    found = np.concatenate([Preprocessor.of_numbers(["a"]).inputs(c)[:, 0] for c in chunks])
    np.testing.assert_array_equal(found, np.arange(7.0))
    (tmp_path / "none").mkdir()
    fault(lambda: list(table_chunks(tmp_path / "none", 2)), "the folder has no .parquet files")
