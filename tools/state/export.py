"""`matwin state export`: the chunks that a query keeps, as files.

Rows come as they were captured, chunk after chunk, led by the number of their epoch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from matwin.operators.epochs.chunks import ChunkWindow
from matwin.outputs import check_outputs
from matwin.sinks import format_of, write
from matwin.storage.errors import InputError
from matwin.text import escaped

from .folder import State, opened

EPOCH = "matwin_epoch"
_SUFFIXES = {"ipc": "arrow", "table": "txt"}


def run(args: argparse.Namespace) -> int:
    """Write the chunks."""
    with opened(args.folder) as state:
        names = list(state.windows) if args.stream is None else [args.stream]
        targets = _targets(args, names)
        for name in names:
            _check(state.window(name))
        check_outputs(
            {f"-o, of {name}": path for name, path in targets.items()}, [],
            overwrite=args.overwrite,
        )  # fmt: skip
        written = {name: _written(state, name, targets[name], args) for name in names}
    if args.json:
        print(json.dumps(written, indent=2),
              file=sys.stderr if None in targets.values() else sys.stdout)  # fmt: skip
    elif not args.quiet:
        for name, about in written.items():
            print(f"{escaped(name)}: {about['rows']:,} rows to "
                  f"{escaped(about['file'] or 'standard output')}", file=sys.stderr)  # fmt: skip
    return 0


def _targets(args: argparse.Namespace, names: list[str]) -> dict[str, str | None]:
    """The file of each stream; None is standard output."""
    out = None if args.output == "-" else args.output
    is_folder = out is not None and (Path(out).is_dir() or out.endswith("/") or len(names) > 1)
    if out is None and len(names) > 1:
        raise InputError(
            f"the state has several streams, {', '.join(names)}: choose one with --stream, or "
            "name a folder with -o"
        )
    if out is None or not is_folder:
        return dict.fromkeys(names, out)
    kind = format_of(out, args.format or "parquet")
    # A stream may be called anything, and a file may not.
    return {n: str(Path(out) / f"{quote(n, safe='')}.{_SUFFIXES.get(kind, kind)}") for n in names}


def _check(window: ChunkWindow) -> None:
    if EPOCH in window.schema.names:
        raise InputError(f"{window.name}: it has a column {EPOCH!r}, which is ours")


def _written(
    state: State, name: str, target: str | None, args: argparse.Namespace
) -> dict[str, Any]:
    if target is not None:
        Path(target).expanduser().parent.mkdir(parents=True, exist_ok=True)
    kind = args.format or (None if target is None or Path(target).suffix else "parquet")
    rows = write(_Chunks(state.window(name)), target, format=kind, overwrite=args.overwrite)
    return {"file": target, "rows": rows}


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The rows of all chunks, with their epochs."""

    window: ChunkWindow

    @property
    def schema(self) -> pa.Schema:
        return self.window.result_schema.insert(0, pa.field(EPOCH, pa.int64()))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for epoch in self.window.epochs():
            for batch in self.window.scan([epoch]):
                number = pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([number, *batch.columns], schema=self.schema)
