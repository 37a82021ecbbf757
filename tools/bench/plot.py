"""Plots of benchmarks: where they go, what they look like.  Only this file knows Matplotlib.

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; each
line has a marker of its own as well, so that a plot still reads in grey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matwin.storage.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#000000", "#D55E00", "#CC79A7", "#0072B2")
MARKERS = ("s", "^", "D", "o", "v", "P", "X")
STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "matwin",  # the same data, the same bytes
}


def plot_path(text: str) -> Path:
    """Where a plot is to go; an `InputError` at once if it can't, and not after a long run."""
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--plot {text}: the name of a plot ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {text}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"--plot {text}: this is a folder")
    _pyplot()
    return path


@contextmanager
def figure(path: Path, size: tuple[float, float], panels: int) -> Iterator[list[Axes]]:
    """Panels side by side, to draw into; written as what the path's name says."""
    pyplot = _pyplot()
    with pyplot.rc_context(STYLE):
        drawn, axes = pyplot.subplots(
            1, panels, figsize=size, layout="constrained", squeeze=False
        )  # fmt: skip
        try:
            yield list(axes[0])
            drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise InputError(f"--plot {path}: {error.strerror or error}") from error
        finally:
            pyplot.close(drawn)


def legend_above(axes: Axes) -> None:
    """One legend for the whole figure, from the lines of one panel."""
    drawn = axes.get_figure()
    assert drawn is not None
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=len(labels))


def log_axis(
    axes: Axes, name: str, ticks: Sequence[float], text: Callable[[float], str] = "{:g}".format
) -> None:
    """Make the axis "x" or "y" logarithmic, with labels at those of these places that it shows."""
    axes.set(**{f"{name}scale": "log"})
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    shown = [tick for tick in ticks if low <= tick <= high]
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_ticks(shown, labels=[text(tick) for tick in shown])
    axis.set_ticks([], minor=True)


def round_numbers(values: Sequence[float]) -> list[float]:
    """Places for ticks: powers of ten, or also their double and half where those are few.

    >>> round_numbers([3, 80]), round_numbers([3, 80_000])
    ([5.0, 10.0, 20.0, 50.0], [10.0, 100.0, 1000.0, 10000.0])
    """
    low, high = min(values), max(values)
    powers = [10.0**n for n in range(-9, 12)]
    between = [power for power in powers if low <= power <= high]
    if len(between) > 2:
        return between
    return [s * power for power in powers for s in (1, 2, 5) if low <= s * power <= high]


def seconds_text(seconds: float) -> str:
    """A time as a label.

    >>> [seconds_text(s) for s in (1e-5, 0.02, 3.0)]
    ['10 µs', '20 ms', '3 s']
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.999 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-6:.0f} µs"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise InputError(
            "a plot needs Matplotlib, which is not installed; pip install 'matwin[bench]' brings it"
        ) from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot
