"""Values for plots, and checks of a figure's texts and colours."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb

from dgp_ppl import plots
from dgp_ppl.prediction._layer_functions import LayerFunction

RNG = np.random.default_rng(0)
SAFE_COLOURS = {c.lower() for c in plots.COLORS}


def texts(figure):
    """Return the visible texts of a figure, and their boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    parts = [*figure.subfigs, figure]
    found = [p._suptitle for p in parts if getattr(p, "_suptitle", None)]
    found += [t for p in parts for legend in p.legends for t in legend.get_texts()]
    for axes in figure.axes:
        found += axes.texts
        if axes.get_legend():
            found += axes.get_legend().get_texts()
        found.append(axes.title)
        if not axes.axison:
            continue
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            found.append(axis.label)
            found += [
                t.label1
                for t in axis.get_major_ticks()
                if low - slack <= t.get_loc() <= high + slack and t.label1.get_visible()
            ]
    shown = [t for t in found if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in shown]


def assert_readable(figure):
    """Assert that texts neither overlap nor leave the figure."""
    found = texts(figure)
    assert found
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in found:
        assert min(box.x0, box.y0) > -1, f"{text!r} leaves the figure"
        assert max(box.x1 - width, box.y1 - height) < 1, f"{text!r} leaves the figure"
    for (a, box), (b, other) in itertools.combinations(found, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        up = min(box.y1, other.y1) - max(box.y0, other.y0)
        assert across < 1 or up < 1, f"{a!r} and {b!r} overlap"


def assert_safe_colours(figure):
    """Assert that lines and markers have colours of Okabe and Ito, or are grey."""
    for axes in figure.axes:
        for line in axes.lines:
            colour = to_hex(line.get_color())
            assert colour in SAFE_COLOURS or np.ptp(to_rgb(colour)) < 1e-9, colour


def legend_words(figure):
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def layer(inputs, outputs, dim=1, passes=3, rows=9):
    """Return a `LayerFunction` with random values of these shapes."""
    n = RNG.standard_normal
    side = np.linspace(-1, 1, rows)
    grid = np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    start = np.broadcast_to(grid, (passes, *grid.shape)) if inputs == "x" else n((passes, 81, dim))
    return LayerFunction(
        inputs=grid, mean=n((len(grid), outputs)), var=n((len(grid), outputs)) ** 2 + 0.1,
        draws=n((passes, len(grid), outputs)), z=n((4, dim)), z_mean=n((4, outputs)),
        z_sd=n((4, outputs)) ** 2, reached=start, passed=n((*start.shape[:2], outputs)),
    )  # fmt: skip


def bands(methods, points=30):
    grid = np.linspace(0, 1, points)
    band = {"mean": grid, "lower": grid - 1, "upper": grid + 1, "draws": np.stack([grid, -grid])}
    return grid, dict.fromkeys(methods, band)


Y = RNG.standard_normal(50)
NAMES = ["mean field", "global inducing", "diffusion"]


def states():
    steps = RNG.standard_normal((40, 7, 3, 2))
    steps[:, -1, 1, 0] += 9  # these two move most
    steps[:, -1, 2, 1] += 8
    return {"l1.v": steps, "l2.v": RNG.standard_normal((40, 7, 3, 1))}
