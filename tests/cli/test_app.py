"""The command itself: its version, and interruptions."""

from support.commands import command

from dgp_ppl import Interrupted, __version__, datasets


def test_version():
    assert command("--version")[1] == f"dgp_ppl {__version__}\n"


def test_an_interruption_is_one_line(monkeypatch):
    for error, line in (
        (KeyboardInterrupt(), "interrupted"),
        (Interrupted("1 of 2 fits are kept", None), "1 of 2 fits are kept"),
    ):

        def interrupt(error=error):
            raise error

        monkeypatch.setattr(datasets, "names", interrupt)
        assert command("datasets") == (130, "", f"dgp-ppl: {line}\n")


def test_no_command_shows_the_help():
    code, out, err = command()
    assert (code, err) == (2, "")
    assert "predict" in out
