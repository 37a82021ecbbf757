"""What the status page shows: the last epochs, the first rows of the last results, and the status.

The query writes, threads of the server read.  Whoever reads gets what was there at one moment: a
list that is never changed, replaced by the next.  Text is escaped, so that no character in it turns
the others round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from matwin.operators.epochs.continuous import Status
from matwin.plain import shown_rows
from matwin.text import cut, escaped

from .told import brief

EPOCHS_MAX = 240
RESULTS_MAX = 5
ROWS_MAX, COLUMNS_MAX, CELL_MAX = 20, 40, 200


class Board:
    """The last of everything."""

    def __init__(self, name: str, status: Status, cut_by: str, options: Mapping[str, Any]) -> None:
        self.is_done = False
        self._status = status
        self._about = {
            "job": escaped(name),
            "cut": escaped(cut_by),
            "state": escaped(str(options.get("state") or "not kept")),
            "sink": escaped(str(options.get("sink") or "standard output")),
            "process": os.getpid(),
        }
        self._epochs: tuple[dict[str, Any], ...] = ()
        self._results: tuple[dict[str, Any], ...] = ()

    def add(self, about: dict[str, Any]) -> None:
        """An epoch has happened."""
        named = {name: escaped(name) for name in about["rows_in"]}
        rows = {named[name]: count for name, count in about["rows_in"].items()}
        bounds = escaped(brief(about["bounds"]))
        about = {name: value for name, value in about.items() if name != "connections"}
        new = {**about, "rows_in": rows, "bounds": bounds, "at": time.time()}
        self._epochs = (*self._epochs, new)[-EPOCHS_MAX:]

    def show(self, epoch: int, bounds: str, rows: pa.RecordBatch) -> None:
        """Rows of an epoch's result; the first ones are kept."""
        if not rows.num_rows:
            return
        *before, last = self._results or ({"epoch": None},)
        if last["epoch"] != epoch:
            new = {"epoch": epoch, "bounds": escaped(brief(bounds)), **_first(rows)}
            self._results = (*self._results, new)[-RESULTS_MAX:]
            return
        room = ROWS_MAX - len(last["rows"])
        if room > 0:
            more = [*last["rows"], *_first(rows.slice(0, room))["rows"]]
            self._results = (*before, {**last, "rows": more})

    def told(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        status = self._status
        return {
            "about": self._about,
            "now": time.time(),
            "is_done": self.is_done,
            "status": {
                "epoch": status.epoch,
                "bounds": escaped(brief(status.bounds)),
                "rows_in": status.rows_in + status.open_rows,
                "rows_out": status.rows_out,
                "open_rows": status.open_rows,
                "waiting_rows": status.waiting_rows,
                "state_rows": status.state_rows,
                "state_bytes": status.state_bytes,
                "seconds_after_cut": status.seconds_after_cut,
                "lag_seconds": status.lag_seconds,
                "began_at": status.began_at,
                "connections": {
                    escaped(name): asdict(each) for name, each in status.visitors.items()
                },
            },
            "epochs": self._epochs,
            "results": self._results,
        }


def _first(rows: pa.RecordBatch) -> dict[str, Any]:
    some = rows.slice(0, ROWS_MAX).select(rows.schema.names[:COLUMNS_MAX])
    return {
        "columns": [cut(escaped(name), CELL_MAX) for name in some.schema.names],
        "columns_left_out": rows.num_columns - some.num_columns,
        "rows": [[cut(escaped(text), CELL_MAX) for text in row] for row in shown_rows(some)],
    }
