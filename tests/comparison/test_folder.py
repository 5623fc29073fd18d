"""The folder of a comparison and its files."""

import json

import numpy as np
import pytest

from dgp_ppl import DataError
from dgp_ppl.comparison._folder import clear_folder, finished_rows, prepare_folder, write_json


def test_a_folder_is_created_and_results_are_not_overwritten_unasked(tmp_path):
    folder = prepare_folder(tmp_path / "deep" / "er", overwrite=False)
    assert folder.is_dir()
    (folder / "results.json").write_text("{}")
    with pytest.raises(DataError, match=r"already holds results.json; choose another --out"):
        prepare_folder(folder, overwrite=False)
    assert prepare_folder(folder, overwrite=True) == folder
    with pytest.raises(DataError, match=r"cannot be created: .*; choose another --out"):
        prepare_folder(folder / "results.json" / "folder", overwrite=False)


def test_files_of_an_earlier_comparison_are_removed_and_no_others(tmp_path):
    for name in ("dsvi.nc", "training.png", "report.html", "thesis.tex"):
        (tmp_path / name).write_text("")
    clear_folder(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_json_has_no_nan_and_is_written_whole(tmp_path):
    path = tmp_path / "results.json"
    write_json(path, {"rows": [{"rmse": np.nan, "gap": np.inf}, (1.5, None, "nan")]})
    wanted = {"rows": [{"rmse": None, "gap": None}, [1.5, None, "nan"]]}
    assert json.loads(path.read_text()) == wanted
    with pytest.raises(TypeError):
        write_json(path, {"rmse": object()})
    assert json.loads(path.read_text()) == wanted
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_rows_of_the_first_split_are_left_out_for_a_report(tmp_path):
    """Fits run method by method, so an interrupted comparison may have others before them."""
    record = {"config": {"methods": ["a", "b"], "splits": 3}, "data": {"name": "made"}}
    rows = [{"split": s, "method": m} for s, m in ((0, "a"), (1, "a"), (2, "a"), (0, "b"))]
    write_json(tmp_path / "results.json", record | {"splits": rows})
    assert finished_rows(tmp_path, record, refit=True) == rows[1:3]
    assert finished_rows(tmp_path, record, refit=False) == rows
