"""How fits went."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dgp_ppl.plots._figure import array, figure_of, finish, methods, style

__all__ = ["training_curves"]


def training_curves(
    elbo_per_datum: Mapping[str, ArrayLike], title: str = "", units: str = "nats"
) -> Any:
    """ELBO per datum against step, one line a method: a running mean over 1 % of the steps.

    The vertical axis leaves out the climb from the start: it has room for the second half of every
    line.

    Args:
        elbo_per_datum: by method: of every step, [steps]; numbers of steps may differ.
        title: of the figure.
        units: of the ELBO.

    Raises:
        ValueError: if there is no method, or one without steps.
    """
    figure, axes = figure_of(7, 4)
    axis = axes[0, 0]
    low, high = np.inf, -np.inf
    for i, name, values in methods("training_curves", "elbo_per_datum", elbo_per_datum):
        values = array("training_curves", f"elbo_per_datum[{name!r}]", values, [None])
        if not len(values):
            raise ValueError(f"training_curves: elbo_per_datum[{name!r}] has no steps")
        window = max(1, len(values) // 100)
        smooth = np.convolve(values, np.full(window, 1 / window), mode="valid")
        own = {n: a for n, a in style(i).items() if n != "marker"}
        axis.plot(np.arange(len(smooth)) + window, smooth, label=name, linewidth=1.5, **own)
        late = smooth[len(smooth) // 2 :]
        late = late[np.isfinite(late)]  # a run that diverged shows what it had
        if late.size:
            low, high = min(low, late.min()), max(high, late.max())
    if np.isfinite(high):
        margin = 0.05 * (high - low) or 0.1
        axis.set_ylim(low - margin, high + margin)
    axis.set_xlabel("step")
    axis.set_ylabel(f"ELBO per datum ({units})")
    return finish(figure, title, axes)
