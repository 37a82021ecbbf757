"""Blocks: rows in ε-Grid-Order as the plain arrays that kernels take.

    stored rows ──▶ cells  [rows, keys + dimensions]     where they lie
                    ints   [rows, keys + integer attributes]
                    floats [rows, float attributes]      what is compared, exactly
                    order  [rows]                        the order attribute as order key

A page is a block, and so is a whole table in memory: judging one block against another is all that
any join here does.  `Terms` are the constants of a question in the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s, comparable
from matwin.storage.grid import Grid
from matwin.storage.ordering import sort_order

from .attributes import Attribute
from .kernels import judge as kernel
from .question import Question
from .side import Side
from .ties import ALL, Ties

Float64s = npt.NDArray[np.float64]
TOP_BIT = np.uint64(1 << 63)
KINDS = {
    "distance": (kernel.INT_DISTANCE, kernel.FLOAT_DISTANCE),
    "youngest": (kernel.INT_YOUNGEST, kernel.FLOAT_YOUNGEST),
    "indifferent": (kernel.INDIFFERENT, kernel.INDIFFERENT),
}
"""The kernel's own keys by the names that measures have for them: of integers, and of floats."""


NO_RANKS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in ε-Grid-Order."""

    cells: Int64s
    order: Int64s
    ints: Int64s
    floats: Float64s
    ranks: Int64s = field(default_factory=lambda: NO_RANKS)
    """What says who comes first of equally good matches (`ties`), where that is asked."""
    is_flat: bool = False
    """Whether all rows are in one cell, in any order: every pair is tested."""
    pieces: Int64s | None = None
    """Where each stretch begins and ends that is in order by itself; None: it is one.  What lies
    between them is no part of the block."""

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.order)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a question demands, seen from the side that probes."""

    int_bounds: Int64s
    float_bounds: Float64s
    kinds: Int64s
    columns: Int64s
    nonzero_ints: Int64s
    nonzero_floats: Int64s
    """The columns of either matrix in which a pair must differ."""
    is_compiled: bool
    """Whether the kernel itself knows every order."""

    @classmethod
    def of(cls, question: Question) -> Terms:
        """The terms of a question whose left side probes."""
        ints: list[tuple[int, ...]] = [(0,) * 2 * kernel.PARTS for _ in question.keys]
        floats: list[tuple[float, float]] = []
        kinds, columns = [], []
        nonzero: tuple[list[int], list[int]] = ([], [])
        for a in question.attributes:
            if a.is_nonzero:
                nonzero[_is_float(a)].append(len(floats) if _is_float(a) else len(ints))
            if a.is_number and not _is_float(a):
                columns.append(len(ints))
                ints.append((*_parts(a.lo, -1), *_parts(a.hi, 1)))
            elif a.is_number:
                columns.append(len(floats))
                floats.append(
                    (-np.inf, np.inf) if a.lo is None else (float(a.lo), float(a.hi or 0))
                )
            kinds.append(_kind(a))
        is_compiled = all(kind is not None for kind in kinds)
        return cls(
            np.array(ints, np.int64).reshape(len(ints), 2 * kernel.PARTS),
            np.array(floats, np.float64).reshape(len(floats), 2),
            np.array(kinds if is_compiled else [], np.int64),
            np.array(columns if is_compiled else [], np.int64),
            np.array(nonzero[0], np.int64),
            np.array(nonzero[1], np.int64),
            is_compiled,
        )


def _is_float(attribute: Attribute) -> bool:
    return bool(pa.types.is_floating(attribute.type))


def _kind(attribute: Attribute) -> int | None:
    measure = attribute.order.measure
    if measure is None or measure.kernel is None:
        return None
    of_ints, of_floats = KINDS[measure.kernel]
    return of_floats if _is_float(attribute) else of_ints


def _parts(bound: float | int | None, sign: int) -> tuple[int, ...]:
    """A bound of up to 65 bits as numbers of its sign whose saturated sums mean the same."""
    rest = sign * 2**64 if bound is None else max(min(int(bound), 2**64), -(2**64))
    parts = []
    for _ in range(kernel.PARTS):
        parts.append(max(min(rest, INT64_MAX), INT64_MIN))
        rest -= parts[-1]
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Blocks:
    """How rows of one side become blocks."""

    side: Side
    question: Question
    grid: Grid
    ties: Ties = ALL

    def sorted(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Block]:
        """The rows by their cells, and their block (see `ordered`)."""
        order, keys = self._by_cells(rows)
        if order is not None:
            rows = rows.take(arrow(order))
        # Of the sorted rows: a matrix sorted by rows takes twice as long as all of their columns.
        return rows, self._all_to_be_judged(keys, *self._values(rows), self._ranks(rows))

    def ordered(self, rows: pa.RecordBatch) -> tuple[Int64s | None, Block]:
        """The block of rows by their cells, and where each of them lies; None: as they are.

        Within a cell they are in no order, and the block does not know their order keys: it is for
        rows that are all to be judged.
        """
        order, keys = self._by_cells(rows)
        ranks = self._ranks(rows)
        if order is not None and len(ranks):
            ranks = ranks[order]
        return order, self._all_to_be_judged(keys, *self._values(rows, order), ranks)

    def _by_cells(self, rows: pa.RecordBatch) -> tuple[Int64s | None, list[Int64s]]:
        """The order of the rows by their cells, and these in that order."""
        keys = [self.order_keys(rows)] if self.is_one_integer else []
        cells = [axis.cells(rows.column(axis.name)) for axis in self.grid.axes]
        keys = [*cells[: len(self.grid.keys)], *keys] if keys else cells
        order = sort_order(keys) if rows.num_rows else None
        return order, keys if order is None else [key[order] for key in keys]

    def _all_to_be_judged(
        self, keys: list[Int64s], ints: Int64s, floats: Float64s, ranks: Int64s
    ) -> Block:
        return Block(np.column_stack(keys), np.zeros(len(ints), np.int64), ints, floats, ranks)

    def _ranks(self, rows: pa.RecordBatch) -> Int64s:
        return self.ties.ranks(rows) if self.ties.columns else NO_RANKS

    def order_keys(self, rows: pa.RecordBatch) -> Int64s:
        """The order attribute as order keys."""
        return self.side.order_keys(rows)

    def of(self, rows: pa.RecordBatch) -> Block:
        """The block of rows that are in ε-Grid-Order already."""
        return self._block(rows, self.grid.sort_keys(rows))

    def flat(self, rows: pa.RecordBatch, order: Int64s) -> Block:
        """The block of rows in any order."""
        ints, floats = self._values(rows)
        cells, ranks = np.zeros((rows.num_rows, 1), np.int64), self._ranks(rows)
        return Block(cells, order, ints, floats, ranks, is_flat=True)

    def _block(self, rows: pa.RecordBatch, keys: list[Int64s]) -> Block:
        cells = np.column_stack(keys[:-1])
        if self.is_one_integer:
            cells[:, -1] = keys[-1]
        ints, floats = self._values(rows)
        return Block(cells, keys[-1], ints, floats, self._ranks(rows))

    @property
    def is_one_integer(self) -> bool:
        """Whether the only dimension is an integer with a tolerance: rows then ascend by its value
        within their key, so the value serves as cell and the search is exact."""
        dimensions = self.grid.dimensions
        a = self.question.order
        return len(dimensions) == 1 and a.is_number and a.is_constrained and not _is_float(a)

    def _values(self, rows: pa.RecordBatch, order: Int64s | None = None) -> tuple[Int64s, Float64s]:
        """Keys and attributes of rows, as they lie or in an order."""
        ints = self.side.exact_keys(rows)
        floats: list[Float64s] = []
        for name in self.side.attributes:
            if name is None:
                continue
            values, _ = comparable(rows.column(name))
            if values.dtype == np.float64:
                floats.append(values)
            else:
                ints.append(
                    (values ^ TOP_BIT).view(np.int64) if values.dtype == np.uint64 else values
                )
        count = rows.num_rows
        return _matrix(ints, count, np.int64, order), _matrix(floats, count, np.float64, order)

    def bytes_per_row(self) -> int:
        """What a block takes for each row."""
        numbers = sum(name is not None for name in self.side.attributes)
        ranks = self.ties.columns
        return 8 * (len(self.grid.axes) + 1 + len(self.side.keys) + numbers + ranks)


def _matrix(columns: list[Any], rows: int, dtype: Any, order: Int64s | None) -> Any:
    made = np.empty((rows, len(columns)), dtype)
    for at, column in enumerate(columns):
        made[:, at] = column if order is None else column[order]
    return made


def offsets(blocks: Blocks, probe: Block, base: Block) -> tuple[Int64s, Int64s]:
    """How many cells down and up a probe row can reach, on each axis: the most that one needs."""
    if base.is_flat:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    steps = [axis.steps(probe.cells[:, at]) for at, axis in enumerate(blocks.grid.axes)]
    if blocks.is_one_integer:
        steps[-1] = int(blocks.question.order.lo or 0), int(blocks.question.order.hi or 0)
    return _held([down for down, _ in steps]), _held([up for _, up in steps])


def _held(numbers: list[int]) -> Int64s:
    """As 64 bits; what is beyond them is unlimited (`strips.UNLIMITED_UP`)."""
    return np.array([max(min(n, INT64_MAX), INT64_MIN) for n in numbers], np.int64)
