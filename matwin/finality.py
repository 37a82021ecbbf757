"""What is final: which probe rows no later row can match, and which base rows nobody needs.

            base frontier F: every later base row is at or above it
                     ▼
    probe  ──────┼───────────▶ order attribute       final: probe + hi < F
                 └─hi─┘

    base   ──┼───────────────▶                       needed: base >= lowest open probe + lo
             └─lo─┘ lowest open probe row

Everything is reckoned in order keys.  Integers and times are exact.  Floats err on the safe side by
a few units in the last place, because the predicate's own difference is rounded: a row may be final
one row later than it could be, and never too early.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.columns import INT64_MAX, INT64_MIN, float_key
from matwin.storage.errors import InputError

from .attributes import Attribute
from .keys import float_of_key

SAFETY = 8 * 2.0**-52
NOTHING = INT64_MIN - 1
"""Below every order key."""
DONE = INT64_MAX + 1
"""Above every order key: the frontier of a side that has ended."""


class Finality:
    """The order attribute of a question, seen from the side that probes."""

    def __init__(self, attribute: Attribute, *, is_float: bool) -> None:
        self._lo, self._hi = attribute.lo, attribute.hi
        self._is_float = is_float
        self._is_bounded = attribute.is_number and attribute.is_limited

    def final_upto(self, base_frontier: int) -> int:
        """The last order key of probe rows that no later base row can match, or `NOTHING`."""
        if base_frontier == DONE:
            return INT64_MAX
        if base_frontier == INT64_MIN or not self._is_bounded:
            return NOTHING
        if self._is_float:
            return self._float_shifted(base_frontier, -float(self._hi or 0), -1) - 1
        return max(min(base_frontier - int(self._hi or 0) - 1, INT64_MAX), NOTHING)

    def needed_from(self, lowest_open: int) -> int:
        """The first order key of base rows that a probe row at or above `lowest_open` can match."""
        if lowest_open == DONE:
            return DONE
        if lowest_open == INT64_MIN or not self._is_bounded:
            return INT64_MIN
        if self._is_float:
            return self._float_shifted(lowest_open, float(self._lo or 0), -1)
        return max(min(lowest_open + int(self._lo or 0), INT64_MAX), INT64_MIN)

    def within_reach(self, low: int, high: int) -> tuple[int, int]:
        """The order keys of base rows that probe rows from `low` to `high` can match."""
        if not self._is_bounded:
            return INT64_MIN, INT64_MAX
        if self._is_float:
            up = self._float_shifted(high, float(self._hi or 0), 1)
        else:
            up = max(min(high + int(self._hi or 0), INT64_MAX), INT64_MIN)
        return self.needed_from(low), up

    def _float_shifted(self, key: int, by: float, sign: int) -> int:
        value = float_of_key(key)
        with np.errstate(over="ignore"):
            shifted = value + by
            safe = np.float64(shifted + sign * (SAFETY * abs(value) + SAFETY * abs(by)))
        return int(float_key(np.array([safe]))[0])


def check_streamable(attribute: Attribute, side: str) -> None:
    """A stream's order attribute needs a tolerance, or its window would never end."""
    if not (attribute.is_number and attribute.is_limited):
        raise InputError(
            f"{side}: a stream's order attribute {attribute.name!r} needs a tolerance, on both "
            "sides: without one every row would have to be kept for ever"
        )
