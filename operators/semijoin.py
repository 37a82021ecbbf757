"""Window joins of two streams at two nodes: ship all rows, or first what is needed to find matches.

T. Tran, B. S. Lee, M. W. Bovee: Why Not Semijoins for Streams, When Distributed?  (SPJ and SMJ)

    left ──▶ node 1 ══ link ══ node 2 ◀── right       semijoin_nodes.py: what the nodes do
                                 └──▶ rows            semijoin_link.py:  what goes between, counted
                                                      semijoin_cost.py:  what it should cost

Both streams are read here in one process, in the order of their times, and each row is handed to
its node; rows of the left stream reach node 2 only inside messages.  The link is settled after each
block, so that nothing is under way when the next begins: the paper's assumption.  Whoever wants
delays takes `SimpleJoin` or `SemiJoin` and delivers messages as he likes.

The result is the window join's, row for row, whatever is shipped and in blocks of any size; only
`Last`, which counts rows, sees another order when blocks are larger (left rows of a block come to
node 2 before its right rows).  A row whose time or key is null or NaN matches nothing; it is not
shipped and takes no place in a window.

Left out: sorting (streams come in order, or there is an `OrderError`), outer joins, and kernels.
This measures and checks an algorithm of single tuples; joins that are to be fast are
`matwin.window_join` and, where rows really are at many nodes, `matwin.spark`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.output import BATCH_ROWS
from matwin.side import Side
from matwin.sources import Source, two_sources
from matwin.storage.columns import Int64s, is_numeric, physical
from matwin.storage.errors import InputError, OrderError

from .semijoin_link import Counts as Counts
from .semijoin_link import Link as Link
from .semijoin_nodes import Pair, SemiJoin, SimpleJoin
from .semijoin_window import Last as Last
from .semijoin_window import Row, Spans
from .wjoin.question import WindowQuestion

SHIPS = ("partial", "full")


def semijoin(
    left: object,
    right: object,
    *,
    time: object,
    by: object,
    window: object,
    ship: str = "partial",
    link: Link | None = None,
    block: int = 1,
    resend: bool = True,
) -> pa.RecordBatchReader:
    """Rows of two streams with the same key whose times are within the window of each other.

    `window` is a duration, a pair ``(lo, hi)`` around 0 for ``lo <= right - left <= hi``, or `Last`
    for windows of so many rows.  The left stream is shipped: in full, or key and time first.  What
    goes over the `link` is counted there.  Output columns are named as `matwin.window_join` names
    them.

    >>> orders = pa.table({"t": [1, 2, 9], "k": ["a", "b", "a"], "text": ["x" * 99] * 3})
    >>> clicks = pa.table({"t": [3, 4], "k": ["a", "c"]})
    >>> for ship in ("full", "partial"):
    ...     link = Link()
    ...     found = semijoin(orders, clicks, time="t", by="k", window=5, ship=ship, link=link)
    ...     print(found.read_all().num_rows, link.count().messages, link.count().size_bytes)
    1 3 348
    1 5 168
    """
    if ship not in SHIPS:
        raise InputError(f"ship={ship!r}: give one of {', '.join(map(repr, SHIPS))}")
    if not isinstance(block, int) or block < 1:
        raise InputError(f"block={block!r}: give a number of rows from 1 on")
    if by is None:
        raise InputError("by=None: a semijoin ships keys, so name at least one key column")
    sources = two_sources(left, right)
    question, windows = _asked(sources, time=time, by=by, window=window)
    line = Link() if link is None else link
    join = SimpleJoin(windows, line) if ship == "full" else SemiJoin(windows, line, resend=resend)
    return pa.RecordBatchReader.from_batches(
        question.schema, _results(question, sources, join, block)
    )


def _asked(
    sources: tuple[Source, Source], *, time: object, by: object, window: object
) -> tuple[WindowQuestion, Last | Spans]:
    """The window join that has the same columns, and the windows of both nodes."""
    counted = window if isinstance(window, Last) else None
    spans = (0, 0) if counted else window
    question = WindowQuestion.of(
        dict(zip(("left", "right"), sources, strict=True)), time=time, by=by, where=None,
        windows={("left", "right"): spans},
    )  # fmt: skip
    if counted:
        return question, counted
    between = question.constraints.alternatives[0][0]
    if not between.lo <= 0 <= between.hi:
        raise InputError(
            f"window={window!r}: a node meets what has come before, so the pair goes from 0 or "
            "less to 0 or more"
        )
    return question, Spans(between.hi, -between.lo)


def _results(
    question: WindowQuestion, sources: tuple[Source, Source], join: SimpleJoin | SemiJoin,
    block: int,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    ours, theirs = (_Reader(s, q) for s, q in zip(sources, question.sides, strict=True))
    for of_left, of_right in _blocks(ours, theirs, block):
        if of_left:
            join.node_1.insert(of_left)
            join.link.settle()
        if of_right:
            join.node_2.insert(of_right)
            join.link.settle()
        join.node_2.advance(max(rows[-1].time for rows in (of_left, of_right) if rows))
        if len(join.node_2.pairs) >= BATCH_ROWS:
            yield from _gathered(question, join.node_2.pairs)
            join.node_2.pairs.clear()
    yield from _gathered(question, join.node_2.pairs)


# ── in ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Piece:
    """Usable rows of one batch in order of time, and how far they have been taken."""

    order: Int64s
    rows: list[Row]
    taken: int = 0

    @property
    def next_order(self) -> int:
        return int(self.order[self.taken])

    def take(self, end: int) -> list[Row]:
        taken, self.taken = self.rows[self.taken : end], end
        return taken


class _Reader:
    """A stream's rows, a batch at a time; the order is checked."""

    def __init__(self, source: Source, side: Side) -> None:
        self._side, self._batches = side, source.batches()
        self._came = self._used = 0
        self._latest: int | None = None
        self._piece: _Piece | None = None

    def piece(self) -> _Piece | None:
        """What is to be taken next; None at the end."""
        while self._piece is None or self._piece.taken == len(self._piece.rows):
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._piece = self._prepared(batch)
        return self._piece

    def _prepared(self, batch: pa.RecordBatch) -> _Piece:
        usable, _, _ = self._side.prepare(batch, self._came)
        self._came += batch.num_rows
        order = self._side.order_keys(usable)
        self._check_order(order)
        times, _ = physical(usable.column(self._side.grid.order.name))
        full = row_bytes(usable, self._side.schema.names)
        partial = row_bytes(usable, [self._side.grid.order.name, *self._side.keys])
        first = self._used
        self._used += usable.num_rows
        columns = (times.tolist(), _keys(usable, self._side.keys), full.tolist(), partial.tolist())
        rows = [
            Row(first + at, time, key, (usable, at), whole, part)
            for at, (time, key, whole, part) in enumerate(zip(*columns, strict=True))
        ]
        return _Piece(order, rows)

    def _check_order(self, order: Int64s) -> None:
        if not len(order):
            return
        before = order[:1] if self._latest is None else np.array([self._latest], np.int64)
        late = np.flatnonzero(order < np.concatenate([before, order[:-1]]))
        if len(late):
            raise OrderError(
                f"{self._side.name}: usable row {self._used + int(late[0])} is earlier than the "
                "row before it; nodes meet rows as they come, so sort the stream by its time first"
            )
        self._latest = int(order[-1])


def _keys(rows: pa.RecordBatch, names: Sequence[str]) -> list[Any]:
    columns = []
    for name in names:
        column = rows.column(name)
        numeric = is_numeric(column.type)
        columns.append(physical(column)[0].tolist() if numeric else column.to_pylist())
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def row_bytes(rows: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Bytes of each row in some columns, as values alone: what a message of it has to carry.

    >>> row_bytes(pa.record_batch({"t": [1, 2], "k": ["a", None]}), ["t", "k"]).tolist()
    [13, 12]
    """
    total = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = rows.column(name)
        try:
            total += -(-column.type.bit_width // 8)
        except ValueError:  # no fixed width
            total += _varying_bytes(column)
    return total


def _varying_bytes(column: pa.Array) -> npt.NDArray[np.int64]:
    tests, kind = pa.types, column.type
    is_text = tests.is_string(kind) or tests.is_binary(kind)
    if is_text or tests.is_large_string(kind) or tests.is_large_binary(kind):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        offset = 4 if is_text else 8
        return np.asarray(lengths, np.int64) + offset
    return np.full(len(column), column.nbytes // max(len(column), 1), np.int64)


def _runs(ours: _Reader, theirs: _Reader) -> Iterator[tuple[bool, list[Row]]]:
    """Rows of both streams in order of time, the left one's first where times are equal."""
    while True:
        mine, other = ours.piece(), theirs.piece()
        if mine is None and other is None:
            return
        if other is None or (mine is not None and mine.next_order <= other.next_order):
            assert mine is not None
            end = len(mine.rows)
            if other is not None:
                end = int(np.searchsorted(mine.order, other.next_order, "right"))
            yield True, mine.take(end)
        else:
            end = len(other.rows)
            if mine is not None:
                end = int(np.searchsorted(other.order, mine.next_order, "left"))
            yield False, other.take(end)


def _blocks(ours: _Reader, theirs: _Reader, block: int) -> Iterator[tuple[list[Row], list[Row]]]:
    """So many rows at a time, left and right ones."""
    of_left: list[Row] = []
    of_right: list[Row] = []
    for is_left, rows in _runs(ours, theirs):
        for row in rows:
            (of_left if is_left else of_right).append(row)
            if len(of_left) + len(of_right) == block:
                yield of_left, of_right
                of_left, of_right = [], []
    if of_left or of_right:
        yield of_left, of_right


# ── out ──────────────────────────────────────────────────────────────────────────────────────


def _gathered(question: WindowQuestion, pairs: list[Pair]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(pairs), BATCH_ROWS):
        part = pairs[first : first + BATCH_ROWS]
        sides = [_rows_of([pair[number] for pair in part]) for number in (0, 1)]
        columns = [sides[stream].column(name) for stream, name in question.origins]
        table = pa.Table.from_arrays(columns, schema=question.schema)
        yield from table.combine_chunks().to_batches()


def _rows_of(cells: list[tuple[pa.RecordBatch, int]]) -> pa.Table:
    """Rows of batches: each cell a batch, and a row of it."""
    starts: dict[int, int] = {}
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch, _ in cells:
        if id(batch) not in starts:
            starts[id(batch)], rows = rows, rows + batch.num_rows
            batches.append(batch)
    places = [starts[id(batch)] + at for batch, at in cells]
    return pa.Table.from_batches(batches).take(pa.array(places, pa.int64()))
