"""The smallest budget in which a window join works, from what its rows are."""

from __future__ import annotations

from matwin.need import Need
from matwin.options import Options
from matwin.storage.materialize.tail import smallest_for_row
from matwin.storage.pool import smallest_budget

from .block import BYTES_PER_ROW
from .question import WindowQuestion

LEFT_FREE = 0.25
"""What gathering rows, output, tails and what is written leave of a budget, at least."""

LIVE = 4
"""Shares of what sorting may take that a live stream's rows have, with those that gather."""


class StreamsNeed(Need):
    """Windows of all streams, and a page of each held at a time."""

    def __init__(self, question: WindowQuestion, options: Options, *, is_live: bool) -> None:
        super().__init__(options)
        self._sides = question.sides
        self._is_live = is_live

    def _smallest(self, ties: int, page: int) -> int:
        streams = len(self._sides)
        # Only one window of each sorts; live rows gather beside them, in half of the budget.
        windows = (LIVE if self._is_live else 1) * streams
        keys = max(len(side.grid.names) for side in self._sides) + 2
        tail = smallest_for_row(self._row_max, keys, windows)
        blocks = streams * self._rows_of(page) * BYTES_PER_ROW
        held = (streams + 1) * max(page, self._row_max) + blocks
        return max(smallest_budget(page), tail, int(held / LEFT_FREE))
