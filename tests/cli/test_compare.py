"""The command line: exit codes, one-line errors for bad input, and output files."""

import numpy as np
import pytest
from support.commands import command

from dgp_ppl._errors import DataError
from dgp_ppl.cli import _compare

TINY = ["--steps", "3", "--inducing", "4", "--samples", "4", "--splits", "1", "--quiet"]


def csv(path, rows, header="a,b,y"):
    path.write_text("\n".join([header, *(",".join(map(str, r)) for r in rows)]) + "\n")
    return path


GOOD = [(i, i % 3, i * 0.5) for i in range(20)]
BAD_FILES = {
    "NaN": (("a,b,y"), [*GOOD, (1, "nan", 2)], "b"),
    "non-numeric": (("a,b,y"), [*GOOD, (1, "red", 2)], "red"),
    "constant target": (("a,b,y"), [(i, i, 1.0) for i in range(9)], "y"),
    "one row": (("a,b,y"), GOOD[:1], "row"),
    "header only": (("a,b,y"), [], "row"),
    "duplicate header": (("a,a,y"), GOOD, "a"),
    "overflow": (("a,b,y"), [*GOOD, (10**400, 1, 2)], "a"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file(name, tmp_path, monkeypatch, capsys):
    header, rows, word = BAD_FILES[name]
    path = csv(tmp_path / "data.csv", rows, header)
    out = tmp_path / "out"
    code, _, err = command(
        monkeypatch, capsys, "compare", path, "--target", "y", "--strict", "--out", out, *TINY
    )
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert word in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["no-such-file.csv", "--target", "y"], "no-such-file.csv"),
        (["diabetez"], "diabetes"),
        (["diabetes", "--target", "nothing"], "nothing"),
        (["diabetes", "--methods", "svgp,magic"], "magic"),
        (["diabetes", "--steps", "0"], "steps"),
        (["diabetes", "--workers", "0"], "workers"),
        (["diabetes", "--learning-rate", "-1"], "learning_rate"),
        (["diabetes", "--seed", "-1"], "seed"),
        (["diabetes", "--seed", "99999999999999999999"], "seed"),
        (["diabetes", "--split-key", "mine"], "mine"),
        (["breast_cancer", "--methods", "sgpr,dsvi"], "sgpr"),
        (["diabetes", "--likelihood", "softmax"], "softmax"),
        (["diabetes", "--model", "deep"], "deep_gp"),
    ],
)
def test_bad_argument(args, word, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    code, _, err = command(monkeypatch, capsys, "compare", *TINY, *args, "--out", out)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert word in err
    assert not out.exists()


def test_no_such_column_lists_the_columns(tmp_path, monkeypatch, capsys):
    path = csv(tmp_path / "data.csv", GOOD)
    code, _, err = command(monkeypatch, capsys, "compare", path, "--target", "z", *TINY)
    assert code == 2
    assert all(repr(c) in err or c in err for c in "aby")


def test_results_are_not_overwritten_unasked(tmp_path, monkeypatch, capsys):
    (tmp_path / "results.json").write_text("{}")
    code, _, err = command(monkeypatch, capsys, "compare", "diabetes", "--out", tmp_path, *TINY)
    assert code == 2
    assert "--overwrite" in err
    assert (tmp_path / "results.json").read_text() == "{}"


def test_a_good_file_is_compared(tmp_path, monkeypatch, capsys):
    """Overwriting removes the files of the earlier comparison and keeps the user's."""
    rng = np.random.default_rng(0)
    path = csv(tmp_path / "data.csv", [(a, a * a, a + 1) for a in rng.normal(size=30)])
    out = tmp_path / "out"
    out.mkdir()
    for name in ("results.json", "sgpr.nc", "function.png", "notes.txt"):
        (out / name).write_text("{}")
    args = ["compare", path, "--target", "y", "--methods", "svgp", "--out", out, *TINY]
    args.append("--overwrite")
    code, text, _ = command(monkeypatch, capsys, *args)
    assert code == 0
    assert "svgp" in text
    assert {p.name for p in out.iterdir()} == {
        "results.json", "svgp.nc", "training.png", "predictions.png", "coverage.png", "notes.txt",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ([], {"restarts": 1}),
        (["--category-kernel"], {"category_kernel": True}),
        (["--kernel", "matern52"], {"kernel": "matern52"}),
        (["--restarts", "3"], {"restarts": 3}),
        (["--likelihood", "heteroscedastic"], {"likelihood": "heteroscedastic"}),
    ],
)
def test_options_reach_the_comparison(args, found, tmp_path, monkeypatch, capsys):
    seen = {}

    def record(*_, **options):
        seen.update(options)
        raise DataError("stop here")

    monkeypatch.setattr(_compare, "compare", record)
    code, _, err = command(monkeypatch, capsys, "compare", "step", "--out", tmp_path / "out", *args)
    assert (code, err.strip()) == (2, "dgp-ppl: stop here")
    assert {name: seen[name] for name in found} == found
