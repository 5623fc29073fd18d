"""Shared by all plots: figures, styles, labels and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dgp_ppl._checks import as_array, check_kind

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of the plots, distinct for colour-blind readers (Okabe & Ito 2008)."""

_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_COLUMNS = 3


def style(i: int) -> dict[str, Any]:
    """Return colour, line and marker of the i-th method; lines differ where colours repeat."""
    n = len(COLORS)
    return {
        "color": COLORS[i % n],
        "linestyle": _LINES[i // n % len(_LINES)],
        "marker": _MARKERS[i % len(_MARKERS)],
    }


def figure_of(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """Make a figure of this size in inches, without pyplot, and its axes, [rows, columns]."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "plots: wanted matplotlib; python -m pip install 'dgp_ppl[plots]'", name="matplotlib"
        ) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        plain(axis)
    return figure, axes


def panels(num: int, width: float, height: float, label: str, **options: Any) -> tuple[Any, Any]:
    """Make a figure of `num` panels of a size in inches, at most three in a row; also its axes."""
    columns = 2 if num == 4 else min(num, _COLUMNS)
    rows = -(-num // columns)
    figure, axes = figure_of(width * columns + 0.5, height * rows, columns, rows, **options)
    for axis in axes.flat[num:]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel(label)
    return figure, axes.flat[:num]


def plain(axis: Any) -> None:
    """Remove the frame at the top and on the right, and add a faint grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def finish(figure: Any, title: str = "", legend_of: Any = (), columns: int = 4) -> Any:
    """Add the title, and a legend of `legend_of` below, of at most so many `columns`."""
    check_kind("plots", "title", title, str | None, "a text")
    if title:
        figure.suptitle(title)
    entries: dict[str, Any] = {}
    for axis in np.ravel(legend_of):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        letters = np.array([len(label) for label in entries])

        def width(n: int) -> float:
            """Estimate the width of n columns in inches: handles, and letters of 9 points."""
            return sum(0.55 + 0.065 * part.max() for part in np.array_split(letters, n))

        limit = figure.get_size_inches()[0] - 0.2
        fitting = [n for n in range(1, min(columns, len(entries)) + 1) if width(n) < limit]
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", frameon=False,
            ncols=max(fitting, default=1), fontsize=9,
        )  # fmt: skip
    # A `$` in a name is shown as it is.
    texts = [*figure.texts, *(t for legend in figure.legends for t in legend.get_texts())]
    for axis in figure.axes:
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts]
    for text in texts:
        text.set_parse_math(False)
    return figure


def percent(fraction: float) -> str:
    """Format 0.9 as ``90 %``."""
    return f"{100 * fraction:.3g} %"


def layer_label(name: str) -> str:
    """Return ``layer 2`` for ``l2`` and its site ``l2.v``; other names are unchanged."""
    name = name.removesuffix(".v")
    found = re.fullmatch(r"l(\d+)", name)
    return f"layer {found[1]}" if found else name


def input_label(names: Sequence[str] | None, previous: str | None, d: int, dim: int) -> str:
    """Label input d of a layer with `dim` inputs; `previous` is the layer before, if any."""
    if previous is not None:
        return f"output {d + 1} of {previous}" if dim > 1 else f"output of {previous}"
    if names is not None:
        return names[d]
    return f"input {d + 1}" if dim > 1 else "input"


def not_empty(caller: str, name: str, values: Any) -> None:
    check_kind(caller, name, values, Mapping, "a dict by name")
    if not values:
        raise ValueError(f"{caller}: {name} is empty, wanted at least one entry")


def array(caller: str, name: str, value: ArrayLike, shape: Sequence[int | None]) -> np.ndarray:
    """Return the value as float64, or raise ValueError if its shape differs; None is any length."""
    found = np.asarray(as_array(caller, name, value), np.float64)
    fits = found.ndim == len(shape) and all(
        w is None or w == g for w, g in zip(shape, found.shape, strict=True)
    )
    if not fits:
        wanted = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
        raise ValueError(f"{caller}: {name} has shape {found.shape}, wanted {wanted}")
    return found
