"""Small data sets and checks of error messages, for the tests of `dgp_ppl.datasets`."""

import numpy as np

from dgp_ppl import DataError

CSV = "a,b,y\n1,2,0.5\n2,1,1.5\n3,0,2.5\n"
X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0) / 2


def refused(*cases):
    """Assert that each case, an action and words, raises a `DataError` of one line with them."""
    failures = []
    for action, *words in cases:
        try:
            found = action()
        except DataError as error:
            text = str(error)
            lost = [word for word in words if word not in text]
            if lost or len(text.splitlines()) != 1 or len(text) > 800:
                failures.append(f"{lost} not in one line {text!r}")
        else:
            failures.append(f"{words}: no error, but {found!r}")
    assert not failures, "\n".join(failures)
