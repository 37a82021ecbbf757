"""The last row before, and the first row after: one pass over both sides in order of time.

    base    a1  b1      a2          b2        last[a] = a2, last[b] = b1 when the probe row
    probe               ▲ b                   comes: b finds b1

Keys are dense numbers, so that what was seen last of a key is one look at an array.  A row costs a
few nanoseconds, whatever the tolerance, and nothing is sorted that is in order already.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any

NOBODY = -1


@kernel(outputs=2)
def last_before(
    first: Int, limit: Int, probe_at: Int64s, probe_times: Int64s, probe_codes: Int64s,
    base_at: Int64s, base_times: Int64s, base_codes: Int64s,
    least: Int, is_strict: Int, is_first: Int, last: Int64s, found: Int64s,
) -> None:  # fmt: skip
    """For each probe row the last base row of its key that is not after it (or before it).

    `probe_at` and `base_at` are the rows in order of time, empty where they lie in that order; the
    probe rows are those from `first` to `limit` of it.  A key's number is its code less `least`.
    Of base rows at the same time the last in their order counts, or the first.
    """
    come, rows = 0, len(base_times)
    for i in range(first, limit):
        row = probe_at[i] if len(probe_at) else i
        time = probe_times[row]
        while come < rows:
            base = base_at[come] if len(base_at) else come
            at = base_times[base]
            if at > time or (is_strict and at == time):
                break
            key = base_codes[base] - least
            if not is_first or last[key] < 0 or base_times[last[key]] != at:
                last[key] = base
            come += 1
        found[row] = last[probe_codes[row] - least]


@kernel(outputs=2)
def first_after(
    first: Int, limit: Int, probe_at: Int64s, probe_times: Int64s, probe_codes: Int64s,
    base_at: Int64s, base_times: Int64s, base_codes: Int64s,
    least: Int, is_strict: Int, is_first: Int, last: Int64s, found: Int64s,
) -> None:  # fmt: skip
    """The same from the end: the first base row that is not before a probe row."""
    come = len(base_times) - 1
    for i in range(limit - 1, first - 1, -1):
        row = probe_at[i] if len(probe_at) else i
        time = probe_times[row]
        while come >= 0:
            base = base_at[come] if len(base_at) else come
            at = base_times[base]
            if at < time or (is_strict and at == time):
                break
            key = base_codes[base] - least
            if is_first or last[key] < 0 or base_times[last[key]] != at:
                last[key] = base
            come -= 1
        found[row] = last[probe_codes[row] - least]


@kernel
def number_keys(codes: Int64s, table: Int64s, seen: Int64s, numbers: Int64s) -> Int:
    """Give every distinct code a number, in `numbers`; how many there are.

    `table` has a power of two of places, more than there are codes, -1 where there is none yet;
    `seen` are the codes by number.
    """
    mask, count = len(table) - 1, 0
    for row in range(len(codes)):
        code = codes[row]
        mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
        place = np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))
        while table[place] >= 0 and seen[table[place]] != code:
            place = (place + 1) & mask
        if table[place] < 0:
            table[place] = count
            seen[count] = code
            count += 1
        numbers[row] = table[place]
    return count
