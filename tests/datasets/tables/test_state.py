import copy

import pyarrow as pa
import pytest
from support.tables import fault, fitted, houses

from dgp_ppl.datasets import Preprocessor


@pytest.fixture(scope="module")
def state():
    return fitted(pa.table(houses())).to_state()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, ["no state of a Preprocessor"]),
        ({"version": 2}, ["version 2, wanted at most 1", "update dgp_ppl"]),
        ({"version": "new"}, ["damaged", "'new'"]),
        ({"columns": None}, ["damaged"]),
        ({"columns": [{"name": "a"}]}, ["damaged"]),
        ({"target": {"name": "y", "kind": {"what": 1}}}, ["damaged"]),
        ({"report": {}}, ["damaged"]),
    ],
)
def test_damaged_states(state, change, words):
    fault(lambda: Preprocessor.from_state(copy.deepcopy(state) | change), *words)


def test_what_is_no_state():
    fault(lambda: Preprocessor.from_state([1]), "no state of a Preprocessor")  # type: ignore[arg-type]


def test_a_state_has_the_types_of_json(state):
    def check(value):
        assert isinstance(value, dict | list | str | float | int | bool | None)
        for inner in value.values() if isinstance(value, dict) else value:
            if not isinstance(inner, str | float | int | bool | None):
                check(inner)

    check(state)
    assert (state["format"], state["version"]) == ("dgp_ppl.Preprocessor", 1)
