"""`matwin trace summary`: what was read, hit, written and given up, in all and over time.

    window     made  written  read  again  hits   rate  evicted  …
    readings      9        9     9      0     0   0.0%        9
    weather      10       10    27     17    11  28.9%       27

The counts are the pool's: an event and a counter are made by the same call.  *Again* are re-reads,
reads beyond the first read of a page.  *Visits* of a window are those that one of its pages took
part in, on either side; a visit is one in the total.  The hit rate is hits / (hits + reads).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.trace import EVENTS
from matwin.storage.units import format_size
from matwin.text import cut, escaped, percent, seconds, spark, table
from matwin.tools.answers import tell_answer

from .epochs import epochs
from .events import KIND, Bools, Events, Int64s, paired
from .walks import CONTESTED, Walked, walks

BUCKETS_MAX = 200
REASONS_SHOWN = 20
EXPIRIES_SHOWN = 8
EPOCHS_SHOWN = 12
COLUMNS_SHOWN = 60
MODES_SHOWN = 12
PLANS_SHOWN = 12
WINDOWS_SHOWN = 40
NAME_WIDTH = 32
COUNTED = {
    "makes": "make", "reads": "read", "hits": "hit", "writes": "write", "evictions": "evict",
    "drops": "drop", "expiries": "expire",
}  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    events = Events.open(args.file)
    summary = summarize(events)
    tell_answer(args, lambda: summary, lambda: "\n\n".join(_shown(events, summary)))
    return 0


# ── counting ─────────────────────────────────────────────────────────────────────────────────


def summarize(events: pa.Table | Events, source: str = "the trace") -> dict[str, Any]:
    """Everything that `matwin trace summary --json` prints."""
    events = events if isinstance(events, Events) else Events(events, source)
    windows = by_window(events)
    totals = _totals(events, windows)
    uses = totals["hits"] + totals["reads"]
    reads = events.identity[events.places_of("read")]
    frames = events.frame[events.frame >= 0]
    return {
        "events": len(events),
        "duration_ns": _duration(events),
        "page_size": events.setting("page_size"),
        "budget_bytes": events.setting("budget_bytes"),
        "file": events.settings.get("file", ""),
        "complete_steps": int(events.of_kind("complete").sum()),
        "epochs": epochs(events),
        "windows": windows,
        "totals": {
            **totals,
            "hit_rate": totals["hits"] / uses if uses else None,
            "pages_read_distinct": len(np.unique(reads)),
            # The pool hands out the lowest free number, so that the numbers seen are the frames
            # that were in use at once.
            "frames_peak": len(np.unique(frames)),
        },
        "unknown_events": int((events.kind < 0).sum()),
        "modes": modes(events),
        "plans": [_plan(events, walk) for walk in walks(events)],
        "choices": _choices(events),
        "expiry_reasons": _reasons(events, "expire"),
        "hit_rate_over_time": over_time(events, BUCKETS_MAX),
    }


def by_window(events: Events) -> dict[str, dict[str, int]]:
    """The counts of each window that has a name or pages."""
    kinds = len(EVENTS) + 1  # the last is for kinds that we don't know
    kind = np.where(events.kind < 0, len(EVENTS), events.kind)
    found = np.bincount(events.window * kinds + kind, minlength=len(events.names) * kinds)
    found = found.reshape(-1, kinds)
    columns: dict[str, npt.NDArray[Any]] = {
        name: found[:, KIND[word]] for name, word in COUNTED.items()
    }
    columns["rereads"] = _per_window(events, events.is_reread)
    for name, word in (("bytes_read", "read"), ("bytes_written", "write")):
        columns[name] = _per_window(events, events.of_kind(word), events.size)
    columns["visits"] = found[:, KIND["visit"]] + _visits_as_mate(events)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    counted = {
        name: dict(zip(columns, map(int, row), strict=True))
        for name, row in zip(events.names, rows, strict=True)
    }
    return {name: count for name, count in counted.items() if name or any(count.values())}


def _per_window(events: Events, mask: Bools, weights: Int64s | None = None) -> npt.NDArray[Any]:
    chosen = None if weights is None else weights[mask]
    return np.bincount(events.window[mask], chosen, minlength=len(events.names))


def _visits_as_mate(events: Events) -> Int64s:
    mask = events.of_kind("visit") & (events.window != events.mate_window)
    return np.bincount(events.mate_window[mask], minlength=len(events.names))


def _totals(events: Events, windows: dict[str, dict[str, int]]) -> dict[str, int]:
    names = (*COUNTED, "rereads", "bytes_read", "bytes_written")
    total = {name: sum(window[name] for window in windows.values()) for name in names}
    return {**total, "visits": int(events.of_kind("visit").sum())}


def modes(events: Events) -> list[dict[str, Any]]:
    """Every change of mode, with its reason."""
    places = events.places_of("mode")
    found = []
    for place, why in zip(places.tolist(), events.whys(places), strict=True):
        mode, _, reason = why.partition(": ")
        at = {"seq": int(events.seq[place]), "time_ns": int(events.time_ns[place])}
        found.append({**at, "mode": mode, "reason": reason})
    return found


def _plan(events: Events, walk: Walked) -> dict[str, Any]:
    reads = walk.uses(events, "read")[0]
    return {
        "seq": walk.seq,
        "time_ns": int(events.time_ns[walk.start]),
        "mode": walk.mode,
        "frames": walk.frames,
        "page_reads": walk.page_reads,
        "reads": len(reads),
        "rereads": int(events.is_reread[reads].sum()),
        "hits": len(walk.uses(events, "hit")[0]),
        "visits": len(walk.visits(events)[0]),
        "pairs": walk.reach.pairs,
        "left": walk.left,
        "right": walk.right,
        "left_pages": walk.left_count,
        "right_pages": walk.right_count,
        "is_self": walk.is_self,
        "outcome": walk.outcome,
        "is_contested": walk.is_contested,
        "duration_ns": int(events.time_ns[walk.end - 1]) - int(events.time_ns[walk.start]),
        "explain": walk.explain,
        "overlap": overlap(events, walk),
    }


def overlap(events: Events, walk: Walked) -> dict[str, int]:
    """How many reads began, and how many of them were under way while a pair was being visited.

    fetch ── read               visit ───── visited
           fetch ──┼─ read        └ overlapped: a visit ran at its beginning, or began before
                 visit              its end
    """
    begun, _ = walk.uses(events, "fetch")
    ended, _ = walk.uses(events, "read")
    begin, end = paired(begun, ended, events.identity)
    started, visited = (walk.places_of(events, kind) for kind in ("visit", "visited"))
    started_then, ended_then = (np.searchsorted(started, places) for places in (begin, end))
    is_running = started_then > np.searchsorted(visited, begin)
    overlapped = is_running | (ended_then > started_then)
    return {"fetches": len(begun), "overlapped": int(overlapped.sum())}


def over_time(events: Events, buckets_max: int) -> list[dict[str, int]]:
    """Hits, reads and bytes in equal stretches of time; `time_ns` is where a stretch begins."""
    if not len(events):
        return []
    duration = _duration(events)
    first = int(events.time_ns.min())
    buckets = max(min(buckets_max, len(events), duration), 1)
    share = (events.time_ns - float(first)) / max(duration, 1)
    bucket = np.clip(share * buckets, 0, buckets - 1).astype(np.int64)
    hits, reads, writes = (events.of_kind(kind) for kind in ("hit", "read", "write"))
    columns = [
        np.bincount(bucket[hits], minlength=buckets),
        np.bincount(bucket[reads], minlength=buckets),
        np.bincount(bucket[reads], events.size[reads], minlength=buckets),
        np.bincount(bucket[writes], events.size[writes], minlength=buckets),
    ]
    names = ("hits", "reads", "bytes_read", "bytes_written")
    return [
        {
            "time_ns": first + duration * at // buckets,
            **dict(zip(names, map(int, row), strict=True)),
        }
        for at, row in enumerate(zip(*columns, strict=True))
    ]


def _choices(events: Events) -> list[dict[str, Any]]:
    places = events.places_of("choose")[:BUCKETS_MAX]
    return [
        {"seq": int(events.seq[at]), "window": events.names[events.window[at]], "why": why}
        for at, why in zip(places.tolist(), events.whys(places), strict=True)
    ]


def _reasons(events: Events, kind: str) -> dict[str, int]:
    """The most frequent reasons of a kind of event, and how many events have another."""
    whys = events.table["why"].filter(pa.array(events.of_kind(kind)))
    found = Counter({row["values"] or "": row["counts"] for row in whys.value_counts().to_pylist()})
    shown = dict(found.most_common(REASONS_SHOWN))
    rest = len(whys) - sum(shown.values())
    return {**shown, "(other reasons)": rest} if rest else shown


def _duration(events: Events) -> int:
    if not len(events):
        return 0
    return int(events.time_ns.max()) - int(events.time_ns.min())


# ── showing ──────────────────────────────────────────────────────────────────────────────────


def _shown(events: Events, summary: dict[str, Any]) -> list[str]:
    parts = [_headline(events.source, summary), window_table(summary)]
    if summary["hit_rate_over_time"]:
        parts.append(_curves(events, summary))
    parts += [
        _epochs(summary["epochs"]),
        _modes(summary["modes"]),
        _plans(summary["plans"]),
        _expiries(summary),
    ]
    return [part for part in parts if part]


def _headline(source: str, summary: dict[str, Any]) -> str:
    page_size, budget = summary["page_size"], summary["budget_bytes"]
    totals = summary["totals"]
    sizes = f"pages of {format_size(page_size)}, " if page_size else ""
    budget_text = f"a budget of {format_size(budget)}, " if budget else ""
    unknown = summary["unknown_events"]
    more = f"\n{unknown:,} events are of a kind that this release does not know" if unknown else ""
    steps = summary["complete_steps"]
    return (
        f"{source}: {summary['events']:,} events in {seconds(summary['duration_ns'])}, "
        f"{steps:,} complete step{'' if steps == 1 else 's'}\n"
        f"{sizes}{budget_text}{totals['frames_peak']:,} frames in use at most; "
        f"page file: {escaped(summary['file']) or 'unknown'}{more}"
    )


def window_table(summary: dict[str, Any]) -> str:
    """What each window did, and all of them."""
    windows = list(summary["windows"].items())
    rows = [_row(cut(escaped(name), NAME_WIDTH), w) for name, w in windows[:WINDOWS_SHOWN]]
    rows.append(_row("all", summary["totals"]))
    head = ["window", "made", "written", "read", "again", "hits", "hit rate", "evicted",
            "dropped", "expired", "visits", "bytes read", "bytes written"]  # fmt: skip
    more = len(windows) - WINDOWS_SHOWN
    text = table(head, rows, "<" + ">" * (len(head) - 1))
    return text + (f"\n… and {more:,} more windows; --json has them all" if more > 0 else "")


def _row(name: str, count: dict[str, int]) -> list[str]:
    keys = ("makes", "writes", "reads", "rereads", "hits")
    later = ("evictions", "drops", "expiries", "visits")
    return [
        name,
        *(f"{count[key]:,}" for key in keys),
        percent(count["hits"], count["hits"] + count["reads"]),
        *(f"{count[key]:,}" for key in later),
        format_size(count["bytes_read"]),
        format_size(count["bytes_written"]),
    ]


def _curves(events: Events, summary: dict[str, Any]) -> str:
    """Bars over time, and the hit rate over page uses: a pause in time hides what came after it."""
    stretches = over_time(events, COLUMNS_SHOWN)
    reads = [stretch["bytes_read"] for stretch in stretches]
    writes = [stretch["bytes_written"] for stretch in stretches]
    rates = [_rate(stretch["hits"], stretch["reads"]) for stretch in stretches]
    uses = _rates_over_uses(events, len(stretches))
    each = summary["duration_ns"] / max(len(stretches), 1)
    lines = [
        f"over time, {seconds(round(each))} a column",
        f"  hit rate       {spark(rates, 1)}  0 to 100%",
        f"  bytes read     {spark(_gaps(reads))}  at most {format_size(max(reads))}",
        f"  bytes written  {spark(_gaps(writes))}  at most {format_size(max(writes))}",
    ]
    if uses:
        count = summary["totals"]["hits"] + summary["totals"]["reads"]
        lines += [
            f"over page uses, {count / len(uses):,.1f} a column",
            f"  hit rate       {spark(uses, 1)}  0 to 100%",
        ]
    return "\n".join(lines)


def _gaps(values: Sequence[int]) -> list[float | None]:
    return [value or None for value in values]


def _rate(hits: int, reads: int) -> float | None:
    return hits / (hits + reads) if hits + reads else None


def _rates_over_uses(events: Events, columns: int) -> list[float]:
    is_hit = events.kind[events.of_kind("hit", "read")] == KIND["hit"]
    if not len(is_hit):
        return []
    pieces = np.array_split(is_hit, min(columns, len(is_hit)))
    return [float(piece.mean()) for piece in pieces]


def _epochs(found: list[dict[str, Any]]) -> str:
    """What each epoch of a continuous query did to pages; the last ones where there are many."""
    if not found:
        return ""
    head = ["epoch", "events", "made", "written", "read", "hits", "expired", "from", "for"]
    names = ("makes", "writes", "reads", "hits", "expiries")
    rows = [
        [
            str(epoch["epoch"]), f"{epoch['end'] - epoch['start'] + 1:,}",
            *(f"{epoch[name]:,}" for name in names),
            seconds(epoch["time_ns"]), seconds(epoch["duration_ns"]),
        ]
        for epoch in found[-EPOCHS_SHOWN:]
    ]  # fmt: skip
    more = len(found) - EPOCHS_SHOWN
    text = table(head, rows, ">" * len(head))
    return text + (f"\n{more:,} epochs before these; --json has them all" if more > 0 else "")


def _modes(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    times = Counter(escaped(mode["mode"]) for mode in found)
    listed = ", ".join(f"{mode} {count:,} times" for mode, count in times.most_common(6))
    lines = [f"modes: {listed}"]
    for mode in found[:MODES_SHOWN]:
        reason = cut(escaped(mode["reason"]), 80)
        lines.append(
            f"  event {mode['seq']:<8} {seconds(mode['time_ns']):>9}  "
            f"{cut(escaped(mode['mode']), 16):<10} {reason}".rstrip()
        )
    if len(found) > MODES_SHOWN:
        lines.append(f"  … and {len(found) - MODES_SHOWN:,} more")
    return "\n".join(lines)


def _plans(plans: list[dict[str, Any]]) -> str:
    if not plans:
        return ""
    head = ["plan", "event", "mode", "pages", "frames", "pairs", "visited", "reads planned",
            "read", "again", "hits", "overlapped", "time", "end"]  # fmt: skip
    rows = [_plan_row(at, plan) for at, plan in enumerate(plans[:PLANS_SHOWN])]
    text = table(head, rows, ">><<" + ">" * (len(head) - 5) + "<")
    more = len(plans) - PLANS_SHOWN
    text += f"\n… and {more:,} more plans; --json has them all" if more > 0 else ""
    return text + (f"\n{CONTESTED}" if any(plan["is_contested"] for plan in plans) else "")


def _plan_row(number: int, plan: dict[str, Any]) -> list[str]:
    left = f"{cut(escaped(plan['left']), 16)} {plan['left_pages']}"
    right = f"{cut(escaped(plan['right']), 16)} {plan['right_pages']}"
    lap = plan["overlap"]
    names = ("frames", "pairs", "visits", "page_reads", "reads", "rereads", "hits")
    return [
        str(number),
        str(plan["seq"]),
        cut(escaped(plan["mode"]), 12),
        f"{left} × itself" if plan["is_self"] else f"{left} × {right}",
        *(f"{plan[name]:,}" for name in names),
        percent(lap["overlapped"], lap["fetches"]),
        seconds(plan["duration_ns"]),
        escaped(plan["outcome"]) or "cut off",
    ]


def _expiries(summary: dict[str, Any]) -> str:
    found = summary["expiry_reasons"]
    if not found:
        return ""
    shown = list(found.items())[:EXPIRIES_SHOWN]
    lines = ["expired pages by reason:"]
    lines += [f"  {count:>8,}  {cut(escaped(why), 80)}" for why, count in shown]
    rest = sum(found.values()) - sum(count for _, count in shown)
    return "\n".join([*lines, f"  {rest:>8,}  for other reasons"] if rest else lines)
