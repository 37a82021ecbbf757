"""Traces for the inspector's tests: of a real walk, of the paper's figures, of a million events.

A real walk reads ahead in a thread of its own, so that the order of its events and even the number
of its reads may change from run to run.  Where a test needs them fixed, it takes a scripted trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from matwin.scheduler import Walk, plan
from matwin.storage import Store
from matwin.storage.trace import EVENTS, SCHEMA, TRACE_VERSION, TraceFile

ROWS = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("name", pa.string())])
LEFT, RIGHT = "readings", "weather"
Load = tuple[str, int, "tuple[str, int] | None", list[tuple[int, int]]]


def rows(count: int) -> pa.RecordBatch:
    """Rows in order of `t`."""
    t = np.arange(count)
    return pa.record_batch([t, (t % 13) / 13, [f"row {i}" for i in range(count)]], schema=ROWS)


def walked(
    folder: Path,
    *,
    names: Sequence[str] = (LEFT, RIGHT),
    mode: str = "crabstep",
    pages: int = 7,
    frames: int = 4,
) -> tuple[Path, dict[str, int]]:
    """The trace of a real walk over a store in the folder, and the pool's counters.

    With one name it is a self-join.  The page file is beside the trace, as ``pages``.
    """
    trace = folder / "walk.trace"
    with Store(folder / "pages", memory=64 * 4096, page_size=4096, trace=trace) as store:
        refs = []
        for name in names:
            window = store.window(name, ROWS, on={"t": 100, "x": 0.5}, materialize="slab")
            window.append(rows(150 * pages))
            window.expire(below=100)
            refs.append(window)
        store.commit()
        sides = [window.pages()[:pages] for window in refs]
        for side in sides:
            for ref in side:
                store.pool.evict(ref.page_id, "start cold")
        reach = [(max(0, i - 2), min(pages, i + 3)) for i in range(pages)]
        schedule = plan(reach, frames=frames, mode=mode, is_self=len(names) == 1)
        for _ in Walk(store.pool, schedule, *sides).pairs():
            pass
        return trace, store.pool.counters.as_dict()


def paper_reach(pages: int = 7, band: int = 2) -> list[tuple[int, int]]:
    """Each page meets its neighbours up to two away."""
    return [(max(0, i - band), min(pages, i + band + 1)) for i in range(pages)]


def gallop(reach: Sequence[tuple[int, int]], frames: int) -> Iterator[Load]:
    """The paper's figure 7: column by column, least recently used rows leave."""
    rights: list[int] = []
    for left, (first, limit) in enumerate(reach):
        coming: tuple[str, int, tuple[str, int] | None] | None
        coming = ("left", left, ("left", left - 1) if left else None)
        for right in range(first, limit):
            if right in rights:
                rights.remove(right)
                rights.append(right)
                yield (*coming, [(left, right)]) if coming else ("", 0, None, [(left, right)])
            else:
                if coming:
                    yield (*coming, [])
                victim = ("right", rights.pop(0)) if len(rights) == frames - 1 else None
                rights.append(right)
                yield "right", right, victim, [(left, right)]
            coming = None


def crabstep(reach: Sequence[tuple[int, int]], frames: int) -> Iterator[Load]:
    """The paper's figure 8: when all rows in frames are still needed, the next columns stream."""
    to_do = {(i, j) for i, (first, limit) in enumerate(reach) for j in range(first, limit)}
    rights: list[int] = []
    column = -1
    while to_do:
        left = min(i for i, _ in to_do)
        for right in sorted(j for i, j in to_do if i == left):
            if right not in rights and len(rights) == frames - 1:
                finished = [j for j in rights if all(j != row for _, row in to_do)]
                if not finished:
                    break
                rights.remove(finished[0])
                victim: tuple[str, int] | None = ("right", finished[0])
            else:
                victim = None
            if column != left:
                yield "left", left, ("left", column) if column >= 0 else None, []
                column = left
            if right not in rights:
                rights.append(right)
                yield "right", right, victim, [(left, right)]
            else:
                yield "", 0, None, [(left, right)]
            to_do.remove((left, right))
        for streamed in range(left + 1, len(reach)):
            met = sorted(j for i, j in to_do if i == streamed and j in rights)
            if met and any(i == left for i, _ in to_do):
                yield "left", streamed, ("left", column), [(streamed, j) for j in met]
                column = streamed
                to_do -= {(streamed, j) for j in met}


def scripted(
    path: Path,
    loads: Iterator[Load],
    reach: Sequence[tuple[int, int]],
    *,
    frames: int = 4,
    names: tuple[str, str] = (LEFT, RIGHT),
    mode: str = "gallop",
) -> Path:
    """A trace of these loads, one event after the other, without reading ahead."""
    trace = TraceFile(path, {"page_size": "4096", "budget_bytes": "131072", "file": "scratch"})
    name = dict(zip(("left", "right"), names, strict=True))
    loads = list(loads)
    pages = list(range(len(reach)))
    layout = {
        "mode": mode, "frames": frames, "page_reads": sum(bool(side) for side, *_ in loads),
        "explain": "scripted", "left": pages, "right": pages, "is_self": False,
        "reach": [[i, first, limit] for i, (first, limit) in enumerate(reach)],
    }  # fmt: skip
    mates = (name["right"], -1)
    trace.record("plan", name["left"], -1, -1, 0, 0, json.dumps(layout), mates)
    trace.record("mode", name["left"], -1, -1, 0, 0, f"{mode}: asked for", mates)
    holders: dict[tuple[str, int], int] = {}
    for side, page, victim, visits in loads:
        if victim:
            frame = holders.pop(victim)
            trace.record("evict", name[victim[0]], victim[1], frame, 4080, 0, "room")
        if side:
            frame = min(set(range(frames)) - set(holders.values()))
            holders[side, page] = frame
            for event in ("fetch", "read", "pin"):
                trace.record(event, name[side], page, frame, 4080, 0, f"for {visits}")
        for left, right in visits:
            for event in ("visit", "visited"):
                trace.record(event, name["left"], left, -1, 0, 0, "", (name["right"], right))
    trace.record("walked", name["left"], -1, -1, 0, 0, "done", mates)
    trace.close()
    return path


def written(
    path: Path, events: Sequence[tuple[object, ...]], settings: dict[str, str] | None = None
) -> Path:
    """A trace of these events, given as the arguments of `TraceFile.record`."""
    trace = TraceFile(path, settings)
    for event in events:
        trace.record(*event)  # type: ignore[arg-type]
    trace.close()
    return path


def overlapping(path: Path) -> Path:
    """Two walks at once, over the same pages of different windows; 2 and 3 pairs, in turns."""
    events: list[tuple[object, ...]] = []
    sides = [("a", "b", 2), ("c", "d", 3)]
    for left, right, pages in sides:
        layout = {"mode": left, "frames": 4, "left": list(range(pages)), "right": [0],
                  "reach": [[i, 0, 1] for i in range(pages)]}  # fmt: skip
        events.append(("plan", left, -1, -1, 0, 0, json.dumps(layout), (right, -1)))
        events.append(("mode", left, -1, -1, 0, 0, f"{left}: asked for", (right, -1)))
        events += [(kind, right, 0, 0, 9, 0, "") for kind in ("fetch", "read")]
    for page in range(3):
        for left, right, pages in sides:
            if page < pages:
                events += [(kind, left, page, 1, 9, 0, "") for kind in ("fetch", "read")]
                events += [(k, left, page, -1, 0, 0, "", (right, 0)) for k in ("visit", "visited")]
    events += [("walked", left, -1, -1, 0, 0, "done", (right, -1)) for left, right, _ in sides]
    return written(path, events)


def large(path: Path, count: int = 1_000_000, pages: int = 500) -> Path:
    """A trace of so many events, most of them uses of pages, written as Arrow."""
    random = np.random.default_rng(7)
    kinds = np.array([EVENTS.index(kind) for kind in ("read", "hit", "evict", "visit", "mode")])
    kind = random.choice(kinds, count, p=[0.25, 0.35, 0.2, 0.199, 0.001])
    page = np.minimum(random.geometric(0.01, count), pages) - 1
    mate = np.minimum(random.geometric(0.01, count), pages) - 1
    is_visit, is_mode = (kind == EVENTS.index(word) for word in ("visit", "mode"))
    layout = {
        "mode": "gallop", "frames": 40, "page_reads": count // 4, "explain": "",
        "left": list(range(pages)), "right": list(range(pages)), "is_self": False,
        "reach": [[i, 0, pages] for i in range(pages)],
    }  # fmt: skip
    kind[0], is_visit[0], is_mode[0] = EVENTS.index("plan"), False, True
    side = np.where(is_visit | is_mode, 0, random.integers(0, 2, count))
    why = pa.array(["gallop: meets left 3"]).take(pa.array(np.zeros(count, np.int64)))
    why = pa.concat_arrays([pa.array([json.dumps(layout)]), why[1:]])
    names = pa.array([LEFT, RIGHT, ""])
    columns = [
        pa.array(np.arange(count)),
        pa.array(np.arange(count) * 1000),
        pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), pa.array(EVENTS)),
        pa.DictionaryArray.from_arrays(pa.array(side, pa.int32()), names),
        pa.array(np.where(is_mode, -1, page)),
        pa.array(np.where(is_visit | is_mode, -1, page % 40), pa.int32()),
        pa.array(np.where(is_visit | is_mode, 0, 4080)),
        pa.array(np.zeros(count, np.int64)),
        pa.DictionaryArray.from_arrays(
            pa.array(np.where(is_visit | is_mode, 1, 2), pa.int32()), names
        ),
        pa.array(np.where(is_visit, mate, -1)),
        why,
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    settings = {"matwin.trace": str(TRACE_VERSION), "page_size": "4096", "file": "scratch"}
    with pa.ipc.new_file(str(path), SCHEMA.with_metadata(settings)) as writer:
        for start in range(0, count, 1 << 16):
            writer.write_batch(batch.slice(start, 1 << 16))
    return path
