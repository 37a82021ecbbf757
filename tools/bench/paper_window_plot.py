"""The plots of `matwin bench paper-window`: one for each figure of the papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .paper_window_figures import Point

COLOUR_OF = {
    "ripple join": 0, "NLW": 4, "MW": 6, "XJoin": 0, "HW": 2, "BEW (backward)": 4,
    "FEW (forward)": 6, "GCA": 0, "LCA": 6, "graph": 2, "NLW along the path": 4,
    "global": 0, "local": 6, "backward-nested-loop": 4, "backward-hash": 2,
    "forward-nested-loop": 6, "forward-hash": 5,
}  # fmt: skip
"""The colour of every line, the same in all figures."""
MICROSECONDS = "service time of a tuple, µs"


def draw(points: list[Point], path: Path) -> dict[str, Path]:
    """Draw each experiment beside the given path, its name put in; where they went."""
    drawn: dict[str, Path] = {}
    for name, (experiment, starts, draw_panel) in FIGURES.items():
        here = [p for p in points if p.experiment == experiment and p.panel.startswith(starts)]
        if not here:
            continue
        panels = list(dict.fromkeys(point.panel for point in here))
        drawn[name] = path.with_name(f"{path.stem}-{name}{path.suffix}")
        with plot.figure(drawn[name], (max(4.4 * len(panels), 9.0), 4.2), len(panels)) as axes:
            for one, panel in zip(axes, panels, strict=True):
                draw_panel(one, [point for point in here if point.panel == panel])
                one.set_title(panel)
            plot.legend_above(axes[0])
    return drawn


def _draw_service(axes: Axes, points: list[Point]) -> None:
    """Service time while tuples come in."""
    for line, here in _lines(points):
        axes.plot(
            [p.x / 1e3 for p in here], [p.y for p in here], label=line,
            color=plot.COLOURS[COLOUR_OF[line]], linewidth=1.2,
        )  # fmt: skip
    axes.set_ylim(0)
    axes.set_xlabel("tuples that have come, thousands")
    axes.set_ylabel(MICROSECONDS)


def _draw_streams(axes: Axes, points: list[Point]) -> None:
    """Over the number of streams."""
    _draw_marked(axes, points)
    ys = [p.y for p in points]
    plot.log_axis(axes, "y", plot.round_numbers([min(ys) / 2, 2 * max(ys)]), "{:,g}".format)
    axes.set_xticks(sorted({round(p.x) for p in points}))
    axes.set_xlabel("streams")
    axes.set_ylabel(MICROSECONDS)


def _draw_throughput(axes: Axes, points: list[Point]) -> None:
    _draw_marked(axes, points)
    axes.set_xticks(sorted({round(p.x) for p in points}))
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e3:,.0f}")
    axes.set_xlabel("streams")
    axes.set_ylabel("most tuples a second, thousands")


def _draw_response(axes: Axes, points: list[Point]) -> None:
    _draw_marked(axes, points)
    xs, ys = [p.x for p in points], [p.y for p in points]
    plot.log_axis(axes, "x", plot.round_numbers([min(xs) / 2, 2 * max(xs)]), "{:,g}".format)
    plot.log_axis(axes, "y", plot.round_numbers([min(ys) / 2, 2 * max(ys)]), "{:,g}".format)
    axes.set_xlabel("tuples a second, all streams")
    axes.set_ylabel("mean response time, ms")


def _draw_output(axes: Axes, points: list[Point]) -> None:
    for line, here in _lines(points):
        axes.plot(
            [p.x / 1e3 for p in here], [p.y for p in here], label=line,
            color=plot.COLOURS[COLOUR_OF[line]], linewidth=1.6,
        )  # fmt: skip
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.set_xlabel("results, thousands")
    axes.set_ylabel("seconds until they are out")


def _draw_bars(axes: Axes, points: list[Point]) -> None:
    """One bar for each line."""
    for at, point in enumerate(points):
        axes.bar(
            at, point.y, color=plot.COLOURS[COLOUR_OF[point.line]], width=0.6, label=point.line
        )
        axes.annotate(
            f"{point.y:,.1f}", (at, point.y), (0, 3), textcoords="offset points", ha="center",
            fontsize=9,
        )  # fmt: skip
    axes.set_xticks([])
    axes.grid(False, axis="x")
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1.15 * max(p.y for p in points))
    axes.set_ylabel(MICROSECONDS)


def _draw_marked(axes: Axes, points: list[Point]) -> None:
    for number, (line, here) in enumerate(_lines(points)):
        axes.plot(
            [p.x for p in here], [p.y for p in here], label=line,
            color=plot.COLOURS[COLOUR_OF[line]], marker=plot.MARKERS[number], markersize=5,
            linewidth=1.6,
        )  # fmt: skip


def _lines(points: list[Point]) -> list[tuple[str, list[Point]]]:
    names = dict.fromkeys(point.line for point in points)
    return [(name, [p for p in points if p.line == name and np.isfinite(p.y)]) for name in names]


FIGURES: dict[str, tuple[str, str, Callable[[Axes, list[Point]], None]]] = {
    "shops-loops": ("shops", "loops", _draw_service),
    "shops-hash": ("shops", "hash", _draw_service),
    "streams": ("streams", "", _draw_streams),
    "switching": ("switching", "", _draw_service),
    "bounds": ("bounds", "", _draw_bars),
    "path": ("path", "", _draw_bars),
    "throughput": ("throughput", "", _draw_throughput),
    "response": ("response", "", _draw_response),
    "output": ("output", "", _draw_output),
    "operator": ("operator", "", _draw_streams),
    "operator-bounds": ("operator-bounds", "", _draw_bars),
    "operator-path": ("operator-path", "", _draw_bars),
}
"""Each figure: its experiment, how its panels' names begin, and how a panel is drawn."""
