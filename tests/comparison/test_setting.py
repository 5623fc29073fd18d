"""`Setting`: the one declaration of a comparison's options, and what follows from it."""

import dataclasses
import inspect
import re

import pytest

import dgp_ppl
from dgp_ppl.comparison import Setting
from dgp_ppl.comparison._setting import OPTIONS, make_setting


def test_every_option_is_declared_once_with_all_that_a_help_text_needs():
    signature = inspect.signature(dgp_ppl.compare).parameters
    assert {f.name for f in dataclasses.fields(Setting)} - {"task", "outputs"} == {
        option.name for option in OPTIONS
    }
    for option in OPTIONS:
        assert option.help.endswith("."), option
        assert f"{option.name}: {option.help}" in Setting.__doc__
        assert option.default is None or isinstance(option.default, option.type)
        assert (option.name in signature) == (not option.hidden)
        assert option.hidden or signature[option.name].default == option.default


def test_keywords_change_a_setting():
    found = make_setting("compare", Setting(depth=3, steps=7), {"steps": 8})
    assert found == Setting(depth=3, steps=8)


def test_wrong_options_are_named():
    for options, words in (
        ({"dpth": 3}, "no option 'dpth'; did you mean depth"),
        ({"setting": {"depth": 2}}, "setting is a dict, wanted"),
        ({"model": "deepgp"}, "model is 'deepgp', wanted one of deep_gp"),
        ({"kernel": "rbf"}, "kernel is 'rbf', wanted one of squared_exponential, mat"),
        ({"likelihood": "normal"}, "likelihood is 'normal', wanted one of gaussian"),
        ({"depth": 0}, "depth is 0, wanted at least 1"),
        ({"inducing": 2.0}, "inducing is 2.0, wanted an integer"),
        ({"width": 0}, "width is 0, wanted at least 1"),
        ({"category_kernel": 1}, "category_kernel is 1, wanted True or False"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0, wanted a positive number"),
        ({"learning_rate": "0.1"}, "learning_rate is '0.1', wanted a positive number"),
        ({"elbo_share": 2}, "elbo_share is 2, wanted a number from 0 to 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"compare: .*{re.escape(words)}"):
            dgp_ppl.compare("step", **options)
