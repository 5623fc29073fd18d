"""The HTML report: well formed, self-contained, and with the numbers of the record."""

import base64
import html.parser
import importlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
from support.comparisons import TINY, compared

import dgp_ppl
from dgp_ppl.comparison._metrics import format_summary
from dgp_ppl.datasets._source import RowSource
from dgp_ppl.report import _page as report


class Page(html.parser.HTMLParser):
    """A parsed page: its tags, visible texts and table rows."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.rows = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data
        if self.open[-1:] != ["style"]:
            self.texts.append(data.strip())


@pytest.fixture(scope="module")
def folder():
    found, out = compared()
    report.write_report(found, out)
    return out


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text())


def test_the_page_needs_nothing_else(page):
    assert not page.open
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,"))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert ["steps", "look"] in [row[:2] for row in page.rows]  # of the checks
    assert {a["href"][1:] for t, a in page.tags if t == "a"} <= set(ids)
    assert "viewport" in [a.get("name") for t, a in page.tags if t == "meta"]


def test_every_picture_is_one_and_is_told(folder, page):
    for name in ("training", "predictions", "function"):
        data = (folder / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000
    assert not list(folder.glob("*.part"))
    images = [a for t, a in page.tags if t == "img"]
    titles = [a["alt"].split(".")[0] for a in images]
    assert titles[:2] == ["Training", "Predicted against observed"]
    assert titles[-1] == "The function"
    for image in images:
        data = base64.b64decode(image["src"].split(",")[1])
        assert data.startswith(b"\x89PNG")
        assert len(data) > 5000
        assert len(image["alt"]) > 40
    assert len([t for t, _ in page.tags if t == "figcaption"]) == len(images)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_it_holds_the_records_numbers(page):
    found = compared()[0]
    cells = {c.strip() for row in page.rows for c in row}
    for row in found.summary:
        for metric in ("rmse", "log_density", "crps"):
            assert format_summary(metric, row[metric]) in cells
    assert {"SGPR", "DSVI"} <= {row[0].strip() for row in page.rows}
    assert [a for t, a in page.tags if t == "td" and a.get("class") == "best"]
    loo = dgp_ppl.criticism.loo(found.fits["sgpr"].tree)
    assert any(row[0] == "SGPR" and f"{loo.elpd:.1f}" in row for row in page.rows)
    assert {"inducing", "seed", "steps", "numpyro", "jax", "python"} <= set(page.texts)
    assert found.record["versions"]["numpyro"] in page.texts


def test_names_are_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_figures", lambda comparison, folder: {})
    monkeypatch.setattr(report, "_leave_one_out", lambda runs: ({"rows": []}, []))
    found, _ = compared()
    record = json.loads(json.dumps(found.record))
    record["data"] |= {"name": "<script>alert(1)</script>", "target": "a & b"}
    report.write_report(dgp_ppl.Comparison(record, found.fits), tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    assert "<script>alert(1)</script>" in page.texts
    assert any("a & b" in text for text in page.texts)


@pytest.mark.slow
def test_classes_have_a_page_too(tmp_path):
    options = {"splits": 1, "out": tmp_path, **TINY}
    dgp_ppl.compare("iris", ["dsvi"], report=report.write_report, **options)
    page = Page((tmp_path / "report.html").read_text())
    titles = [a["alt"].split(".")[0] for t, a in page.tags if t == "img"]
    assert titles == ["Training", "Reliability"]
    assert any("accuracy" in row for row in page.rows)
    dgp_ppl.compare("iris", ["dsvi"], overwrite=True, **options)
    assert not (tmp_path / "report.html").exists()


def test_held_out_rows_that_are_training_rows_are_told():
    run = SimpleNamespace(x=np.eye(3), y=np.arange(3), data=None)
    for x, y, both in (
        (np.eye(3)[[1, 2, 2]], np.ones(3), "1 of them also its target. A method"),
        (np.eye(3), np.full(3, 7), "0 of them also its target."),
    ):
        run.x_test, run.y_test = x, y
        (note,) = report._repeated_note({"dsvi": run})
        assert "3 of the 3 held-out rows have the inputs of a training row" in note
        assert both in note
    run.data = object.__new__(RowSource)
    assert report._repeated_note({"dsvi": run}) == []
    run.x_test, run.data = 2 * run.x_test, None
    assert report._repeated_note({"dsvi": run}) == []


def test_too_few_draws_for_loo_are_a_note():
    values = np.random.default_rng(0).normal(size=(2, 10, 7))
    groups = {
        "log_likelihood": xarray.Dataset({"y": (("chain", "draw", "data"), values)}),
        "posterior": xarray.Dataset({"w": (("chain", "draw"), values[..., 0])}),
    }
    runs = {"nuts": SimpleNamespace(tree=xarray.DataTree.from_dict(groups))}
    table, notes = report._leave_one_out(runs)
    assert table["rows"] == []
    assert len(notes) == 1
    assert notes[0].startswith("NUTS has no leave-one-out estimate: loo: the log-likelihood has 20")


def test_a_missing_jinja2_is_named_before_the_fits(monkeypatch):
    """The module that has `write_report` says it, so `compare` is not called."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"report: wanted jinja2; .*dgp_ppl\[report\]"):
        importlib.reload(report)
