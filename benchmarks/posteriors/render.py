"""Render docs/posteriors.md, its picture and appendix.md from the records of `run.py`.

python benchmarks/posteriors/render.py
"""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
Rows = dict[str, dict[str, Any]]  # of a problem

PROBLEMS = {
    "sine": "A sine with a gap: 40 rows, two layers, M = 8",
    "step": "A step: 40 rows, two layers, M = 8",
    "motorcycle": "Motorcycle: 84 rows, two layers, M = 20; mean field is exact here",
    "energy": "Energy: 691 rows of 8 inputs, two layers, M = 50",
    "breast_cancer": "Breast cancer: 512 rows of 30 inputs, two classes, width 5, M = 20",
    "gplvm": "GPLVM of 100 irises: four measurements, two latent inputs, M = 20",
}  # fmt: skip
NAMES = {
    "mean_field": "`MeanField`",
    "decoupled": "`Decoupled`",
    "global_inducing": "`GlobalInducing`",
    "diffusion": "`Diffusion`, informed, K = 8",
    "flow": "`Flow`",
    "implicit": "`Implicit`",
    "nuts": "NUTS",
    "nuts_in_flow": "NUTS in the flow's space",
    "adjusted_mclmc": "`AdjustedMCLMC`",
    "tempering": "`ParallelTempering`",
    "sghmc": "`SGHMC`",
    "sghmc_transported": "`SGHMC` in mean field's space",
    "sghmc_coupled": "`SGHMC` in the space of `GlobalInducing`",
}
COLUMNS = 3  # of the picture
FLOOR = 1e-2  # of the picture, in nats; smaller gaps tell nothing apart
LOOSE = ("decoupled",)  # its bound is not on this evidence
COLORS = dict(zip(NAMES, plt.get_cmap("tab10").colors, strict=False))  # pyright: ignore

PAGE = """# Every posterior on one target

How far is each posterior from the exact one? The hyperparameters of a problem are fixed, so all
posteriors have the same target. `benchmarks/posteriors/render.py` makes this page, and
`benchmarks/posteriors/appendix.md` has every number with its error. {about}

![Gap against seconds](images/posteriors.png)

Open circles are gaps below {floor} nats.

## The gap

Log evidence minus ELBO, in nats; it is KL[q(v) || p(v | y)]:

{gaps}

`Decoupled` has inducing inputs of its own, so its bound belongs to another evidence.
`GlobalInducing` needs known inputs.

## The distance from exact draws

Energy distance of v to NUTS's draws; 0 is exact:

{distances}

NUTS samples the unit noise of hidden layers; the bounds and `SGHMC` average over it, so a small
distance remains. NUTS is not run on energy and breast cancer: it would sample one noise value for
each row. The mean log density of new rows differs from NUTS's by at most {density:.2f} nats, for
every posterior.

## Mixing

Largest R-hat of v over eight chains, and effective draws a second, with compilation and warm-up:

{mixing}

`SGHMC` mixes in the space of `GlobalInducing`. There it makes the most effective draws a second on
the sine, the step, energy and breast cancer. Each gradient of NUTS in a flow's space passes through
the flow. Latent inputs of the GPLVM may be reflected: an R-hat near one says that all chains stayed
in the mode where they started.
"""

APPENDIX = """# Appendix: every posterior on one target

Made by `render.py` from [records.jsonl](records.jsonl), which `run.py` fills (energy and motorcycle
need `DGP_PPL_DATA`). {about}

- *gap*: log evidence minus ELBO, in nats. Errors of the evidence are common to all rows.
- *distance*: energy distance of v to NUTS's draws; the distance of NUTS compares two halves of its
  chains.
- *log density*: mean on new rows, in nats, in standardised units; *less NUTS*: the difference to
  NUTS's log density.
- *k-hat*: Pareto shape of 1,000 importance weights. Below 0.7 weighted averages are reliable. It
  is rough: two keys gave 0.20 and 0.71 for the flow on the step.
- *VSBC*: simulation-based calibration with 100 simulations and fits of 1,000 steps from each
  guide's own start: the smallest p-value of all inducing values times their number. It sees bias,
  not a wrong spread. `GlobalInducing` is far from its optimum then; an informed `Diffusion` knows
  one data set only.
- *R-hat*, *draws/s*: the worst of all inducing values over eight chains. *R-hat of predictions*:
  the worst of the log densities of new rows.
- *s*: seconds of the fit and of the fits that it starts from, on a shared machine.
"""


def load() -> tuple[dict[str, Rows], str]:
    found: dict[str, Rows] = {}
    dates, versions = set(), set()
    for record in map(json.loads, (HERE / "records.jsonl").read_text().splitlines()):
        found.setdefault(record["problem"], {})[record["row"]] = record
        dates.add(record["date"])
        versions.add(f"jax {record['jax']}, Python {record['python']}, {record['device']}")
    about = f"Measured {min(dates)} to {max(dates)} with {'; '.join(sorted(versions))}."
    return found, about.replace(f"{min(dates)} to {min(dates)}", f"on {min(dates)}")


def with_error(value: float | None, error: float | None, digits: int = 3) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}f}" + ("" if error is None else f" ({error:.{digits}f})")


def plain(value: float | str | None) -> str:
    """Format a number; "stuck" stays as it is."""
    return value if isinstance(value, str) else "" if value is None else f"{value:.3g}"


def table(rows: Rows) -> list[str]:
    evidence = rows.get("evidence", {}).get("evidence")
    has_nuts = any("density_difference" in r for r in rows.values())
    columns = {
        "bound": lambda n, r: with_error(r.get("bound"), r.get("bound_error"), 2),
        "gap": lambda n, r: with_error(gap(n, r, evidence), gap_error(r, rows), 2),
        "distance": lambda n, r: with_error(r.get("distance"), r.get("distance_error")),
        "log density": lambda n, r: "" if has_nuts else with_error(r.get("log_density"), None),
        "less NUTS": lambda n, r: with_error(r.get("density_difference"), r.get("density_error")),
        "k-hat": lambda n, r: plain((rows.get(f"check_{n}") or r).get("khat")),
        "R-hat": lambda n, r: plain(r.get("rhat")),
        "R-hat of predictions": lambda n, r: plain(r.get("rhat_predictions")),
        "divergences": lambda n, r: str(r.get("divergences") or ""),
        "VSBC": lambda n, r: p_value(rows.get(f"check_{n}", {}).get("vsbc_p")),
        "draws/s": lambda n, r: plain(r.get("ess_per_second")),
        "s": lambda n, r: plain(r.get("seconds")),
    }
    shown = {n: r for n, r in rows.items() if n in NAMES and ("bound" in r or "rhat" in r)}
    shown = {n: shown[n] for n in NAMES if n in shown}
    cells = {c: [make(n, r) for n, r in shown.items()] for c, make in columns.items()}
    kept = [c for c, values in cells.items() if any(values)]
    lines = ["| posterior | " + " | ".join(kept) + " |", "|---" * (1 + len(kept)) + "|"]
    for i, name in enumerate(shown):
        lines.append(f"| {NAMES[name]} | " + " | ".join(cells[c][i] for c in kept) + " |")
    return lines


def p_value(value: float | None) -> str:
    return "" if value is None else f"{value:.1g}"


def gap(name: str, row: dict[str, Any], evidence: float | None) -> float | None:
    if evidence is None or row.get("bound") is None or name in LOOSE:
        return None
    return evidence - row["bound"]


def gap_error(row: dict[str, Any], rows: Rows) -> float:
    return math.hypot(row.get("bound_error") or 0.0, rows.get("evidence", {}).get("error") or 0.0)


def about_evidence(rows: Rows) -> str:
    found = rows.get("evidence", {})
    lines = []
    if found.get("evidence") is not None:
        doubts = "; ".join(found["doubts"]) or "none"
        lines.append(
            f"Log evidence {found['evidence']:.2f} ({found['error']:.2f}): {found['particles']} "
            f"particles from the flow, {found['temperatures']} temperatures, effective sample size "
            f"{100 * found['worth']:.0f} %, {found['seconds']:.0f} s. "
            f"Warnings: {doubts}."
        )
    if (trips := rows.get("tempering", {}).get("round_trips")) is not None:
        lines.append(f"Round trips of parallel tempering, eight chains together: {trips}.")
    if any(r["problem"] == "gplvm" for r in rows.values()):
        lines.append(
            "The latent inputs may be reflected and rotated: an R-hat near one says that all "
            "chains stayed where they started, in the mode of mean field, and distances mean "
            "nothing. `GlobalInducing` and `Decoupled` need known inputs."
        )
    return " ".join(lines)


def picture(found: dict[str, Rows]) -> None:
    shown = {n: r for n, r in found.items() if r.get("evidence", {}).get("evidence") is not None}
    height = -(-len(shown) // COLUMNS)
    figure, axes = plt.subplots(
        height, COLUMNS, figsize=(9, 0.8 + 2.6 * height), squeeze=False, layout="constrained"
    )
    drawn: dict[str, Any] = {}
    for axis, (problem, rows) in zip(axes.flat, shown.items(), strict=False):
        for name, row in rows.items():
            value = gap(name, row, rows["evidence"]["evidence"])
            if value is not None:
                face = COLORS[name] if value > FLOOR else "none"
                (point,) = axis.loglog(
                    row["seconds"], max(value, FLOOR), "o", color=COLORS[name], mfc=face
                )
                drawn.setdefault(name, point)
        axis.set(title=problem.replace("_", " "), xlabel="seconds", ylim=(FLOOR / 2, 100))
        low, high = axis.get_xlim()
        axis.set_xlim(low / 1.5, high * 1.5)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    for axis in axes[:, 0]:
        axis.set_ylabel("evidence less ELBO (nats)")
    labels = [NAMES[n].replace("`", "") for n in drawn]
    figure.legend(drawn.values(), labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(DOCS / "images" / "posteriors.png", dpi=130)
    plt.close(figure)


def by_problem(found: dict[str, Rows], cell: Any) -> list[str]:
    """Return a table of posteriors by problems, without empty rows and columns."""
    rows = {
        name: [cell(name, rows.get(name, {}), rows) for rows in found.values()] for name in NAMES
    }
    rows = {name: cells for name, cells in rows.items() if any(cells)}
    kept = [i for i in range(len(found)) if any(cells[i] for cells in rows.values())]
    heads = [list(found)[i].replace("_", " ") for i in kept]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(kept) + 1) + "|"]
    for name, cells in rows.items():
        lines.append(f"| {NAMES[name]} | {' | '.join(cells[i] for i in kept)} |")
    return lines


def page(found: dict[str, Rows], about: str) -> str:
    def gaps(name: str, row: dict[str, Any], rows: Rows) -> str:
        return with_error(gap(name, row, rows.get("evidence", {}).get("evidence")), None, 2)

    def distances(name: str, row: dict[str, Any], rows: Rows) -> str:
        return with_error(row.get("distance"), None, 2)

    def mixing(name: str, row: dict[str, Any], rows: Rows) -> str:
        if row.get("ess") == "stuck":
            return f"stuck in {row['ess_site']}"
        if row.get("rhat") is None:
            return ""
        return f"{row['rhat']:.2f}, {plain(row.get('ess_per_second'))}/s"

    differences = [
        abs(row["density_difference"])
        for rows in found.values()
        for row in rows.values()
        if row.get("density_difference") is not None
    ]
    return PAGE.format(
        about=about, floor=FLOOR, density=max(differences),
        gaps="\n".join(by_problem(found, gaps)),
        distances="\n".join(by_problem(found, distances)),
        mixing="\n".join(by_problem(found, mixing)),
    )  # fmt: skip


def appendix(found: dict[str, Rows], about: str) -> str:
    lines = [APPENDIX.format(about=about)]
    for problem, title in PROBLEMS.items():
        if rows := found.get(problem):
            lines += [f"## {title}", "", *table(rows), ""]
            lines += [about_evidence(rows), ""] if about_evidence(rows) else []
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    found, about = load()
    found = {problem: found[problem] for problem in PROBLEMS if problem in found}
    (DOCS / "posteriors.md").write_text(page(found, about))
    (HERE / "appendix.md").write_text(appendix(found, about))
    picture(found)


if __name__ == "__main__":
    main()
