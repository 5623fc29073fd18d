"""Metrics of methods over data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgp_ppl.plots._figure import COLORS, figure_of, finish, not_empty

__all__ = ["method_label", "metric_dots"]

# Colour and marker of each family of methods, and the family and label of each method.
_FAMILIES = {
    "baseline": ("#000000", "s"),
    "one GP layer": (COLORS[4], "D"),
    "deep GP, variational": (COLORS[0], "o"),
    "deep GP, sampled": (COLORS[1], "^"),
    "other": (COLORS[3], "v"),
}
_METHODS = {
    "linear": ("baseline", "linear"),
    "gp": ("baseline", "exact GP"),
    "bnn": ("baseline", "BNN"),
    "ensemble": ("baseline", "ensemble"),
    "sgpr": ("one GP layer", "SGPR"),
    "svgp": ("one GP layer", "SVGP"),
    "dsvi": ("deep GP, variational", "DSVI"),
    "dspp": ("deep GP, variational", "half predictive"),
    "predictive": ("deep GP, variational", "predictive"),
    "decoupled": ("deep GP, variational", "decoupled"),
    "global_inducing": ("deep GP, variational", "global inducing"),
    "diffusion": ("deep GP, variational", "diffusion"),
    "implicit": ("deep GP, variational", "implicit"),
    "sghmc": ("deep GP, sampled", "SGHMC"),
    "sghmc_coupled": ("deep GP, sampled", "SGHMC, coupled"),
    "nuts": ("deep GP, sampled", "NUTS"),
}
_METRICS = {
    "rmse": ("RMSE", "in units of {target}", "lower is better"),
    "log_density": ("mean log density", "nats", "higher is better"),
    "crps": ("CRPS", "in units of {target}", "lower is better"),
    "accuracy": ("accuracy", "fraction", "higher is better"),
    "log_loss": ("log loss", "nats", "lower is better"),
    "elbo_per_datum": ("ELBO per datum", "nats", "higher is better"),
}


def metric_dots(
    records: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = ("rmse", "log_density"),
    title: str = "",
    columns: int = 4,
) -> Any:
    """Plot metrics of methods with their standard errors over splits: one panel per data set.

    Methods run from top to bottom, coloured by family, and each metric has a row of panels, as in
    Figure 1 of Salimbeni and Deisenroth (2017). Records of the same data set share a panel.

    Args:
        records: records of comparisons, as in results.json (``Comparison.record``).
        metrics: names of the metrics in their summaries.
        title: title of the figure.
        columns: data sets side by side.

    Raises:
        ValueError: if there is no record, two records have the same method on the same data, or no
            record has a metric.
    """
    not_empty("metric_dots", "records", records)
    not_empty("metric_dots", "metrics", metrics)
    data, results = _by_data_set(records)
    rows = [row for entries in results.values() for _, row in entries.values()]
    for metric in metrics:
        if not any(row.get(metric) for row in rows):
            known = sorted({k for row in rows for k in row})
            raise ValueError(
                f"metric_dots: metrics has {metric!r}, wanted one of "
                f"{', '.join(k for k in known if k != 'method')}"
            )
    labels = _ordered(results)
    columns = min(columns, len(data))
    blocks = -(-len(data) // columns)
    height = 0.9 + 0.23 * len(labels)
    figure, axes = figure_of(
        1.5 + 2.5 * columns, blocks * len(metrics) * height + 0.9, columns, blocks * len(metrics),
        sharey=True,
    )  # fmt: skip
    for axis in axes.flat:
        axis.set_axis_off()
    shown = []
    for i, (name, info) in enumerate(data.items()):
        for j, metric in enumerate(metrics):
            axis = axes[i // columns * len(metrics) + j, i % columns]
            axis.set_axis_on()
            shown.append(axis)
            _panel(axis, labels, results[name], metric, info)
            if j == 0:
                short = name.rsplit("/", 1)[-1].replace("_", " ")
                axis.set_title(f"{short}\nN = {info['rows']:,}, D = {info['columns']}", fontsize=10)
            if i % columns == 0:
                axis.set_yticks(range(len(labels)), labels)
                axis.set_ylim(len(labels) - 0.4, -0.6)
    shown[-1].plot([], [], "|-", color="0.4", label="standard error over splits")
    return finish(figure, title, shown)


def method_label(method: str) -> str:
    """Return the label of a method of `dgp_ppl.compare`: ``DSVI`` for ``dsvi``."""
    return _METHODS.get(method, ("other", method.replace("_", " ")))[1]


def _panel(
    axis: Any, labels: list[str], entries: Mapping[str, Any], metric: str, info: Any
) -> None:
    axis.grid(visible=False, axis="x")
    for at, label in enumerate(labels):
        method, row = entries.get(label, ("", {}))
        value = row.get(metric) or {"mean": None}
        if value["mean"] is None:
            continue
        family = _METHODS.get(method, ("other", ""))[0]
        color, marker = _FAMILIES[family]
        axis.errorbar(
            value["mean"], at, xerr=value["se"], fmt=marker, color=color, markersize=5,
            elinewidth=1.4, capsize=2, label=family,
        )  # fmt: skip
    name, unit, better = _METRICS.get(metric, (metric.replace("_", " "), "", ""))
    target = str(info.get("target") or "the target").replace("_", " ")
    unit = unit.format(target="the target" if target == "y" else target)
    lines = [f"{name} ({unit})"] if 0 < len(unit) < 10 else [name, f"({unit})" if unit else ""]
    axis.set_xlabel("\n".join(filter(None, [*lines, better])), fontsize=9)
    axis.tick_params(labelsize=9)
    axis.margins(x=0.12)
    axis.locator_params(axis="x", nbins=4)


def _by_data_set(
    records: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, dict[str, tuple[str, Any]]]]:
    """Return data sets by name, and by name and label the method and its row of the summary."""
    data: dict[str, Any] = {}
    results: dict[str, dict[str, tuple[str, Any]]] = {}
    for record in records:
        name = record["data"]["name"]
        data.setdefault(name, record["data"])
        entries = results.setdefault(name, {})
        for row in record["summary"]:
            label = _label(row["method"], record["config"])
            if label in entries:
                raise ValueError(
                    f"metric_dots: records have {label!r} on {name} twice, wanted it once; leave "
                    "out one of them"
                )
            entries[label] = row["method"], row
    return data, results


def _label(method: str, config: Mapping[str, Any]) -> str:
    """Return a method's label, with the depth or model of a deep GP."""
    family, label = _METHODS.get(method, ("other", ""))[0], method_label(method)
    if not family.startswith("deep GP"):
        return label
    model = config.get("model", "deep_gp")
    suffix = f"{config['depth']} layers" if model == "deep_gp" else model.replace("_", " ")
    return f"{label}, {suffix}"


def _ordered(results: Mapping[str, Mapping[str, tuple[str, Any]]]) -> list[str]:
    """Return all labels in the order of families, methods and depths."""
    found = {label: row[0] for entries in results.values() for label, row in entries.items()}
    families, known = list(_FAMILIES), list(_METHODS)

    def place(label: str) -> tuple[int, int, str]:
        method = found[label]
        family = _METHODS.get(method, ("other", ""))[0]
        return families.index(family), known.index(method) if method in known else 99, label

    return sorted(found, key=place)
