"""The folder of a comparison and its files."""

import json

import numpy as np
import pytest

from dgp_ppl import DataError
from dgp_ppl.comparison._folder import prepare_folder, write_json


def test_a_folder_is_created_and_results_are_not_overwritten_unasked(tmp_path):
    folder = prepare_folder(tmp_path / "deep" / "er", overwrite=False)
    assert folder.is_dir()
    (folder / "results.json").write_text("{}")
    with pytest.raises(DataError, match=r"already holds results.json; choose another --out"):
        prepare_folder(folder, overwrite=False)
    assert prepare_folder(folder, overwrite=True) == folder
    with pytest.raises(DataError, match=r"cannot be created: .*; choose another --out"):
        prepare_folder(folder / "results.json" / "folder", overwrite=False)


def test_json_has_no_nan_and_is_written_whole(tmp_path):
    path = tmp_path / "results.json"
    write_json(path, {"rows": [{"rmse": np.nan, "gap": np.inf}, (1.5, None, "nan")]})
    wanted = {"rows": [{"rmse": None, "gap": None}, [1.5, None, "nan"]]}
    assert json.loads(path.read_text()) == wanted
    with pytest.raises(TypeError):
        write_json(path, {"rmse": object()})
    assert json.loads(path.read_text()) == wanted
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]
