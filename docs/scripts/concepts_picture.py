"""The picture of the page on concepts: `python docs/scripts/concepts_picture.py`.

Writes docs/images/concepts.png.
"""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

MODEL, GUIDE, FIT, PREDICT = "#0072B2", "#D55E00", "#009E73", "#7B3294"
LAYERS = {"l1": 3.0, "l2": 6.6}  # centres


def box(
    axis: Axes, x: float, y: float, text: str, color: str, *, wide: float = 1.9, high: float = 0.8
) -> None:
    """Draw a rounded box with its centre at (x, y)."""
    corner = (x - wide / 2, y - high / 2)
    style = "round,pad=0,rounding_size=0.12"
    axis.add_patch(FancyBboxPatch(corner, wide, high, style, fc=f"{color}18", ec=color, lw=1.5))
    axis.text(x, y, text, ha="center", va="center", fontsize=10)


def arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    """Draw an arrow between two points."""
    shape = {"arrowstyle": "-|>", "color": color, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, start, arrowprops=shape)


def main() -> None:
    figure = Figure(figsize=(9.6, 5.0), layout="constrained")
    axis = figure.subplots()
    axis.set(xlim=(0, 12), ylim=(-0.35, 6.1), aspect="equal")
    axis.axis("off")
    small: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}

    for name, x in LAYERS.items():
        number = name[1:]
        box(axis, x, 5.2, f"guide: $q(v_{number})$", GUIDE)
        axis.text(x, 5.85, "mean, covariance", color=FIT, **small)
        arrow(axis, (x, 4.8), (x, 4.05), GUIDE)
        axis.text(x + 0.12, 4.43, "replaces the draw", fontsize=9, color=GUIDE, va="center")
        box(axis, x, 3.65, f"$v_{number} \\sim N(0, I)$", MODEL)
        arrow(axis, (x, 3.25), (x, 2.6), MODEL)
        box(axis, x, 2.2, f'layer gp("{name}")', MODEL)
        axis.text(x, 1.5, "kernel, inducing inputs z", color=FIT, **small)
    box(axis, 9.85, 2.2, "observe", MODEL, wide=1.5)
    axis.text(9.85, 1.5, "noise", color=FIT, **small)

    axis.text(0.55, 2.2, "x", fontsize=13, ha="center", va="center")
    axis.text(11.55, 2.2, "y", fontsize=13, ha="center", va="center")
    for start, end, label in (
        (0.85, 2.05, ""),
        (3.95, 5.65, "$f_1(x)$"),
        (7.55, 9.1, "$f(x)$"),
        (10.6, 11.3, ""),
    ):
        arrow(axis, (start, 2.2), (end, 2.2), MODEL)
        axis.text((start + end) / 2, 2.42, label, ha="center", fontsize=11)

    words = (
        ("model", MODEL, "declares v, the layers and the likelihood of y"),
        ("guide", GUIDE, "gives each v its approximate posterior q(v)"),
        ("fit", FIT, "changes the green numbers, to raise the ELBO"),
        ("predict", PREDICT, "changes nothing: params are fixed, x is new"),
    )
    for i, (who, color, what) in enumerate(words):
        column, row = i % 2, i // 2
        place = (0.55 + 5.6 * column, 0.65 - 0.55 * row)
        axis.text(*place, who, fontsize=10, color=color, weight="bold", va="center")
        axis.text(place[0] + 0.95, place[1], what, fontsize=10, va="center")
    figure.savefig(Path(__file__).parents[1] / "images" / "concepts.png", dpi=130)


if __name__ == "__main__":
    main()
