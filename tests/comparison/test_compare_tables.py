"""`compare` with tables: text, dates, missing cells, labels and data frames."""

import gc
import warnings
import weakref

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.comparisons import TINY, no_fit
from support.tables import houses

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl.comparison import _compare
from dgp_ppl.comparison._source import divided
from dgp_ppl.datasets._source import TableSource, open_source

DROP = ["id", "owner"]


def test_a_frame_is_compared_on_preprocessors_of_its_splits():
    """A preprocessor and a scale are fitted to the training rows of a split alone."""
    frame = pd.DataFrame(houses(40))
    options = {"target": "price", "drop": DROP}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dgp_ppl.compare(frame, ["linear"], splits=1, **options, **TINY)
    data, config = found.record["data"], found.record["config"]
    assert (data["rows"], data["columns"]) == (39, len(data["inputs"]))
    assert any("1 row without" in line for line in data["preparation"])
    assert (config["drop"], config["strict"]) == (DROP, False)
    assert all(np.isfinite(row["rmse"]) for row in found.splits)
    run, source = found.fits["linear"], open_source(frame, **options)
    train, test = datasets.splits(source, 1, 0)[0]
    columns = run.data.preprocessor
    assert columns == source.fit(train)
    np.testing.assert_array_equal(run.x, columns.inputs(source.whole)[source.rows[train]])
    np.testing.assert_array_equal(run.x_test, source.dataset(columns).x[test])
    np.testing.assert_allclose(run.standardizer.x_loc, run.x.mean(axis=0))


def test_groups_of_a_column_stay_on_one_side():
    """It may be left out of the inputs; missing cells are one group."""
    frame = pd.DataFrame(houses(60)).assign(owner=[None, *"abcde"] * 10, floor=[np.nan, 1, 2] * 20)
    source = open_source(frame, target="price", drop=DROP)
    for column in ("owner", "floor"):
        label = frame[column].astype(str).to_numpy()[source.rows]
        for split in divided(source, range(6), 0, column):
            assert not {*label[split.train]} & {*label[split.test]}
    for data, groups, message in (
        (source, "ownr", "groups is 'ownr', wanted one of inputs, .*owner"),
        (source, "price", "groups is 'price', wanted one of inputs, .*owner"),
        (datasets.load("step"), "x", "wanted one of inputs, of rows that are not read block"),
    ):
        with pytest.raises(ValueError, match=message):
            divided(data, [0], 0, groups)


def test_labels_are_classes_and_warnings_are_given(capsys, monkeypatch):
    monkeypatch.setattr(_compare, "run_method", no_fit)
    table = houses(30)
    table["garage"] = ["yes" if g else "no" for g in table["garage"]]
    frame = pl.DataFrame({n: table[n] for n in ("id", "area", "garage")})
    options = {"target": "garage", "splits": 1} | TINY
    with pytest.warns(UserWarning, match="'id' has 27 different whole numbers in 27"):
        found = dgp_ppl.compare(frame, ["dsvi"], **options)
    assert found.record["data"]["task"] == "binary"
    assert found.record["data"]["classes"] == ["no", "yes"]
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_inputs_of_one_split_are_in_memory_beside_the_first(monkeypatch):
    """Those of a split are made when its fits begin; the runs of the first split keep its data."""
    made, alive, dataset = [], [], TableSource.dataset

    def note(self, preprocessor):
        gc.collect()
        alive.append([ref() is not None for ref in made])
        found = dataset(self, preprocessor)
        made.append(weakref.ref(found))
        return found

    rows = []
    monkeypatch.setattr(TableSource, "dataset", note)
    found = dgp_ppl.compare(
        pd.DataFrame(houses()), ["linear", "gp"], target="price", drop=DROP,
        on_row=lambda row: rows.append((row["split"], len(made))), **(TINY | {"splits": 3}),
    )  # fmt: skip
    assert rows == [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3), (2, 3)]
    assert alive == [[], [True], [True, False]]
    assert found.fits["linear"].data is made[0]()
