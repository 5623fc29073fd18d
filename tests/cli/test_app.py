"""The command itself."""

from support.commands import command

from dgp_ppl import __version__


def test_version(monkeypatch, capsys):
    assert command(monkeypatch, capsys, "--version")[1] == f"dgp_ppl {__version__}\n"
