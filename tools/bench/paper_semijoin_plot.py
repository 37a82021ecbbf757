"""The plot of `matwin bench paper-semijoin`: the five panels of the paper's figure 2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import plot
from .paper_semijoin_runs import SMJ, SPJ

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .paper_semijoin import Point

AXES = {
    "distinct": "distinct values",
    "ratio": "full / partial tuple, bytes",
    "transmission": "link, bytes a second",
    "window": "window, tuples",
    "rate": "each stream, tuples a second",
}
STYLES = {
    "SPJ, formula (1)": (0, "-", None),
    "SMJ, formula (2)": (6, "-", None),
    "SMJ, refined": (3, ":", None),
    SPJ: (0, "", "s"),
    SMJ: (6, "", "o"),
}
"""Colour, line and marker: what is measured has markers, what is reckoned has lines."""


def draw(points: list[Point], path: Path) -> None:
    """All experiments side by side."""
    panels = [name for name in AXES if any(point.experiment == name for point in points)]
    with plot.figure(path, (3.4 * len(panels), 3.6), len(panels)) as axes:
        for one, name in zip(axes, panels, strict=True):
            _draw_panel(one, [point for point in points if point.experiment == name])
            one.set_title(name)
            one.set_xlabel(AXES[name])
        axes[0].set_ylabel("execution time, s for each s")
        plot.legend_above(axes[0])


def _draw_panel(axes: Axes, points: list[Point]) -> None:
    for line, (colour, style, marker) in STYLES.items():
        here = [point for point in points if point.line == line]
        axes.plot(
            [p.x for p in here], [p.total for p in here], label=line, linestyle=style or "none",
            color=plot.COLOURS[colour], marker=marker, markersize=5, linewidth=1.4,
        )  # fmt: skip
    shown = [point for point in points if point.line in STYLES]
    xs, ys = [p.x for p in shown], [p.total for p in shown]
    plot.log_axis(axes, "x", plot.round_numbers([min(xs) / 2, 2 * max(xs)]), "{:,.0f}".format)
    if max(ys) > 20 * min(ys):
        plot.log_axis(axes, "y", plot.round_numbers([min(ys) / 2, 2 * max(ys)]), "{:,.0f}".format)
    else:
        axes.set_ylim(0)
