"""Scores of methods over data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

from dgp_ppl.plots._figure import COLORS, figure_of, finish, not_empty

__all__ = ["method_words", "score_dots"]

# Family of each method: colour and marker; and its name in words.
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
    "bnn_nuts": ("baseline", "BNN, NUTS"),
    "ensemble": ("baseline", "ensemble"),
    "sgpr": ("one GP layer", "SGPR"),
    "svgp": ("one GP layer", "SVGP"),
    "dsvi": ("deep GP, variational", "DSVI"),
    "decoupled": ("deep GP, variational", "decoupled"),
    "global_inducing": ("deep GP, variational", "global inducing"),
    "diffusion": ("deep GP, variational", "diffusion"),
    "implicit": ("deep GP, variational", "implicit"),
    "sghmc": ("deep GP, sampled", "SGHMC"),
    "nuts": ("deep GP, sampled", "NUTS"),
    "nuts_priors": ("deep GP, sampled", "NUTS, priors"),
}
_METRICS = {
    "rmse": ("RMSE", "in units of {target}", "less is better"),
    "log_density": ("mean log density", "nats", "more is better"),
    "crps": ("CRPS", "in units of {target}", "less is better"),
    "accuracy": ("accuracy", "share", "more is better"),
    "log_loss": ("log loss", "nats", "less is better"),
    "elbo_per_datum": ("ELBO per datum", "nats", "more is better"),
}


def score_dots(
    records: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = ("rmse", "log_density"),
    title: str = "",
    columns: int = 4,
) -> Any:
    """A dot for each method with its standard error over splits, a panel for each data set.

    As Figure 1 of Salimbeni & Deisenroth (2017): methods from top to bottom, coloured by family,
    with a row of panels for each metric. Records of one data set are put together.

    Args:
        records: of comparisons, what results.json holds (``Comparison.record``).
        metrics: names of the scores in their summaries.
        title: of the figure.
        columns: data sets side by side; more go below.

    Raises:
        ValueError: if there is no record, two have the same method on the same data, or none has a
            metric.
    """
    not_empty("score_dots", "records", records)
    not_empty("score_dots", "metrics", metrics)
    data, scores = _gathered(records)
    for metric in metrics:
        if not any(row.get(metric) for own in scores.values() for _, row in own.values()):
            known = sorted({k for own in scores.values() for _, row in own.values() for k in row})
            raise ValueError(
                f"score_dots: metrics has {metric!r}, wanted one of "
                f"{', '.join(k for k in known if k != 'method')}"
            )
    labels = _ordered(scores)
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
            _panel(axis, labels, scores[name], metric, info)
            if j == 0:
                short = name.rsplit("/", 1)[-1].replace("_", " ")
                axis.set_title(f"{short}\nN = {info['rows']:,}, D = {info['columns']}", fontsize=10)
            if i % columns == 0:
                axis.set_yticks(range(len(labels)), labels)
                axis.set_ylim(len(labels) - 0.4, -0.6)
    shown[-1].plot([], [], "|-", color="0.4", label="standard error over splits")
    return finish(figure, title, shown)


def method_words(method: str) -> str:
    """A method of `dgp_ppl.compare` in words: ``DSVI`` for ``dsvi``."""
    return _METHODS.get(method, ("other", method.replace("_", " ")))[1]


def _panel(axis: Any, labels: list[str], own: Mapping[str, Any], metric: str, info: Any) -> None:
    axis.grid(visible=False, axis="x")
    for at, label in enumerate(labels):
        method, row = own.get(label, ("", {}))
        value = row.get(metric) or {"mean": None}
        if value["mean"] is None:
            continue
        family = _METHODS.get(method, ("other", ""))[0]
        color, marker = _FAMILIES[family]
        axis.errorbar(
            value["mean"], at, xerr=value["se"], fmt=marker, color=color, markersize=5,
            elinewidth=1.4, capsize=2, label=family,
        )  # fmt: skip
    words, unit, better = _METRICS.get(metric, (metric.replace("_", " "), "", ""))
    target = str(info.get("target") or "the target").replace("_", " ")
    unit = unit.format(target="the target" if target == "y" else target)
    lines = [f"{words} ({unit})"] if 0 < len(unit) < 10 else [words, f"({unit})" if unit else ""]
    axis.set_xlabel("\n".join(filter(None, [*lines, better])), fontsize=9)
    axis.tick_params(labelsize=9)
    axis.margins(x=0.12)
    axis.locator_params(axis="x", nbins=4)


def _gathered(
    records: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, dict[str, tuple[str, Any]]]]:
    """By data set: what it is; and by label, the method and its row of the summary."""
    data: dict[str, Any] = {}
    scores: dict[str, dict[str, tuple[str, Any]]] = {}
    for record in records:
        name = record["data"]["name"]
        data.setdefault(name, record["data"])
        own = scores.setdefault(name, {})
        for row in record["summary"]:
            label = _label(row["method"], record["config"])
            if label in own:
                raise ValueError(
                    f"score_dots: records have {label!r} on {name} twice; leave one of them out"
                )
            own[label] = row["method"], row
    return data, scores


def _label(method: str, config: Mapping[str, Any]) -> str:
    """The method in words, with its depth if it has layers."""
    family, words = _METHODS.get(method, ("other", ""))[0], method_words(method)
    if not family.startswith("deep GP"):
        return words
    model = config.get("model", "deep_gp")
    what = f"{config['depth']} layers" if model == "deep_gp" else model.replace("_", " ")
    return f"{words}, {what}"


def _ordered(scores: Mapping[str, Mapping[str, tuple[str, Any]]]) -> list[str]:
    """Labels of all data sets: by family, then as they are listed here, then by depth."""
    found = {label: method for own in scores.values() for label, (method, _) in own.items()}
    families, known = list(_FAMILIES), list(_METHODS)

    def place(label: str) -> tuple[int, int, str]:
        method = found[label]
        family = _METHODS.get(method, ("other", ""))[0]
        return families.index(family), known.index(method) if method in known else 99, label

    return sorted(found, key=place)
