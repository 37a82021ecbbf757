"""`matwin trace dump`: one page out of the page file, its bytes beside their meaning.

    offset  bytes                            what        meaning
         0  4d 41 54 57 49 4e 50 47          magic       MATWINPG
         8  7f 3c 11 90                      checksum    0x90113c7f, …: right
         …
        64  00 00 00 00 00 00 00 00 …        first cell  t 0, x 0
        96  0c 00 0a 00 …                    directory   rows in each cell: 12 10 …
       128  ff ff ff ff                      Arrow       a message begins

Then the cells and the first rows.  The parts cover the page without gaps (`parts_of`), so that what
is printed with ``--full`` is the page.  The file is only looked at (`peek`): nothing is changed.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.plain import json_rows
from matwin.storage.columns import is_numeric, physical
from matwin.storage.errors import CorruptPage, InputError, StoreError
from matwin.storage.grid import Dimension, Grid, Key
from matwin.storage.layout import HEADER, Page, PageId, decode_page, schema_mark
from matwin.storage.materialize import WindowState
from matwin.storage.materialize.window import page_schema
from matwin.text import cut, escaped, quoted, table
from matwin.tools.answers import tell_answer

from .events import Events
from .peek import Peek, peek

BYTES_PER_LINE = 16
LINES_SHOWN = 3
CELLS_SHOWN = 12
VALUE_WIDTH = 40
_FIELDS = (
    ("magic", 8), ("checksum", 4), ("version", 2), ("coordinates", 2), ("page", 8), ("window", 4),
    ("columns", 4), ("rows", 4), ("entries", 4), ("batch at", 4), ("bytes used", 4),
    ("order min", 8), ("order max", 8),
)  # fmt: skip
_MEANINGS = {
    "coordinates": "keys and dimensions of a cell",
    "page": "number of the page",
    "window": "number of the window",
    "rows": "rows",
    "entries": "entries in the directory of cells",
    "batch at": "where the record batch begins",
    "bytes used": "bytes in use",
    "order min": "smallest order key",
    "order max": "largest order key",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a page and what they mean."""

    offset: int
    data: bytes
    what: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Found:
    """A page, and what is needed to read it."""

    name: str
    state: WindowState
    grid: Grid
    data: pa.Buffer
    page: Page
    schema: pa.Schema


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    if args.rows < 0:
        raise InputError(f"--rows {args.rows}: give how many rows to print")
    events = Events.open(args.file)
    with peek(_store_of(events, args)) as store:
        found = _found(events, store, args)
        tell_answer(args, lambda: _document(found, args), lambda: _text(store, found, args))
    return 0


# ── finding the page ─────────────────────────────────────────────────────────────────────────


def _store_of(events: Events, args: argparse.Namespace) -> Path:
    if args.store:
        return Path(args.store)
    file = events.settings.get("file", "")
    if file in ("", "scratch", "memory"):
        kept = {"scratch": "in scratch", "memory": "in memory"}.get(file, "nobody knows where")
        raise StoreError(
            f"{events.source}: its pages were kept {kept} and are gone; "
            "give the store a path to keep them, or name a page file with --store"
        )
    beside = Path(args.file).parent
    try:
        for folder in (Path(file), beside / file, beside / Path(file).name):
            if (folder / "data.mdb").is_file():
                return folder
    except (OSError, ValueError):  # a name that no file can have
        pass
    raise StoreError(
        f"{events.source}: its page file {escaped(file)} is not there; say where with --store"
    )


def _found(events: Events, store: Peek, args: argparse.Namespace) -> Found:
    name, number, state = _window(events, store, args.window)
    page_id = PageId(number, _page_number(args.page))
    data = store.page(page_id)
    if data is None:
        raise StoreError(_gone(events, store, name, args.page))
    grid = grid_of(state.grid)
    page, schema = _decoded(data, state, grid)
    return Found(name, state, grid, data, page, schema)


def _document(found: Found, args: argparse.Namespace) -> dict[str, Any]:
    batch = found.page.batch
    rows = json_rows(batch.slice(0, None if args.full else args.rows))
    told = {"window": found.name, "page": args.page, "bytes": len(found.data)}
    return {**told, "rows_in_page": batch.num_rows, "rows": rows}


def _text(store: Peek, found: Found, args: argparse.Namespace) -> str:
    page, grid = found.page, found.grid
    blocks = [
        _headline(store, found.name, page, found.data, found.state),
        _bytes_text(list(parts_of(found.data, page, found.schema, grid)), is_full=args.full),
        _cells_text(page, grid, is_full=args.full),
        _rows_text(page.batch, args.rows),
    ]
    return "\n\n".join(block for block in blocks if block)


def _window(events: Events, store: Peek, wanted: str) -> tuple[str, int, WindowState]:
    for name, (number, state) in store.windows.items():
        if wanted in (name, escaped(name)):
            return name, number, state
    events.window_number(wanted)  # unknown to the trace as well
    known = ", ".join(quoted(name) for name in store.windows) or "none"
    raise InputError(
        f"{escaped(str(store.folder))}: window {quoted(wanted)} is not in the last complete "
        f"step ({store.step}), which has the windows {known}"
    )


def _page_number(page: int) -> int:
    if not 0 <= page < 2**64:
        raise InputError(f"--page {page}: pages have the numbers from 0")
    return page


def _gone(events: Events, store: Peek, name: str, page: int) -> str:
    """Why the file has no such page, as far as the trace knows."""
    shown = f"page {page} of window {quoted(name)}"
    where = escaped(str(store.folder))
    windows, pages = events.identities
    at = np.flatnonzero(pages == page)
    at = at[[events.names[windows[i]] == name for i in at]]
    if not len(at):
        kept = [ref.page_id.page for ref in store.windows[name][1].refs]
        span = f"pages {min(kept)} to {max(kept)}" if kept else "no pages"
        return f"{where} and {events.source} have no {shown}; the last step has {span}"
    mask = (events.identity == at[0]) & events.of_kind("drop", "expire")
    ends = np.flatnonzero(mask)
    if not len(ends):
        return f"{shown} is not in {where}: it was never written, or was given up after the trace"
    last = int(ends[-1])
    why = cut(escaped(events.why(last)), 60)
    return f"{shown} is gone from {where}: it was given up at event {events.seq[last]} ({why})"


def grid_of(text: str) -> Grid:
    """The grid that a window was kept with, from its printed form.

    >>> grid_of("Grid(keys=(Key(name='k'),), dimensions=())")
    Grid(keys=(Key(name='k'),), dimensions=())
    """
    keys: list[Key] = []
    dimensions: list[Dimension] = []
    try:
        for call in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                given = {str(k.arg): k.value for k in call.keywords}
                if call.func.id == "Key":
                    keys.append(Key(**_literals(given)))
                elif call.func.id == "Dimension":
                    dimensions.append(Dimension(**_literals(given)))
        return Grid(tuple(keys), tuple(dimensions))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as e:
        raise CorruptPage("the complete record has a grid that can't be read") from e


def _literals(given: dict[str, ast.expr]) -> dict[str, Any]:
    return {name: _literal(value) for name, value in given.items()}


def _literal(value: ast.expr) -> Any:
    """A value as it is printed; an infinity is printed as a name."""
    text = ast.unparse(value)
    return float(text) if text in ("inf", "-inf") else ast.literal_eval(value)


def _decoded(data: pa.Buffer, state: WindowState, grid: Grid) -> tuple[Page, pa.Schema]:
    try:
        schema = page_schema(state.schema, grid)
        page = decode_page(data, schema, schema_mark(schema))
        page.batch.validate(full=True)
        if len(page.fence.first) != len(grid.names):
            raise ValueError("its fence is of another grid")
    except (pa.ArrowException, KeyError, ValueError) as e:
        raise CorruptPage(f"the page's columns can't be read: {escaped(str(e))}") from e
    return page, schema


# ── bytes ────────────────────────────────────────────────────────────────────────────────────


def parts_of(data: pa.Buffer, page: Page, schema: pa.Schema, grid: Grid) -> Iterator[Part]:
    """The page's bytes from the first to the last, in parts that mean something."""
    whole = data.to_pybytes()
    yield from _header_parts(whole)
    width, entries = len(page.fence.first), len(page.directory)
    at = HEADER.size
    for what, cell in (("first cell", page.fence.first), ("last cell", page.fence.last)):
        yield Part(at, whole[at : at + 8 * width], what, _cell(cell, grid))
        at += 8 * width
    counts = " ".join(map(str, page.directory[:10].tolist()))
    more = " …" if entries > 10 else ""
    yield Part(at, whole[at : at + 2 * entries], "directory", f"rows in each cell: {counts}{more}")
    start = HEADER.unpack_from(whole)[9]
    at += 2 * entries
    if at < start:
        yield Part(at, whole[at:start], "filling", f"up to byte {start}")
    yield from _arrow_parts(whole, data, start, page.batch)


def _header_parts(whole: bytes) -> Iterator[Part]:
    at = 0
    for (what, size), value in zip(_FIELDS, HEADER.unpack_from(whole), strict=True):
        yield Part(at, whole[at : at + size], what, _header_meaning(what, value))
        at += size


def _header_meaning(what: str, value: Any) -> str:
    if what == "magic":
        return escaped(value.decode("latin-1"))
    if what == "checksum":
        return f"{value:#010x}, CRC-32 of all that follows: right"
    if what == "columns":
        return f"{value:#010x}, CRC-32 of the columns' names and types: as the window's"
    meaning = _MEANINGS.get(what, "")
    return f"{value:,}  {meaning}".rstrip()


def _cell(cell: tuple[int, ...], grid: Grid) -> str:
    return ", ".join(
        f"{cut(escaped(name), 20)} {c}" for name, c in zip(grid.names, cell, strict=True)
    )


def _arrow_parts(
    whole: bytes, data: pa.Buffer, start: int, batch: pa.RecordBatch
) -> Iterator[Part]:
    """The record batch message: its length, its metadata, and the columns' buffers."""
    length = int.from_bytes(whole[start + 4 : start + 8], "little", signed=True)
    yield Part(start, whole[start : start + 4], "Arrow", "a message begins")
    yield Part(start + 4, whole[start + 4 : start + 8], "", f"{length:,} bytes of metadata follow")
    at = min(max(start + 8 + length, start + 8), len(whole))
    yield Part(start + 8, whole[start + 8 : at], "", "metadata: lengths and buffers of the columns")
    for offset, size, meaning in sorted(_buffers(data, batch)):
        if offset < at or offset + size > len(whole):
            continue  # a buffer that is shared, or not in the page
        if offset > at:
            yield Part(at, whole[at:offset], "filling", "")
        yield Part(offset, whole[offset : offset + size], "column", meaning)
        at = offset + size
    if at < len(whole):
        yield Part(at, whole[at:], "filling", "")


def _buffers(data: pa.Buffer, batch: pa.RecordBatch) -> Iterator[tuple[int, int, str]]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        roles = _roles(column.type)
        for number, buffer in enumerate(column.buffers()):
            if buffer is not None and buffer.size:
                role = roles[number] if number < len(roles) else f"buffer {number}"
                shown = f"{cut(escaped(name), 24)}: {role}, {cut(escaped(str(column.type)), 24)}"
                if role == "values":
                    shown += f": {', '.join(_shown(value) for value in column[:4])}, …"
                yield buffer.address - data.address, buffer.size, shown


def _roles(kind: pa.DataType) -> tuple[str, ...]:
    if pa.types.is_nested(kind):
        return ("validity",)
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return ("validity", "offsets", "values")
    return ("validity", "values")


def _headline(store: Peek, name: str, page: Page, data: pa.Buffer, state: WindowState) -> str:
    refs = {ref.page_id: ref for ref in state.refs}
    ref = refs.get(page.page_id)
    lines = [
        f"page {page.page_id.page} of {escaped(name)}: {page.rows:,} rows in "
        f"{len(page.directory):,} cells, {data.size:,} bytes",
        f"{escaped(str(store.folder))}, step {store.step}, {escaped(state.form)} window, "
        + (f"run {ref.run}" if ref else "left over: the last complete step does not name the page"),
    ]
    if ref and not ref.is_whole:
        lines.append(f"rows with an order key below {ref.low} have expired; they are still here")
    return "\n".join(lines)


def _bytes_text(parts: list[Part], *, is_full: bool) -> str:
    rows = []
    for part in parts:
        pieces = [
            part.data[at : at + BYTES_PER_LINE] for at in range(0, len(part.data), BYTES_PER_LINE)
        ]
        shown = len(pieces) if is_full or len(pieces) <= LINES_SHOWN else LINES_SHOWN - 1
        for at, piece in enumerate(pieces[:shown]):
            what, meaning = (part.what, part.meaning) if at == 0 else ("", "")
            offset = str(part.offset + at * BYTES_PER_LINE)
            rows.append([offset, piece.hex(" "), what, cut(meaning, 90)])
        if shown < len(pieces):
            left = len(part.data) - shown * BYTES_PER_LINE
            rows.append(["…", f"{left:,} more bytes", "", ""])
    return table(["offset", "bytes", "what", "meaning"], rows, "><<<")


# ── cells and rows ───────────────────────────────────────────────────────────────────────────


def _cells_text(page: Page, grid: Grid, *, is_full: bool) -> str:
    limit = len(page.directory) if is_full else CELLS_SHOWN
    starts, counts = page.starts[:limit], page.directory[:limit]
    firsts = page.batch.take(pa.array(starts))
    cells = [axis.cells(firsts.column(axis.name)).tolist() for axis in grid.axes]
    order = firsts.column(grid.order.name)
    rows = [
        [str(at), str(start), str(count), *(str(axis[at]) for axis in cells), _shown(order[at])]
        for at, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True))
    ]
    names = [cut(escaped(name), 16) for name in grid.names]
    head = ["cell", "first row", "rows", *names, f"first {cut(escaped(grid.order.name), 16)}"]
    more = len(page.directory) - len(rows)
    text = table(head, rows, ">" * len(head))
    return text + (f"\n… and {more:,} more cells; --full shows all" if more else "")


def _rows_text(batch: pa.RecordBatch, limit: int) -> str:
    if limit == 0:
        return ""
    part = batch.slice(0, limit)
    head = ["row", *(cut(escaped(name), VALUE_WIDTH) for name in batch.schema.names)]
    columns = [[_shown(value) for value in column] for column in part.columns]
    rows = [[str(at), *values] for at, values in enumerate(zip(*columns, strict=True))]
    align = "".join(">" if is_numeric(column.type) else "<" for column in part.columns)
    more = batch.num_rows - part.num_rows
    text = table(head, rows, ">" + align)
    return text + (f"\n… and {more:,} more rows; --rows {batch.num_rows} shows all" if more else "")


def _shown(value: pa.Scalar) -> str:
    """A value as text on one line."""
    if not value.is_valid:
        return "null"
    try:
        found = value.as_py()
    except (ValueError, OverflowError, ImportError):  # a time that Python does not have
        return str(physical(pa.array([value]))[0][0])
    if isinstance(found, bytes):
        return cut(found[:VALUE_WIDTH].hex(" "), VALUE_WIDTH)
    return cut(escaped(str(found)), VALUE_WIDTH)
