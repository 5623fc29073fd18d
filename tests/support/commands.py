"""Runs of the command line in this process."""

from dgp_ppl import cli


def command(monkeypatch, capsys, *args):
    """Run `dgp-ppl`; return its exit code, standard output and standard error."""
    monkeypatch.setattr("sys.argv", ["dgp-ppl", *map(str, args)])
    monkeypatch.delenv("DGP_PPL_DATA", raising=False)
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err
