"""What the benchmarks of joins measure: cases, their tables, and the joins themselves.

    Case            plane      x and y uniform in the unit square, one ε for both
     ├─ tables()    keyed      an integer time and an equality key
     └─ run()       growing    ε stays, x or the time grows with the rows: the same window

ε is chosen so that a row has about `matches` rows of the other side within reach.  A case is made
of plain values and makes its tables itself, so that a child process can be told what to measure in
one line.  All joins are drained batch by batch, Arrow in to Arrow out, and nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import matwin

THREADS = 2
TIME_RANGE = 10**9
TICKS_A_ROW = 1_000
STRIP_WIDTH = 0.01
"""ε of a growing plane: a hundred cells across, and along as many as the rows fill."""
WARM_ROWS = 500
REPEAT_SECONDS = 30.0
"""What has taken this long is not repeated: noise matters less, the wait more."""


@dataclass(frozen=True, slots=True)
class Case:
    """One join on random tables of the same size."""

    join: str
    rows: int
    matches: int
    keys: int = 0
    texts: int = 0
    is_growing: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """What the case is called in tables.

        >>> Case("epsilon", 10, 9, keys=1000).name, Case("bestmatch", 10, 32).name
        ('ε-join, 1,000 keys', 'left bestmatch 2-D')
        """
        what = {"epsilon": "ε-join", "bestmatch": "left bestmatch"}[self.join]
        where = f", {self.keys:,} keys" if self.keys else " 2-D"
        return what + where + (f", {self.texts} texts a side" if self.texts else "")

    def of_rows(self, rows: int) -> Case:
        """The same with another number of rows."""
        return replace(self, rows=rows)

    @property
    def epsilon(self) -> float | int:
        """How far apart partners may be."""
        if self.keys:
            return max(round(self.matches * self.keys * self._time_range / self.rows / 2), 1)
        return STRIP_WIDTH if self.is_growing else (self.matches / self.rows) ** 0.5 / 2

    @property
    def _time_range(self) -> int:
        return self.rows * TICKS_A_ROW if self.is_growing else TIME_RANGE

    @property
    def on(self) -> dict[str, float | int]:
        """The attributes with their tolerances."""
        return {"t": self.epsilon} if self.keys else {"x": self.epsilon, "y": self.epsilon}

    @property
    def by(self) -> str | None:
        """The equality key."""
        return "k" if self.keys else None

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Both sides."""
        return self._table(0), self._table(1)

    def _table(self, side: int) -> pa.Table:
        generator = np.random.default_rng([self.seed, side])
        columns: dict[str, Any] = {}
        if self.keys:
            columns["k"] = generator.integers(0, self.keys, self.rows)
            columns["t"] = generator.integers(0, self._time_range, self.rows)
        else:
            length = self.rows * (2 * STRIP_WIDTH) ** 2 / self.matches if self.is_growing else 1.0
            columns["x"] = generator.random(self.rows) * length
            columns["y"] = generator.random(self.rows)
        columns["id"] = np.arange(self.rows)
        return pa.table({**columns, **_texts(self.texts, columns["id"])})

    def run(self, left: pa.Table, right: pa.Table, **options: Any) -> int:
        """Join the tables; how many rows came out."""
        call = matwin.epsilon_join if self.join == "epsilon" else matwin.bestmatch_join
        options = {"threads": THREADS, **options}
        return drain(call(left, right, on=self.on, by=self.by, **options))


def _texts(count: int, numbers: Any) -> dict[str, pa.Array]:
    """Text columns of 8 to 30 bytes a row: few values, many values, one for each row."""
    digits = [pa.array(numbers % few).cast(pa.string()) for few in (100, 10_000, 1 << 40)]
    words = ("room ", "sensor number ", "a remark on the reading ")
    return {
        f"text{at}": pc.binary_join_element_wise(pa.scalar(words[at % 3]), digits[at % 3], "")
        for at in range(count)
    }


def drain(batches: Iterable[pa.RecordBatch]) -> int:
    """Take all batches and keep none; how many rows there were."""
    return sum(batch.num_rows for batch in batches)


@dataclass(frozen=True, slots=True)
class Timed:
    """The shortest time of several runs, and the rows that came out."""

    seconds: float
    rows_out: int


def timed(work: Callable[[], int], repeat: int = 1) -> Timed:
    """Run it some times; what takes long, once."""
    best, spent, rows_out = float("inf"), 0.0, 0
    for _ in range(repeat):
        start = time.perf_counter()
        rows_out = work()
        seconds = time.perf_counter() - start
        best, spent = min(best, seconds), spent + seconds
        if spent > REPEAT_SECONDS:
            break
    return Timed(best, rows_out)


def warm(case: Case, **options: Any) -> None:
    """Run the join on a few rows of the same types, so that no time has compiling in it."""
    case.run(*case.of_rows(min(case.rows, WARM_ROWS)).tables(), **options)
