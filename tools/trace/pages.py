"""`matwin trace pages`: one line for each page, or the life of one page event by event.

    window    page  made  written  read  again  hits  visits  evicted  end      first     last
    weather      3     1        1     4      3     2       5        5  in file  31.9 ms   432 ms

    page 3 of weather
      event      ms  what  frame  step  why
         13  31.857  make     11     0  slab
         …

The most re-read pages come first: they are what a larger budget or another mode would save.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np

from matwin.storage.errors import InputError
from matwin.storage.trace import EVENTS
from matwin.storage.units import format_size
from matwin.text import cut, escaped, percent, quoted, seconds, table
from matwin.tools.answers import tell_answer

from .arguments import PAGES_SHOWN
from .events import KIND, Events, Int64s

EVENTS_SHOWN = 200
COUNTED = {
    "makes": "make", "writes": "write", "reads": "read", "hits": "hit", "evictions": "evict",
    "drops": "drop", "expiries": "expire",
}  # fmt: skip
TAKES, LEAVES = ("make", "fetch", "read"), ("evict", "drop", "expire")


def run(args: argparse.Namespace) -> int:
    """Print the pages, or the life of one."""
    if args.limit is not None and args.limit < 0:
        raise InputError(f"--limit {args.limit}: give 0 for all, or how many lines to print")
    events = Events.open(args.file)
    window = None if args.window is None else events.window_number(args.window)
    if args.page is None:
        return _print_pages(events, window, args)
    return _print_life(events, page_number(events, window, args.page), args)


def _print_pages(events: Events, window: int | None, args: argparse.Namespace) -> int:
    found = page_table(events, window)
    limit = _limit(args, PAGES_SHOWN)
    tell_answer(
        args, lambda: _listed(events, found, limit), lambda: _pages_text(events, found, limit)
    )
    return 0


def _print_life(events: Events, identity: int, args: argparse.Namespace) -> int:
    places = life(events, identity)
    limit = _limit(args, EVENTS_SHOWN)
    tell_answer(
        args,
        lambda: _told(events, identity, places[:limit]),
        lambda: _life_text(events, identity, places, limit),
    )
    return 0


def _limit(args: argparse.Namespace, usual: int) -> int | None:
    if args.limit is None:
        return None if args.json else usual
    return args.limit or None


# ── all pages ────────────────────────────────────────────────────────────────────────────────


def page_table(events: Events, window: int | None = None) -> dict[str, Int64s]:
    """Counts for each page, as columns; the most re-read first."""
    windows, pages = events.identities
    columns: dict[str, Int64s] = {"window": windows, "page": pages}
    columns |= {name: _count(events, events.of_kind(kind)) for name, kind in COUNTED.items()}
    columns["rereads"] = _count(events, events.is_reread)
    columns["visits"] = _visits(events)
    with_page = np.flatnonzero(events.identity >= 0)
    owners = events.identity[with_page]
    columns["bytes"] = _sizes(events)
    # A page that is only a mate has no event of its own.
    first = np.full(len(pages), len(events))
    first[owners[::-1]] = with_page[::-1]
    last = np.full(len(pages), -1)
    last[owners] = with_page
    keep = last >= 0 if window is None else (last >= 0) & (windows == window)
    times = np.append(events.time_ns, 0)
    columns["first_ns"], columns["last_ns"] = times[first], times[last]
    order = np.lexsort((pages, windows, -columns["hits"], -columns["reads"], -columns["rereads"]))
    order = order[keep[order]]
    return {name: values[order] for name, values in columns.items()}


def _count(events: Events, mask: Any) -> Int64s:
    owners = events.identity[mask]
    return np.bincount(owners[owners >= 0], minlength=len(events.identities[0]))


def _visits(events: Events) -> Int64s:
    """Visits that a page took part in; with itself is one visit."""
    visit = events.of_kind("visit")
    mates = events.mate_identity[visit & (events.mate_identity != events.identity)]
    as_mate = np.bincount(mates[mates >= 0], minlength=len(events.identities[0]))
    return _count(events, visit) + as_mate


def _sizes(events: Events) -> Int64s:
    """The bytes of each page; where a read begins they are not known yet."""
    places = np.flatnonzero((events.identity >= 0) & ~events.of_kind("fetch"))
    largest = np.zeros(len(events.identities[0]), np.int64)
    np.maximum.at(largest, events.identity[places], events.size[places])
    return largest


def _listed(events: Events, found: dict[str, Int64s], limit: int | None) -> list[dict[str, Any]]:
    rows = zip(*(values[:limit].tolist() for values in found.values()), strict=True)
    listed = [dict(zip(found, row, strict=True)) for row in rows]
    return [{**row, "window": events.names[row["window"]]} for row in listed]


def _pages_text(events: Events, found: dict[str, Int64s], limit: int | None) -> str:
    count = len(found["page"])
    if count == 0:
        return f"{events.source}: no pages"
    head = ["window", "page", "made", "written", "read", "again", "hits", "visits", "evicted",
            "end", "bytes", "first", "last"]  # fmt: skip
    rows = [_page_row(row) for row in _listed(events, found, limit)]
    again = int((found["rereads"] > 0).sum())
    lines = [
        f"{count:,} pages; {again:,} were read again, {int(found['rereads'].sum()):,} times in all",
        "",
        table(head, rows, "<" + ">" * 8 + "<" + ">" * 3),
    ]
    if count > len(rows):
        lines.append(f"… and {count - len(rows):,} more; --limit 0 shows all")
    return "\n".join(lines)


def _page_row(row: dict[str, Any]) -> list[str]:
    names = ("makes", "writes", "reads", "rereads", "hits", "visits", "evictions")
    end = "expired" if row["expiries"] else "dropped" if row["drops"] else "kept"
    return [
        cut(escaped(row["window"]), 32),
        str(row["page"]),
        *(f"{row[name]:,}" for name in names),
        end,
        format_size(row["bytes"]),
        seconds(row["first_ns"]),
        seconds(row["last_ns"]),
    ]


# ── one page ─────────────────────────────────────────────────────────────────────────────────


def page_number(events: Events, window: int | None, page: int) -> int:
    """The identity of a page; without a window, of the only one with this number."""
    windows, pages = events.identities
    found = np.flatnonzero(pages == page)
    if window is not None:
        found = found[windows[found] == window]
    if len(found) == 1:
        return int(found[0])
    if len(found) > 1:
        names = ", ".join(quoted(events.names[windows[at]]) for at in found[:8])
        raise InputError(f"page {page} is in the windows {names}; add --window")
    name = "" if window is None else f" of window {quoted(events.names[window])}"
    raise InputError(f"{events.source} has no page {page}{name}; it has {_span(events, window)}")


def _span(events: Events, window: int | None) -> str:
    windows, pages = events.identities
    own = pages if window is None else pages[windows == window]
    return f"the pages {own.min()} to {own.max()}" if len(own) else "no pages"


def life(events: Events, identity: int) -> Int64s:
    """Where the events of a page are, also those in which it is the mate."""
    return np.flatnonzero((events.identity == identity) | (events.mate_identity == identity))


def _told(events: Events, identity: int, places: Int64s) -> list[dict[str, Any]]:
    """The events of a page, each with its reason or its mate."""
    told = []
    for place, why in zip(places.tolist(), events.whys(places), strict=True):
        kind = int(events.kind[place])
        told.append(
            {
                "seq": int(events.seq[place]),
                "time_ns": int(events.time_ns[place]),
                "event": EVENTS[kind] if kind >= 0 else str(events.table["event"][place]),
                "frame": int(events.frame[place]),
                "bytes": int(events.size[place]),
                "epoch": int(events.epoch[place]),
                "again": bool(events.is_reread[place]),
                "why": why,
                "mate": _mate(events, identity, place),
            }
        )
    return told


def _mate(events: Events, identity: int, place: int) -> list[Any] | None:
    """The other page of a visit."""
    if events.mate_identity[place] < 0:
        return None
    if events.mate_identity[place] == identity and events.identity[place] >= 0:
        return [events.names[events.window[place]], int(events.page[place])]
    return [events.names[events.mate_window[place]], int(events.mate_page[place])]


def _life_text(events: Events, identity: int, places: Int64s, limit: int | None) -> str:
    windows, pages = events.identities
    rows = []
    for row in _told(events, identity, places[:limit]):
        mate = f"with {cut(escaped(row['mate'][0]), 32)} {row['mate'][1]}" if row["mate"] else ""
        reasons = ["again" if row["again"] else "", cut(escaped(row["why"]), 100), mate]
        rows.append(
            [
                f"{row['seq']:,}",
                f"{row['time_ns'] / 1e6:,.3f}",
                cut(escaped(row["event"]), 12),
                str(row["frame"]) if row["frame"] >= 0 else "",
                str(row["epoch"]),
                "; ".join(filter(None, reasons)),
            ]
        )
    lines = [
        f"page {pages[identity]} of {escaped(events.names[windows[identity]])}: "
        f"{_story(events, identity, places)}",
        "",
        table(["event", "ms", "what", "frame", "step", "why"], rows, ">><>><"),
    ]
    if len(places) > len(rows):
        lines.append(f"… and {len(places) - len(rows):,} more events; --limit 0 shows all")
    return "\n".join(lines)


def _story(events: Events, identity: int, places: Int64s) -> str:
    own = events.kind[places[events.identity[places] == identity]]
    found = {kind: int((own == KIND[kind]).sum()) for kind in EVENTS}
    again = int(events.is_reread[places].sum())
    visits = int((events.kind[places] == KIND["visit"]).sum())
    inside, whole = _in_frames(events, identity, places)
    parts = [
        _said("made", found["make"]) if found["make"] else "made before the trace",
        _said("written", found["write"]),
        _said("read", found["read"]) + (f" ({again:,} again)" if again else ""),
        _said("hit", found["hit"]),
        f"{visits:,} visit{'' if visits == 1 else 's'}",
        f"in a frame {percent(inside, whole)} of the time",
    ]
    return ", ".join(parts)


def _said(what: str, count: int) -> str:
    often = {1: "once", 2: "twice"}.get(count, f"{count:,} times")
    return f"{what} {often}" if count else f"never {what}"


def _in_frames(events: Events, identity: int, places: Int64s) -> tuple[int, int]:
    """Nanoseconds in frames, and from the page's first event to the end of the trace."""
    own = places[events.identity[places] == identity]
    kinds, times = events.kind[own], events.time_ns[own]
    end = int(events.time_ns[-1])
    takes = np.isin(kinds, [KIND[kind] for kind in TAKES])
    moves = np.flatnonzero(takes | np.isin(kinds, [KIND[kind] for kind in LEAVES]))
    spans = [(int(times[at]), bool(takes[at])) for at in moves] + [(end, False)]
    inside = sum(after - start for (start, is_in), (after, _) in pairwise(spans) if is_in)
    return inside, end - int(times[0]) if len(times) else 0
