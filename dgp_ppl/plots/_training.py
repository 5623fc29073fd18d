"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dgp_ppl.plots._figure import array, figure_of, finish, not_empty, style


def training_curves(
    elbo_per_datum: Mapping[str, ArrayLike], title: str = "", units: str = "nats"
) -> Any:
    """Plot the ELBO per datum against the step: one line per method.

    Lines are running means over 1 % of the steps. The vertical axis fits the second half of every
    line, so the initial climb is cut off.

    Args:
        elbo_per_datum: by method, the value at every step, [steps]; lengths may differ.
        title: title of the figure.
        units: units of the ELBO.

    Raises:
        ValueError: if there is no method, or one without steps.
    """
    not_empty("training_curves", "elbo_per_datum", elbo_per_datum)
    figure, axes = figure_of(7, 4)
    axis = axes[0, 0]
    low, high = np.inf, -np.inf
    for i, (name, values) in enumerate(elbo_per_datum.items()):
        values = array("training_curves", f"elbo_per_datum[{name!r}]", values, [None])
        if not len(values):
            raise ValueError(f"training_curves: elbo_per_datum[{name!r}] has no steps, wanted some")
        window = max(1, len(values) // 100)
        smooth = np.convolve(values, np.full(window, 1 / window), mode="valid")
        line = {n: a for n, a in style(i).items() if n != "marker"}
        axis.plot(np.arange(len(smooth)) + window, smooth, label=name, linewidth=1.5, **line)
        late = smooth[len(smooth) // 2 :]
        late = late[np.isfinite(late)]  # a diverged run keeps its finite steps
        if late.size:
            low, high = min(low, late.min()), max(high, late.max())
    if np.isfinite(high):
        margin = 0.05 * (high - low) or 0.1
        axis.set_ylim(low - margin, high + margin)
    axis.set_xlabel("step")
    axis.set_ylabel(f"ELBO per datum ({units})")
    return finish(figure, title, axes)
