"""Files that commands write."""

import pytest

from dgp_ppl._errors import DataError
from dgp_ppl.cli._outputs import check_output


def test_a_file_that_cannot_be_written(tmp_path):
    folder, source = tmp_path / "t.csv", tmp_path / "in.csv"
    folder.mkdir()
    with pytest.raises(DataError, match="is a folder"):
        check_output(folder, True, (".csv",))
    with pytest.raises(DataError, match="is an input"):
        check_output(source, True, (".csv",), [tmp_path / "t.csv" / ".." / "in.csv"])
