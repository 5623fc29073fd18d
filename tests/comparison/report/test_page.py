"""The HTML report: well formed, self-contained, and with the numbers of the record."""

import base64
import dataclasses
import html.parser
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import dgp_ppl
from dgp_ppl import datasets, plots
from dgp_ppl.comparison._compare import compare
from dgp_ppl.comparison._metrics import format_summary
from dgp_ppl.comparison.report import _page as report
from dgp_ppl.datasets._source import RowSource

TINY = {"inducing": 4, "steps": 30, "samples": 20, "progress": False, "batch": 50}


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
def regression(tmp_path_factory):
    out = tmp_path_factory.mktemp("regression")
    data = datasets.load("step")
    data = dataclasses.replace(data, name="<script>alert(1)</script>", y_name="a & b")
    found = compare(data, ["linear", "svgp"], splits=2, out=out, report=True, **TINY)
    return found, Page((out / "report.html").read_text())


@pytest.mark.slow
def test_the_page_needs_nothing_else(regression):
    _, page = regression
    assert not page.open
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,"))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for t, a in page.tags if t == "a"} <= set(ids)
    names = [a.get("name") for t, a in page.tags if t == "meta"]
    assert "viewport" in names


@pytest.mark.slow
def test_every_picture_is_one_and_is_told(regression):
    _, page = regression
    images = [a for t, a in page.tags if t == "img"]
    assert len(images) == 5  # training, predictions, pit, function, scores
    for image in images:
        data = base64.b64decode(image["src"].split(",")[1])
        assert data.startswith(b"\x89PNG")
        assert len(data) > 5000
        assert len(image["alt"]) > 40
    captions = [t for t, _ in page.tags if t == "figcaption"]
    assert len(captions) == len(images)


@pytest.mark.slow
def test_tables_hold_the_records_numbers(regression):
    found, page = regression
    cells = {c.strip() for row in page.rows for c in row}
    for row in found.summary:
        for metric in ("rmse", "log_density", "crps"):
            assert format_summary(metric, row[metric]) in cells
    methods = {row[0].strip() for row in page.rows}
    assert {"linear", "SVGP"} <= methods
    best = min(found.summary, key=lambda r: r["rmse"]["mean"])
    marked = [a for t, a in page.tags if t == "td" and a.get("class") == "best"]
    assert marked
    assert format_summary("rmse", best["rmse"]) in cells


@pytest.mark.slow
def test_criticism_is_that_of_the_trees(regression):
    found, page = regression
    loo = dgp_ppl.criticism.loo(found.fits["linear"].tree)
    rows = [r for r in page.rows if r[0] == "linear" and len(r) >= 6]
    assert any(f"{loo.elpd:.1f}" in r and f"{loo.se:.1f}" in r for r in rows)


@pytest.mark.slow
def test_names_are_escaped(regression):
    _, page = regression
    assert "<script>alert(1)</script>" in page.texts
    assert any("a & b" in text for text in page.texts)


@pytest.mark.slow
def test_configuration_and_versions_are_there(regression):
    found, page = regression
    assert {"inducing", "seed", "steps", "numpyro", "jax", "python"} <= set(page.texts)
    assert found.record["versions"]["numpyro"] in page.texts


@pytest.mark.slow
def test_classes_have_a_page_too(tmp_path):
    compare("iris", ["svgp"], splits=1, out=tmp_path, report=True, **TINY)
    page = Page((tmp_path / "report.html").read_text())
    titles = [a["alt"].split(".")[0] for t, a in page.tags if t == "img"]
    assert titles == ["Training", "Reliability"]
    assert any("accuracy" in row for row in page.rows)


def test_a_report_needs_a_folder():
    with pytest.raises(ValueError, match="report is True and out is None"):
        compare("step", ["svgp"], report=True, **TINY)


@pytest.mark.slow
def test_an_earlier_report_does_not_outlive_its_comparison(tmp_path):
    options = {"splits": 1, "out": tmp_path, **TINY}
    compare("step", ["linear"], report=True, **options)
    compare("step", ["linear"], overwrite=True, **options)
    assert not (tmp_path / "report.html").exists()


def test_names_that_look_like_mathematics_and_runs_that_diverged():
    """Figures show such names verbatim, and the finite part of diverged runs."""
    curves = {"a $x_{$ b": [1.0, 2.0, float("nan")], "lost": [float("nan")] * 4}
    figure = plots.training_curves(curves, title="price_$_2020_minus_price_$_2019")
    figure.savefig(io.BytesIO(), format="png")
    assert figure.axes[0].get_ylim()[1] > 2
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels[0] == "a $x_{$ b"


@pytest.mark.slow
def test_chains_that_have_not_mixed_are_told(regression):
    found, _ = regression
    record = json.loads(json.dumps(found.record))
    for predictions, words in (
        (None, "have not mixed (R-hat 3.60)"),
        (1.4, "have not mixed (R-hat 1.40)"),
        (1.02, "mixed in what they predict (R-hat 1.02) but not in v (R-hat 3.60)"),
    ):
        record["splits"][0] |= {"rhat": 3.6, "rhat_predictions": predictions}
        contents = report._contents(record, found.fits, {})
        assert any(words in note for note in contents["notes"])


def test_held_out_rows_that_are_training_rows_are_told():
    run = SimpleNamespace(x=np.eye(3), y=np.arange(3), data=None)
    run.x_test, run.y_test = np.eye(3)[[1, 2, 2]], np.ones(3)
    (note,) = report._repeated_note({"dsvi": run})
    assert "3 of the 3 held-out rows have the inputs of a training row, 1 of them also its" in note
    assert "remove them" in note
    run.y_test = run.y_test + 7
    (note,) = report._repeated_note({"dsvi": run})
    assert note.endswith("0 of them also its target.")
    run.x_test = 2 * run.x_test
    assert report._repeated_note({"dsvi": run}) == []
    run.x_test, run.data = run.x, object.__new__(RowSource)
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
