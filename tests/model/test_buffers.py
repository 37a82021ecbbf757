"""Windows in memory against plain lists: rows come, are found, go, and are handed on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.operators.wjoin.block import Blocks
from matwin.operators.wjoin.buffers import Buffer
from matwin.operators.wjoin.kernels import expand
from matwin.side import Side

SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("t", pa.int64()), ("small", pa.int32()), ("price", pa.float32()),
        ("when", pa.timestamp("us")), ("flag", pa.bool_()), ("text", pa.string()),
    ]
)  # fmt: skip
FIXED = pa.schema([SCHEMA.field(name) for name in ("k", "t", "small", "when")])


def blocks_of(schema: pa.Schema) -> Blocks:
    return Blocks(
        Side.of_stream(
            "a", schema, time=("t", pa.int64()), width=10, keys=[("k", pa.int64())]
        )
    )  # fmt: skip


def rows_of(schema: pa.Schema, number: int, keys: list[int], times: list[int]) -> pa.RecordBatch:
    """Rows whose other values tell which they are; every third is null."""
    numbers = [None if i % 3 == 0 else i for i in range(number, number + len(keys))]
    own = {"k": keys, "t": times, "text": [n and f"row {n}" for n in numbers],
           "flag": [n and n % 2 == 0 for n in numbers]}  # fmt: skip
    columns = [pa.array(own.get(f.name, numbers), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class Model:
    """A buffer, and the rows that have ever come to it."""

    schema: pa.Schema
    is_linked: bool
    rows: list[dict[str, object]] = field(default_factory=list)
    bound: int = -1

    def __post_init__(self) -> None:
        self.blocks = blocks_of(self.schema)
        self.buffer = Buffer(self.blocks, by_time=not self.is_linked, is_linked=self.is_linked)

    def append(self, keys: list[int], times: list[int]) -> None:
        # As a slice: what a column's offset is must not matter.
        batch = rows_of(self.schema, len(self.rows) - 1, [0, *keys], [0, *times]).slice(1)
        self.buffer.append(self.blocks.of(batch))
        self.rows += batch.to_pylist()

    def drop(self, bound: int) -> None:
        self.bound = max(bound, self.bound)
        self.buffer.drop_below(bound)

    def found(self, key: int, low: int, high: int) -> list[dict[str, object]]:
        """Rows of a key within an interval, by what the buffer says of them."""
        buffer = self.buffer
        if buffer.rows == 0:  # nobody asks
            return []
        if self.is_linked:
            at = chained(buffer, key, low, high)
        else:
            is_in = (buffer.times >= low) & (buffer.times <= high) & (buffer.keys == key)
            at = np.flatnonzero(is_in)
            at = at[at >= buffer.oldest]
        columns = buffer.columns_at(self.schema.names, at)
        sizes = buffer.bytes_at(at)
        assert isinstance(sizes, int) or len(sizes) == len(at)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema).to_pylist()

    def wanted(self, key: int, low: int, high: int) -> list[dict[str, object]]:
        return [row for row in self.rows if row["k"] == key and low <= row["t"] <= high]


def chained(buffer: Buffer, key: int, low: int, high: int) -> np.ndarray:
    keys, lows, highs = (np.array([value], np.int64) for value in (key, low, high))
    out = np.empty(1000, np.int64), np.empty(1000, np.int64)
    filled, _, _ = expand.chain(
        buffer.table, buffer.nodes, buffer.base, buffer.oldest, keys, lows, highs, 0, 1, -1, *out
    )
    return out[1][:filled]


def bag(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 8)), max_size=40),
        st.integers(0, 40),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(STEPS, st.booleans(), st.booleans())
def test_a_buffer_finds_what_a_list_finds(
    steps: list[tuple[list[tuple[int, int]], int]], is_linked: bool, has_texts: bool
) -> None:
    """Times go on, now and then back; so many are dropped that the arrays are moved, and keys that
    were there before come again."""
    model, now = Model(SCHEMA if has_texts else FIXED, is_linked=is_linked), 0
    for rows, window in steps:
        times = [now + ahead for _, ahead in rows]
        model.append([key for key, _ in rows], times)
        now = max([now, *times]) + 1
        model.drop(now - window)
        for key in range(8):
            low = model.bound  # below it rows may be there or not
            assert bag(model.found(key, low, now)) == bag(model.wanted(key, low, now))
            middle = (low + now) // 2
            assert bag(model.found(key, low, middle)) == bag(model.wanted(key, low, middle))


@given(STEPS, st.booleans(), st.booleans())
def test_rows_that_are_handed_on_stay_as_they_are(
    steps: list[tuple[list[tuple[int, int]], int]], is_linked: bool, has_texts: bool
) -> None:
    """They are not copied, and the buffer goes on."""
    model, now, lent = Model(SCHEMA if has_texts else FIXED, is_linked=is_linked), 0, []
    for rows, window in steps:
        times = [now + ahead for _, ahead in rows]
        model.append([key for key, _ in rows], times)
        now = max([now, *times]) + 1
        model.drop(now - window)
        batches = model.buffer.batches()
        lent.append((batches, [row for batch in batches for row in batch.to_pylist()]))
    for batches, before in lent:
        assert [row for batch in batches for row in batch.to_pylist()] == before
    alive = bag([row for row in model.rows if row["t"] >= model.bound])
    popped = [row for batch in model.buffer.popped() for row in batch.to_pylist()]
    assert set(alive) <= set(bag(popped))
    assert model.buffer.rows == 0 and model.buffer.batches() == []


@pytest.mark.parametrize("keys", [1, 50, 100_000])
def test_a_table_keeps_no_chains_of_rows_that_are_gone(keys: int) -> None:
    """Keys that come once and never again: the table is as large as the window needs."""
    model = Model(FIXED, is_linked=True)
    for start in range(0, 50_000, 500):
        times = list(range(start, start + 500))
        model.append([time % keys for time in times], times)
        model.drop(start - 500)
    assert model.buffer.rows <= 1_000
    assert len(model.buffer.table) <= 16 * 1_000
    assert len(model.found(49_999 % keys, 0, 60_000)) == len(
        [t for t in range(49_000, 50_000) if t % keys == 49_999 % keys]
    )


def test_jumps_go_on_after_rows_were_moved() -> None:
    """A hot key's chain whose older nodes are gone: any place is still a few jumps away."""
    model, rows = Model(FIXED, is_linked=True), 1 << 10
    for start in range(0, 8 * rows, 64):
        model.append([7] * 64, list(range(start, start + 64)))
        model.drop(start - rows)
    nodes, base = model.buffer.nodes, model.buffer.base
    assert base > 0
    for high in range(7 * rows, 8 * rows, 37):
        row, steps = 8 * rows - 1, 0
        while nodes[row - base, expand.TIME] > high:
            is_past = nodes[row - base, expand.LEAST] > high
            row = int(nodes[row - base, expand.JUMP if is_past else expand.BEFORE])
            steps += 1
        assert row == high
        assert steps <= 4 * 11


def test_what_a_buffer_holds_is_what_was_written() -> None:
    """Room to grow is no memory until it is written; and nothing that is written is left out."""
    model, count = Model(FIXED, is_linked=True), 100_000
    for start in range(0, count, 10_000):
        model.append([7] * 10_000, list(range(start, start + 10_000)))
    row = 8 * expand.COLUMNS_LINKED + 8 + 8 + 4 + 8
    assert count * row <= model.buffer.held_bytes
    assert model.buffer.held_bytes <= count * row + 5 * (2 << 20) + model.buffer.table.nbytes
