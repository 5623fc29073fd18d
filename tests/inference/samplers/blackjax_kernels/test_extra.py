"""The error where BlackJAX is not installed."""

import importlib.util

import pytest

from dgp_ppl.inference.samplers.blackjax_kernels._extra import require_blackjax


def test_it_is_imported_where_it_is_installed():
    assert require_blackjax("MCLMC").__name__ == "blackjax"


def test_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wanted = r"MCLMC: wanted blackjax; python -m pip install 'dgp_ppl\[blackjax\]'"
    with pytest.raises(ImportError, match=wanted):
        require_blackjax("MCLMC")
