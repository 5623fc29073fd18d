"""Options that commands share, and files that they write."""

import inspect

import pytest
from support.commands import command

from dgp_ppl._errors import DataError
from dgp_ppl.cli import _compare, _fit
from dgp_ppl.cli._options import check_output, column_names
from dgp_ppl.comparison._setting import OPTIONS


def test_options_are_those_of_compare():
    """Names, defaults and types come from `Setting`; a fit has no restarts."""
    _, text, _ = command("compare", "--help")
    assert "--no-resume" not in text
    assert all(words in text for words in ("Methods to compare, separated", "Optimiser steps."))
    for given_to in (_compare._compare, _fit._fit):
        given = inspect.signature(given_to).parameters
        for option in OPTIONS:
            if option.name != "restarts" or given_to is _compare._compare:
                assert given[option.name].default == option.default
                assert given[option.name].annotation.__origin__ == option.type
    assert "restarts" not in given


def test_names_are_separated_by_commas_or_options():
    assert column_names(['a, "b, c"', " d "]) == ["a", "b, c", "d"]
    assert column_names(None) == []


def test_files_that_cannot_be_written(tmp_path):
    folder, source = tmp_path / "t.csv", tmp_path / "in.csv"
    folder.mkdir()
    source.write_text("")
    for path, inputs, words in (
        (folder, (), "is a folder"),
        (source, [folder / ".." / "in.csv"], "is an input"),
        (source, (), "exists; .*--overwrite"),
        (tmp_path / "p.xlsx", (), r"'.xlsx', wanted .csv"),
        (tmp_path / "nowhere" / "p.csv", (), "there is no folder"),
    ):
        with pytest.raises(DataError, match=words):
            check_output(path, False, (".csv",), inputs)
    check_output(source, True, (".csv",))
