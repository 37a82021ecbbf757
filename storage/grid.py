"""ε-Grid-Order: which cell a row lies in, and which cells it can reach.

The space of the join attributes is cut into cells, ε wide in every dimension.  Rows are ordered
by their cells, dimension by dimension, the equality keys first:

      x ▲                        (t, x) cells in ε-Grid-Order:
      2 │  3   6   9             (0,0) (0,1) (0,2) (1,0) … (2,2)
      1 │  2   5   8
      0 │  1   4   7             what lies within ε of a row in cell (1,1) lies in the cells
        └────────────▶ t         (0,0) … (2,2) around it, and so between two places of the order
           0   1   2

Invariants:
* The cell is monotone in the value.  Whole numbers and times are divided exactly, by their order
  keys, so that `uint64` fits as well; floats lie in cells that are as fine as floats go
  (`float_cells.py`).  Every cell number fits 64 bits.  Only the largest whole number of all shares
  the cell before its own when cells are 1 wide, because that one is `NO_CELL`.
* No two values that the predicate ``lo <= right - left <= hi`` accepts lie outside each other's
  `Dimension.reach`, whatever the rounding.  Floats exactly ε apart can land two cells apart when
  cells are exactly ε wide, because the difference is rounded as well; our float cells are wider by
  one part in a million (`FLOAT_SLACK`), so that one cell on each side suffices again.  The reach
  is computed from the width in force and widens by itself where the slack does not suffice.
* One side of a tolerance may be without a limit: there the bound is one that no two values reach.
* Null and NaN lie in the cell `NO_CELL`, after all others and within no other cell's reach.

The papers' printed inequality orders cells downward; this order is ascending.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .arrays import as_numpy
from .columns import (
    INT64_MAX,
    INT64_MIN,
    Int64s,
    comparable,
    is_measurable,
    key_code,
    order_key,
)
from .encodings import plain_type
from .errors import InputError
from .float_cells import SEAM, float_cells, float_reach
from .names import listed
from .units import Counts, Tolerance, limits_of

NO_CELL = INT64_MAX
LAST_CELL = INT64_MAX - 1
FIRST_CELL = INT64_MIN
FLOAT_SLACK = 2.0**-20


@dataclass(frozen=True, slots=True)
class Key:
    """An equality key: a leading dimension in which only the same cell is within reach."""

    name: str

    @classmethod
    def of(cls, field: pa.Field) -> Key:
        """The key of a column whose type can be one."""
        key_code(pa.nulls(0, plain_type(field.type)), field.name)
        return cls(field.name)

    def cells(self, column: pa.Array) -> Int64s:
        """Equal values in equal cells, null in `NO_CELL`."""
        codes = key_code(column, self.name)
        valid = as_numpy(column.is_valid()) if column.null_count else None
        clamped = np.minimum(codes, LAST_CELL)
        if pa.types.is_floating(column.type):
            return np.where(codes == NO_CELL, NO_CELL, clamped)
        return clamped if valid is None else np.where(valid, clamped, NO_CELL)

    def reach(self, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """The cells that rows of the cells `first` to `last` can meet: the same ones."""
        return first, last

    def steps(self, cells: Int64s) -> tuple[int, int]:
        """How many cells down and up rows of these cells can meet: none."""
        return 0, 0


@dataclass(frozen=True, slots=True)
class Dimension:
    """A join attribute with its tolerance, in the column's own unit.

    `lo` and `hi` bound ``right - left``; both None leaves the attribute unconstrained, and then
    every value shares one cell.  `width` is the width of a cell.
    """

    name: str
    lo: int | float | None
    hi: int | float | None
    width: int | float

    @classmethod
    def of(cls, field: pa.Field, tolerance: Tolerance | Counts) -> Dimension:
        """The dimension of a column with a tolerance as a user writes it.

        >>> Dimension.of(pa.field("t", pa.timestamp("ms")), "10min")
        Dimension(name='t', lo=-600000, hi=600000, width=600000)
        >>> Dimension.of(pa.field("t", pa.int64()), (-10, 0)).width
        5
        """
        if not is_measurable(field.type):
            raise InputError(
                f"column {field.name!r} is {field.type}; a join attribute must be a number, "
                "a time, a date or a duration"
            )
        limits = limits_of(tolerance, field)
        if limits is None:
            return cls(field.name, None, None, 0)
        lo, hi = limits
        is_float = pa.types.is_floating(field.type)
        return cls(field.name, lo, hi, _float_width(lo, hi) if is_float else _int_width(lo, hi))

    def cells(self, column: pa.Array) -> Int64s:
        """The cell of each value; `NO_CELL` for null and NaN."""
        values, valid = comparable(column)
        if self.lo is None:
            cells = np.zeros(len(column), np.int64)
        elif values.dtype == np.float64:
            cells = float_cells(values, self.width)
        else:
            cells = np.minimum(order_key(column) // np.int64(self.width), LAST_CELL)
        return cells if valid is None else np.where(valid, cells, NO_CELL)

    def reach(self, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """The first and last cell that rows of the cells `first` to `last` can meet.

        >>> near = Dimension.of(pa.field("x", pa.float64()), 0.1)
        >>> [c.tolist() for c in near.reach(np.array([7]), np.array([7]))]
        [[6], [8]]
        """
        if self.lo is None or self.hi is None:
            return np.full_like(first, FIRST_CELL), np.full_like(last, LAST_CELL)
        if self.width == 0:
            return first, last
        if isinstance(self.width, float):
            return float_reach(first, last, float(self.lo), float(self.hi), self.width)
        down, up = self._whole_steps(self.width)
        # The last cell may hold a value more than one of its width.
        return _shifted(first, down), np.where(last >= LAST_CELL, LAST_CELL, _shifted(last, up))

    def steps(self, cells: Int64s) -> tuple[int, int]:
        """How many cells down and up rows of these cells can meet: the most that one of them needs.

        The same for all cells of whole numbers.  For floats it depends on rounding, and beyond the
        seam on the distance of neighbouring floats.
        """
        if self.lo is None or self.hi is None or self.width == 0 or not len(cells):
            return 0, 0
        if not isinstance(self.width, float):
            return self._whole_steps(self.width)
        # A value in cell c satisfies c - e <= value / width < c + 1 + e, where e bounds what the
        # rounding of quotient, difference and cell number adds up to.
        farthest = max(abs(float(cells.min())), abs(float(cells.max())))
        down, up = self.lo / self.width, 1.0 + self.hi / self.width
        if farthest + abs(down) + abs(up) + 4 < SEAM:
            error = (2 * farthest + abs(down) + abs(up) + 4) * 2.0**-50
            return math.floor(down - error), math.ceil(up + error) - 1
        first, last = self.reach(cells, cells)
        return _least_difference(first, cells), -_least_difference(cells, last)

    def _whole_steps(self, width: int) -> tuple[int, int]:
        lo, hi = int(self.lo or 0), int(self.hi or 0)
        return lo // width, (width - 1 + hi) // width

    @property
    def limits(self) -> Counts | None:
        """The tolerance as it is in force, for another column of the same unit."""
        return None if self.lo is None or self.hi is None else Counts(self.lo, self.hi)

    def swapped(self) -> Dimension:
        """The same constraint seen from the other side."""
        if self.lo is None or self.hi is None:
            return self
        return Dimension(self.name, -self.hi, -self.lo, self.width)


def _int_width(lo: int | float, hi: int | float) -> int:
    half = -((int(lo) - int(hi)) // 2)
    return min(max(half, 1), INT64_MAX)


def _float_width(lo: float, hi: float) -> float:
    half = hi / 2 - lo / 2
    widest = half if half > 0 else max(abs(lo), abs(hi))
    return min(float(widest * (1 + FLOAT_SLACK)), 1.7976931348623157e308)


def _least_difference(these: Int64s, those: Int64s) -> int:
    """The least of ``these - those``, which may need 65 bits."""
    is_below = these < those
    if is_below.any():
        return -int((those[is_below].view(np.uint64) - these[is_below].view(np.uint64)).max())
    return int((these.view(np.uint64) - those.view(np.uint64)).min())


def _shifted(cells: Int64s, by: int) -> Int64s:
    """``cells + by`` with saturation, for any Python integer `by`."""
    edge = LAST_CELL if by >= 0 else FIRST_CELL
    limit = edge - by
    if not INT64_MIN <= limit <= INT64_MAX:
        return np.full_like(cells, edge)
    moved = (cells.view(np.uint64) + np.uint64(by % 2**64)).view(np.int64)
    return np.where(cells > limit if by >= 0 else cells < limit, edge, moved)


@dataclass(frozen=True, slots=True)
class Grid:
    """The equality keys and dimensions that order a window; the first dimension is the order
    attribute, by which streams are sorted and windows expire."""

    keys: tuple[Key, ...]
    dimensions: tuple[Dimension, ...]

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        on: Mapping[str, Tolerance | Counts],
        by: str | Sequence[str] | None = None,
    ) -> Grid:
        """The grid of a schema, from tolerances by column and equality keys.

        >>> schema = pa.schema([("t", pa.int64()), ("room", pa.string())])
        >>> Grid.of(schema, on={"t": 10}, by="room").names
        ('room', 't')
        """
        names = [by] if isinstance(by, str) else list(by or ())
        if not on:
            raise InputError("on={} names no column; give at least the order attribute")
        if len({*names, *on}) != len(names) + len(on):
            raise InputError("a column is named twice among the join attributes")
        fields = [_field(schema, name) for name in on]
        for field in fields:
            if pa.types.is_decimal(field.type):
                raise InputError(
                    f"column {field.name!r} is {field.type}; pages are ordered by numbers of 64 "
                    "bits: give counts of its last digit as int64"
                )
        dimensions = tuple(map(Dimension.of, fields, on.values()))
        return cls(tuple(Key.of(_field(schema, name)) for name in names), dimensions)

    @property
    def order(self) -> Dimension:
        """The order attribute."""
        return self.dimensions[0]

    @property
    def axes(self) -> tuple[Key | Dimension, ...]:
        """Keys, then dimensions: one for each coordinate of a cell."""
        return (*self.keys, *self.dimensions)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that lead a page, in the order of the cell's coordinates."""
        return tuple(d.name for d in self.axes)

    def cells(self, batch: pa.RecordBatch) -> list[Int64s]:
        """One array of cell coordinates for each key and dimension."""
        return [d.cells(batch.column(d.name)) for d in self.axes]

    def sort_keys(self, batch: pa.RecordBatch) -> list[Int64s]:
        """What ε-Grid-Order sorts by: the cells, then the order attribute."""
        return [*self.cells(batch), order_key(batch.column(self.order.name))]


def _field(schema: pa.Schema, name: str) -> pa.Field:
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        problem = "is not there" if not places else "stands there twice"
        raise InputError(f"column {name!r} {problem}; the columns are {listed(schema.names)}")
    return schema.field(places[0])
