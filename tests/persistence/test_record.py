"""What a file says about its fit: read without the fit, and checked."""

import pytest
from support.archives import rewritten

import dgp_ppl
from dgp_ppl.models import svgp
from dgp_ppl.persistence import read_record


@pytest.fixture
def path(tmp_path):
    options = {"columns": ["age"], "info": {"target": "price"}, "data": ([[1.0]], [2.0])}
    dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, **options)
    return tmp_path / "fit.dgp"


def test_the_record_is_read_without_the_parts(path):
    """`read_record` imports no model, so it also reads the file of a model that is gone."""
    path.write_bytes(rewritten(path.read_bytes(), content={"model": "gone"}))
    record = read_record(path)
    assert (record["model"], record["columns"]) == ("dgp_ppl.models.svgp", ["age"])
    assert record["info"] == {"target": "price"}
    assert record["data"]["shapes"] == [[1, 1], [1]]


VERSIONS = {"dgp_ppl": "0.2.0", "jax": "0.10", "device": "cpu", "date": "2026-01-01"}


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("versions", 3, "'int' object"),
        ("versions", VERSIONS | {"date": 2026}, "its versions are no object of texts"),
        ("versions", VERSIONS | {"device": " "}, "its versions are no object of texts"),
        ("versions", {"jax": "0.10", "date": "x"}, "its versions lack dgp_ppl, device"),
        ("model", 3, "its model is no text"),
        ("info", [1], "its info is no object"),
        ("columns", "age", "its columns are no list of texts"),
        ("columns", [3], "its columns are no list of texts"),
        ("data", [], "its data have no list of shapes"),
        ("data", {"shapes": [3]}, "its data have no list of shapes"),
    ],
)
@pytest.mark.parametrize("read", [read_record, dgp_ppl.load])
def test_entries_of_another_type(entry, value, words, read, path):
    path.write_bytes(rewritten(path.read_bytes(), **{entry: value}))
    with pytest.raises(dgp_ppl.DataError, match=f"fit.dgp is damaged or cut short .{words}"):
        read(path)
