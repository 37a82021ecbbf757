"""A trace with more than a million events, of a walk over thousands of pages a side.

The schedule is real; its events are written as Arrow at once, for a real walk takes too long.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.scheduler import plan
from matwin.storage.trace import EVENTS, SCHEMA, TRACE_VERSION

# event, window, page, frame, bytes, mate's window, mate's page, reason
Row = tuple[int, int, int, int, int, int, int, str]


def walked(path: Path) -> Path:
    """A walk of more than a million events over thousands of pages a side, by a real schedule."""
    pages, band, frames = 4000, 58, 24
    reach = [(max(0, i - band), min(pages, i + band + 1)) for i in range(pages)]
    schedule = plan(reach, frames=frames, mode="crabstep")
    layout = {
        "mode": "crabstep", "frames": frames, "page_reads": schedule.page_reads,
        "explain": schedule.explain(), "left": list(range(pages)), "right": list(range(pages)),
        "is_self": False, "reach": schedule.reach.triples(),
    }  # fmt: skip
    kind = {name: number for number, name in enumerate(EVENTS)}
    sides = {"left": 0, "right": 1}
    rows: list[Row] = [(kind["plan"], 0, -1, -1, 0, 1, -1, json.dumps(layout))]
    free = list(range(frames))
    held: dict[Any, int] = {}
    stretches = {stretch.start: stretch for stretch in schedule.stretches}
    for at, (page, victim, pairs) in enumerate(schedule.moves()):
        if at in stretches:
            why = f"{stretches[at].mode}: {stretches[at].reason}"
            rows.append((kind["mode"], 0, -1, -1, 0, 1, -1, why))
        if victim is not None:
            free.append(held.pop(victim))
            leaves = (sides[victim.side], victim.page, free[-1], 4080, 2, -1, f"for {page}")
            rows += [(kind["unpin"], *leaves), (kind["evict"], *leaves)]
        held[page] = free.pop()
        comes = (sides[page.side], page.page, held[page], 4080, 2, -1, f"meets {len(pairs)}")
        rows += [(kind[event], *comes) for event in ("fetch", "read", "pin")]
        for left, right in pairs:
            met = (0, left, -1, 0, 1, right, "")
            rows += [(kind["visit"], *met), (kind["visited"], *met)]
    rows.append((kind["walked"], 0, -1, -1, 0, 1, -1, "done"))
    return _save(path, rows)


def _save(path: Path, rows: list[Row]) -> Path:
    event, window, page, frame, size, mate_window, mate_page, why = zip(*rows, strict=True)
    names = pa.array(["readings", "weather", ""])
    count = len(rows)
    times = np.cumsum(np.random.default_rng(5).integers(300, 90_000, count))
    columns = [
        pa.array(np.arange(count)),
        pa.array(times),
        pa.DictionaryArray.from_arrays(pa.array(event, pa.int32()), pa.array(EVENTS)),
        pa.DictionaryArray.from_arrays(pa.array(window, pa.int32()), names),
        pa.array(page, pa.int64()),
        pa.array(frame, pa.int32()),
        pa.array(size, pa.int64()),
        pa.array(np.zeros(count, np.int64)),
        pa.DictionaryArray.from_arrays(pa.array(mate_window, pa.int32()), names),
        pa.array(mate_page, pa.int64()),
        pa.array(why),
    ]
    settings = {"matwin.trace": str(TRACE_VERSION), "page_size": "4096", "budget_bytes": "98304"}
    with pa.ipc.new_file(str(path), SCHEMA.with_metadata(settings)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return path
