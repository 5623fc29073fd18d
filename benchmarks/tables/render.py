"""Render docs/tables.md from the records of `run.py`.

    python benchmarks/tables/render.py

papers.csv holds the papers' numbers. Regression: means and standard errors over 20 random splits of
90 % (Hegde et al. 2019, tables 1 and 2; its rows DGP, SGP, BNN and Linear are those of Salimbeni &
Deisenroth 2017). Classes: Xu et al. 2024, tables 1 and 2, without errors; its HIGGS has 11 million
rows.
"""

import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from plan import (
    AIRLINE,
    CHANGES,
    DECOUPLED,
    DEFAULTS,
    FITS,
    FLOWS,
    HIDDEN_KERNELS,
    HIGGS,
    IMAGES,
    LARGE,
    OBJECTIVES,
    SAMPLERS,
    SMALL,
    UCI_FIRST,
    UCI_SECOND,
    UCI_TARGETS,
)
from summary import Records, load, mean, number, value_of
from verdicts import (
    against,
    agreement,
    by_set,
    conditions,
    floor,
    images,
    never_worse,
    published,
    targets,
)

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "tables.md"
SETS = SMALL + LARGE
PEERS = (("peers", "GPyTorch DGP L=2"),)

HEAD = """# Tables

This page is made by `benchmarks/tables/render.py` from `benchmarks/tables/records.jsonl`, which
`benchmarks/tables/run.py` fills fit by fit. It needs the data: set `DGP_PPL_DATA`. So far {done} of
the {all} planned fits are done; an empty cell has not been measured yet. The number in brackets at
the end of a cell is its number of splits. Each fit had one core of a shared machine, so read the
seconds as an order of magnitude.

Dates: {dates}. Versions: {versions}.
"""

ONE_START, QUARTER = "dsvi, one start", "dsvi, a quarter of the lengthscale"
STARTS = """
Variance: the gain over a start at 1 is not the same on all splits: on concrete most of it comes
from the fifth, and the bound is a little lower on most sets. Learned mean maps raise the bound.
After 3,000 steps they had the higher log density on four of six sets (above); after 6,000, with
half the lengthscale, they lose to half the lengthscale alone on five of six: they fit too much.

Lengthscales: a start at a quarter of sqrt(D) leads to another optimum. Of the splits of both
tables, this and the next, whose bounds differ by 0.02 or more between the two starts, the one with
the higher bound has the higher log density on {agreement}. So `compare` tries both, for 1,500 steps
each, and goes on with the one whose loss is lower. (After 1,000 steps, in runs without records, the
short lengthscales were ahead on kin8nm too, where they lose in the end.) This table has the gains
of the choice, and of the quarter alone, over sqrt(D), on the splits of both tables: log density /
RMSE lower, in % / bound (splits).
"""

OTHERS = """
- Frey faces (Xu et al. 2024, table 3): level, 7.44 to 7.64 grey levels over three seeds where the
  paper has 7.64 ± 0.2. It depends on M: 9.12 with 100 inducing inputs, and 6.98 with 600, one seed
  each ([results](results.md)).
- CIFAR-10 (its table 1): not comparable; its inputs are features of an unpublished network.
- SUSY (its table 2, and Hegde et al. 2019, table 3) and Rectangles-Images (Salimbeni & Deisenroth
  2017, table 1): not measured; the data are not at hand.
- Year and taxi (table 2): not comparable; 5,856 and 17,981 rows are at hand, of half a million and
  a billion.
- Molecules (Havasi et al. 2018, table 6): not comparable; 29,978 molecules of another sample are at
  hand, of 60,000.
- Decoupled inducing inputs with three and four hidden layers (tables 4 and 5): not measured."""


def study(
    found: Records, rows: list[tuple[str, str]], metrics: tuple[str, ...], *, paired: bool = True
) -> list[str]:
    """Return a Markdown table of means over splits, a column for each data set.

    Args:
        found: the records.
        rows: table and label of each row.
        metrics: the metrics of a cell.
        paired: whether to average over the splits that all measured rows of a data set share.
    """
    lines = ["| | " + " | ".join(SETS) + " |", "|---" * (len(SETS) + 1) + "|"]
    common = {}
    for name in SETS:
        splits = [{r["split"] for r in found.get((t, name, label), [])} for t, label in rows]
        common[name] = set.intersection(*[s for s in splits if s]) if any(splits) else set()
    for table, label in rows:
        cells = []
        for name in SETS:
            records = found.get((table, name, label), [])
            if paired:
                records = [r for r in records if r["split"] in common[name]]
            values = [(m, mean(records, m)) for m in metrics]
            text = " / ".join(value_of(m, v[0]) for m, v in values if v is not None)
            cells.append(f"{text} ({len(records)})" if records else "")
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines if len(lines) > 2 else ["Not measured yet."]


def differences(found: Records, table: str, rows: list[str], base: tuple[str, str]) -> list[str]:
    """Return lines that compare each row with a base row, on the splits that both have."""
    lines = ["| | sets where the bound is higher | log density is higher | RMSE is lower |",
             "|---|---|---|---|"]  # fmt: skip
    for label in rows:
        wins, counts = np.zeros(3, int), np.zeros(3, int)
        for name in SETS:
            ours = {r["split"]: r for r in found.get((table, name, label), [])}
            theirs = {r["split"]: r for r in found.get((base[0], name, base[1]), [])}
            common = sorted(set(ours) & set(theirs))
            for i, (metric, sign) in enumerate(
                (("elbo_per_datum", 1), ("log_density", 1), ("rmse", -1))
            ):
                change = [
                    sign * (ours[s][metric] - theirs[s][metric])
                    for s in common
                    if ours[s][metric] is not None  # samplers have no bound
                ]
                if change:
                    counts[i] += 1
                    wins[i] += np.mean(change) > 0
        if not counts.any():
            continue
        cells = [f"{w} of {n}" if n else "" for w, n in zip(wins, counts, strict=True)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def uci(found: Records, metric: str, papers: list[dict[str, str]]) -> list[str]:
    """Return the table of one metric: our methods, peers', then the papers'."""
    lines = ["| | " + " | ".join(SETS) + " |", "|---" * (len(SETS) + 1) + "|"]
    ours = [("uci", label) for label in (*UCI_FIRST, *UCI_TARGETS, *UCI_SECOND)]
    for table, label in (*ours, *PEERS):
        cells = []
        for name in SETS:
            records = found.get((table, name, label), [])
            value = mean(records, metric)
            error = "" if value is None or np.isnan(value[1]) else f" ({value[1]:.3f})"
            cells.append("" if value is None else f"{number(value[0])}{error} {len(records)}")
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for method in dict.fromkeys(p["method"] for p in papers):
        rows = {p["data"]: p for p in papers if p["method"] == method and p["metric"] == metric}
        if rows:
            cells = [
                f"{rows[n]['mean']} ({rows[n]['standard_error']})" if n in rows else ""
                for n in SETS
            ]
            lines.append(f"| *{method}* | " + " | ".join(cells) + " |")
    return lines


def classes(
    found: Records,
    rows: list[tuple[str, str]],
    names: tuple[str, ...],
    metrics: tuple[str, ...],
    papers: list[dict[str, str]],
) -> list[str]:
    """Return the table of one metric for each data set: our methods, then the paper's.

    Args:
        found: the records.
        rows: table and label of each row.
        names: the data sets.
        metrics: the metrics of a cell; the papers' cells have the first.
        papers: the papers' numbers.
    """
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for table, label in rows:
        cells = []
        for name in names:
            records = found.get((table, name, label), [])
            values = [mean(records, m) for m in metrics]
            cells.append(" / ".join(f"{v[0]:.4g}" for v in values if v is not None))
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for method in dict.fromkeys(p["method"] for p in papers if p["data"] in names):
        published = {p["data"]: p["mean"] for p in papers if p["method"] == method}
        lines.append(f"| *{method}* | " + " | ".join(published.get(n, "") for n in names) + " |")
    return lines


def decoupled(found: Records, papers: list[dict[str, str]]) -> list[str]:
    """Return the table of decoupled inducing inputs: ours, the paper's, and seconds of a fit."""
    theirs = {(p["data"], p["metric"], p["method"]): p for p in papers}
    names = ("kin8nm", "protein")
    heads = [f"{n} {m}" for n in names for m in ("RMSE", "log density", "ELBO", "seconds")]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for label in DECOUPLED:
        cells = []
        for name in names:
            records = found.get(("decoupled", name, label), [])
            for metric in ("rmse", "log_density", "elbo_per_datum", "seconds"):
                value = mean(records, metric)
                paper = theirs.get((f"havasi/{name}", metric, label))
                published = f" (*{paper['mean']}*)" if paper else ""
                cells.append(("" if value is None else number(value[0])) + published)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def remaining(done: set[str]) -> list[str]:
    """Render how many fits of the plan have no record, by table and row: sets and their splits."""
    left: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for fit in FITS:
        if fit.name not in done:
            left[fit.table, fit.label][fit.data.removeprefix("uci/")] += 1
    lines = ["| table | row | fits without a record, by set |", "|---|---|---|"]
    for (table, label), sets in left.items():
        numbers = ", ".join(f"{name} {number}" for name, number in sets.items())
        lines.append(f"| {table} | {label} | {numbers} |")
    return lines


def page() -> str:
    """Return the page."""
    found, records = load()
    with (HERE / "papers.csv").open() as file:
        papers = list(csv.DictReader(file))
    regression = [p for p in papers if not p["data"].startswith("havasi/")]
    dates = sorted({r["date"] for r in records})
    versions = sorted({json.dumps(r["versions"])[1:-1].replace('"', "") for r in records})
    planned = {f.name for f in FITS}
    head = HEAD.format(
        done=len(planned & {r["name"] for r in records}), all=len(planned),
        dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))), versions="; ".join(versions),
    )  # fmt: skip
    three, coverage = (
        ("rmse", "log_density", "elbo_per_datum"),
        ("rmse", "log_density", "coverage90"),
    )
    base = ("hidden kernels", "own kernels")
    kernels = [("hidden kernels", label) for label in HIDDEN_KERNELS]
    objectives = [base, *(("objectives", label) for label in OBJECTIVES)]
    changes = [base, *(("changes", label) for label in CHANGES)]
    defaults = [("uci", label) for label in (*UCI_FIRST, *UCI_TARGETS, *UCI_SECOND)]
    text = [
        head,
        "## Kernels of hidden layers\n",
        "Two layers, M = 100, 3,000 steps, splits of `test_index`; RMSE / log density / ELBO per "
        "datum (splits). `sgpr` has one layer. Means are over the splits that all rows have. In "
        "this table and the next two the variance of hidden layers starts at 1, unless a row says "
        "otherwise; the default is now 0.1.\n",
        *study(found, kernels, three),
        "\nAgainst own kernels with shared inducing inputs, on the splits of both:\n",
        *differences(found, "hidden kernels", list(HIDDEN_KERNELS)[1:], base),
        "\nOwn kernels are the default. Inducing inputs of their own raise the bound a little on "
        "most sets and do not improve the predictions, so they are shared by default. A step with "
        "them takes 0.98 to 1.17 times as long (`peer-steps-cpu.json`).\n",
        "The same of the outputs of a flow's field, in `models.diff_gp`:\n",
        *study(found, [("flows", label) for label in FLOWS], three),
        "\n## Objectives\n",
        "As above; RMSE / log density / coverage of 90 % intervals (splits). The row own kernels "
        "is dsvi, the ELBO with one draw; the others have four particles, and a share of the "
        "ELBO in `PredictiveELBO`, 0 where it says predictive.\n",
        *study(found, objectives, coverage),
        "\nAgainst dsvi, on the splits of both:\n",
        *differences(found, "objectives", list(OBJECTIVES), base),
        "\n## What else was tried\n",
        "Changes of one thing, as in the first table, but with the splits that each row has; RMSE "
        "/ log density / ELBO per datum.\n",
        *study(found, changes, three, paired=False),
        "\nAgainst own kernels, on the splits of both:\n",
        *differences(found, "changes", list(CHANGES), base),
        "\nA variance of 0.1 is the default since 2026-11-25. A third layer wins on most sets "
        "here, after 3,000 steps. After 6,000 (`dsvi L3` below) its log density is higher on three "
        "of seven sets, and a step takes about twice as long (`step-time-cpu.json`); so the "
        "default depth is 2.\n",
        "\n## Defaults on more splits\n",
        "Two layers, M = 100, 6,000 steps, splits of `test_index`; RMSE / log density / ELBO per "
        "datum / seconds (splits). The row dsvi has the defaults: two starts, with lengthscales of "
        "sqrt(D) and a quarter of it; so has dspp below. All other rows of this page have one "
        "start, with lengthscales of sqrt(D), unless their names say otherwise.\n",
        *study(
            found, [("defaults", label) for label in DEFAULTS], (*three, "seconds"), paired=False
        ),
        "\nAgainst dsvi with one start, on the splits of both:\n",
        *differences(
            found, "defaults", [label for label in DEFAULTS if label != ONE_START],
            ("defaults", ONE_START),
        ),
        STARTS.format(agreement=agreement(found, QUARTER, ONE_START, ("defaults", "uci"))),
        *by_set(
            found,
            [("dsvi", ONE_START), *((row, ONE_START) for row in UCI_TARGETS if QUARTER in row),
             *((row, "dspp, one start") for row in
             ("dspp", "dspp, a quarter of the lengthscale")),
             ("predictive, two starts", "predictive")],
            SETS, ("defaults", "uci"),
        ),
        "\n## UCI regression\n",
        "The defaults (M = 100, 6,000 steps) on the splits `dsdgp_test_index`. Rows in italics are "
        "the papers', means over 20 splits. Theirs are the same on the first four sets, where "
        "`linear` has the means of *Linear* within 0.02, and probably on the others. `GPyTorch DGP "
        "L=2` is that of its tutorial in the same setting (`peers.py`); naval it did not learn.\n",
        "RMSE, its standard error, and the number of splits:\n",
        *uci(found, "rmse", regression),
        "\nLog density:\n",
        *uci(found, "log_density", regression),
        "\nCRPS / coverage of 90 % intervals / ELBO per datum / seconds of a fit:\n",
        *study(
            found, defaults, ("crps", "coverage90", "elbo_per_datum", "seconds"), paired=False
        ),
        "\nWhat each row gains over dsvi with one start, on the splits that both have. Sets are "
        "counted by their means. Gains in log density and reductions of the RMSE are medians over "
        "the sets. The coverage is that of 90 % intervals, from the lowest mean of a set to the "
        "highest. The time of a fit is a multiple of dsvi's. Times of Student t noise before "
        "2026-11-26 are of an earlier, slower likelihood, and those of `gp, Matern-1/2` and of two "
        "splits of `dspp, M = 300` of a slower CPU.\n",
        *against(found, [r for r in (*defaults, *PEERS) if r[1] != ONE_START], SETS, ONE_START),
        "\nWith two starts of each, over dsvi: log density / RMSE lower, in % / bound (splits).\n",
        *by_set(found, [("dspp", "dsvi")], SETS, ("uci",)),
        "\nSamplers: R-hat of v, the largest of all values, and, in records since 2026-11-26, of "
        "predictions, the largest of the log densities of 50 held-out rows, of two chains. "
        "`sghmc` and `sghmc_mixed` move in v itself and do not mix there; read their densities as "
        "those of a mixture of chains.\n",
        *study(
            found, [("uci", label) for label in SAMPLERS], ("rhat", "rhat_predictions"),
            paired=False,
        ),
        "\n### Targets\n",
        "The best of our rows, among those with five splits or more, against what this project "
        "wants. The row is chosen by the score on held-out rows that the table shows, for each "
        "metric anew. So a value says what one of our methods reaches, not what a user who has to "
        "choose will get. The densities of `predictive` on wine_red are those of narrow peaks at "
        "the whole numbers that its targets are. A quarter of its held-out rows are training rows "
        "too, and `gp, Matern-1/2` has the smallest errors because it remembers them: on the first "
        "split 0.006 there, and 0.616 on the others, where `dsvi` has 0.533 and 0.575 "
        "(`repeated-rows.json`). The shares on protein, concrete and power are 6, 4 and 1 %.\n",
        *targets(found),
        "\nWhat the defaults have to reach:\n",
        *conditions(found),
        "\n" + never_worse(found) + "\n",
        "\n" + floor(found, papers) + "\n",
        "Every published number of these sets against our row of the same setting, with two "
        "standard errors of both as the limit of level. The error of a single split of ours is the "
        "paper's standard deviation over splits.\n",
        *published(found, papers),
        "\n## Classes\n",
        "20,000 steps. Images: M = 100, minibatches of 1,000, the official split; accuracy / log "
        "loss / seconds. The paper's rows (italics) are accuracies.\n",
        *classes(
            found, [("images", label) for label in IMAGES], ("mnist", "fashion_mnist"),
            ("accuracy", "log_loss", "seconds"), papers,
        ),
        "\nLevel is a difference within two standard errors of shares of 10,000 images:\n",
        *images(found, papers, ("mnist", "fashion_mnist")),
        "\nHIGGS: M = 128, a random tenth held out; AUC / log loss / seconds. Ours has 57,591 rows "
        "and the paper's 11 million, so the rows do not compare.\n",
        *classes(
            found, [("higgs", label) for label in HIGGS], ("higgs_subset",),
            ("auc", "log_loss", "seconds"), papers,
        ),
        "\n## Other tables\n",
        "Havasi et al. (2018), tables 4 and 5: width 10, L layers, one split of `test_index`, "
        "6,000 steps; the paper's means over five splits of 80 % in brackets, after 5,000 epochs, "
        "1 to 4 steps each. A row's ELBO is per datum.\n",
        *decoupled(found, papers),
        "\nFlights, M = 100, a random tenth held out; RMSE in minutes / log density / seconds. "
        "Ours are 273,628 flights from New York in 2013 and the paper's 800,000 of the United "
        "States in 2008, so the rows do not compare.\n",
        *classes(
            found, [("airline", label) for label in AIRLINE], ("airline_nyc2013",),
            ("rmse", "log_density", "seconds"), [],
        ),
        OTHERS,
        "\n## What is left of the plan\n",
        "`run.py` goes on with these, in the order of `plan.py`.\n",
        *remaining({r["name"] for r in records}),
    ]  # fmt: skip
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
