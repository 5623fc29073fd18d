"""Small data sets and checks of error messages, for the tests of `dgp_ppl.datasets`."""

import numpy as np
import pytest

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._load import load

CSV = "a,b,y\n1,2,0.5\n2,1,1.5\n3,0,2.5\n"
X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0) / 2


def message(name, **options):
    """Return the message of the error that `load` raises; it must be one short line."""
    with pytest.raises(DataError) as caught:
        load(name, **options)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 700
    return text


def assert_words(text, *words):
    """Assert that a message contains all these words."""
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
