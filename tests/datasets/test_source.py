import dataclasses
import warnings

import numpy as np
import pyarrow as pa
import pytest
from support.data_samples import CSV, refused
from support.tables import arrow, houses

from dgp_ppl import DataError
from dgp_ppl.datasets import Dataset, TableSource, load, open_source, read_table, splits

DROP = ("id", "owner")


@pytest.fixture
def source():
    return open_source(pa.table(houses()), target="price", drop=DROP)


def test_a_table_is_encoded_for_each_split(source):
    assert isinstance(source, TableSource)
    assert (source.name, source.task, source.without_target) == ("table", "regression", 1)
    assert len(source) == len(source.y) == 23
    for train, _ in splits(source, 2, 0):
        columns = source.fit(train)
        data = source.dataset(columns)
        np.testing.assert_array_equal(data.y, [p for p in houses()["price"] if p is not None])
        assert data.x.shape == (23, len(data.x_names))
        assert (data.preprocessor, data.x_names) == (columns, columns.names)
        position = {c.name: c for c in columns.columns}
        rooms = [r for r in houses()["rooms"][:7] + houses()["rooms"][8:]]
        rooms = [rooms[i] for i in train if rooms[i] is not None]
        assert position["rooms"].fill == np.median(rooms)
        assert "1 row of the table without a target" in str(columns.report)


def test_its_repr_is_one_line(source):
    assert repr(source) == (
        f"TableSource('table': regression of price in {source.whole!r}, 23 rows with a target, "
        "1 without a target)"
    )
    assert "array" not in repr(source)
    assert len(repr(source)) < 250


def test_categories_of_held_out_rows_are_inputs():
    table = arrow(c=["u", "v", "w", "u", "v", "z", "t"], y=[1.0, 2, 3, 4, 5, 6, None])
    source = open_source(table, target="y")
    data = source.dataset(source.fit(np.arange(5)))
    assert data.x_names == ("c=t", "c=u", "c=v", "c=w", "c=z")
    assert data.x[5].tolist() == [0, 0, 0, 0, 1]
    assert data.preprocessor.inputs(table)[6].tolist() == [1, 0, 0, 0, 0]


def test_fitting_a_split_does_not_warn():
    table = arrow(id=list(range(20)), y=[i / 2 for i in range(20)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = open_source(table, target="y")
        assert len(source.fit(np.arange(15)).report.warnings) == 1


def test_what_is_no_table_is_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.arange(8.0)[:, None], y=np.arange(8.0))
    for name in ("step", tmp_path / "a.npz"):
        assert isinstance(open_source(name), Dataset)
    data = load("step")
    assert open_source(data) is data


def test_files_and_strictness(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(CSV)
    source = open_source(path, target="y")
    assert (source.name, source.source) == ("data", f"file {path}")
    strict = open_source(str(path), target="y", strict=True)
    assert isinstance(strict, Dataset)
    np.testing.assert_array_equal(source.dataset(source.fit(np.arange(3))).x, strict.x)
    path.write_text(CSV + "4,red,3\n")
    refused((lambda: open_source(path, target="y", strict=True), "'red' in line 5"))


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ("step", {"drop": "x"}, ["drop is 'x'", "the data are no table"]),
        (arrow(a=[1], y=[1]), {"categorical": ["a"], "strict": True}, ["categorical", "strict"]),
        (arrow(a=[1], y=[1]), {}, ["no target, wanted the column to predict"]),
        (arrow(a=[1, 2], y=[1, 2]), {"target": "y"}, ["2 rows of data with a target"]),
        (arrow(a=[1, 2], y=[1, 2]), {"target": "y", "split_key": "mine"}, ["mine"]),
        (3, {"target": "y"}, ["builtins int: wanted a file, or a data frame"]),
    ],
    ids=lambda v: str(v)[:12],
)
def test_what_cannot_be_opened(data, options, words):
    refused((lambda: open_source(data, **options), *words))


def test_the_target_of_a_data_set_may_be_a_column():
    data = load("step")
    found = open_source(dataclasses.replace(data, y=data.y[:, None]))
    np.testing.assert_array_equal(found.y, data.y, strict=True)
    assert open_source(data) is data
    wide = dataclasses.replace(data, y=np.stack([data.y, data.y], axis=1))
    with pytest.raises(DataError, match=r"shape \(\d+, 2\), wanted \[N\] or \[N, 1\].*y\[:, j\]"):
        open_source(wide)
