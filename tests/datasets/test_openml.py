"""Data sets of openml.org, with the network replaced."""

import urllib.error

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.utils import Bunch
from support.data_samples import refused

from dgp_ppl.datasets import load


@pytest.fixture
def fetched(monkeypatch):
    """Return a list of requests, and a function that sets the answer."""
    asked, answer = [], {}

    def fetch(**which):
        asked.append(which)
        if isinstance(answer["now"], Exception):
            raise answer["now"]
        return answer["now"]

    def reply(target, **columns):
        if not isinstance(target, Exception):
            frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5], "b": range(5)} | columns)
            if isinstance(target, list):
                target = pd.Series(target, name="y")
            target = Bunch(data=frame, target=target, url="https://www.openml.org/d/61")
        answer["now"] = target

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return asked, reply


def test_what_is_asked_for(fetched):
    asked, reply = fetched
    reply([1.0, 2, 3, 5, 7])
    for text, target, which in (
        ("openml:boston", None, {"name": "boston"}),
        ("openml:boston:2", None, {"name": "boston", "version": 2}),
        ("openml:531", None, {"data_id": 531}),
        ("openml:2dplanes", "y", {"name": "2dplanes", "target_column": "y"}),
    ):
        data = load(text, target=target)
        assert asked.pop() == which | {"as_frame": True, "n_retries": 1}
        assert (data.name, data.task, data.y_name) == (text, "regression", "y")
        assert data.source == "openml.org, https://www.openml.org/d/61"
        np.testing.assert_array_equal(data.x, np.column_stack([range(1, 6), range(5)]))
    for text in ("openml:", "openml::", "openml:x:", "openml:x:new", "openml:x:1:2"):
        refused((lambda text=text: load(text), repr(text), "openml:NAME:VERSION"))
    refused((lambda: load("opemml:iris"),))  # a typo
    assert asked == []


def test_labels_become_classes(fetched):
    for kind in ("category", object, "str"):
        fetched[1](pd.Series(["v", "u", "v", "w", "u", "w"], dtype=kind, name="c"), a=range(6),
                   b=range(6))  # fmt: skip
        data = load("openml:x")
        assert (data.task, data.y.dtype) == ("multiclass", np.int64)
        assert data.y.tolist() == [1, 0, 1, 2, 0, 2]
    fetched[1]([0, 1, 1, 0, 1])
    assert load("openml:x").task == "regression"  # classes are labels there


def test_failures_are_one_line(fetched):
    tables = pd.DataFrame({"y": [1] * 5, "z": [2] * 5})
    for answer, columns, *words in (
        (urllib.error.URLError("no route\nto host"), {}, "cannot be reached", "no route to host"),
        (TimeoutError(), {}, "cannot be reached (TimeoutError)", "check the network"),
        (ValueError("Unknown data set\nx"), {}, "cannot be used (Unknown data set x)"),
        (KeyError("Could not find target_column='q'"), {}, "target_column='q'"),
        (ImportError("needs pandas"), {}, "needs pandas"),
        (None, {}, "no single default target", "--target", "'a', 'b'"),
        (tables, {}, "'y', 'z'", "wanted one"),
        ([1.0, 2, 3, 4, 5], {"c": ["u", "v", "w", "z", "u"]}, "'c': 'u' in row 0"),
    ):
        fetched[1](answer, **columns)
        refused((lambda: load("openml:x"), "'openml:x'", *words))
