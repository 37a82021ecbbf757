"""`matwin trace matrix`: the pair matrix of a walk, with its loads as in the paper's figures.

Columns are left pages, rows are right pages, and a number says which visit a pair had:

            0    1    2         ▨ the left page was read for this visit
       0  ▨▩1  ▨ 4              ▩ the right page was read for this visit
       1  ▩ 2    5   ▨7         ▩² it was read for the second time
       2  ▩ 3    6    8         ·  within reach, not visited

A load belongs to the first visit after it that uses the page.  A matrix too wide for numbers has
one character for each pair, and a still larger one is reduced to blocks of pairs, whose shade says
how many loads fell into them.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from matwin.scheduler import Reach
from matwin.storage.errors import InputError
from matwin.text import Ink, cut, escaped, padded, table, width_of, wrapped
from matwin.tools.answers import tell_answer

from .events import KIND, Events, Int64s
from .walks import CONTESTED, Walked, walk_number

LEFT_LOAD, RIGHT_LOAD, BOTH_LOADS, AGAIN = "▨", "▩", "▣", "◆"
VISITED, WITHIN_REACH, BEYOND = "■", "·", " "
SHADES = "·░▒▓█"
WIDTH_IN_A_PIPE = 100
WIDTH_MIN = 20
ROWS_MAX = 120
STRETCHES_SHOWN = 16
RESIDENTS_SHOWN = 24
INTERVALS_AT_A_TIME = 1 << 14
LEGEND_NUMBERED = (
    "columns: left pages",
    "rows: right pages",
    "number: order of the visits",
    f"{LEFT_LOAD} left page read for this visit",
    f"{RIGHT_LOAD} right page read for it",
    f"{RIGHT_LOAD}² read for the second time",
    f"{WITHIN_REACH} within reach, not visited",
)
LEGEND_SINGLE = (
    "columns: left pages",
    "rows: right pages",
    "too wide for numbers, so one character a pair",
    f"{VISITED} visited",
    f"{LEFT_LOAD} left page read for it",
    f"{RIGHT_LOAD} right page read",
    f"{BOTH_LOADS} both",
    f"{AGAIN} a page read again",
    f"{WITHIN_REACH} within reach, not visited",
)
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"

NAME_WIDTH = 12


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """What there is to draw: visits in order, and loads with the visit that each belongs to.

    A load whose page was never visited after it belongs to visit -1.  `turn` counts the reads of
    the same page, from 1.
    """

    walk: Walked
    upto: int
    visit_places: Int64s
    columns: Int64s
    rows: Int64s
    load_places: Int64s
    load_nodes: Int64s
    load_visits: Int64s
    load_turns: Int64s

    @property
    def is_left_load(self) -> npt.NDArray[np.bool_]:
        """Which loads are of the pair's left page; only those that belong to a visit."""
        found: npt.NDArray[np.bool_] = (
            self.load_nodes == np.append(self.columns, -1)[self.load_visits]
        )
        return found


def run(args: argparse.Namespace) -> int:
    """Print the matrix."""
    if args.width is not None and args.width < WIDTH_MIN:
        raise InputError(f"--width {args.width}: give at least {WIDTH_MIN} columns")
    events = Events.open(args.file)
    walk = walk_number(events, args.plan)
    width = args.width or shutil.get_terminal_size((WIDTH_IN_A_PIPE, 24)).columns
    drawing = draw(events, walk, _upto(events, walk, args.upto))
    tell_answer(args, lambda: as_json(drawing), lambda: _text(events, drawing, width), indent=None)
    return 0


def _text(events: Events, drawing: Drawing, width: int) -> str:
    picture = _picture(drawing, max(width, WIDTH_MIN), Ink.for_stdout())
    blocks = [_headline(events, drawing), *picture]
    blocks += [_stretches(events, drawing), _residents(events, drawing)]
    return "\n\n".join(block for block in blocks if block)


def as_json(drawing: Drawing) -> dict[str, Any]:
    """The walk, its visits in order as (left page, right page) by place, and its loads."""
    walk = drawing.walk
    loads = zip(
        drawing.load_nodes.tolist(), drawing.load_visits.tolist(), drawing.load_turns.tolist(),
        strict=True,
    )  # fmt: skip
    return {
        "plan": walk.number, "left": walk.left, "right": walk.right, "mode": walk.mode,
        "frames": walk.frames, "pairs_planned": int(walk.reach.pairs),
        "visits": list(zip(drawing.columns.tolist(), drawing.rows.tolist(), strict=True)),
        "loads": [{"page": page, "visit": visit, "turn": turn} for page, visit, turn in loads],
    }  # fmt: skip


def _upto(events: Events, walk: Walked, seq: int | None) -> int:
    """The place after the last event to count."""
    if seq is None:
        return walk.end
    if seq < walk.seq:
        raise InputError(f"--upto {seq}: plan {walk.number} begins at event {walk.seq}")
    inside = events.seq[walk.start : walk.end] <= seq
    return walk.start + int(inside.sum())


# ── what there is to draw ────────────────────────────────────────────────────────────────────


def draw(events: Events, walk: Walked, upto: int) -> Drawing:
    """Visits and loads before place `upto`."""
    places, columns, rows = walk.visits(events)
    keep = places < upto
    places, columns, rows = places[keep], columns[keep], rows[keep]
    load_places, load_nodes = walk.uses(events, "read")
    keep = load_places < upto
    load_places, load_nodes = load_places[keep], load_nodes[keep]
    visits = _visits_of(walk, (places, columns, rows), load_places, load_nodes)
    turns = _turns(events)[load_places]
    return Drawing(
        walk, upto, places, columns, rows, load_places, load_nodes, visits, turns
    )  # fmt: skip


def _visits_of(
    walk: Walked, visits: tuple[Int64s, Int64s, Int64s], load_places: Int64s, load_nodes: Int64s
) -> Int64s:
    """The first visit after each load that uses its page, -1 for none."""
    places, columns, rows = visits
    other = rows if walk.is_self else rows + walk.left_count
    span = int(max(places.max(initial=0), load_places.max(initial=0))) + 1
    keys = np.concatenate((columns, other)) * span + np.concatenate((places, places))
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys, load_nodes * span + load_places, sorter=order)
    found = np.append(order, 0)[at]
    nodes = np.append(np.concatenate((columns, other)), -1)
    is_own = (at < len(keys)) & (nodes[found] == load_nodes)
    return np.where(is_own, found % max(len(places), 1), -1)


def _turns(events: Events) -> Int64s:
    """For each read, the how manieth of its page it is; 0 for other events."""
    turns = np.zeros(len(events), np.int64)
    reads = events.places_of("read")
    order = np.argsort(events.identity[reads], kind="stable")
    pages = events.identity[reads][order]
    starts = np.flatnonzero(np.diff(pages, prepend=-2))
    lengths = np.diff(starts, append=len(pages))
    turns[reads[order]] = np.arange(len(pages)) - np.repeat(starts, lengths) + 1
    return turns


def _headline(events: Events, drawing: Drawing) -> str:
    walk = drawing.walk
    left, right = cut(escaped(walk.left), 32), cut(escaped(walk.right), 32)
    sides = (
        f"{left} with itself, {walk.left_count:,} pages"
        if walk.is_self
        else f"{left} ({walk.left_count:,} pages) × {right} ({walk.right_count:,} pages)"
    )
    again = int((drawing.load_turns > 1).sum())
    lost = int((drawing.load_visits < 0).sum())
    upto = f" up to event {events.seq[drawing.upto - 1]}" if drawing.upto < walk.end else ""
    lines = [
        f"plan {walk.number}, event {walk.seq}: {sides}, {cut(escaped(walk.mode), 16)} "
        f"in {walk.frames:,} frames",
        f"{len(drawing.columns):,} of {walk.reach.pairs:,} pairs visited{upto}, "
        f"{len(drawing.load_places):,} pages read, {again:,} of them again; "
        f"{walk.page_reads:,} reads were planned",
    ]
    if lost:
        lines.append(f"{lost:,} of the reads served no visit after them")
    if walk.is_contested:
        lines.append(CONTESTED)
    return "\n".join(lines)


# ── the picture ──────────────────────────────────────────────────────────────────────────────


def _picture(drawing: Drawing, width: int, ink: Ink) -> list[str]:
    """The matrix as large as the width allows, and its legend."""
    walk = drawing.walk
    if walk.left_count == 0 or walk.right_count == 0:
        return ["the layout has no pairs"]
    room = width - _label_width(walk) - 2
    if walk.right_count > ROWS_MAX or walk.left_count > room:
        return _blocks(drawing, width, ink)
    marks, number = _cell_widths(drawing)
    if walk.left_count * (marks + number + 2) <= room:
        return [_numbered(drawing, marks, number, ink), wrapped(LEGEND_NUMBERED, width)]
    return [_single(drawing, ink), wrapped(LEGEND_SINGLE, width)]


def _labels(walk: Walked) -> list[str]:
    """The rows' pages; with their window's name where there are several."""
    pages = [str(page) for page in walk.right_pages.tolist()]
    if len(walk.right_windows) == 1:
        return pages
    names = [cut(escaped(n), NAME_WIDTH) for n, count in walk.right_windows for _ in range(count)]
    return [f"{name} {page}" for name, page in zip(names, pages, strict=True)]


def _label_width(walk: Walked) -> int:
    return max(map(width_of, _labels(walk)))


def _cell_widths(drawing: Drawing) -> tuple[int, int]:
    """The widths of the loads' marks and of the numbers in a cell."""
    marks = max((width_of(mark) for mark in _marks(drawing).values()), default=0)
    left = len(str(int(drawing.walk.left_pages.max())))
    return max(marks, 1), max(len(str(len(drawing.columns))), left - marks, 1)


def _marks(drawing: Drawing) -> dict[int, str]:
    """The loads' marks for each visit that has any."""
    found: dict[int, str] = {}
    owned = np.flatnonzero(drawing.load_visits >= 0)
    is_left = drawing.is_left_load
    for at in owned[np.argsort(~is_left[owned], kind="stable")].tolist():
        mark = LEFT_LOAD if is_left[at] else RIGHT_LOAD
        visit = int(drawing.load_visits[at])
        found[visit] = found.get(visit, "") + mark + _turn(int(drawing.load_turns[at]))
    return found


def _turn(turn: int) -> str:
    return "" if turn < 2 else "".join(_SUPERSCRIPTS[int(digit)] for digit in str(turn))


def _numbered(drawing: Drawing, marks: int, number: int, ink: Ink) -> str:
    walk = drawing.walk
    grid = _reach_grid(walk.reach)
    loads = _marks(drawing)
    again = set(drawing.load_visits[drawing.load_turns > 1].tolist())
    visit_of = dict(
        zip(zip(drawing.columns.tolist(), drawing.rows.tolist(), strict=True),
            range(len(drawing.columns)), strict=True)
    )  # fmt: skip
    cell = marks + number
    label = _label_width(walk)
    lines = [" " * label + "".join(f"  {page:>{cell}}" for page in walk.left_pages.tolist())]
    for row, page in enumerate(_labels(walk)):
        cells = []
        for column in range(walk.left_count):
            visit = visit_of.get((column, row))
            if visit is None:
                cells.append((WITHIN_REACH if grid[row, column] else BEYOND).rjust(cell))
                continue
            mark = loads.get(visit, "")
            colour = "orange" if visit in again else "blue"
            text = (ink.paint(mark, colour) if mark else "") + " " * (marks - width_of(mark))
            cells.append(f"{text}{visit + 1:>{number}}")
        lines.append(
            (padded(page, label, is_right=True) + "".join(f"  {text}" for text in cells)).rstrip()
        )
    return "\n".join(lines)


def _single(drawing: Drawing, ink: Ink) -> str:
    """One character for each pair."""
    walk = drawing.walk
    grid = np.where(_reach_grid(walk.reach), WITHIN_REACH, BEYOND)
    grid[drawing.rows, drawing.columns] = VISITED
    owned = drawing.load_visits >= 0
    visits, is_left = drawing.load_visits[owned], drawing.is_left_load[owned]
    has_left = np.zeros(len(drawing.columns), bool)
    has_right, is_again = has_left.copy(), has_left.copy()
    has_left[visits[is_left]] = True
    has_right[visits[~is_left]] = True
    is_again[visits[drawing.load_turns[owned] > 1]] = True
    for mark, mask in (
        (LEFT_LOAD, has_left), (RIGHT_LOAD, has_right),
        (BOTH_LOADS, has_left & has_right), (AGAIN, is_again),
    ):  # fmt: skip
        grid[drawing.rows[mask], drawing.columns[mask]] = mark
    label = _label_width(walk)
    lines = [_ruler(walk.left_pages, label)]
    lines += [
        f"{padded(page, label, is_right=True)}  {_painted(''.join(row), ink)}".rstrip()
        for page, row in zip(_labels(walk), grid, strict=True)
    ]
    return "\n".join(lines)


def _ruler(pages: Int64s, label: int) -> str:
    """A page number at every tenth column."""
    line = [" "] * (len(pages) + 20)
    for column in range(0, len(pages), 10):
        for at, digit in enumerate(str(int(pages[column]))[:9]):
            line[column + at] = digit
    return (" " * (label + 2) + "".join(line)).rstrip()


def _painted(text: str, ink: Ink) -> str:
    if not ink.is_on:
        return text
    colours = {LEFT_LOAD: "blue", RIGHT_LOAD: "blue", BOTH_LOADS: "blue", AGAIN: "orange",
               VISITED: "grey", WITHIN_REACH: "grey"}  # fmt: skip
    return "".join(ink.paint(c, colours[c]) if c in colours else c for c in text)


def _reach_grid(reach: Reach) -> npt.NDArray[np.bool_]:
    """Which pairs are within reach; rows are right pages."""
    grid = np.zeros((reach.right_pages + 1, reach.left_pages), np.int64)
    np.add.at(grid, (reach.first, reach.owners), 1)
    np.add.at(grid, (reach.limit, reach.owners), -1)
    return np.cumsum(grid, axis=0)[:-1] > 0


# ── blocks of pairs ──────────────────────────────────────────────────────────────────────────


def _blocks(drawing: Drawing, width: int, ink: Ink) -> list[str]:
    walk = drawing.walk
    room = width - _label_width(walk) - 2
    across = -(-walk.left_count // max(min(room, walk.left_count), 1))
    # A character is about twice as high as wide.
    down = max(2 * across, -(-walk.right_count // ROWS_MAX))
    shape = (-(-walk.right_count // down), -(-walk.left_count // across))
    within = block_pairs(walk.reach, across, down, shape)
    visited = _counted(drawing.rows // down, drawing.columns // across, shape)
    owned = drawing.load_visits >= 0
    at = drawing.load_visits[owned]
    rows, columns = drawing.rows[at] // down, drawing.columns[at] // across
    loads = _counted(rows, columns, shape)
    is_again = drawing.load_turns[owned] > 1
    again = _counted(rows[is_again], columns[is_again], shape)
    most = max(int(loads.max(initial=0)), 1)
    shade = np.minimum(np.ceil(4 * loads / most), 4).astype(int)
    text = np.array(list(SHADES))[shade]
    text[(within > 0) & (visited == 0)] = "○"
    text[within == 0] = BEYOND
    label, labels = _label_width(walk), _labels(walk)
    lines = [_ruler(walk.left_pages[::across], label)]
    for row in range(shape[0]):
        line = "".join(
            ink.paint(c, "orange") if ink.is_on and 2 * again[row, at] > loads[row, at] else c
            for at, c in enumerate(text[row])
        )
        page = padded(labels[row * down], label, is_right=True)
        lines.append(f"{page}  {line}".rstrip())
    legend = [
        f"reduced: a character is {across:,} left × {down:,} right pages",
        f"loads in it, █ for {most:,}: {' '.join(SHADES[1:])}",
        "· visited without a load",
        "○ within reach, not visited",
    ]
    if ink.is_on:
        legend.append("orange: more than half were read again")
    return ["\n".join(lines), wrapped(legend, width)]


def block_pairs(reach: Reach, across: int, down: int, shape: tuple[int, int]) -> Int64s:
    """How many pairs within reach each block has, without listing them."""
    found = np.zeros(shape, np.int64)
    edges = np.minimum(np.arange(shape[0] + 1) * down, reach.right_pages)
    columns = reach.owners // across
    for start in range(0, len(columns), INTERVALS_AT_A_TIME):
        part = slice(start, start + INTERVALS_AT_A_TIME)
        first, limit = (side[part, None].astype(np.int64) for side in (reach.first, reach.limit))
        below = np.clip(edges[None, :], first, limit)
        np.add.at(found.T, columns[part], np.diff(below, axis=1))
    return found


def _counted(rows: Int64s, columns: Int64s, shape: tuple[int, int]) -> Int64s:
    flat = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return flat.reshape(shape)


# ── beside the picture ───────────────────────────────────────────────────────────────────────


def _stretches(events: Events, drawing: Drawing) -> str:
    """In which mode what was visited and read."""
    walk = drawing.walk
    starts = walk.places_of(events, "mode")
    starts = starts[starts < drawing.upto]
    if not len(starts):
        return ""
    edges = np.append(starts, drawing.upto)
    visits = np.searchsorted(drawing.visit_places, edges)
    loads = np.searchsorted(drawing.load_places, edges)
    loads[0] = 0  # what was read ahead of the first visit
    again = np.append(0, np.cumsum(drawing.load_turns > 1))[loads]
    rows = []
    for at, why in enumerate(events.whys(starts[:STRETCHES_SHOWN])):
        mode, _, reason = why.partition(": ")
        count = int(visits[at + 1] - visits[at])
        rows.append(
            [
                cut(escaped(mode), 16),
                str(events.seq[starts[at]]),
                f"{visits[at] + 1:,}–{visits[at + 1]:,}" if count else "",
                f"{loads[at + 1] - loads[at]:,}",
                f"{again[at + 1] - again[at]:,}",
                cut(escaped(reason), 70),
            ]
        )
    text = table(["mode", "event", "visits", "read", "again", "because"], rows, "<>>>><")
    more = len(starts) - len(rows)
    return text + (f"\n… and {more:,} more stretches" if more else "")


def _residents(events: Events, drawing: Drawing) -> str:
    """What was in frames at the end of a part of a walk."""
    walk = drawing.walk
    if drawing.upto >= walk.end:
        return ""
    kinds = events.kind[: drawing.upto]
    coming = [KIND[kind] for kind in ("make", "read", "hit")]
    going = [KIND[kind] for kind in ("evict", "drop", "expire")]
    places = np.flatnonzero(np.isin(kinds, coming + going))
    nodes = walk.nodes(events, places)
    last = np.full(walk.node_count, -1)
    last[nodes[nodes >= 0]] = places[nodes >= 0]
    found = np.flatnonzero((last >= 0) & np.isin(np.append(kinds, -1)[last], coming))
    left = [str(page) for page in walk.left_pages[found[found < walk.left_count]].tolist()]
    labels = _labels(walk)
    right = [labels[at] for at in (found[found >= walk.left_count] - walk.left_count).tolist()]
    sides = [("left", left)] if walk.is_self else [("left", left), ("right", right)]
    return "in frames: " + "; ".join(f"{name} {_some(pages)}" for name, pages in sides)


def _some(pages: list[str]) -> str:
    shown = " ".join(pages[:RESIDENTS_SHOWN]) or "none"
    more = len(pages) - RESIDENTS_SHOWN
    return shown + (f" and {more:,} more" if more > 0 else "")
