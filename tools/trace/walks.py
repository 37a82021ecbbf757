"""The walks over pairs of pages in a trace: a Walked for each `plan`.

    … plan  fetch read visit fetch visited … walked …  plan …
      └────────── the events of walk 0 ───────────┘    └─ walk 1
      └ JSON: pages of both sides, in the matrix's order, and which of them meet

The pages of a walk are *nodes*, as in the scheduler: left page i is node i, right page j is node
``left_count + j``; in a self-join page i is node i on either side.  The right pages may be of
several windows, those of each next to each other: joins of more than two streams have such walks.

Walks over different windows may overlap, and events don't say whose they are.  A `walked` ends the
latest open walk over its pair of windows.  Any other event belongs to the latest open walk that has
its pages, so that none counts twice:

    plan a×b ─────────────────────── walked a×b
      visit a×b   plan c×d ──────────┼───── walked c×d      whoever has the pages
                    visit c×d   visit a×b

Where two open walks have the same page nothing can tell whose it was: they are *contested*, and
what is shown of them says so.

A plan that makes no sense is a `StoreError` that names the file and the event.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from matwin.scheduler import Reach
from matwin.storage.errors import InputError, StoreError
from matwin.text import escaped

from .events import KIND, NOBODY, Bools, Events, Int64s

FRAMES_MAX = 2**30
WINDOWS_MAX = 256
OPEN_MAX = 64  # a hostile trace may open more; each costs a look at all events after it
CONTESTED = (
    "walks overlap: where they have pages in common, their visits and reads can't be told apart, "
    "and count for the later one"
)


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """One walk over pairs of pages, from its `plan` at place `start` up to, not including, `end`.

    `outcome` is what its `walked` event says: done, or given up; empty when the trace ends first.
    `right` names all windows of the right side, `right_windows` each with the count of its pages.
    `owners` has the number of every event's walk, where walks overlap; otherwise it is not needed.
    """

    number: int
    seq: int
    start: int
    end: int
    outcome: str
    left: str
    right: str
    left_pages: Int64s
    right_pages: Int64s
    right_windows: tuple[tuple[str, int], ...]
    is_self: bool
    reach: Reach
    mode: str
    frames: int
    page_reads: int
    explain: str
    owners: Int64s | None = None
    is_contested: bool = False

    @property
    def left_count(self) -> int:
        """How many pages the left side has."""
        return len(self.left_pages)

    @property
    def right_count(self) -> int:
        """How many pages the right side has; those of the left side in a self-join."""
        return len(self.right_pages)

    @property
    def node_count(self) -> int:
        """How many pages there are."""
        return self.left_count if self.is_self else self.left_count + self.right_count

    @property
    def pages_needed(self) -> int:
        """How many pages meet another at all: no schedule reads fewer."""
        reach = self.reach
        has_left = np.diff(reach.starts) > 0
        edges = np.zeros(reach.right_pages + 1, np.int64)
        np.add.at(edges, reach.first, 1)
        np.add.at(edges, reach.limit, -1)
        has_right = np.cumsum(edges)[:-1] > 0
        if self.is_self:
            return int((has_left | has_right).sum())
        return int(has_left.sum()) + int(has_right.sum())

    @property
    def triples(self) -> list[tuple[int, int, int]]:
        """The reach as ``(left, first, limit)``."""
        return self.reach.triples()

    def nodes(self, events: Events, places: Int64s) -> Int64s:
        """The node of each event's page; NOBODY for pages that are not in the layout.

        Where both sides are one window, a page of both counts as left.
        """
        windows, pages = events.window[places], events.page[places]
        found = np.full(len(places), NOBODY)
        if not self.is_self:
            right = self._rows(events, windows, pages)
            found[right >= 0] = self.left_count + right[right >= 0]
        left = _places(self.left_pages, pages)
        is_left = (windows == _number(events, self.left)) & (left >= 0)
        found[is_left] = left[is_left]
        return found

    def places_of(self, events: Events, *kinds: str) -> Int64s:
        """Where the walk's events of these kinds are, of pages in its layout or without a page."""
        mask = _is_any(events.kind[self.start : self.end], *kinds)
        if self.owners is not None:
            mask &= self.owners[self.start : self.end] == self.number
        return self.start + np.flatnonzero(mask)

    def part(self, events: Events) -> Bools:
        """Which events are between its beginning and its end, and are no other walk's."""
        mask = np.zeros(len(events), bool)
        mask[self.start : self.end] = True
        if self.owners is not None:
            mask &= (self.owners == self.number) | (self.owners == NOBODY)
        return mask

    def fits(self, events: Events) -> Bools:
        """Which of the events from `start` to `end` could be its own, by their windows and pages.

        The `plan` and `walked` of any walk are left out.
        """
        places = np.arange(self.start, self.end)
        kinds = events.kind[places]
        is_visit, is_mode = _is_any(kinds, "visit", "visited"), _is_any(kinds, "mode")
        found = (self.nodes(events, places) >= 0) & ~_is_any(kinds, "plan", "walked")
        found[is_visit] = self._cells(events, places[is_visit])[0]
        found[is_mode] = _is_pair(events, places[is_mode], self.start)
        return found

    def visits(self, events: Events) -> tuple[Int64s, Int64s, Int64s]:
        """The place of each visit and its column and row in the matrix, in order."""
        places = self.places_of(events, "visit")
        keep, columns, rows = self._cells(events, places)
        return places[keep], columns[keep], rows[keep]

    def _cells(self, events: Events, places: Int64s) -> tuple[Bools, Int64s, Int64s]:
        """Which visits are of pairs in the layout, and their columns and rows."""
        columns = _places(self.left_pages, events.page[places])
        rows = self._rows(events, events.mate_window[places], events.mate_page[places])
        is_left = events.window[places] == _number(events, self.left)
        return (columns >= 0) & (rows >= 0) & is_left, columns, rows

    def _rows(self, events: Events, windows: Int64s, pages: Int64s) -> Int64s:
        """The matrix's row of each page; NOBODY for pages that are not on the right side."""
        found = np.full(len(pages), NOBODY)
        start = 0
        for name, count in self.right_windows:
            own = _places(self.right_pages[start : start + count], pages)
            is_own = (windows == _number(events, name)) & (own >= 0)
            found[is_own] = start + own[is_own]
            start += count
        return found

    def uses(self, events: Events, *kinds: str) -> tuple[Int64s, Int64s]:
        """The place and node of each event of these kinds (read, hit, fetch, evict, …)."""
        places = self.places_of(events, *kinds)
        nodes = self.nodes(events, places)
        return places[nodes >= 0], nodes[nodes >= 0]


def walks(events: Events) -> list[Walked]:
    """Every walk of a trace, in order."""
    found = [
        _walked(events, number, start, end, outcome)
        for number, (start, end, outcome) in enumerate(_extents(events))
    ]
    is_overlapping = any(later.start < walk.end for walk, later in pairwise(found))
    return _owned(events, found) if is_overlapping else found


def _extents(events: Events) -> list[tuple[int, int, str]]:
    """Where each walk begins and ends, and its outcome.

    A walk without an end of its own goes on to the next plan over its windows, or to the end.
    """
    starts: list[int] = events.places_of("plan").tolist()
    ends: dict[int, int] = {}
    given_up: dict[int, int] = {}
    still_open: list[int] = []
    for place in events.places_of("plan", "walked").tolist():
        if events.kind[place] == KIND["plan"]:
            still_open.append(place)
            if len(still_open) > OPEN_MAX:
                given_up[still_open.pop(0)] = place
            continue
        own = [start for start in still_open if _is_pair(events, start, place)]
        if own:
            ends[own[-1]] = place
            still_open.remove(own[-1])
    following: dict[tuple[int, int], int] = {}
    found = []
    for start in reversed(starts):
        pair = (int(events.window[start]), int(events.mate_window[start]))
        if start in ends:
            found.append((start, ends[start] + 1, events.why(ends[start])))
        else:
            limit = given_up.get(start, len(events))
            found.append((start, min(limit, following.get(pair, limit)), ""))
        following[pair] = start
    return found[::-1]


def _owned(events: Events, found: list[Walked]) -> list[Walked]:
    """The same walks, with every event given to the latest open walk that it fits."""
    owners = np.full(len(events), NOBODY)
    contested: set[int] = set()
    for walk in found:
        part, fits = owners[walk.start : walk.end], walk.fits(events)
        others = np.unique(part[fits & (part != NOBODY)]).tolist()
        contested.update([walk.number, *others] if others else [])
        part[fits] = walk.number
    return [replace(walk, owners=owners, is_contested=walk.number in contested) for walk in found]


def walk_number(events: Events, number: int) -> Walked:
    """One walk of a trace; an error that says which there are."""
    every = walks(events)
    if not every:
        raise InputError(
            f"{events.source} has no plan: nothing in it was read by a schedule; "
            "`matwin trace summary` and `matwin trace pages` show what it has"
        )
    if not 0 <= number < len(every):
        raise InputError(
            f"{events.source} has the plans 0 to {len(every) - 1}; there is no plan {number}"
        )
    return every[number]


def _walked(events: Events, number: int, start: int, end: int, outcome: str) -> Walked:
    where = f"{events.source}, event {events.seq[start]}"
    layout = _layout(events.why(start), where)
    is_self = layout.get("is_self") is True
    left = _pages(layout, "left", where)
    _check_once(left, "left", where)
    left_name = events.names[events.window[start]]
    right_name = events.names[events.mate_window[start]]
    right = left if is_self else _pages(layout, "right", where)
    one = (left_name if is_self else right_name, len(right))
    rights = (one,) if is_self else _windows(layout, one, where)
    _check_windows(right, rights, where)
    return Walked(
        number, int(events.seq[start]), start, end, outcome, left_name,
        ", ".join(dict.fromkeys(name for name, _ in rights)), left, right, rights, is_self,
        _reach(layout, len(left), len(right), is_self, where),
        str(layout.get("mode", "")), _frames(layout, where),
        _count(layout, "page_reads", where), str(layout.get("explain", "")),
    )  # fmt: skip


def _layout(text: str, where: str) -> dict[str, Any]:
    try:
        layout = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise StoreError(f"{where}: the plan's layout is no JSON: {escaped(str(e))}") from e
    if not isinstance(layout, dict):
        raise StoreError(f"{where}: the plan's layout is no JSON object")
    return layout


def _count(layout: dict[str, Any], name: str, where: str) -> int:
    value = layout.get(name, 0)
    if not _is_count(value):
        raise StoreError(f"{where}: the plan's {name!r} is no count")
    return int(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _frames(layout: dict[str, Any], where: str) -> int:
    frames = _count(layout, "frames", where)
    if frames > FRAMES_MAX:
        raise StoreError(
            f"{where}: the plan's 'frames' is {frames:,}; no plan has more than {FRAMES_MAX:,}"
        )
    return frames


def _pages(layout: dict[str, Any], name: str, where: str) -> Int64s:
    pages = _whole(layout.get(name, []), 1, f"{where}: the plan's {name!r}")
    if len(pages) and pages.min() < 0:
        raise StoreError(f"{where}: the plan's {name!r} has a negative page number")
    return pages


def _check_once(pages: Int64s, name: str, where: str) -> None:
    if len(np.unique(pages)) != len(pages):
        raise StoreError(f"{where}: the plan's {name!r} names a page twice")


def _windows(
    layout: dict[str, Any], one: tuple[str, int], where: str
) -> tuple[tuple[str, int], ...]:
    """The windows of the right side and how many pages of each follow; all of one by default."""
    given = layout.get("right_windows", [])
    if given == []:
        return (one,)
    wrong = StoreError(f"{where}: the plan's 'right_windows' is no list of [name, pages]")
    if not isinstance(given, list) or len(given) > WINDOWS_MAX:
        raise wrong
    for entry in given:
        is_pair = isinstance(entry, list) and len(entry) == 2
        if not is_pair or not isinstance(entry[0], str) or not _is_count(entry[1]):
            raise wrong
    return tuple((name, count) for name, count in given)


def _check_windows(pages: Int64s, windows: tuple[tuple[str, int], ...], where: str) -> None:
    if sum(count for _, count in windows) != len(pages):
        raise StoreError(f"{where}: the plan's 'right_windows' have other pages than its 'right'")
    start = 0
    for _, count in windows:
        _check_once(pages[start : start + count], "right", where)
        start += count


def _reach(layout: dict[str, Any], lefts: int, rights: int, is_self: bool, where: str) -> Reach:
    triples = _whole(layout.get("reach", []), 2, f"{where}: the plan's 'reach'").reshape(-1, 3)
    owners = triples[:, 0]
    if len(owners) and (owners.min() < 0 or owners.max() >= lefts):
        raise StoreError(f"{where}: the plan's 'reach' names a left page that is not there")
    try:
        return Reach.from_intervals(owners, triples[:, 1:], lefts, rights, is_self=is_self)
    except InputError as e:
        raise StoreError(f"{where}: {e}") from e


def _whole(value: Any, dimensions: int, what: str) -> Int64s:
    """An array of whole numbers: a list of pages, or a list of triples."""
    if value == []:
        return np.zeros(0, np.int64)
    try:
        found = np.array(value)
    except (ValueError, OverflowError, RecursionError) as e:
        raise StoreError(f"{what} is no list of whole numbers") from e
    is_right = found.dtype == np.int64 and found.ndim == dimensions
    if not is_right or (dimensions == 2 and found.shape[1] != 3):
        kind = "whole numbers" if dimensions == 1 else "[left, first, limit]"
        raise StoreError(f"{what} is no list of {kind}")
    return found


def _is_any(kinds: Int64s, *wanted: str) -> Bools:
    return np.isin(kinds, [KIND[kind] for kind in wanted])


def _is_pair(events: Events, places: Any, other: int) -> Any:
    """Whether events name the same pair of windows as another event."""
    return (events.window[places] == events.window[other]) & (
        events.mate_window[places] == events.mate_window[other]
    )


def _number(events: Events, name: str) -> int:
    """A window's number; one that nothing has where no event names it."""
    return events.names.index(name) if name in events.names else NOBODY - 1


def _places(pages: Int64s, wanted: Int64s) -> Int64s:
    """Where each wanted page stands among `pages`; NOBODY where it does not."""
    if not len(pages):
        return np.full(len(wanted), NOBODY)
    order = np.argsort(pages, kind="stable")
    at = np.minimum(np.searchsorted(pages, wanted, sorter=order), len(pages) - 1)
    return np.where(pages[order[at]] == wanted, order[at], NOBODY)
