"""`dgp-ppl show`, what commands read in damaged or crafted fits, and `dgp-ppl datasets`."""

import json

import numpy as np
import pytest
from support.archives import rewritten
from support.commands import command, refused

import dgp_ppl
from dgp_ppl.comparison._metrics import METRICS
from dgp_ppl.models import svgp

ROW = dict.fromkeys(METRICS["regression"]) | {"method": "svgp", "rmse": 1, "seconds": 1, "steps": 3}
ABOUT = {
    "source": "file a.csv", "target": "y", "task": "regression", "classes": [], "row": ROW,
    "rows": {"training": 2, "held_out": 1},
    "config": {"depth": 2, "elbo_share": 0.0, "seed": 0, "x64": False},
}  # fmt: skip


def test_everything_is_said(fit):
    code, printed, err = command("show", fit.path)
    assert (code, err) == (0, "")
    for words in (
        "method      dsvi", "model       dgp_ppl.models.deep_gp", "guide       MeanField",
        "inducing 4", "steps 3", "seed 3", "data        file houses.csv",
        "numbers     area, rooms", "target      price (regression)",
        "rows        26 for training, 3 held out", "nats per datum (ELBO)", "held out    ",
        "RMSE ", " s, 3 steps", f"dgp_ppl {dgp_ppl.__version__}",
    ):  # fmt: skip
        assert words in printed, printed
    code, printed, _ = command("show", fit.path, "--json")
    assert code == 0
    record = json.loads(printed)
    assert record["info"]["comparison"]["row"]["method"] == "dsvi"
    assert record["model"] == "dgp_ppl.models.deep_gp"


def test_fits_of_other_programs_are_shown(tmp_path):
    data = (np.ones((4, 1)), np.ones(4))
    dgp_ppl.save(tmp_path / "fit.dgp", svgp, None, {}, columns=["age"], data=data)
    code, printed, _ = command("show", tmp_path / "fit.dgp")
    assert code == 0
    assert "columns  age" in printed
    assert "rows     4" in printed


def test_data_sets_are_listed():
    code, out, _ = command("datasets")
    assert code == 0
    assert all(name in out for name in ("diabetes", "breast_cancer", "digits", "step"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.dgp"
    dgp_ppl.save(path, svgp, None, {}, columns=["a", "b"], info={"comparison": ABOUT})
    return path.read_bytes()


def test_entries_of_another_type(whole, tmp_path):
    """Files of other programs say nothing of a comparison, and a row or options may be missing."""
    path = tmp_path / "fit.dgp"
    short = {n: v for n, v in ABOUT.items() if n not in ("row", "config")}
    for info in ({}, {"comparison": {}}, {"comparison": short}, {"comparison": ABOUT}):
        path.write_bytes(rewritten(whole, info=info))
        code, printed, _ = command("show", path)
        assert code == 0, info
    assert " depth 2, elbo_share 0.0, seed 0\n" in printed
    for about, name in (
        ([1], "source"),
        *(({n: v for n, v in ABOUT.items() if n != name}, name) for name in short),
        *((ABOUT | {name: 3}, name) for name in ABOUT),
    ):
        path.write_bytes(rewritten(whole, info={"comparison": about}))
        assert f"(the {name} of its info['comparison'] is missing" in refused("show", path)


def test_show_imports_nothing_and_a_terminal_gets_no_control_characters(whole, tmp_path):
    """`predict` asks for trust; with it, it fails because there is no such module."""
    model = {"kind": "import", "path": "no_such_module:model"}
    content = {"model": model, "guide": None, "params": {"kind": "dict", "items": []}}
    content |= {"posterior_samples": None}
    about = ABOUT | {"target": "y\x1b]0;title\x07\n", "source": "[red]\u202ea.csv"}
    changes = {"model": "m\x1b[2J", "columns": ["a\rb", "[bold]"], "info": {"comparison": about}}
    name = "fit [red].dgp"
    (tmp_path / name).write_bytes(rewritten(whole, content=content, **changes))
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    code, shown, err = command("show", name, folder=tmp_path)
    assert (code, err) == (0, "")
    for words in (name, r"m\x1b[2J", r"a\rb, [bold]", r"y\x1b]0;title\x07\n (reg", r"[red]\u202ea"):
        assert words in shown
    said = refused("predict", name, "new.csv", folder=tmp_path)
    assert "names code of no_such_module, " in said
    trusted = ["--trusted", "no_such_module"]
    assert "cannot be imported" in refused("predict", name, "new.csv", *trusted, folder=tmp_path)
    node = {"class": "a\x1b[2J" + "b" * 9000 + ":b"}
    (tmp_path / name).write_bytes(rewritten(whole, content={"model": node}))
    said = refused("predict", name, "new.csv", folder=tmp_path)
    assert r"names a\x1b[2Jbbb" in said
    assert "bb.b, which can run any code" in said
    assert len(said) < 2000
    assert (shown + said).replace("\n", "").isprintable()


def test_damaged_fits(whole, tmp_path):
    """One line and exit code 2, and `predict` writes nothing."""
    preprocessor = {"format": "dgp_ppl.Preprocessor", "version": 1, "columns": 3}
    damaged = {
        "truncated": whole[: len(whole) // 2],
        "no content": rewritten(whole, content=None),
        "wrong params": rewritten(whole, content={"model": None, "guide": None, "params": 3}),
        "damaged preprocessor": rewritten(whole, preprocessing=preprocessor),
    }
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    for name, row in (("no rows", {"rows": {}}), ("no method", {"row": {"rmse": 1}})):
        (tmp_path / "fit.dgp").write_bytes(rewritten(whole, info={"comparison": ABOUT | row}))
        assert "is damaged" in refused("show", "fit.dgp", folder=tmp_path), name
    (tmp_path / "fit.dgp").write_bytes(whole)
    line = refused("predict", "fit.dgp", "new.csv", folder=tmp_path)
    assert "fit.dgp cannot predict 'new.csv' (TypeError: " in line
    for name, content in damaged.items():
        (tmp_path / "fit.dgp").write_bytes(content)
        for args in (["show", "fit.dgp"], ["predict", "fit.dgp", "new.csv"]):
            assert refused(*args, folder=tmp_path), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit.dgp", "new.csv"]
