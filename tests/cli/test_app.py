"""The command itself: its version, and interruptions."""

import pytest
import typer
from support.commands import command

from dgp_ppl import Interrupted, __version__, datasets
from dgp_ppl.cli._app import interruptible


def test_version():
    assert command("--version")[1] == f"dgp_ppl {__version__}\n"


def test_an_interruption_is_one_line(capsys):
    for error, unwritten, line in (
        (KeyboardInterrupt(), None, "compare: interrupted"),
        (KeyboardInterrupt(), "a.dgp", "compare: interrupted; a.dgp is not written"),
        (Interrupted("1 of 2 fits are kept", None), None, "1 of 2 fits are kept"),
        (Interrupted("1 of 2", None), "a.dgp", "compare: interrupted; a.dgp is not written"),
    ):
        with pytest.raises(typer.Exit) as caught, interruptible("compare", unwritten):
            raise error
        assert caught.value.exit_code == 130
        assert capsys.readouterr().err == f"dgp-ppl: {line}\n"


def test_commands_that_lose_nothing_are_interrupted_in_one_line_too(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "names", interrupt)
    assert command("datasets") == (130, "", "dgp-ppl: interrupted\n")
