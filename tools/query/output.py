"""Results of epochs on standard output, where a job has no sink.

    csv, tsv, jsonl     rows as they are, led by the epoch's number; each epoch is written whole
    --json              a line for each epoch; its rows are in it

Somebody who reads a pipe keeps no count of epochs: after a restart the last one may come again.
With ``--json`` it then says `is_replayed`; a sink would take it once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pyarrow as pa

from matwin.operators.epochs.continuous import Epoch
from matwin.outputs import explained
from matwin.plain import json_rows
from matwin.sinks import Csv, JsonLines, Tsv, to_stdout
from matwin.sinks import Sink as Format
from matwin.storage.errors import InputError

from .told import as_line

EPOCH = "matwin_epoch"
_FORMATS: dict[str, type[Format]] = {"csv": Csv, "tsv": Tsv, "jsonl": JsonLines}
_NAME = "standard output"

Held = Callable[[], AbstractContextManager[None]]
"""Inside it no signal breaks anything off."""
Seen = Callable[[pa.RecordBatch], None]


class Rows:
    """Rows of all epochs, one after the other."""

    def __init__(self, kind: str, held: Held) -> None:
        self._kind, self._held = kind, held
        self._open = ExitStack()
        self._format: Format | None = None

    def take(self, epoch: Epoch, about: dict[str, Any], seen: Seen) -> None:
        """Write an epoch's rows."""
        if EPOCH in epoch.result.schema.names:
            raise InputError(f"the result has a column {EPOCH!r}, which is ours; name it otherwise")
        with explained(_NAME), self._held():
            written = self._begun(epoch.result.schema)
            for batch in epoch.result:
                seen(batch)
                written.add(_numbered(epoch.id, batch))

    def _begun(self, schema: pa.Schema) -> Format:
        if self._format is None:
            file = self._open.enter_context(to_stdout(self._kind))
            whole = schema.insert(0, pa.field(EPOCH, pa.int64()))
            self._format = _FORMATS[self._kind](file, whole, True, 0)
        return self._format

    def close(self) -> None:
        """All rows are there."""
        with explained(_NAME), self._held():
            if self._format is not None:
                self._format.finish(0)
            self._open.close()


def _numbered(epoch: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    number = pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)
    schema = batch.schema.insert(0, pa.field(EPOCH, pa.int64()))
    return pa.RecordBatch.from_arrays([number, *batch.columns], schema=schema)


class Lines:
    """A line of JSON for each epoch."""

    def __init__(self, held: Held, *, has_rows: bool) -> None:
        self._held, self._has_rows = held, has_rows

    def take(self, epoch: Epoch, about: dict[str, Any], seen: Seen) -> None:
        """Write the line; rows are written as they are read."""
        with explained(_NAME), self._held():
            if not self._has_rows:
                look(epoch, seen)
                print(as_line(about), flush=True)
                return
            out = sys.stdout
            out.write(as_line(about)[:-1] + ', "rows": [')
            between = ""
            for batch in epoch.result:
                seen(batch)
                text = ", ".join(as_line(row) for row in json_rows(batch))
                out.write(between + text)
                between = ", " if text or between else ""
            out.write("]}\n")
            out.flush()

    def close(self) -> None:
        """Nothing to do."""


class Silent:
    """Results go to a sink, and nobody wants to hear of it."""

    def take(self, epoch: Epoch, about: dict[str, Any], seen: Seen) -> None:
        """Only look."""
        look(epoch, seen)

    def close(self) -> None:
        """Nothing to do."""


def look(epoch: Epoch, seen: Seen) -> None:
    """Show the first rows of a result that has gone elsewhere."""
    for batch in epoch.result:
        seen(batch)
        break
