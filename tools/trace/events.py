"""A trace as arrays, and the walks over pairs of pages in it.

    table ──▶ Events   one array a column, names as numbers          no Python for single events
                │
                └─▶ walks()   a Walked for each `plan`:

    … plan  fetch read visit fetch visited … walked …  plan …
      └────────── the events of walk 0 ───────────┘    └─ walk 1
      └ JSON: pages of both sides, in the matrix's order, and which of them meet

The pages of a walk are *nodes*, as in the scheduler: left page i is node i, right page j is node
``left_count + j``; in a self-join page i is node i on either side.

Nothing in the file is trusted: a trace may have been written by another program, or by somebody who
means harm.  What can be shown is shown; a plan that makes no sense is a `StoreError` that names the
file and the event.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.scheduler import Reach
from matwin.storage.errors import InputError, StoreError
from matwin.storage.trace import EVENTS, SCHEMA, read_trace

from .text import escaped, quoted

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

KIND = {name: number for number, name in enumerate(EVENTS)}
UNKNOWN = -1
NOBODY = -1


@dataclass(frozen=True, eq=False)
class Events:
    """The columns of a trace.  Windows are numbers into `names`, kinds numbers into `EVENTS`.

    An event's *place* is its row; `seq` is what the file calls it.
    """

    table: pa.Table
    source: str = "the trace"

    @classmethod
    def open(cls, path: str | Path) -> Events:
        """The events of a trace file, whole and checked; `StoreError` for any other file."""
        shown = escaped(str(path))
        try:
            table = read_trace(Path(path))
            table.validate(full=True)
        except StoreError as e:
            raise StoreError(escaped(str(e))) from e
        except (pa.ArrowException, ValueError, MemoryError) as e:
            raise StoreError(f"{shown} is a damaged trace: {escaped(str(e))}") from e
        return cls(table, shown)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def settings(self) -> dict[str, str]:
        """What the file's schema says: page_size, budget_bytes, file."""
        found = self.table.schema.metadata or {}
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in found.items()}

    def setting(self, name: str) -> int | None:
        """A setting that is a whole number; None where it is missing or is none."""
        text = self.settings.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    @cached_property
    def seq(self) -> Int64s:
        """The number that the file gives each event."""
        return self._ints("seq")

    @cached_property
    def time_ns(self) -> Int64s:
        """When, since the trace began."""
        return self._ints("time_ns")

    @cached_property
    def page(self) -> Int64s:
        """The page's number in its window, -1 for none."""
        return self._ints("page")

    @cached_property
    def frame(self) -> Int64s:
        """The frame's number, -1 for none."""
        return self._ints("frame")

    @cached_property
    def size(self) -> Int64s:
        """Bytes of the page."""
        return self._ints("bytes")

    @cached_property
    def epoch(self) -> Int64s:
        """The last completed step."""
        return self._ints("epoch")

    @cached_property
    def mate_page(self) -> Int64s:
        """The other page's number, -1 for none."""
        return self._ints("mate_page")

    @cached_property
    def kind(self) -> Int64s:
        """What happened, as a number into `EVENTS`; UNKNOWN for a word that we don't know."""
        codes, words = _coded(self.table["event"])
        return np.array([KIND.get(word, UNKNOWN) for word in words] or [UNKNOWN])[codes]

    @cached_property
    def _windows(self) -> tuple[Int64s, Int64s, list[str]]:
        codes, names = _coded(self.table["window"])
        mates, mate_names = _coded(self.table["mate_window"])
        every = list(dict.fromkeys([*names, *mate_names]))
        number = {name: at for at, name in enumerate(every)}
        lookup = np.array([number[name] for name in names] or [0])
        mate_lookup = np.array([number[name] for name in mate_names] or [0])
        return lookup[codes], mate_lookup[mates], every

    @property
    def window(self) -> Int64s:
        """The page's window, as a number into `names`."""
        return self._windows[0]

    @property
    def mate_window(self) -> Int64s:
        """The other page's window, as a number into `names`."""
        return self._windows[1]

    @property
    def names(self) -> list[str]:
        """The windows' names, as they are: escape them before they are shown."""
        return self._windows[2]

    def why(self, place: int) -> str:
        """The reason of one event."""
        return self.table["why"][place].as_py() or ""

    def whys(self, places: Int64s | Bools) -> list[str]:
        """The reasons of some events."""
        places = np.flatnonzero(places) if places.dtype == np.bool_ else places
        found = self.table["why"].take(pa.array(places))
        return [text or "" for text in found.to_pylist()]

    def of_kind(self, *kinds: str) -> Bools:
        """Which events are of these kinds."""
        mask: Bools = self.kind == KIND[kinds[0]]
        for kind in kinds[1:]:
            mask |= self.kind == KIND[kind]
        return mask

    def places_of(self, *kinds: str) -> Int64s:
        """Where the events of these kinds are."""
        return np.flatnonzero(self.of_kind(*kinds))

    @cached_property
    def identity(self) -> Int64s:
        """A number for each (window, page): the same page, the same number; NOBODY without a page.

        Numbers count up in the order of window and page; `identities` tells them back.
        """
        return self._identified[0]

    @cached_property
    def mate_identity(self) -> Int64s:
        """The same for mates."""
        return self._identified[1]

    @cached_property
    def identities(self) -> tuple[Int64s, Int64s]:
        """The window and the page of each identity."""
        return self._identified[2], self._identified[3]

    @cached_property
    def _identified(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        windows = np.concatenate((self.window, self.mate_window))
        pages = np.concatenate((self.page, self.mate_page))
        has_page = pages >= 0
        numbers, at = np.unique(pages[has_page], return_inverse=True)
        keys = windows[has_page] * max(len(numbers), 1) + at
        found, identity = np.unique(keys, return_inverse=True)
        every = np.full(len(pages), NOBODY)
        every[has_page] = identity
        count = len(self)
        return (
            every[:count],
            every[count:],
            found // max(len(numbers), 1),
            numbers[found % max(len(numbers), 1)] if len(numbers) else np.zeros(0, np.int64),
        )

    @cached_property
    def is_reread(self) -> Bools:
        """Which events are reads of a page that was read before in this trace.

        That is the meaning of a re-read everywhere: reads beyond the first read of the page.  A
        page that was made here and left its frame has its first read when it comes back.
        """
        mask = np.zeros(len(self), bool)
        reads = self.places_of("read")
        _, first = np.unique(self.identity[reads], return_index=True)
        mask[reads] = True
        mask[reads[first]] = False
        return mask

    def window_number(self, name: str) -> int:
        """The window with this name, or whose name is shown like this."""
        for at, found in enumerate(self.names):
            if found == name:
                return at
        for at, found in enumerate(self.names):
            if escaped(found) == name:
                return at
        known = ", ".join(quoted(n) for n in self.names if n) or "none"
        raise InputError(f"{self.source} has no window {quoted(name)}; its windows are {known}")

    def _ints(self, name: str) -> Int64s:
        column = self.table[name]
        if column.null_count:
            column = pc.fill_null(column, -1)
        values = column.to_numpy() if column.num_chunks else np.zeros(0)
        return values.astype(np.int64, copy=False)


def _coded(column: pa.ChunkedArray) -> tuple[Int64s, list[str]]:
    """A dictionary column as numbers and the words that they mean; null is the empty word."""
    if not len(column):
        return np.zeros(0, np.int64), []
    merged = column.unify_dictionaries().combine_chunks()
    chunks = merged.chunks if isinstance(merged, pa.ChunkedArray) else [merged]
    words = [word or "" for word in chunks[0].dictionary.to_pylist()]
    indices = [pc.fill_null(chunk.indices, len(words)).to_numpy() for chunk in chunks]
    return np.concatenate(indices).astype(np.int64), [*words, ""]


# ── walks ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """One walk over pairs of pages, from its `plan` at place `start` up to, not including, `end`.

    `outcome` is what its `walked` event says: done, or given up; empty when the trace ends first.
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
    is_self: bool
    reach: Reach
    mode: str
    frames: int
    page_reads: int
    explain: str

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
            right = _places(self.right_pages, pages)
            is_right = (windows == _number(events, self.right)) & (right >= 0)
            found[is_right] = self.left_count + right[is_right]
        left = _places(self.left_pages, pages)
        is_left = (windows == _number(events, self.left)) & (left >= 0)
        found[is_left] = left[is_left]
        return found

    def places_of(self, events: Events, *kinds: str) -> Int64s:
        """Where the walk's events of these kinds are, of pages in its layout or without a page."""
        part = events.kind[self.start : self.end]
        mask = np.isin(part, [KIND[kind] for kind in kinds])
        return self.start + np.flatnonzero(mask)

    def visits(self, events: Events) -> tuple[Int64s, Int64s, Int64s]:
        """The place of each visit and its column and row in the matrix, in order."""
        places = self.places_of(events, "visit")
        columns = _places(self.left_pages, events.page[places])
        rows = _places(self.right_pages, events.mate_page[places])
        keep = (
            (columns >= 0)
            & (rows >= 0)
            & (events.window[places] == _number(events, self.left))
            & (events.mate_window[places] == _number(events, self.right))
        )
        return places[keep], columns[keep], rows[keep]

    def uses(self, events: Events, *kinds: str) -> tuple[Int64s, Int64s]:
        """The place and node of each event of these kinds (read, hit, fetch, evict, …)."""
        places = self.places_of(events, *kinds)
        nodes = self.nodes(events, places)
        return places[nodes >= 0], nodes[nodes >= 0]


def walks(events: Events) -> list[Walked]:
    """Every walk of a trace, in order."""
    starts = events.places_of("plan").tolist()
    ends = events.places_of("walked")
    found = []
    for number, (start, following) in enumerate(pairwise([*starts, len(events)])):
        after = ends[np.searchsorted(ends, start) :][:1]
        is_ended = len(after) > 0 and int(after[0]) < following
        end = int(after[0]) + 1 if is_ended else following
        outcome = events.why(end - 1) if is_ended else ""
        found.append(_walked(events, number, start, end, outcome))
    return found


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
    right = left if is_self else _pages(layout, "right", where)
    left_name = events.names[events.window[start]]
    right_name = events.names[events.mate_window[start]]
    return Walked(
        number, int(events.seq[start]), start, end, outcome, left_name,
        left_name if is_self else right_name, left, right, is_self,
        _reach(layout, len(left), len(right), is_self, where),
        str(layout.get("mode", "")), _count(layout, "frames", where),
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
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise StoreError(f"{where}: the plan's {name!r} is no count")
    return value


def _pages(layout: dict[str, Any], name: str, where: str) -> Int64s:
    pages = _whole(layout.get(name, []), 1, f"{where}: the plan's {name!r}")
    if len(pages) and pages.min() < 0:
        raise StoreError(f"{where}: the plan's {name!r} has a negative page number")
    if len(np.unique(pages)) != len(pages):
        raise StoreError(f"{where}: the plan's {name!r} names a page twice")
    return pages


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


def _number(events: Events, name: str) -> int:
    return events.names.index(name)


def _places(pages: Int64s, wanted: Int64s) -> Int64s:
    """Where each wanted page stands among `pages`; NOBODY where it does not."""
    if not len(pages):
        return np.full(len(wanted), NOBODY)
    order = np.argsort(pages, kind="stable")
    at = np.minimum(np.searchsorted(pages, wanted, sorter=order), len(pages) - 1)
    return np.where(pages[order[at]] == wanted, order[at], NOBODY)


def empty() -> pa.Table:
    """A trace without events."""
    return SCHEMA.empty_table()
