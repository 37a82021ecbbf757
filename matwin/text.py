"""What a terminal shows: names without surprises, tables, bars, and colour where it is wanted.

Names come out of a file that anybody may have written.  `escaped` leaves nothing in them that moves
the cursor, rings, hides or reorders text.  Colour is never the only sign of anything, and is left
out in a pipe, with ``NO_COLOR`` set, and on a terminal that calls itself dumb.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

_LOG_FROM = 8
BARS = " ▁▂▃▄▅▆▇█"


def escaped(text: str) -> str:
    r"""The text with everything that is not plainly printable written as an escape.

    >>> escaped("a\x1b[2Jb\nc\u202ed ε")
    'a\\x1b[2Jb\\nc\\u202ed ε'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def quoted(name: str) -> str:
    """An escaped name in quotes, for messages."""
    return f"'{escaped(name)}'"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> width_of("ε窓")
    3
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, width: int) -> str:
    """The text, shortened in its middle to a width.

    >>> cut("readings of the north wing", 13)
    'readin…h wing'
    """
    if width_of(text) <= width:
        return text
    head = (width - 1) // 2
    tail = width - 1 - head
    short = f"{text[:head]}…{text[len(text) - tail :]}"
    while width_of(short) > width:  # wide characters take more than they count
        short = short[:-2] + short[-1] if short[-1] == "…" else short[:-1]
    return short


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """The text filled with spaces to a width."""
    space = " " * max(width - width_of(text), 0)
    return space + text if is_right else text + space


def table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str, gap: int = 2) -> str:
    """Rows under a head; `align` has ``<`` or ``>`` for each column.

    >>> print(table(["page", "reads"], [["a", "12"], ["b", "7"]], "<>"))
    page  reads
    ───────────
    a        12
    b         7
    """
    widths = [max(width_of(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = [
        (" " * gap)
        .join(
            padded(cell, width, is_right=side == ">")
            for cell, width, side in zip(row, widths, align, strict=True)
        )
        .rstrip()
        for row in [head, *rows]
    ]
    rule = "─" * (sum(widths) + gap * (len(widths) - 1))
    return "\n".join([lines[0], rule, *lines[1:]])


def spark(values: Sequence[float | None], top: float | None = None) -> str:
    """A line of bars, one for each value; a dot where there is no value.

    >>> spark([0, 1, None, 4, 8])
    '▁▁·▄█'
    """
    most = top or max((v for v in values if v), default=0) or 1
    return "".join("·" if v is None else _bar(v / most) for v in values)


def _bar(share: float) -> str:
    return BARS[min(max(round(share * 8), 1), 8)]


def wrapped(items: Sequence[str], width: int) -> str:
    """Items with space between them, on as many lines as they need.

    >>> print(wrapped(["■ visited", "· not yet", "▨ read"], 24))
    ■ visited   · not yet
    ▨ read
    """
    lines: list[str] = []
    for item in items:
        if lines and width_of(lines[-1]) + 3 + width_of(item) <= width:
            lines[-1] += f"   {item}"
        else:
            lines.append(item)
    return "\n".join(lines)


def plot(labels: Sequence[str], series: Mapping[str, Sequence[float]], height: int = 12) -> str:
    """Points over labels, one letter for each series; a later series hides an earlier one.

    The axis is logarithmic where the largest is many times the smallest.

    >>> print(plot(["2", "4", "8"], {"G": [9, 5, 3], "A": [5, 3, 3]}, height=3))
    9 ┤   G
    6 ┤   A   G
    3 ┤       A   A
      └────────────
          2   4   8
    """
    values = [value for line in series.values() for value in line]
    low, high = min(values), max(values)
    is_log = low > 0 and high > _LOG_FROM * low
    height = max(min(height, round(high - low) + 1), 2)
    wide = max(max(map(len, labels), default=0), 2) + 2
    grid = [[" "] * (wide * len(labels)) for _ in range(height)]
    for letter, line in series.items():
        for at, value in enumerate(line):
            share = _share(value, low, high, is_log=is_log)
            grid[height - 1 - round(share * (height - 1))][at * wide + wide - 1] = letter
    steps = [1 - row / (height - 1) for row in range(height)]
    marks = [
        f"{low * (high / low) ** step if is_log else low + (high - low) * step:,.0f}"
        for step in steps
    ]
    axis = max(map(len, marks))
    lines = [
        f"{mark:>{axis}} ┤{''.join(row)}".rstrip() for mark, row in zip(marks, grid, strict=True)
    ]
    foot = "".join(f"{label:>{wide}}" for label in labels)
    return "\n".join([*lines, f"{'':{axis}} └{'─' * len(foot)}", f"{'':{axis}}  {foot}"])


def _share(value: float, low: float, high: float, *, is_log: bool) -> float:
    """How far up a value stands between the lowest and the highest."""
    if high <= low:
        return 0
    return log(value / low) / log(high / low) if is_log else (value - low) / (high - low)


def seconds(ns: int) -> str:
    """A time as people read it.

    >>> [seconds(n) for n in (850, 12_345, 999_900_000, 61_000_000_000)]
    ['850 ns', '12.3 µs', '0.9999 s', '61 s']
    """
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if abs(ns) < 999.5 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 10**9:.4g} s"


def percent(part: float, whole: float) -> str:
    """A share; a dash where there is no whole.

    >>> percent(1, 3), percent(0, 0)
    ('33.3%', '–')
    """
    return f"{100 * part / whole:.1f}%" if whole else "–"


@dataclass(frozen=True, slots=True)
class Ink:
    """Colour for a terminal, or none.  The colours are told apart by all common kinds of sight."""

    is_on: bool

    @classmethod
    def for_stdout(cls) -> Ink:
        """Colour where a person looks at a terminal that has it and did not say no."""
        is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(is_wanted and sys.stdout.isatty())

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour: blue, orange, grey or bold."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.is_on else text


_CODES = {"blue": "38;5;33", "orange": "38;5;208", "grey": "38;5;245", "bold": "1"}
