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


def test_entries_of_another_type(path):
    """Each is damage, for the record and for the fit."""
    whole = path.read_bytes()
    for entry, value in (
        ("versions", {"jax": "0.10", "date": "x"}), ("model", 3), ("info", [1]),
        ("columns", "age"), ("data", []),
    ):  # fmt: skip
        path.write_bytes(rewritten(whole, **{entry: value}))
        for read in (read_record, dgp_ppl.load):
            wanted = f"fit.dgp is damaged or cut short .its {entry} is"
            with pytest.raises(dgp_ppl.DataError, match=wanted):
                read(path)
