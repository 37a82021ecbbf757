"""A trace as a browser can take it in: narrow columns, deflated, in base64.

    Events ──▶ codes for names, pages and reasons ──▶ narrowest integers ──▶ deflate ──▶ base64

A page is a *key*, the number of its (window, page) among all of the trace, so that the browser
keeps what it knows of pages in arrays.  What only grows (sequence, time, epoch) goes as
differences.  A million events of a walk take about 5 MiB.

The layouts of walks leave the column of reasons, where they would be shown as text, and come as a
list of their own, with pages as keys.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.trace import EVENTS

from .events import Events, Int64s
from .walks import Walked, walks

Array = npt.NDArray[Any]
NARROW = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
WIDE = "float64"  # exact up to 2**53, and the only wide number that a browser counts with
GROWING = ("seq", "time_ns", "epoch")
UNKNOWN = "(unknown)"


@dataclass(frozen=True, slots=True)
class Block:
    """Some bytes for the browser: an array of `dtype`, or text of JSON."""

    name: str
    dtype: str
    is_delta: bool
    text: str

    def head(self) -> dict[str, object]:
        """What the browser has to know to unpack it."""
        return {"name": self.name, "dtype": self.dtype, "delta": self.is_delta}


@dataclass(frozen=True, slots=True)
class Packed:
    """A whole trace: the names that codes stand for, and the blocks."""

    count: int
    kinds: list[str]
    windows: list[str]
    blocks: list[Block]


def pack(events: Events, summary: dict[str, Any]) -> Packed:
    """The events of a trace, its walks and its summary as blocks."""
    every = walks(events)
    keys = _Keys(events, every)
    whys, why = reasons(events, every)
    columns = {
        "seq": events.seq,
        "time_ns": events.time_ns,
        "event": np.where(events.kind < 0, len(EVENTS), events.kind),
        "key": keys.key,
        "frame": events.frame,
        "bytes": events.size,
        "epoch": events.epoch,
        "mate": keys.mate,
        "why": why,
        "key_window": keys.windows,
        "key_page": keys.pages,
    }
    if every and every[0].owners is not None:
        columns["owner"] = every[0].owners
    blocks = [array_block(name, values) for name, values in columns.items()]
    layouts = [_layout(walk, keys) for walk in every]
    texts = {"reasons": whys, "walks": layouts, "summary": summary}
    blocks += [json_block(name, value) for name, value in texts.items()]
    return Packed(len(events), [*EVENTS, UNKNOWN], keys.names, blocks)


# ── codes ────────────────────────────────────────────────────────────────────────────────────────


class _Keys:
    """Numbers for every (window, page) in events and layouts, in the order of both."""

    def __init__(self, events: Events, every: list[Walked]) -> None:
        self.names = list(dict.fromkeys([*events.names, *_named(every)]))
        number = {name: at for at, name in enumerate(self.names)}
        windows, pages = [events.window, events.mate_window], [events.page, events.mate_page]
        for walk in every:
            for own, sides in (
                (walk.left_pages, ((walk.left, walk.left_count),)),
                (walk.right_pages, walk.right_windows),
            ):
                windows.append(np.repeat([number[n] for n, _ in sides], [c for _, c in sides]))
                pages.append(own)
        numbers, place = np.unique(np.concatenate(pages), return_inverse=True)
        span = max(len(numbers), 1)
        both, key = np.unique(np.concatenate(windows) * span + place, return_inverse=True)
        self.key, self.mate, *self.sides = np.split(key, np.cumsum([len(p) for p in pages])[:-1])
        self.windows: Int64s = both // span
        self.pages: Int64s = numbers[both % span]


def _named(every: list[Walked]) -> list[str]:
    """The windows of the walks' layouts; of some there may be no event."""
    return [name for walk in every for name, _ in walk.right_windows]


def reasons(events: Events, every: list[Walked]) -> tuple[list[str], Int64s]:
    """The different reasons, and which of them each event has; a plan's is its explanation."""
    texts = pc.fill_null(events.table["why"], "").combine_chunks()
    if isinstance(texts, pa.ChunkedArray):  # as releases of Arrow differ
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.utf8())
    encoded = texts.dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    why: Int64s = encoded.indices.to_numpy().astype(np.int64)
    for walk in every:
        found[why[walk.start]] = walk.explain
    return found, why


def _layout(walk: Walked, keys: _Keys) -> dict[str, object]:
    """A walk as the browser gets it: `reach` is one flat list of left, first, limit."""
    left, right = keys.sides[2 * walk.number], keys.sides[2 * walk.number + 1]
    return {
        "start": walk.start,
        "end": walk.end,
        "outcome": walk.outcome,
        "mode": walk.mode,
        "frames": walk.frames,
        "page_reads": walk.page_reads,
        "pairs": walk.reach.pairs,
        "explain": walk.explain,
        "is_self": walk.is_self,
        "is_contested": walk.is_contested,
        "names": [walk.left, walk.right],
        "rights": [name for name, _ in walk.right_windows],
        "left": left.tolist(),
        "right": [] if walk.is_self else right.tolist(),
        "reach": [place for triple in walk.triples for place in triple],
    }


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────


def array_block(name: str, values: Int64s) -> Block:
    """A column as a block, in the narrowest type that holds it."""
    is_delta = name in GROWING
    narrow = _narrow(np.diff(values, prepend=0) if is_delta else values)
    return Block(name, narrow.dtype.name, is_delta, _text(narrow.tobytes()))


def json_block(name: str, value: object) -> Block:
    """Anything else as a block.  A lone surrogate is escaped, so that it is no invalid UTF-8."""
    return Block(name, "json", False, _text(json.dumps(value, separators=(",", ":")).encode()))


def unpack(block: Block) -> Any:
    """What is in a block, as the browser gets it.

    >>> unpack(array_block("time_ns", np.array([5, 7, 300]))).tolist()
    [5, 7, 300]
    """
    data = zlib.decompress(base64.b64decode(block.text))
    if block.dtype == "json":
        return json.loads(data)
    values = np.frombuffer(data, np.dtype(block.dtype).newbyteorder("<"))
    wide = np.float64 if block.dtype == WIDE else np.int64
    return np.cumsum(values, dtype=wide) if block.is_delta else values.astype(wide)


def _narrow(values: Int64s) -> Array:
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for name in (*NARROW, WIDE):
        limits = np.iinfo(name) if name != WIDE else None
        if limits is None or (limits.min <= least and most <= limits.max):
            break
    return values.astype(np.dtype(name).newbyteorder("<"))


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")
