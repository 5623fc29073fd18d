import urllib.error
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.utils import Bunch
from support.data_samples import assert_words, message

from dgp_ppl.datasets._load import load


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("DGP_PPL_DATA", raising=False)


class TestOpenML:
    @pytest.fixture
    def fetched(self, monkeypatch):
        """Replace the network: the list of requests, and the list of answers."""
        asked, answers = [], []

        def fetch(**which):
            asked.append(which)
            if isinstance(answers[0], Exception):
                raise answers[0]
            return answers[0]

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        return asked, answers

    @staticmethod
    def bunch(target, **columns):
        frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1, 2, 3, 4]} | columns)
        return Bunch(data=frame, target=target, url="https://www.openml.org/d/61")

    @pytest.mark.parametrize(
        ("text", "target", "which"),
        [
            ("openml:boston", None, {"name": "boston"}),
            ("openml:boston:2", None, {"name": "boston", "version": 2}),
            ("openml:531", None, {"data_id": 531}),
            ("openml:2dplanes", "y", {"name": "2dplanes", "target_column": "y"}),
        ],
    )
    def test_what_is_asked_for(self, fetched, text, target, which):
        asked, answers = fetched
        answers.append(self.bunch(pd.Series([1.0, 2, 3, 5], name="y")))
        data = load(text, target=target)
        assert asked == [which | {"as_frame": True, "n_retries": 1}]
        assert (data.name, data.task, data.y_name) == (text, "regression", "y")
        assert data.source == "openml.org, https://www.openml.org/d/61"
        np.testing.assert_array_equal(data.x, [[1, 1], [2, 2], [3, 3], [4, 4]])

    @pytest.mark.parametrize("kind", ["category", object, "str"])
    def test_labels_become_classes(self, fetched, kind):
        fetched[1].append(self.bunch(pd.Series(["v", "u", "v", "w"], dtype=kind, name="c")))
        data = load("openml:x")
        assert (data.task, data.y.tolist(), data.y.dtype) == ("multiclass", [1, 0, 1, 2], np.int64)
        fetched[1][0] = self.bunch(pd.Series(["v", "u", "v", "u"], dtype=kind, name="c"))
        assert load("openml:x").task == "binary"

    @pytest.mark.parametrize(
        "text", ["openml:", "openml::", "openml:x:", "openml:x:new", "openml:x:1:2"]
    )
    def test_other_forms_never_ask_the_network(self, fetched, text):
        assert_words(message(text), repr(text), "openml:NAME:VERSION")
        assert fetched[0] == []

    def test_a_typo_never_asks_the_network(self, fetched):
        message("opemml:iris")
        assert fetched[0] == []

    def test_splits_are_random(self, fetched):
        assert_words(message("openml:x", split_key="folds"), "'folds'", "only .npz files")

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (urllib.error.URLError("no route\nto host"), ["cannot be reached", "no route to host"]),
            (TimeoutError(), ["cannot be reached (TimeoutError)", "check the network"]),
            (ValueError("Unknown data set\nx"), ["cannot be used (Unknown data set x)"]),
            (KeyError("Could not find target_column='q'"), ["target_column='q'"]),
            (ImportError("needs pandas"), ["needs pandas"]),
        ],
    )
    def test_failures_are_one_line(self, fetched, error, words):
        fetched[1].append(error)
        assert_words(message("openml:x"), "'openml:x'", *words)

    def test_warnings_come_only_with_a_result(self, monkeypatch):
        answers: list[object] = [OSError("down"), self.bunch(pd.Series([1.0, 2, 3, 5], name="y"))]

        def fetch(**which):
            warnings.warn("take two", UserWarning, stacklevel=2)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        message("openml:x")
        with pytest.warns(UserWarning, match="take two"):
            load("openml:x")

    @pytest.mark.parametrize(
        ("target", "columns", "words"),
        [
            (None, {}, ["no default target", "--target", "'a', 'b'"]),
            (pd.DataFrame({"y": [1] * 4, "z": [2] * 4}), {}, ["'y', 'z'", "wanted one"]),
            ([1.0, 2, np.nan, 4], {}, ["target 'y' is missing in 1 rows", "row 2"]),
            (["u", None, "v", "w"], {}, ["target 'y' is missing in 1 rows", "row 1"]),
            ([1.0, 2, np.inf, 4], {}, ["'y', row 2"]),
            ([2.0] * 4, {}, ["target 'y' is 2 in every row"]),
            ([1.0, 2, 3, 4], {"c": [1, np.nan, 2, 3]}, ["1 value missing", "'c', row 1"]),
            ([1.0, 2, 3, 4], {"c": ["u", "v", "w", "z"]}, ["'c' does not hold numbers, first 'u'"]),
            ([1.0, 2, 3, 4], {"c": [2**60] * 4}, ["2^53", "'c', row 0"]),
        ],
    )
    def test_bad_data(self, fetched, target, columns, words):
        if isinstance(target, list):
            target = pd.Series(target, name="y")
        fetched[1].append(self.bunch(target, **columns))
        assert_words(message("openml:x"), "'openml:x'", *words)
