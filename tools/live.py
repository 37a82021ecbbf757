"""Results written as they come, for somebody who waits for them.

    reader ──batch──▶ format ──flush──▶ file or standard output, whole after every batch

Unlike `sinks.write`, a file is written under its own name from the start, and with ``--overwrite``
what was in it is gone: a followed join has no end at which a complete file could take its place.
After each batch the file holds whole lines, or whole messages of an Arrow stream.

Left out: Parquet, which can't be read before its end is written, and tables for a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from matwin.outputs import device, explained, open_descriptor, place
from matwin.sinks import Csv, Ipc, JsonLines, Rows, Sink, Tsv, format_of, to_stdout
from matwin.storage.errors import InputError


class IpcStream(Ipc):
    """Arrow's stream format, a message for each batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        super().add(batch)
        self._flush()
        self.file.flush()


_SINKS: dict[str, type[Sink]] = {
    "csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "ipc": IpcStream,
}  # fmt: skip


def live_format(out: str | None, format: str | None) -> str:
    """The format that is asked for, if rows can be written in it as they come."""
    is_stdout = out in (None, "-")
    kind = "csv" if is_stdout and format is None else format_of(out, format)
    if kind not in _SINKS:
        raise InputError(
            f"{kind} can't be read before it is complete, and --follow writes rows as they come; "
            f"choose one of {', '.join(_SINKS)}"
        )
    return kind


def write_live(
    reader: Rows,
    out: str | None,
    kind: str,
    writing: Callable[[], AbstractContextManager[None]],
    *,
    overwrite: bool = False,
) -> int:
    """Write all rows, batch by batch; inside `writing` nothing is to be interrupted."""
    is_stdout = out is None or out == "-"
    name = "standard output" if is_stdout else str(out)
    rows = 0
    with to_stdout(kind) if is_stdout else _opened(name, overwrite=overwrite) as file:
        with explained(name), writing():
            # The formats flush after each batch where they write to standard output.
            sink = _SINKS[kind](file, reader.schema, True, 0)
            file.flush()
        try:
            for batch in reader:
                with explained(name), writing():
                    sink.add(batch)
                rows += batch.num_rows
        finally:
            with explained(name), writing():
                sink.finish(rows)
                file.flush()
    return rows


@contextmanager
def _opened(out: str, *, overwrite: bool) -> Iterator[Any]:
    with explained(out):
        path = place(out)
        if path.is_dir():
            raise InputError(f"{out!r} is a folder; name a file in it")
        file = _fresh(path, overwrite=overwrite)
    with file:
        yield file


def _fresh(path: Path, *, overwrite: bool) -> BinaryIO:
    """A new file; devices, pipes and what is open already are written as they are."""
    if open_descriptor(path) is not None or (path.exists() and not path.is_file()):
        return device(path)
    return path.open("wb" if overwrite else "xb")
