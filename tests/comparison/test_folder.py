"""The files of a comparison."""

import json

import numpy as np
import pytest

from dgp_ppl.comparison._folder import write_json


def test_json_has_no_nan_and_is_written_whole(tmp_path):
    path = tmp_path / "results.json"
    write_json(path, {"rows": [{"rmse": np.nan, "gap": np.inf}, (1.5, None, "nan")]})
    wanted = {"rows": [{"rmse": None, "gap": None}, [1.5, None, "nan"]]}
    assert json.loads(path.read_text()) == wanted
    with pytest.raises(TypeError):
        write_json(path, {"rmse": object()})
    assert json.loads(path.read_text()) == wanted
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]
