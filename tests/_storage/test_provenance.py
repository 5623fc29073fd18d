"""Fingerprints of data, and versions."""

import numpy as np
import pytest

from dgp_ppl._storage import fingerprint, versions

X = np.array([[1.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    "same", [X.tolist(), np.asfortranarray(X), X.astype(">f8"), X.astype(np.float32)]
)
def test_equal_values_have_one_fingerprint(same):
    assert fingerprint(X, [0, 1]) == fingerprint(same, np.array([-0.0, 1.0]))


@pytest.mark.parametrize("other", [X.T, X[:1], X + 1e-9, X.ravel()])
def test_other_values_have_another(other):
    assert fingerprint(X) != fingerprint(other)


def test_texts_are_values_too():
    assert fingerprint(["a", "b"]) == fingerprint(np.array(["a", "b"], object))
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])
    assert fingerprint(["1"]) != fingerprint([1])


def test_versions_name_the_packages_and_the_device():
    assert {"dgp_ppl", "python", "jax", "numpyro", "device", "date"} <= set(versions())
