"""The figures of a comparison's first split."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib  # noqa: F401 - a command without it ends before it fits anything
import numpy as np
from jax import random

from dgp_ppl import plots
from dgp_ppl._files import replacing
from dgp_ppl.comparison._compare import Comparison
from dgp_ppl.comparison._folder import LAST_FIGURES
from dgp_ppl.comparison._run import Run
from dgp_ppl.datasets import Dataset
from dgp_ppl.inference import FitResult

_LEVEL = 0.9  # probability of the plotted intervals
_DRAWS = 400  # of the targets, for the figures of calibration
_GRID_POINTS = 300
_FUNCTION_DRAWS = 8
_LABELS = {
    "gp": "exact GP", "bnn": "BNN", "sgpr": "SGPR", "dsvi": "DSVI", "dspp": "half predictive",
    "sghmc": "SGHMC", "nuts": "NUTS",
}  # fmt: skip


def method_label(method: str) -> str:
    """Return the label of a method in figures and tables: ``DSVI`` for ``dsvi``."""
    return _LABELS.get(method, method.replace("_", " "))


def write_figures(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """Write the figures of a comparison's first split as PNG files.

    ::

        dgp_ppl.compare("diabetes", out="r", report=dgp_ppl.report.write_figures)

    Args:
        comparison: the comparison, with at least one fit.
        folder: the folder.

    Returns:
        The Matplotlib figures by name.
    """
    runs = comparison.fits
    first, shown = next(iter(runs.values())), _labelled(runs)
    data, is_regression = first.data, first.data.task == "regression"
    figures = {}
    curves = {
        method: run.fitted.result.elbo_per_datum
        for method, run in shown.items()
        if run.fitted.elbo_per_datum is not None and isinstance(run.fitted.result, FitResult)
    }
    if curves:
        title = f"{data.name}: training, split {first.row['split']}"
        units = "nats, standardised target" if is_regression else "nats"
        figures["training"] = plots.training_curves(curves, title, units)
    figures["predictions" if is_regression else "reliability"] = draw_held_out(runs)
    if is_regression:
        figures["pit"] = _pit(shown)
        if len(data.x_names) == 1:
            figures["function"] = _function(shown)
    for name in sorted(figures, key=LAST_FIGURES.__contains__):
        with replacing(folder / f"{name}.png") as draft:
            figures[name].savefig(draft, format="png", dpi=150)
    return figures


def draw_held_out(runs: Mapping[str, Run]) -> Any:
    """Draw predictions of held-out rows against targets, or the reliability of classes."""
    first, shown = next(iter(runs.values())), _labelled(runs)
    data = first.data
    if data.task != "regression":
        return _reliability(shown)
    bands = {m: (r.test.mean, *r.test.interval(_LEVEL)) for m, r in shown.items()}
    title = f"{data.name}: held-out rows, split {first.row['split']}"
    target = data.y_name.replace("_", " ")
    return plots.predicted_against_observed(first.y_test, bands, target, title, _LEVEL)


def _labelled(runs: Mapping[str, Run]) -> dict[str, Run]:
    return {method_label(m): r for m, r in runs.items()}


def _pit(runs: Mapping[str, Run]) -> Any:
    """Draw the distribution of P(Y <= y) at the held-out targets: one panel per method."""
    import arviz_plots

    draws = {m: r.test.sample(random.key(0), _DRAWS)[None] for m, r in runs.items()}
    return _drawn(arviz_plots.plot_ppc_pit, draws, {m: r.y_test for m, r in runs.items()})


def _reliability(runs: Mapping[str, Run]) -> Any:
    """Draw how often predicted classes are right against their probability: a panel per method."""
    import arviz_plots

    rng = np.random.default_rng(0)
    draws, right = {}, {}
    for method, run in runs.items():
        confidence = run.test.probabilities.max(axis=1)
        draws[method] = (rng.uniform(size=(1, _DRAWS, len(confidence))) < confidence).astype(int)
        right[method] = (run.test.probabilities.argmax(axis=1) == run.y_test).astype(int)
    return _drawn(arviz_plots.plot_ppc_pava, draws, right, data_type="binary")


def _drawn(
    plot: Any, draws: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray], **options: Any
) -> Any:
    """Return ArviZ's plot of draws [1, S, N] and targets [N], with a panel for each method."""
    import arviz_base
    from matplotlib import pyplot

    groups = {"posterior_predictive": dict(draws), "observed_data": dict(y)}
    tree = arviz_base.from_dict(groups, dims={m: ["test"] for m in draws})
    with warnings.catch_warnings():
        # ArviZ takes few held-out rows for chains and draws in the wrong order.
        warnings.filterwarnings("ignore", "Found chain dimension to be longer")
        figure = plot(tree, backend="matplotlib", **options).viz["figure"].item()
    pyplot.close(figure)
    return figure


def _function(runs: Mapping[str, Run]) -> Any:
    first = next(iter(runs.values()))
    data = first.data
    x, y = (data.x, data.y) if isinstance(data, Dataset) else (first.x, first.y)
    margin = 0.1 * np.ptp(x)
    grid = np.linspace(x.min() - margin, x.max() + margin, _GRID_POINTS)
    bands = {}
    for method, run in runs.items():
        key_band, key_draw = random.split(random.key(run.config["seed"]))
        p = run.fitted.predict(
            key_band, grid[:, None], num_samples=run.test.num_samples,
            standardizer=run.standardizer,
        )  # fmt: skip
        lower, upper = p.interval(_LEVEL)
        draws = p.function_draws(key_draw, _FUNCTION_DRAWS)
        bands[method] = {"mean": p.mean, "lower": lower, "upper": upper, "draws": draws}
    labels = (data.x_names[0], data.y_name.replace("_", " "))
    return plots.function_bands(x[:, 0], y, grid, bands, labels, data.name)
