import numpy as np
import pytest
from support.tables import arrow

from dgp_ppl.datasets import read_table
from dgp_ppl.datasets.tables._table import OtherColumn


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"x\ny"\n\n2,z\n3,x\n')
    return path


def test_rows_keep_their_places(csv):
    table = read_table(csv)
    assert [table.place(i) for i in range(3)] == ["line 3", "line 5", "line 6"]
    part = table.take(np.array([False, True, True]))
    assert (len(part), part.place(0)) == (2, "line 5")
    assert read_table(arrow(a=[1, 2])).take(np.array([1])).place(0) == "row 1 (from 0)"
    csv.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        table.place(0)


def test_a_table_of_some_rows_has_their_texts_only(csv):
    part = read_table(csv).take(np.array([1]))
    assert part.columns["b"].texts == ("z",)
    assert part.columns["b"].codes.tolist() == [0]


def test_the_row_of_a_long_number_moves_along():
    table = read_table(arrow(a=[1, 2**60, 3], b=[[1], [2], [3]]))
    assert table.columns["a"].too_long == 1
    assert table.take(np.array([1, 2])).columns["a"].too_long == 0
    assert table.take(np.array([0, 2])).columns["a"].too_long is None
    assert isinstance(table.take(np.array([0])).columns["b"], OtherColumn)


def test_repr_is_one_line(csv):
    assert repr(read_table(csv)) == f"Table({str(csv)!r}: 3 rows; 'a', 'b')"
    wide = read_table(arrow(**{f"c{i}": [1] for i in range(20)}))
    assert repr(wide).endswith("'c7', ...)")
