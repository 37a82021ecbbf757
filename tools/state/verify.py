"""`matwin state verify`: everything that is committed, read and checked.

pages      checksum, fence and order of each (the storage engine checks them as it reads), rows
           as many as the commit says, all of their own chunk
chunks     of no epoch after the last, and no more than are kept
result     size, checksum and rows of the file that the commit names
positions  rows read, and which of them are in chunks
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from matwin.operators.epochs.chunks import Chunk, ChunkWindow
from matwin.operators.epochs.spool import Kept
from matwin.storage.errors import MatwinError
from matwin.text import escaped

from .folder import State, opened

EXIT_DAMAGED = 2


def run(args: argparse.Namespace) -> int:
    """Check; 2 where something is wrong."""
    with opened(args.folder) as state:
        found = checked(state)
    problems = found["problems"]
    if args.json:
        print(json.dumps(found, indent=2))
    elif not args.quiet:
        for problem in problems:
            print(f"matwin: {escaped(problem)}", file=sys.stderr)
        if not problems:
            print(
                f"{escaped(str(state.path))} is whole at epoch {found['epoch']}: "
                f"{found['pages']:,} pages, {found['rows']:,} rows in chunks, "
                f"{found['result_rows']:,} rows to be delivered"
            )
    return EXIT_DAMAGED if problems else 0


def checked(state: State) -> dict[str, Any]:
    """What was read, and everything that is wrong with it."""
    problems: list[str] = []
    pages = rows = 0
    for name, window in state.windows.items():
        for chunk in window.all_chunks():
            problems += _chunk_problems(name, chunk, state)
            for problem, read in _pages(name, window, chunk):
                pages += 1
                rows += read
                problems += [problem] if problem else []
        problems += _position_problems(name, state.notes.streams.get(name))
    for name in sorted(set(state.notes.streams) - set(state.windows)):
        problems.append(f"{name}: the commit speaks of it, and it has no chunks")
    result_rows = _result_rows(state, problems)
    return {
        "folder": str(state.path), "epoch": state.notes.epoch, "is_whole": not problems,
        "pages": pages, "rows": rows, "result_rows": result_rows, "problems": problems,
    }  # fmt: skip


def _chunk_problems(name: str, chunk: Chunk, state: State) -> list[str]:
    kept = state.notes.asked.get(f"keep of {name}", "")
    first = state.notes.epoch - int(kept) + 1 if kept.isdecimal() else 0
    if first <= chunk.epoch <= state.notes.epoch:
        return []
    return [
        f"{name}: it has a chunk of epoch {chunk.epoch}, and {kept} are kept up to epoch "
        f"{state.notes.epoch}"
    ]


def _pages(name: str, window: ChunkWindow, chunk: Chunk) -> Iterator[tuple[str | None, int]]:
    """Each page of a chunk: what is wrong with it, and its rows."""
    for ref in chunk.refs:
        where = f"{name}: page {ref.page_id.page} of epoch {chunk.epoch}"
        try:
            numbers, rows = window.read_page(ref)
        except (MatwinError, pa.ArrowException) as e:
            yield f"{where}: {e}", 0
            continue
        if rows.num_rows != ref.rows:
            yield f"{where} has {rows.num_rows} rows, and the commit says {ref.rows}", rows.num_rows
        elif not pc.all(pc.equal(numbers, chunk.epoch)).as_py():
            yield f"{where} has rows of other epochs", rows.num_rows
        else:
            yield None, rows.num_rows


def _position_problems(name: str, position: dict[str, Any] | None) -> list[str]:
    if position is None:
        return [f"{name}: the commit does not say where it reads on"]
    from matwin.operators.epochs.capture import _unpacked

    begin, read = position.get("begin"), position.get("read")
    if not isinstance(begin, int) or not isinstance(read, int) or not 0 <= begin <= read:
        return [f"{name}: reading goes on from row {begin} of {read} that were read"]
    try:
        _unpacked(position["done"], read - begin)
    except Exception as e:
        return [f"{name}: which rows are in chunks can't be read: {e}"]
    return []


def _result_rows(state: State, problems: list[str]) -> int:
    about = state.notes.output
    if about is None:
        return 0
    path = state.result_path(about["epoch"])
    try:
        rows: int = sum(batch.num_rows for batch in Kept.read_back(path, about))
    except (MatwinError, pa.ArrowException, OSError) as e:
        problems.append(str(e))
        return 0
    if rows != about["rows"]:
        problems.append(f"{path} has {rows} rows, and the commit says {about['rows']}")
    return rows
