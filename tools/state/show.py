"""`matwin state show`: what a query has committed.

state at epoch 12, 10:04:00 … 10:05:00; 1,204,000 rows in, 3,120 out since the beginning
stream  chunks     rows  pages     bytes  read on from row
a           12  120,000     34   8.4 MiB           121,003
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from matwin.operators.epochs.chunks import Chunk, ChunkWindow
from matwin.storage.units import format_size
from matwin.text import escaped, table

from .folder import State, opened


def run(args: argparse.Namespace) -> int:
    """Tell what is there."""
    with opened(args.folder) as state:
        told = described(state)
    if args.json:
        print(json.dumps(told, indent=2))
    elif not args.quiet:
        print(shown(told))
    return 0


def described(state: State) -> dict[str, Any]:
    """Everything that `--json` prints."""
    notes = state.notes
    return {
        "folder": str(state.path),
        "epoch": notes.epoch,
        "bounds": notes.bounds,
        "rows_in": notes.rows_in,
        "rows_out": notes.rows_out,
        "version": notes.version,
        "page_size": state.store.file.page_size,
        "file_bytes": state.store.file.file_bytes,
        "asked": notes.asked,
        "streams": {
            name: _stream(window, notes.streams.get(name, {}))
            for name, window in state.windows.items()
        },
        "pending": _pending(state),
        "notes": notes.user,
    }


def _stream(window: ChunkWindow, position: dict[str, Any]) -> dict[str, Any]:
    chunks = [_chunk(chunk) for chunk in window.all_chunks()]
    cutter = position.get("cutter", {})
    return {
        "columns": {field.name: str(field.type) for field in window.schema},
        "rows": sum(chunk["rows"] for chunk in chunks),
        "bytes": sum(chunk["bytes"] for chunk in chunks),
        "pages": sum(chunk["pages"] for chunk in chunks),
        "chunks": chunks,
        "position": {
            "first_row": position.get("begin"),
            "rows_read": position.get("read"),
            "mark": position.get("mark"),
        },
        "late": cutter.get("late", 0),
        "rejected": cutter.get("rejected", 0),
    }


def _chunk(chunk: Chunk) -> dict[str, Any]:
    size = sum(ref.size for ref in chunk.refs)
    return {"epoch": chunk.epoch, "rows": chunk.rows, "pages": len(chunk.refs), "bytes": size}


def _pending(state: State) -> dict[str, Any] | None:
    """The result that the last epoch has put down, if nobody is known to have it."""
    about = state.notes.output
    if about is None:
        return None
    path = state.result_path(about["epoch"])
    return {
        "epoch": about["epoch"], "rows": about["rows"], "bytes": about["size"], "file": str(path),
        "is_there": path.is_file(),
    }  # fmt: skip


def shown(told: dict[str, Any]) -> str:
    """The same for a person."""
    lines = [
        f"{escaped(told['folder'])} is at epoch {told['epoch']}, {escaped(told['bounds'])}; "
        f"{told['rows_in']:,} rows in, {told['rows_out']:,} out since the beginning",
        "",
        _streams(told["streams"]),
        "",
        *(_chunks(name, stream) for name, stream in told["streams"].items()),
        _output(told["pending"]),
        f"page file: {format_size(told['file_bytes'])} in pages of "
        f"{format_size(told['page_size'])}",
        "",
        "asked:",
        *(f"  {escaped(n)}: {escaped(' '.join(t.split()))}" for n, t in told["asked"].items()),
    ]
    return "\n".join(lines)


def _streams(streams: dict[str, Any]) -> str:
    head = ["stream", "chunks", "rows", "pages", "bytes", "reads on from row", "late", "rejected"]
    rows = [
        [
            escaped(name), f"{len(s['chunks']):,}", f"{s['rows']:,}", f"{s['pages']:,}",
            format_size(s["bytes"]), f"{s['position']['first_row'] or 0:,}", f"{s['late']:,}",
            f"{s['rejected']:,}",
        ]
        for name, s in streams.items()
    ]  # fmt: skip
    return table(head, rows, "<" + ">" * 7)


CHUNKS_SHOWN = 12


def _chunks(name: str, stream: dict[str, Any]) -> str:
    chunks = stream["chunks"]
    some = chunks[-CHUNKS_SHOWN:]
    left = f"… and {len(chunks) - len(some):,} before; " if len(chunks) > len(some) else ""
    told = ", ".join(f"{c['epoch']}: {c['rows']:,} rows" for c in some) or "none"
    return f"chunks of {escaped(name)}, by epoch: {left}{told}"


def _output(pending: dict[str, Any] | None) -> str:
    if pending is None:
        return "output: all delivered"
    missing = "" if pending["is_there"] else "; ITS FILE IS MISSING"
    return (
        f"output: epoch {pending['epoch']}, {pending['rows']:,} rows, "
        f"{format_size(pending['bytes'])}: delivered at the next start, if it was not{missing}"
    )
