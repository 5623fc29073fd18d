"""Options that several commands share."""

from dgp_ppl.cli._options import column_names


def test_names_are_separated_by_commas_or_options():
    assert column_names(['a, "b, c"', " d "]) == ["a", "b, c", "d"]
    assert column_names(None) == []
