"""The epochs of a trace: what a continuous query did between two commits.

    … make hit hit write │ complete "step 12: epoch 12" │ expire make hit … │ complete "… epoch 13"
                          └─────────────── epoch 13 ──────────────────────────┘

An epoch reaches from the event after the one before to its own complete event.  A complete event
that names no epoch (a store of somebody else's, or one that only says that a result was delivered)
ends none.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .events import Events

_MARK = re.compile(r"(?:step \d+: )?epoch (\d+)")
_COUNTED = {
    "makes": "make", "writes": "write", "reads": "read", "hits": "hit", "expiries": "expire",
}  # fmt: skip


def epochs(events: Events) -> list[dict[str, Any]]:
    """Each epoch: its number, where it begins and ends, and what was done to pages."""
    marks = []
    for place in events.places_of("complete").tolist():
        found = _MARK.fullmatch(events.table["why"][place].as_py() or "")
        if found:
            marks.append((place, int(found[1])))
    if not marks:
        return []
    ends = np.array([place for place, _ in marks])
    starts = np.append(0, ends[:-1] + 1)
    columns = {
        "start": starts, "end": ends, "seq": events.seq[ends], "time_ns": events.time_ns[starts],
        "duration_ns": events.time_ns[ends] - events.time_ns[starts],
    }  # fmt: skip
    for name, word in _COUNTED.items():
        before = np.append(0, np.cumsum(events.of_kind(word)))
        columns[name] = before[ends + 1] - before[starts]
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        {"epoch": number, **dict(zip(columns, row, strict=True))}
        for (_, number), row in zip(marks, rows, strict=True)
    ]
