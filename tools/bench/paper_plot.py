"""The plots of `matwin bench paper-bestmatch`: one for each figure of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .paper_bestmatch import Delivery, Point

LINE_STYLES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)))


def draw(points: list[Point], deliveries: list[Delivery], path: Path) -> dict[str, Path]:
    """Draw each experiment beside the given path, its name put in; where they went."""
    names = ("sizes", "dimensions", "distributions", "precisions")
    paths = {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names}
    sizes = [p for p in points if p.experiment == "sizes"]
    with plot.figure(paths["sizes"], (9, 5), 1) as (axes,):
        _draw_sizes(axes, sizes)
        plot.legend_above(axes)
    over = [p for p in points if p.experiment == "dimensions"]
    counts = sorted({p.rows for p in over})
    with plot.figure(
        paths["dimensions"], (max(5.5 * len(counts), 8.5), 4.8), len(counts)
    ) as panels:
        for axes, rows in zip(panels, counts, strict=True):
            _draw_dimensions(axes, [p for p in over if p.rows == rows])
        plot.legend_above(panels[0])
    for name in names[2:]:
        with plot.figure(paths[name], (7.5, 4.6), 1) as (axes,):
            _draw_delivery(axes, name, [row for row in deliveries if row.experiment == name])
    return paths


def _draw_sizes(axes: Axes, points: list[Point]) -> None:
    _draw_lines(axes, points, "rows")
    plot.log_axis(axes, "x", sorted({p.rows for p in points}), "{:,.0f}".format)
    plot.log_axis(axes, "y", [10.0**n for n in range(-4, 4)], plot.seconds_text)
    axes.set_title("Execution time over size, 2 dimensions, uniform, ε = 0.1")
    axes.set_xlabel("tuples a side")
    axes.set_ylabel("time")


def _draw_dimensions(axes: Axes, points: list[Point]) -> None:
    _draw_lines(axes, points, "dimensions")
    plot.log_axis(axes, "y", [10.0**n for n in range(-4, 4)], plot.seconds_text)
    axes.set_xticks(sorted({p.dimensions for p in points}))
    axes.set_title(f"{points[0].rows:,} tuples a side, uniform, ε = 0.1")
    axes.set_xlabel("dimensions")
    axes.set_ylabel("time")


def _draw_lines(axes: Axes, points: list[Point], place: str) -> None:
    """A point that was given up is a hollow mark, and no line leads there."""
    from .paper_bestmatch import LINES, POINT_SECONDS

    for number, line in enumerate(LINES):
        here = [p for p in points if p.line == line]
        colour = plot.COLOURS[(4, 0, 6, 2, 3)[number]]
        axes.plot(
            [getattr(p, place) for p in here],
            [float("nan") if p.seconds is None else p.seconds for p in here],
            label=line, color=colour, marker=plot.MARKERS[number], markersize=5, linewidth=1.6,
        )  # fmt: skip
        for point in here:
            if point.seconds is None:
                at = getattr(point, place), POINT_SECONDS
                axes.plot(*at, plot.MARKERS[number], color=colour, markersize=6, fillstyle="none")
                axes.annotate(
                    f"> {POINT_SECONDS:g} s", at, (0, 6), textcoords="offset points",
                    ha="center", color=colour, fontsize=8.5,
                )  # fmt: skip


def _draw_delivery(axes: Axes, name: str, deliveries: list[Delivery]) -> None:
    colours = (plot.COLOURS[3], plot.COLOURS[4], plot.COLOURS[6], plot.COLOURS[2], plot.COLOURS[0])
    for row, colour, style in zip(deliveries, colours, LINE_STYLES, strict=False):
        share = np.array(row.rows_out) / row.rows_out[-1]
        axes.step(
            [0, *row.seconds], [0, *share], where="post", label=row.line, color=colour,
            linewidth=1.5, linestyle=style,
        )  # fmt: skip
    axes.set_xlim(0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(loc="upper left", fontsize=9)
    axes.set_title(f"Results delivered over time, by {name[:-1]} ({_about(name)})")
    axes.set_xlabel("seconds")
    axes.set_ylabel("share of all results")


def _about(name: str) -> str:
    return "2 dimensions, ε = 0.1" if name == "distributions" else "of y1, uniform, ε = 0.1"
