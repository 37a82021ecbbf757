"""MatWin as the paper has it, standard materialization without ε-Grid-Order: a baseline.

    windows of height ε over both streams, ordered by y1 alone, in standard form in our store
    a step    both windows move on; new left rows meet all right rows, old left rows the new ones,
              every pair of them is tested; the best pairs so far, O, are kept beside
              left rows that the windows have left behind go out with their pairs

What the ε-Grid-Order would save, and what is shown here, is testing pairs that are far apart in the
other attributes.  Windows and pages are our storage engine's, so that the difference to our joins
is the algorithm and not the engine.  Steps move by a fraction of ε; the paper moves from tuple to
tuple, which costs a merge of the windows each time.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage import Store, Window

from .paper_data import EPSILON
from .rivals import is_near

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Best:
    """The best pairs so far, ordered by left row: numbers of rows, and their distances."""

    def __init__(self, dimensions: int) -> None:
        self.rows = np.empty((0, 2), np.int64)
        self.distances = np.empty((0, dimensions))

    def add(self, rows: Int64s, distances: Floats) -> None:
        """Take new pairs, and drop what is dominated now."""
        rows = np.concatenate([self.rows, rows])
        distances = np.concatenate([self.distances, distances])
        order = np.argsort(rows[:, 0], kind="stable")
        rows, distances = rows[order], distances[order]
        is_best = best_of_each(rows[:, 0].copy(), distances)
        self.rows, self.distances = rows[is_best], distances[is_best]

    def take_below(self, left_row: int) -> Int64s:
        """Take out the pairs of the left rows before this one."""
        count = int(np.searchsorted(self.rows[:, 0], left_row))
        done, self.rows, self.distances = (
            self.rows[:count], self.rows[count:], self.distances[count:]
        )  # fmt: skip
        return done


def standard_steps(
    left: pa.Table, right: pa.Table, dimensions: int, bounds: Floats, **options: object
) -> int:
    """The constrained left bestmatch of two sorted streams; how many rows came out."""
    sides = [_numbered(table) for table in (left, right)]
    best, rows_out, low = Best(dimensions), 0, -1.0
    with Store(**options) as store:  # type: ignore[arg-type]
        windows = [
            store.window(name, side.schema, on={"y1": EPSILON}, materialize="standard")
            for name, side in zip(("left", "right"), sides, strict=True)
        ]
        for high in bounds.tolist():
            for window, side in zip(windows, sides, strict=True):
                window.append(_between(side, low, high))
            best.add(*_new_pairs(windows, dimensions, low))
            for window in windows:
                window.expire(below=high - EPSILON)
                window.settle()
            open_from = int(np.searchsorted(_y1(sides[0]), high - EPSILON))
            rows_out += _gathered(left, right, best.take_below(open_from))
            low = high
        rows_out += _gathered(left, right, best.take_below(len(left)))
    return rows_out


def _numbered(table: pa.Table) -> pa.RecordBatch:
    numbered = table.append_column("row", pa.array(np.arange(len(table))))
    return numbered.combine_chunks().to_batches()[0]


def _y1(side: pa.RecordBatch) -> Floats:
    values: Floats = side.column("y1").to_numpy()
    return values


def _between(side: pa.RecordBatch, low: float, high: float) -> pa.RecordBatch:
    first, limit = np.searchsorted(_y1(side), [low, high], side="right")
    return side.slice(first, limit - first)


def _new_pairs(windows: list[Window], dimensions: int, low: float) -> tuple[Int64s, Floats]:
    """Pairs within ε that the last step has brought together."""
    values, rows = [], []
    for window in windows:
        table = pa.Table.from_batches(list(window.scan()), window.schema)
        names = [f"y{at + 1}" for at in range(dimensions)]
        values.append(np.column_stack([table[name].to_numpy() for name in names]))
        rows.append(table["row"].to_numpy())
    pairs = all_pairs(values[0], values[1], EPSILON, low)
    distances = np.abs(values[0][pairs[:, 0]] - values[1][pairs[:, 1]])
    return np.column_stack([rows[0][pairs[:, 0]], rows[1][pairs[:, 1]]]), distances


def _gathered(left: pa.Table, right: pa.Table, pairs: Int64s) -> int:
    ours = left.take(pa.array(pairs[:, 0]))
    right.take(pa.array(pairs[:, 1]))
    return int(ours.num_rows)


@numba.njit(nogil=True, cache=True)
def all_pairs(left: Floats, right: Floats, epsilon: float, low: float) -> Int64s:
    """Every pair of both windows of which a row is new (above `low` in y1), tested."""
    pairs = np.empty((1024, 2), np.int64)
    count = 0
    widths = np.full(left.shape[1], epsilon)
    for i in range(len(left)):
        for j in range(len(right)):
            if (left[i, 0] > low or right[j, 0] > low) and is_near(left[i], right[j], widths):
                if count == len(pairs):
                    pairs = np.concatenate((pairs, np.empty_like(pairs)))
                pairs[count, 0], pairs[count, 1] = i, j
                count += 1
    return pairs[:count]


@numba.njit(nogil=True, cache=True)
def best_of_each(groups: Int64s, distances: Floats) -> Bools:
    """Which pairs no other pair of the same group dominates; groups are together."""
    is_best = np.ones(len(groups), np.bool_)
    start = 0
    while start < len(groups):
        stop = start
        while stop < len(groups) and groups[stop] == groups[start]:
            stop += 1
        for at in range(start, stop):
            for other in range(start, stop):
                if is_best[other] and _is_better(distances[other], distances[at]):
                    is_best[at] = False
                    break
        start = stop
    return is_best


@numba.njit(nogil=True, cache=True)
def _is_better(one: Floats, other: Floats) -> bool:
    is_strict = False
    for at in range(len(one)):
        if one[at] > other[at]:
            return False
        is_strict |= one[at] < other[at]
    return is_strict
