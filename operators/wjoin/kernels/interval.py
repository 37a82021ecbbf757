"""Times of a tuple's rows: the interval they leave for one more row, and whether two of them agree.

Signed differences may wrap in 64 bits, so sums saturate and differences are unsigned.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UNLIMITED_DOWN, UNLIMITED_UP = INT64_MIN, INT64_MAX
"""Bounds that stand for none."""


@kernel
def saturated(a, b):  # type: ignore[no-untyped-def]
    """``a + b`` within 64 bits."""
    total = np.int64(np.uint64(a) + np.uint64(b))
    if a >= 0 and b >= 0 and total < 0:
        return np.int64(INT64_MAX)
    if a < 0 and b < 0 and total >= 0:
        return np.int64(INT64_MIN)
    return total


@kernel
def narrow(lows, highs, times, rows, down, up):  # type: ignore[no-untyped-def]
    """Bring every interval within ``times[row] + down`` and ``times[row] + up``.

    An interval that lies beyond the end of 64 bits is empty: there is no such time.
    """
    for p in range(len(rows)):
        t = times[rows[p]]
        if down != UNLIMITED_DOWN:
            low = saturated(t, down)
            if down > 0 and low - down != t:
                highs[p] = INT64_MIN
                lows[p] = INT64_MAX
            lows[p] = max(lows[p], low)
        if up != UNLIMITED_UP:
            high = saturated(t, up)
            if up < 0 and high - up != t:
                highs[p] = INT64_MIN
                lows[p] = INT64_MAX
            highs[p] = min(highs[p], high)


@kernel
def agree(mask, a, a_rows, b, b_rows, lo, hi):  # type: ignore[no-untyped-def]
    """Clear the mask where not ``lo <= b - a <= hi``."""
    for p in range(len(mask)):
        x, y = a[a_rows[p]], b[b_rows[p]]
        if y >= x:
            apart = np.uint64(y) - np.uint64(x)
            good = hi >= 0 and apart <= np.uint64(hi) and (lo <= 0 or apart >= np.uint64(lo))
        else:
            apart = np.uint64(x) - np.uint64(y)
            good = lo < 0 and apart <= np.uint64(-lo) and (hi >= 0 or apart >= np.uint64(-hi))
        mask[p] = mask[p] and good
