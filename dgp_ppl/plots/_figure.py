"""What all plots share: figures, colours, words, checks."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "COLORS", "array", "figure_of", "finish", "index_label", "layer_words", "legend_below",
    "methods", "not_empty", "percent", "plain", "style", "words_of_input",
]  # fmt: skip

# Okabe & Ito (2008): distinct to colour-blind readers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


_COLUMNS = 3


def style(i: int) -> dict[str, Any]:
    """Colour, line and marker of the i-th method: lines differ where colours come again."""
    n = len(COLORS)
    return {
        "color": COLORS[i % n],
        "linestyle": _LINES[i // n % len(_LINES)],
        "marker": _MARKERS[i % len(_MARKERS)],
    }


def figure_of(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """A figure of this size in inches, apart from pyplot, and its axes, [rows, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        plain(axis)
    return figure, axes


def panels(num: int, width: float, height: float, words: str, **options: Any) -> tuple[Any, Any]:
    """A figure of `num` panels of this size in inches, at most three in a row, and their axes.

    `words` label the vertical axes at the left.
    """
    columns = 2 if num == 4 else min(num, _COLUMNS)
    rows = -(-num // columns)
    figure, axes = figure_of(width * columns + 0.5, height * rows, columns, rows, **options)
    for axis in axes.flat[num:]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel(words)
    return figure, axes.flat[:num]


def plain(axis: Any) -> None:
    """No frame above and on the right, and a faint grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def finish(figure: Any, title: str = "", legend_of: Any = None, columns: int = 4) -> Any:
    """Add the title, and below all panels one legend of what `legend_of` (axes) shows."""
    if title:
        figure.suptitle(title)
    if legend_of is not None:
        entries: dict[str, Any] = {}
        for axis in np.ravel(legend_of):
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        if entries:
            legend_below(figure, entries, columns)
    _take_literally(figure)
    return figure


def _take_literally(figure: Any) -> None:
    """Names are no mathematics: a ``$`` in one is that."""
    texts = [*figure.texts, *(t for own in figure.legends for t in own.get_texts())]
    for axis in figure.axes:
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts]
        texts += axis.get_legend().get_texts() if axis.get_legend() is not None else []
    for text in texts:
        if text is not None:
            text.set_parse_math(False)


def legend_below(figure: Any, entries: Mapping[str, Any], columns: int = 4) -> None:
    """A legend of these labels and handles below all panels, no wider than the figure."""
    letters = np.array([len(label) for label in entries])

    def width(n: int) -> float:
        """Of n columns in inches: handles, and letters of 9 points, about."""
        return sum(0.55 + 0.065 * part.max() for part in np.array_split(letters, n))

    room = figure.get_size_inches()[0] - 0.2
    fitting = [n for n in range(1, min(columns, len(entries)) + 1) if width(n) < room]
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", frameon=False,
        ncols=max(fitting, default=1), fontsize=9,
    )  # fmt: skip


def percent(share: float) -> str:
    """0.9 as ``90 %``."""
    return f"{100 * share:.3g} %"


def layer_words(name: str) -> str:
    """``l2``, or its site ``l2.v``, in words; other names as they are."""
    name = name.removesuffix(".v")
    found = re.fullmatch(r"l(\d+)", name)
    return f"layer {found[1]}" if found else name


def index_label(site: str, index: Sequence[int], outputs: int) -> str:
    """An inducing value in words: ``layer 1: v[3]``, and with several outputs ``v[3, 0]``."""
    shown = index if outputs > 1 else index[:1]
    return f"{layer_words(site)}: v[{', '.join(map(str, shown))}]"


def words_of_input(names: Sequence[str] | None, before: str | None, d: int, dim: int) -> str:
    """Label of a layer's input d of dim: the data's for the first layer."""
    if before is not None:
        return f"output {d + 1} of {before}" if dim > 1 else f"output of {before}"
    if names is not None:
        return names[d]
    return f"input {d + 1}" if dim > 1 else "input"


def not_empty(caller: str, name: str, values: Any) -> None:
    """Raises ValueError if a mapping or sequence has nothing in it."""
    if not len(values):
        raise ValueError(f"{caller}: {name} is empty, wanted at least one entry")


def array(caller: str, name: str, value: ArrayLike, shape: Sequence[int | None]) -> np.ndarray:
    """The value as float64, checked.

    Raises:
        ValueError: if its shape is another; None stands for any length.
    """
    found = np.asarray(value, np.float64)
    fits = found.ndim == len(shape) and all(
        w is None or w == g for w, g in zip(shape, found.shape, strict=True)
    )
    if not fits:
        wanted = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
        raise ValueError(f"{caller}: {name} has shape {found.shape}, wanted {wanted}")
    return found


def methods(caller: str, name: str, mapping: Mapping[str, Any]) -> list[tuple[int, str, Any]]:
    """Place, name and value of every entry, checked not to be none."""
    not_empty(caller, name, mapping)
    return [(i, n, value) for i, (n, value) in enumerate(mapping.items())]
