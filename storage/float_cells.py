"""Cells of floats: as wide as they were asked for, or as fine as floats go.

    value    0 ········ 2⁵² · width ─────────────────────▶
    cell     floor(value / width)   │ one cell for each float, counted by its order key
                                  the seam

A cell can't be narrower than the distance of neighbouring floats, and at 2⁵² widths from zero that
distance is about half a width.  Beyond the seam every float is a cell of its own.  So Unix times in
seconds with a tolerance of 0.1 ns lie in cells that tell them apart, and no cell number needs more
than 64 bits: nothing is clamped.

Invariants: the cell is monotone in the value.  `ends` never lie inside a cell.  The reach of a cell
is found from the values at its ends, moved by the tolerance, so it is right on both sides of the
seam and across it; it is a neighbour or two too wide, never too narrow.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .columns import Int64s, float_key, floats_of_keys

SEAM = 2**52
DOUBT = 4
"""Neighbouring floats by which a rounded product or quotient may be off, and two more."""
_LARGEST = sys.float_info.max
_VANISHING = 2.0**-1074  # a quotient below this vanishes to -0.0, which lies in cell 0


def float_cells(values: Any, width: float) -> Int64s:
    """The cell of each value; a width of 0 is that of equal floats.  NaN lies anywhere."""
    if width == 0:
        return float_key(values)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        quotients = values / width
    # min and max are NaN where one value is.
    if quotients.size == 0 or (quotients.min() > -SEAM and quotients.max() < SEAM):
        near: Int64s = np.floor(quotients).astype(np.int64)
        return near
    is_far = ~(np.abs(quotients) < SEAM)
    floors = np.floor(np.where(is_far, 0.0, quotients)).astype(np.int64)
    steps = SEAM + np.maximum(float_key(np.abs(values)) - _seam_key(width), 0)
    return np.where(is_far, np.where(values < 0, -steps, steps), floors)


def float_reach(
    first: Int64s, last: Int64s, lo: float, hi: float, width: float
) -> tuple[Int64s, Int64s]:
    """The cells of all values z for which ``lo <= z - y <= hi``, for y of the cells `first` to
    `last`.  The difference is rounded, so a real one a little outside is within as well."""
    least, _ = ends(first, width)
    _, greatest = ends(last, width)
    with np.errstate(over="ignore"):
        low = np.nextafter(least + np.nextafter(lo, -np.inf), -np.inf)
        high = np.nextafter(greatest + np.nextafter(hi, np.inf), np.inf)
    return float_cells(low, width), float_cells(high, width)


def ends(cells: Int64s, width: float) -> tuple[Any, Any]:
    """Finite values that no finite value of each cell is below, and none above."""
    edge = np.clip(cells, -SEAM, SEAM).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        least = np.where(edge == 0, -width * _VANISHING, edge * width)
        greatest = (edge + 1) * width
    least, greatest = _moved(least, -DOUBT), _moved(greatest, DOUBT)
    is_far = (cells < -SEAM) | (cells > SEAM)
    if is_far.any():
        base = _seam_key(width) - SEAM
        top = int(float_key(np.array([_LARGEST]))[0]) - base
        held = np.clip(cells, -top, top)
        own = np.copysign(floats_of_keys(np.abs(held) + base), held)
        least, greatest = np.where(is_far, own, least), np.where(is_far, own, greatest)
    return least, greatest


def _seam_key(width: float) -> int:
    """The order key of the first float beyond the seam."""
    return int(float_key(np.array([min(width * SEAM, _LARGEST)]))[0])


def _moved(values: Any, by: int) -> Any:
    """The floats so many neighbours further on, up to the largest."""
    lowest, highest = float_key(np.array([-_LARGEST, _LARGEST])).tolist()
    keys = np.clip(float_key(np.clip(values, -_LARGEST, _LARGEST)) + by, lowest, highest)
    return floats_of_keys(keys)
