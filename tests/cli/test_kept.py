"""What commands read in the file of a fit, and records of it that were changed by hand."""

import json

import pytest
from support.archives import rewritten
from support.commands import command

import dgp_ppl
from dgp_ppl.cli._kept import comparison_of
from dgp_ppl.comparison import METRICS
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.models import svgp

ROW = dict.fromkeys(METRICS["regression"]) | {"method": "svgp", "rmse": 1, "seconds": 1, "steps": 3}
ABOUT = {
    "source": "file a.csv", "target": "y", "task": "regression", "classes": [], "row": ROW,
    "rows": {"training": 2, "held_out": 1}, "config": {"depth": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.dgp"
    dgp_ppl.save(path, svgp, None, {}, columns=["a", "b"], info={"comparison": ABOUT})
    return path


def test_what_a_file_says(fit):
    info = json.loads(json.dumps({"comparison": ABOUT}))
    assert comparison_of(fit, info) == ABOUT
    assert comparison_of(fit, {}) == comparison_of(fit, {"comparison": {}}) == {}
    short = {n: v for n, v in ABOUT.items() if n not in ("row", "config")}
    assert comparison_of(fit, {"comparison": short}) == short | {"row": {}, "config": {}}


def without(name):
    return {n: v for n, v in ABOUT.items() if n != name}


WRONG = [
    ([1], "content"),
    ("mine", "content"),
    *((without(name), name) for name in ("source", "target", "task", "classes", "rows")),
    *((ABOUT | {name: 3}, name) for name in ABOUT),
    ({"x": 1}, "source"),
    (ABOUT | {"task": "regresion"}, "task"),
    (ABOUT | {"classes": [1, 2]}, "classes"),
    (ABOUT | {"rows": {"training": "2", "held_out": 1}}, "rows.training"),
    (ABOUT | {"rows": {"training": 2}}, "rows.held_out"),
    (ABOUT | {"row": ROW | {"method": None}}, "row.method"),
    (ABOUT | {"row": ROW | {"steps": "3"}}, "row.steps"),
    (ABOUT | {"row": ROW | {"seconds": None}}, "row.seconds"),
    (ABOUT | {"row": ROW | {"rmse": "small"}}, "row.rmse"),
    (ABOUT | {"row": ROW | {"elbo_per_datum": [1]}}, "row.elbo_per_datum"),
]


@pytest.mark.parametrize("words", ["show", "predict"])
@pytest.mark.parametrize(("about", "name"), WRONG, ids=str)
def test_entries_of_another_type(about, name, words, fit, tmp_path, monkeypatch, capsys):
    path = tmp_path / "fit.dgp"
    path.write_bytes(rewritten(fit.read_bytes(), info={"comparison": about}))
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(tmp_path)
    given = [words, path] if words == "show" else [words, path, "new.csv"]
    code, printed, err = command(monkeypatch, capsys, *given)
    assert (code, len(err.strip().splitlines()), printed) == (2, 1, ""), err
    assert f"fit.dgp is damaged: the {name} of its info['comparison'] is wrong" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit.dgp", "new.csv"]


def test_another_task_than_the_preprocessors(fit, tmp_path, monkeypatch, capsys):
    table = {"a": [1, 2, 3, 4], "b": [3, 1, 2, 5], "y": [1.5, 2, 3, 4]}
    (tmp_path / "a.csv").write_text(
        "\n".join(",".join(map(str, r)) for r in [table, *zip(*table.values(), strict=True)])
    )
    state = Preprocessor.fit(tmp_path / "a.csv", "y").to_state()
    about = ABOUT | {"task": "binary", "classes": ["u", "v"]}
    changed = rewritten(fit.read_bytes(), preprocessing=state, info={"comparison": about})
    (tmp_path / "fit.dgp").write_bytes(changed)
    code, printed, err = command(monkeypatch, capsys, "show", tmp_path / "fit.dgp")
    assert (code, len(err.strip().splitlines()), printed) == (2, 1, ""), err
    assert "task and classes" in err
