"""Judging: every probe row with its eligible base rows, in one compiled loop.

    for each probe row, ascending in ε-Grid-Order
        its strips            found anew when a leading coordinate changes
        their spans           moved on when the last coordinate changes
        eligible base rows    every constraint tested exactly
        ALL: each of them     BEST: those that no other dominates     ANY: the row itself, once

Where cells are the values themselves and the nearest one is best, only the nearest rows are tested:
a tolerance of an hour then costs what one of a second does.

Integers are tested as ``l + lo <= r <= l + hi`` with saturated sums (a bound may need 65 bits and
comes in three parts of one sign); floats as ``lo <= r - l <= hi`` in float64.  The keys that BEST
compares are ``int64`` whatever the type: a distance of integers as an unsigned number with its top
bit flipped, a float by its bits, which ascend with it when it is not negative.

Of the best ones those go at once that the rule for ties can't keep (`ties`): of a thousand equal
rows one is written.

The loop stops before the output is full and says at which row to go on, so that the space for
results is bounded; where one row's own results need more than all of it, it says how much.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.columns import INT64_MAX, INT64_MIN
from matwin.storage.kernel import kernel

from .skyline import best_first
from .strips import FROM, LIMIT, advance, nearest, saturated, spans_at_start, strips_of

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]
Int: TypeAlias = Any

TOP_BIT = np.uint64(1 << 63)
ALL, BEST, ANY = 0, 1, 2
PARTS = 3
INT_DISTANCE, FLOAT_DISTANCE, INT_YOUNGEST, FLOAT_YOUNGEST, INDIFFERENT = 0, 1, 2, 3, 4


@kernel(outputs=3)
def judge(
    probe_cells: Int64s, probe_order: Int64s, probe_ints: Int64s, probe_floats: Float64s,
    base_cells: Int64s, base_ints: Int64s, base_floats: Float64s, base_pieces: Int64s,
    down: Int64s, up: Int64s, int_bounds: Int64s, float_bounds: Float64s,
    kinds: Int64s, columns: Int64s, nonzero_ints: Int64s, nonzero_floats: Int64s,
    firsts: Int64s, base_ranks: Int64s,
    mode: Int, is_nearest: Int, few_rows: Int,
    first: Int, limit: Int, order_first: Int, order_last: Int,
    out_probe: Int64s, out_base: Int64s, out_keys: Int64s,
) -> tuple[Int, Int, Int]:  # fmt: skip
    """Judge rows `first` to `limit` whose order key lies between `order_first` and `order_last`.

    The row to go on at, how many results were written, and how many the next row has if it needs
    more room than there is in all.
    """
    last = base_cells.shape[1] - 1
    strips = np.empty((16, 3), np.int64)
    spans = np.empty((16, 2), np.int64)
    near = np.empty((16, 2), np.int64)
    found = np.empty(64, np.int64)
    keys = np.empty((64, len(kinds)), np.int64)
    sums = np.empty((max(len(int_bounds), 1), 2), np.int64)
    strip_count = total = written = np.int64(0)
    before = -1
    has_nonzero = len(nonzero_ints) + len(nonzero_floats) > 0
    is_any = mode == ANY and not has_nonzero
    for row in range(first, limit):
        if probe_order[row] < order_first or probe_order[row] > order_last:
            continue
        if before < 0 or _has_new_prefix(probe_cells, before, row):
            strips, strip_count = strips_of(
                base_cells, base_pieces, probe_cells, row, down, up, few_rows, strips
            )  # fmt: skip
            spans = spans_at_start(strips, strip_count, spans)
            before = -1
        if before < 0 or probe_cells[before, last] != probe_cells[row, last]:
            cell = probe_cells[row, last]
            total = advance(base_cells, cell, down[last], up[last], strips, strip_count, spans)
        before = row
        if total == 0:
            continue
        if total >= len(found):
            found = np.empty(2 * total, np.int64)
            keys = np.empty((2 * total if mode == BEST else 0, len(kinds)), np.int64)
        _set_sums(probe_ints, row, int_bounds, sums)
        tested = spans
        if is_nearest and not has_nonzero:  # the nearest may be equal ones
            tested = near = nearest(
                base_cells, probe_cells[row, last], strips, strip_count, spans, few_rows, near
            )  # fmt: skip
        count = _eligible(
            probe_floats, base_ints, base_floats, row, sums, float_bounds, tested, spans,
            strip_count, found, is_any,
        )  # fmt: skip
        if has_nonzero:
            count = _without_equal(
                probe_ints, probe_floats, base_ints, base_floats, row, nonzero_ints,
                nonzero_floats, found, count,
            )  # fmt: skip
            count = min(count, np.int64(1)) if mode == ANY else count
        if count == 0:
            continue
        if mode == BEST:
            _set_keys(
                probe_ints, probe_floats, base_ints, base_floats, row, found, count, kinds,
                columns, keys,
            )  # fmt: skip
            count = best_first(keys, found, count)
            if len(firsts) > 0 and count > 1:
                count = _foremost(keys, found, count, firsts)
            if len(base_ranks) > 0 and count > 1:
                count = _one_of_equals(keys, found, count, base_ranks)
        if written + count > len(out_probe):
            return row, written, count if written == 0 else 0
        key_count = len(kinds) if mode == BEST and len(out_keys) > 0 else 0
        _put(row, found, keys, count, key_count, written, out_probe, out_base, out_keys)
        written += count
    return limit, written, 0


@kernel
def _foremost(keys: Int64s, found: Int64s, count: Int, firsts: Int64s) -> Int:
    """Move the pairs that are best in the first attributes to the front; how many they are."""
    for i in range(len(firsts)):
        column = firsts[i]
        least = keys[0, column]
        for k in range(count):
            least = min(least, keys[k, column])
        kept = np.int64(0)
        for k in range(count):
            if keys[k, column] == least:
                _move(keys, found, k, kept)
                kept += 1
        count = kept
    return count


@kernel
def _one_of_equals(keys: Int64s, found: Int64s, count: Int, ranks: Int64s) -> Int:
    """Of pairs with the same keys the one with the least rank, in front; how many they are."""
    kept = np.int64(0)
    for k in range(count):
        same = np.int64(-1)
        for j in range(kept):
            is_same = True
            for i in range(keys.shape[1]):
                is_same &= keys[j, i] == keys[k, i]
            if is_same:
                same = np.int64(j)
                break
        if same < 0:
            _move(keys, found, k, kept)
            kept += 1
        elif ranks[found[k]] < ranks[found[same]]:
            found[same] = found[k]
    return kept


@kernel
def _move(keys: Int64s, found: Int64s, source: Int, to: Int) -> None:
    if source != to:
        for i in range(keys.shape[1]):
            keys[to, i] = keys[source, i]
        found[to] = found[source]


@kernel
def _put(
    row: Int, found: Int64s, keys: Int64s, count: Int, key_count: Int,
    at: Int, out_probe: Int64s, out_base: Int64s, out_keys: Int64s,
) -> None:  # fmt: skip
    """Write a row's results, from a place of the output on."""
    for k in range(count):
        out_probe[at + k] = row
        out_base[at + k] = found[k]
        for i in range(key_count):
            out_keys[at + k, i] = keys[k, i]


@kernel
def _has_new_prefix(cells: Int64s, before: Int, row: Int) -> Int:
    for axis in range(cells.shape[1] - 1):
        if cells[before, axis] != cells[row, axis]:
            return True
    # Only sorted rows move cursors forward.
    last = cells.shape[1] - 1
    return cells[row, last] < cells[before, last]


@kernel
def _set_sums(ints: Int64s, row: Int, bounds: Int64s, sums: Int64s) -> None:
    """The least and the greatest value that each integer of the other row may have.

    A sum below 64 bits admits what a sum at their edge does; but where the least is above them, or
    the greatest below, nothing is admitted.
    """
    for k in range(len(bounds)):
        low = high = ints[row, k]
        is_empty = False
        for part in range(PARTS):
            is_empty |= _exceeds(low, bounds[k, part])
            low = saturated(low, bounds[k, part])
            is_empty |= _falls_short(high, bounds[k, PARTS + part])
            high = saturated(high, bounds[k, PARTS + part])
        sums[k, 0], sums[k, 1] = (INT64_MAX, INT64_MIN) if is_empty else (low, high)


@kernel
def _exceeds(value: Int, by: Int) -> Int:
    return by > 0 and value > INT64_MAX - by


@kernel
def _falls_short(value: Int, by: Int) -> Int:
    return by < 0 and value < INT64_MIN - by


@kernel
def _eligible(
    probe_floats: Float64s, base_ints: Int64s, base_floats: Float64s, row: Int, sums: Int64s,
    float_bounds: Float64s, tested: Int64s, spans: Int64s, strip_count: Int, found: Int64s,
    is_one_enough: Int,
) -> Int:  # fmt: skip
    """Write the eligible base rows of a probe row to `found`; how many they are.

    Of each strip what is `tested` may be a part of its span: the nearest rows.  Where they have
    another key with the same hash, the whole span is tested.

    One call for each probe row and none for each pair: a call counts the references of its arrays,
    35 ns for these, ten times what the test of a pair takes.
    """
    count = np.int64(0)
    for k in range(strip_count):
        start, limit, before = tested[k, FROM], tested[k, LIMIT], count
        while True:
            for base in range(start, limit):
                # Without a branch: about half of the pairs pass, and a wrong guess costs more than
                # all the comparisons.  300k rows, 81 tests a row: 0.31 s with branches, 0.13 s
                # without.
                is_eligible = True
                for i in range(base_ints.shape[1]):
                    value = base_ints[base, i]
                    is_eligible &= (value >= sums[i, 0]) & (value <= sums[i, 1])
                for i in range(base_floats.shape[1]):
                    apart = base_floats[base, i] - probe_floats[row, i]
                    is_eligible &= (apart >= float_bounds[i, 0]) & (apart <= float_bounds[i, 1])
                found[count] = base
                count += is_eligible
            if count > before or (start == spans[k, FROM] and limit == spans[k, LIMIT]):
                break
            start, limit = spans[k, FROM], spans[k, LIMIT]
        if is_one_enough and count:
            return 1
    return count


@kernel
def _without_equal(
    probe_ints: Int64s, probe_floats: Float64s, base_ints: Int64s, base_floats: Float64s,
    row: Int, nonzero_ints: Int64s, nonzero_floats: Int64s, found: Int64s, count: Int,
) -> Int:  # fmt: skip
    """Leave out base rows that are equal where they must differ; how many are left."""
    kept = np.int64(0)
    for k in range(count):
        base = found[k]
        differs = True
        for i in range(len(nonzero_ints)):
            column = nonzero_ints[i]
            differs &= base_ints[base, column] != probe_ints[row, column]
        for i in range(len(nonzero_floats)):
            column = nonzero_floats[i]
            differs &= base_floats[base, column] != probe_floats[row, column]
        found[kept] = base
        kept += differs
    return kept


@kernel
def _set_keys(
    probe_ints: Int64s, probe_floats: Float64s, base_ints: Int64s, base_floats: Float64s,
    row: Int, found: Int64s, count: Int, kinds: Int64s, columns: Int64s, keys: Int64s,
) -> None:  # fmt: skip
    bits = keys.view(np.float64)
    for k in range(len(kinds)):
        column, kind = columns[k], kinds[k]
        if kind == FLOAT_DISTANCE:
            here = probe_floats[row, column]
            for j in range(count):
                bits[j, k] = abs(base_floats[found[j], column] - here)
        elif kind == INT_DISTANCE:
            whole = probe_ints[row, column]
            for j in range(count):
                # Unsigned: the compiler takes for granted that signed differences never wrap.
                there = base_ints[found[j], column]
                high, low = np.uint64(max(whole, there)), np.uint64(min(whole, there))
                keys[j, k] = np.int64((high - low) ^ TOP_BIT)
        elif kind == INDIFFERENT:
            for j in range(count):
                keys[j, k] = 0
        elif kind == INT_YOUNGEST:
            whole = probe_ints[row, column]
            for j in range(count):
                keys[j, k] = ~max(whole, base_ints[found[j], column])
        else:
            here = probe_floats[row, column]
            for j in range(count):
                bits[j, k] = max(here, base_floats[found[j], column]) + 0.0
                key = keys[j, k]
                keys[j, k] = ~(key ^ INT64_MAX if key < 0 else key)
