"""A table in a terminal's width, of which no cell loses what tells it from the others.

    fits                      as it is
    a little too wide         long texts are cut in the middle, never numbers and never times, and
                              never so far that two of a column look alike
    far too wide              columns in blocks under one another; beyond a few blocks their names

Terminals have 80 columns, or 200; a share of the width for every column, as before, cut times at 80
and left half of the line empty at 200.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .text import Ink, cut, table, width_of

GAP = 2
TEXT_MIN = 12
BLOCKS_MAX = 4
NAMED_MAX = 20
_FRACTION = re.compile(r"(.*)\.(\d+)(Z?)", re.DOTALL)


def fitted(
    head: Sequence[str],
    columns: Sequence[Sequence[str]],
    kinds: Sequence[str],
    width: int,
    ink: Ink | None = None,
) -> str:
    """The table; `kinds` has text, time or number for each column.

    >>> print(fitted(["t", "note"], [["1", "20"], ["the north wing", "-"]], ["number", "text"], 16))
     t  note
    ────────────────
     1  the n…h wing
    20  -
    """
    widths = widths_of(head, columns, kinds, width)
    blocks = list(_blocks(widths, width))
    texts = [_text(head, columns, kinds, widths, block, ink) for block in blocks[:BLOCKS_MAX]]
    left_out = [head[at] for block in blocks[BLOCKS_MAX:] for at in block]
    if left_out:
        texts.append(_named(left_out))
    return "\n\n".join(texts)


def widths_of(
    head: Sequence[str], columns: Sequence[Sequence[str]], kinds: Sequence[str], width: int
) -> list[int]:
    """How wide each column is to be."""
    natural = [
        max(map(width_of, (name, *cells))) for name, cells in zip(head, columns, strict=True)
    ]
    least = [
        min(_least(name, cells, kind), whole, width)
        for name, cells, kind, whole in zip(head, columns, kinds, natural, strict=True)
    ]
    # The largest limit for long columns with which all of them fit; they keep what they need.
    low, high = 0, width
    while low < high:
        limit = (low + high + 1) // 2
        if _total(_limited(natural, least, limit)) <= width:
            low = limit
        else:
            high = limit - 1
    return _limited(natural, least, low)


def _limited(natural: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    return [max(min(whole, limit), few) for whole, few in zip(natural, least, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least(name: str, cells: Sequence[str], kind: str) -> int:
    """What a column needs: a number and a time all of it, a text enough to tell it from others."""
    whole = max(map(width_of, cells), default=0)
    named = min(width_of(name), TEXT_MIN)
    if kind != "text":
        return max(whole, named)
    distinct = len(set(cells))
    few = TEXT_MIN
    while few < whole and len({cut(cell, few) for cell in cells}) < distinct:
        few += max(few // 4, 1)
    return max(min(few, whole), named)


def _blocks(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """The columns that stand beside one another."""
    block: list[int] = []
    for at in range(len(widths)):
        if block and _total([widths[other] for other in (*block, at)]) > width:
            yield block
            block = []
        block.append(at)
    if block:
        yield block


def _text(
    head: Sequence[str],
    columns: Sequence[Sequence[str]],
    kinds: Sequence[str],
    widths: Sequence[int],
    block: Sequence[int],
    ink: Ink | None,
) -> str:
    names = [cut(head[at], widths[at]) for at in block]
    cells = [[cut(cell, widths[at]) for cell in columns[at]] for at in block]
    align = "".join(">" if kinds[at] == "number" else "<" for at in block)
    text = table(names, list(zip(*cells, strict=True)), align, GAP)
    if ink is None or not ink.is_on:
        return text
    first, rest = text.split("\n", 1)
    return f"{ink.paint(first, 'bold')}\n{rest}"


def _named(names: Sequence[str]) -> str:
    more = f", … {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    listed = ", ".join(cut(name, TEXT_MIN * 2) for name in names[:NAMED_MAX])
    return f"… and {len(names):,} more column{'s' if len(names) > 1 else ''}: {listed}{more}"


def shorter_times(cells: Sequence[str]) -> list[str]:
    """Times without the zeros that all of them end in.

    >>> shorter_times(["2024-01-01 10:00:00.000000", "null", "2024-01-01 10:00:00.250000"])
    ['2024-01-01 10:00:00.00', 'null', '2024-01-01 10:00:00.25']
    >>> shorter_times(["10:00:00.000Z"])
    ['10:00:00Z']
    """
    matches = [_FRACTION.fullmatch(cell) for cell in cells]
    digits = max((len(match[2].rstrip("0")) for match in matches if match), default=0)
    return [
        cell if match is None else f"{match[1]}{'.' if digits else ''}{match[2][:digits]}{match[3]}"
        for cell, match in zip(cells, matches, strict=True)
    ]
