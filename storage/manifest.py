"""What a completed step keeps of every window, as one Arrow IPC stream.

    window   number  form  schema   grid  next_page  pages: list of
    left          0  slab  (bytes)  …       41    {page, run, rows, size, low, fence}

The complete record carries these bytes under its checksum.  No page is read to reopen a store: the
fences are here, and a page that does not agree with them fails its own checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .layout import Fence, PageId
from .materialize.window import WindowState
from .runs import PageRef

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


def pack_states(states: Mapping[str, tuple[int, WindowState]]) -> bytes:
    """The states of all windows as bytes."""
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
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
    return bytes(sink.getvalue())


def _packed(ref: PageRef) -> dict[str, object]:
    fence = ref.fence
    return {
        "page": ref.page_id.page, "run": ref.run, "rows": ref.rows, "size": ref.size,
        "low": ref.low, "first": fence.first, "last": fence.last,
        "order_min": fence.order_min, "order_max": fence.order_max,
    }  # fmt: skip


def unpack_states(data: bytes) -> dict[str, tuple[int, WindowState]]:
    """The states of all windows from bytes whose checksum has been checked."""
    states = {}
    for row in pa.ipc.open_stream(data).read_all().to_pylist():
        refs = [_unpacked(row["number"], page) for page in row["pages"]]
        schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
        state = WindowState(row["form"], schema, row["grid"], row["next_page"], refs)
        states[row["window"]] = (row["number"], state)
    return states


def _unpacked(window: int, page: dict[str, Any]) -> PageRef:
    fence = Fence(tuple(page["first"]), tuple(page["last"]), page["order_min"], page["order_max"])
    page_id = PageId(window, page["page"])
    return PageRef(page_id, page["run"], page["rows"], page["size"], fence, page["low"])
