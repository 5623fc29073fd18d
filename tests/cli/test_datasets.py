"""The list of data sets."""

from support.commands import command


def test_datasets(monkeypatch, capsys):
    code, out, _ = command(monkeypatch, capsys, "datasets")
    assert code == 0
    assert all(name in out for name in ("diabetes", "breast_cancer", "digits", "step"))
