import json
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.data_samples import refused
from support.tables import DROP, arrow, fitted, houses

from dgp_ppl.datasets import Preprocessor
from dgp_ppl.datasets._csv import check_names
from dgp_ppl.datasets._preprocessor import check_columns

TRAIN = np.arange(18)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return the same table as frames and files."""
    folder = tmp_path_factory.mktemp("tables")
    table = houses()
    frame = pd.DataFrame(table)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    return {
        "pandas": frame,
        "polars": pl.DataFrame(table),
        "arrow": pa.table(table),
        "csv": folder / "t.csv",
        "parquet": str(folder / "t.parquet"),
    }


@pytest.fixture(scope="module")
def columns(sources):
    return fitted(sources["arrow"], rows=TRAIN, **DROP)


def test_inputs(columns, sources):
    x = columns.inputs(sources["arrow"])
    named = dict(zip(columns.names, x.T, strict=True))
    table = houses()
    assert list(named) == [
        "area", "rooms", "sold", "colour=blue", "colour=green", "colour=red", "colour=(missing)",
        "garage=True", "rooms missing", "sold missing",
    ]  # fmt: skip
    assert x.dtype == np.float64
    np.testing.assert_array_equal(named["area"], [float(a.replace(",", "")) for a in table["area"]])
    rooms = [r for r in table["rooms"][:18] if r is not None]
    assert named["rooms"][3] == np.median(rooms)
    assert named["sold"][0] == 19723
    for colour in ("blue", "green", "red"):
        assert named[f"colour={colour}"].tolist() == [c == colour for c in table["colour"]]
    assert named["colour=(missing)"].tolist() == [c is None for c in table["colour"]]
    assert named["garage=True"].tolist() == table["garage"]
    assert named["rooms missing"].tolist() == [r is None for r in table["rooms"]]
    assert columns.one_hot == {"colour": range(3, 7)}  # the garage has one input


def test_targets(columns, sources):
    y, present = columns.targets(sources["csv"])
    price = houses()["price"]
    assert present.tolist() == [p is not None for p in price]
    np.testing.assert_array_equal(y[present], [p for p in price if p is not None])
    assert (columns.task, columns.classes) == ("regression", ())
    refused((lambda: columns.targets(arrow(a=[1])), "no column 'price'"))
    refused((lambda: fitted(arrow(a=[1, 2]), None).task, "fitted without a target"))


def test_the_same_inputs_from_frames_and_files(columns, sources):
    wanted = columns.inputs(sources["arrow"])
    for source in sources.values():
        np.testing.assert_array_equal(columns.inputs(source), wanted)
        assert fitted(source, rows=TRAIN, **DROP) == columns


def test_held_out_rows_change_nothing(columns):
    """Whatever the cells of the other rows are, only the names of their categories are learnt."""
    table = houses()
    for name, cell in (("rooms", 99.0), ("colour", "blue"), ("area", "9,999.99"),
                       ("country", "BE"), ("price", 1e6), ("garage", None)):  # fmt: skip
        table[name] = [*table[name][:18], *[cell] * 6]
    changed = fitted(pa.table(table), rows=TRAIN, **DROP)
    assert changed == columns
    found = changed.inputs(pa.table(table))[TRAIN]
    np.testing.assert_array_equal(found, columns.inputs(pa.table(houses()))[TRAIN])


def test_the_whole_table_tells_the_categories():
    """Also rows without a target; a column that is constant in the training rows is left out."""
    table = arrow(
        c=["b", "a", "b", "new", "b", "late"], d=["u", "u", "u", "u", "v", "u"],
        e=[1.0, 2, 3, 4, 5, 6], y=[1.0, 2, 3, 4, 5, None],
    )  # fmt: skip
    columns = fitted(table, "y", rows=[0, 1, 2])
    assert columns.names == ("e", "c=a", "c=b", "c=late", "c=new")
    found = columns.inputs(table)
    assert found[3:, 1:].tolist() == [[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert "c: a, b, late, new (late, new in other rows alone)" in str(columns.report)
    assert "d: always" not in str(fitted(table, "y").report)
    assert columns.columns[0].fill == 1  # the position of b, the most frequent one in training


def test_new_rows_without_a_date(tmp_path):
    """pandas has None there, polars and Arrow have the type null; a .csv file has empty cells."""
    columns = fitted(pa.table(houses()), **DROP)
    new = pd.DataFrame(houses()).assign(sold=None, rooms=None)
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet", index=False)
    wanted = columns.inputs(tmp_path / "new.csv")
    blank = pl.DataFrame(houses()).with_columns(sold=pl.lit(None), rooms=pl.lit(None))
    for source in (new, new.assign(sold=pd.NaT), blank, tmp_path / "new.parquet"):
        np.testing.assert_array_equal(columns.inputs(source), wanted)


def test_new_rows_that_do_not_fit(columns, sources):
    new = pa.table(houses()).slice(0, 3)
    renamed = new.rename_columns({"area": "Area"})
    violet = new.set_column(3, "colour", pa.array(["red", "violet", "pink"]))
    refused(
        (lambda: columns.inputs(new.drop(["rooms", "area"])), "no column 'area', 'rooms'",
         "wanted the columns of the training data"),
        (lambda: columns.inputs(renamed), "no column 'area' (did you mean 'Area'?)"),
        (lambda: columns.inputs(violet), "column 'colour': 'violet' in row 1", "is no category"),
    )  # fmt: skip
    zeros = columns.inputs(violet, unseen="zeros")[:, 3:7]
    assert zeros.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    unseen = "unseen is 'ignore', wanted 'error' or 'zeros'"
    refused((lambda: columns.inputs(new, unseen="ignore"), unseen))
    extra = columns.inputs(new.append_column("more", pa.array([1, 2, 3])))
    np.testing.assert_array_equal(extra, columns.inputs(sources["csv"])[:3])


def test_what_cannot_be_fitted(sources):
    for options, *words in (
        ({"target": 8}, "no column 8; the columns are 'id'"),
        ({"drop": "rom"}, "drop: no column 'rom'", "did you mean 'room"),
        ({"categorical": ["no"]}, "categorical: no column 'no'", "columns are 'id'"),
        ({"drop": "price"}, "drop has 'price', which is the target"),
        ({"drop": "id", "categorical": "id"}, "drop has 'id'"),
        ({"rows": [7]}, "no training rows with a target"),
        ({"rows": [0]}, "no column is left as an input", "country", "always 'NL'"),
    ):
        given = {"target": "price"} | options
        refused((lambda given=given: fitted(sources["arrow"], **given), *words))


def test_categorical_and_drop(sources):
    drop = [n for n in houses() if n not in ("rooms", "price")]
    columns = fitted(sources["csv"], drop=drop, categorical="rooms")
    assert columns.names[:2] == ("rooms=1", "rooms=2")
    labelled = fitted(sources["csv"], "rooms", drop=["owner"], categorical="rooms")
    assert (labelled.task, labelled.classes) == ("multiclass", ("1", "2", "3", "4", "5"))


def test_the_state_is_json_and_the_round_trip_exact(columns, sources):
    for fit in (columns, fitted(sources["csv"], "colour"), fitted(sources["csv"], None)):
        again = Preprocessor.from_state(json.loads(json.dumps(fit.to_state())))
        assert again == fit
        assert str(again.report) == str(fit.report)
        assert again.to_state() == fit.to_state()
    np.testing.assert_array_equal(again.inputs(sources["polars"]), fit.inputs(sources["polars"]))


def test_numbers_as_they_are():
    """`of_numbers` takes constant columns too, refuses missing cells, and survives JSON."""
    columns = Preprocessor.of_numbers(["b", "a"])
    columns = Preprocessor.from_state(json.loads(json.dumps(columns.to_state())))
    found = columns.inputs(arrow(a=[1, 1], b=["2.5", "1,000"], c=["x", "y"]))
    assert found.tolist() == [[2.5, 1], [1000, 1]]
    refused((lambda: columns.inputs(arrow(a=[1, None], b=[1, 2])), "'a'", "nan in row 1"))
    refused((lambda: columns.inputs(arrow(a=[1, 2], b=["x", "y"])), "'b'", "'x'"))


def test_states_that_are_refused(columns):
    state = columns.to_state()
    for change, *words in (
        ({"format": "other"}, "no state of a Preprocessor"),
        ({"version": 2}, "version 2, wanted 1", "update dgp_ppl"),
        ({"columns": [{"name": "a"}]}, "damaged"),
        ({"columns": [-1]}, "damaged"),
        ({"target": {"name": "y", "kind": {"what": 1}}}, "damaged"),
        ({"report": {}}, "damaged"),
    ):
        refused((lambda change=change: Preprocessor.from_state(state | change), *words))
    assert not Preprocessor.is_state([1])


def test_a_state_of_version_0_2_is_read():
    """Fits that were kept by earlier versions go on."""
    state = {
        "format": "dgp_ppl.Preprocessor", "version": 1,
        "columns": [
            {"name": "a", "kind": {"name": "number", "order": "year", "numeric": False},
             "fill": 2.5, "varies": True, "missing": True, "categories": []},
            {"name": "c", "kind": {"name": "category", "order": "year", "numeric": False},
             "fill": 1.0, "varies": True, "missing": True, "categories": ["u", "v"]},
        ],
        "target": {"name": "y", "kind": {"name": "number", "order": "year", "numeric": False},
                   "task": "regression", "classes": []},
        "report": {"title": "t", "steps": [["numbers", "a"]], "warnings": []},
    }  # fmt: skip
    columns = Preprocessor.from_state(state)
    assert columns.names == ("a", "c=u", "c=v", "c=(missing)", "a missing")
    found = columns.inputs(arrow(a=[None, 7], c=["v", None]))
    assert found.tolist() == [[2.5, 0, 1, 0, 1], [7, 0, 0, 1, 0]]
    assert columns.to_state() == state


def test_categories_of_digits_stay_apart(tmp_path):
    """float64 would take 2^53 + 1 for 2^53, and 007 for 7."""
    path = tmp_path / "t.csv"
    for ids in ((2**53, 2**53 + 1, 1), ("00501", "501", "7"), ("9007199254740993.0", 2**53, 1)):
        rows = [f"{i},{k}" for k, i in enumerate(ids * 2)]
        path.write_text("\n".join(["id,y", *rows]) + "\n")
        columns = Preprocessor.fit(path, "y", categorical="id")
        assert len(np.unique(columns.inputs(path), axis=0)) == 3
        zips = pd.DataFrame({"id": [str(i) for i in ids * 2], "y": range(6)}).astype(
            {"id": "category"}
        )
        assert fitted(zips, "y") == columns


def test_time_is_linear_in_columns_and_categories():
    """40,000 columns and 20,000 categories take seconds if names are looked up in lists."""
    names = [f"column {i}" for i in range(40_000)]
    start = time.process_time()
    check_names("t", names)
    check_columns("t", names, names[0], names[20_000:], names[1:20_000])
    codes = pa.array([f"{i}" for i in range(20_000)] * 2).dictionary_encode()
    columns = fitted(arrow(c=codes, y=codes, n=np.arange(40_000.0)), "y", drop="n")
    assert (len(columns.classes), len(columns.names)) == (20_000, 20_000)
    assert time.process_time() - start < 3
