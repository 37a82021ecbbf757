"""What a completed step keeps of every window, as one Arrow IPC stream.

    window   number  form  schema   grid  next_page  pages: list of
    left          0  slab  (bytes)  …       41    {page, run, rows, size, low, fence}

The complete record carries these bytes under its checksum.  No page is read to reopen a store: the
fences are here, and a page that does not agree with them is refused when it is read.

A checksum says that nothing has changed, not that it was ever right.  So every number is looked at
before it is used: Arrow would follow a wrong offset, and a wrong page number would name a page that
was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .columns import INT64_MAX
from .errors import CorruptPage
from .layout import NOT_ARROW, PARTS_MAX, Fence, PageId
from .materialize import FORMS, WindowState
from .runs import PageRef

States = dict[str, tuple[int, WindowState]]
_NOTES = b"matwin notes"
_PAGE = pa.struct(
    [
        ("page", pa.int64()),
        ("run", pa.int64()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("low", pa.int64()),
        ("first", pa.list_(pa.int64())),
        ("last", pa.list_(pa.int64())),
        ("order_min", pa.int64()),
        ("order_max", pa.int64()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("window", pa.utf8()),
        ("number", pa.int64()),
        ("form", pa.utf8()),
        ("schema", pa.binary()),
        ("grid", pa.utf8()),
        ("next_page", pa.int64()),
        ("pages", pa.list_(_PAGE)),
    ]
)


def pack_states(states: Mapping[str, tuple[int, WindowState]], notes: bytes = b"") -> bytes:
    """The states of all windows, and the caller's notes, as bytes."""
    rows = [
        {
            "window": name,
            "number": number,
            "form": state.form,
            "schema": state.schema.serialize().to_pybytes(),
            "grid": state.grid,
            "next_page": state.next_page,
            "pages": [_packed(ref) for ref in state.refs],
        }
        for name, (number, state) in states.items()
    ]
    sink = pa.BufferOutputStream()
    schema = _SCHEMA.with_metadata({_NOTES: notes}) if notes else _SCHEMA
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    return bytes(sink.getvalue())


def _packed(ref: PageRef) -> dict[str, object]:
    fence = ref.fence
    return {
        "page": ref.page_id.page, "run": ref.run, "rows": ref.rows, "size": ref.size,
        "low": ref.low, "first": fence.first, "last": fence.last,
        "order_min": fence.order_min, "order_max": fence.order_max,
    }  # fmt: skip


def unpack_states(data: bytes, where: str, page_size: int) -> tuple[States, bytes]:
    """The states of all windows, and the notes, from bytes whose checksum has been checked."""
    if not data:
        return {}, b""
    try:
        table = _table(data)
        states = _unpacked_states(table.to_pylist(), page_size)
    except NOT_ARROW as e:
        raise CorruptPage(
            f"{where}: the windows of the complete record can't be read ({e}); restore the file, "
            "or delete it and run again from the source"
        ) from e
    return states, (table.schema.metadata or {}).get(_NOTES, b"")


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        if reader.schema != _SCHEMA:
            raise ValueError("other columns")
        table = reader.read_all()
    table.validate(full=True)
    if table.nbytes > len(data):
        raise ValueError("more bytes than the record has")
    return table


def _unpacked_states(rows: list[dict[str, Any]], page_size: int) -> States:
    states: States = {}
    for row in rows:
        number = _within(row["number"], 0, 2**32 - 1, "window")
        refs = [_unpacked(number, page, page_size) for page in row["pages"]]
        schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
        next_page = _within(row["next_page"], 0, INT64_MAX, "next page")
        state = WindowState(row["form"], schema, row["grid"], next_page, refs)
        _check_state(state)
        states[row["window"]] = (number, state)
    if None in states or len({number for number, _ in states.values()}) < len(rows):
        raise ValueError("two windows of one name or number")
    return states


def _check_state(state: WindowState) -> None:
    if state.form not in FORMS or state.grid is None:
        raise ValueError(f"no form {state.form!r}")
    _ = state.schema.names  # UnicodeDecodeError, a ValueError, where one is not UTF-8
    pages = [ref.page_id.page for ref in state.refs]
    if len(set(pages)) < len(pages) or max(pages, default=-1) >= state.next_page:
        raise ValueError("page numbers that come twice or were never given")


def _unpacked(window: int, page: dict[str, Any], page_size: int) -> PageRef:
    if any(value is None for value in (*page.values(), *page["first"], *page["last"])):
        raise ValueError("an empty field")
    fence = Fence(tuple(page["first"]), tuple(page["last"]), page["order_min"], page["order_max"])
    is_range = fence.order_min <= fence.order_max and fence.first <= fence.last
    if not is_range or len(fence.first) != len(fence.last):
        raise ValueError("a fence that is no range")
    return PageRef(
        PageId(window, _within(page["page"], 0, INT64_MAX, "page")),
        page["run"],
        _within(page["rows"], 1, 2**32 - 1, "rows"),
        _within(page["size"], 1, PARTS_MAX * page_size, "size"),
        fence,
        page["low"],
    )


def _within(value: int, low: int, high: int, what: str) -> int:
    if not low <= value <= high:
        raise ValueError(f"{what} {value}")
    return value
