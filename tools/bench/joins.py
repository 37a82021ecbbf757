"""What the benchmarks of joins measure: cases, their tables, and the joins themselves.

    Case            plane      x and y uniform in the unit square, one ε for both; 1-D: x alone
     ├─ sources()   keyed      an integer time and an equality key
     └─ run()       growing    ε stays, x or the time grows with the rows: the same window
                    narrow     t within half of its range, so that only x can divide the rows

    layout          uniform    keys are equally frequent, rows in no order
                    skewed     the n-th key is 1/n as frequent as the first
                    hot        nine in ten rows have the first key
                    sorted     rows in the order of the first attribute

ε is chosen so that a row has about `matches` rows of the other side within reach.  A case is made
of plain values and makes its tables itself, so that a child process can be told what to measure in
one line.  All joins are drained batch by batch, Arrow in to Arrow out, and nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import matwin

THREADS = 2
TIME_RANGE = 10**9
TICKS_A_ROW = 1_000
STRIP_WIDTH = 0.01
"""ε of a growing plane: a hundred cells across, and along as many as the rows fill."""
HALF_RANGE = 0.5
"""The first tolerance of a narrow case: three quarters of the rows are within it."""
UNIFORM, SKEWED, HOT, SORTED = "uniform", "skewed", "hot", "sorted"
HOT_SHARE = 0.9
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
    dimensions: int = 2
    how: str = "left"
    """Of bestmatch joins; ε-joins are inner."""
    row_bytes: int = 0
    """Numbers nobody joins by are added until a row has so many bytes."""
    is_narrow: bool = False
    layout: str = UNIFORM

    @property
    def name(self) -> str:
        """What the case is called in tables.

        >>> Case("epsilon", 10, 9, keys=1000).name, Case("bestmatch", 10, 32).name
        ('ε-join, 1,000 keys', 'left bestmatch 2-D')
        """
        what = {"epsilon": "ε-join", "bestmatch": f"{self.how} bestmatch"}[self.join]
        where = f", {self.keys:,} keys" if self.keys else f" {self.dimensions}-D"
        where += ", narrow" * self.is_narrow
        return what + where + (f", {self.texts} texts a side" if self.texts else "")

    def of_rows(self, rows: int) -> Self:
        """The same with another number of rows."""
        return replace(self, rows=rows)

    @property
    def epsilon(self) -> float | int:
        """How far apart partners may be."""
        if self.keys:
            return max(round(self.matches * self.even_keys * self._time_range / self.rows / 2), 1)
        if self.is_narrow:
            return self.matches / self.rows / 2 / (1 - (1 - HALF_RANGE) ** 2)
        if self.is_growing:
            return STRIP_WIDTH
        return float((self.matches / self.rows) ** (1 / self.dimensions)) / 2

    @property
    def even_keys(self) -> float:
        """So many keys, all of them as frequent, would have as many pairs of rows in common."""
        return float(1 / (self._shares**2).sum())

    @property
    def _shares(self) -> npt.NDArray[np.float64]:
        """How frequent each key is."""
        if self.layout == HOT and self.keys > 1:
            others = (1 - HOT_SHARE) / (self.keys - 1)
            return np.array([HOT_SHARE, *[others] * (self.keys - 1)])
        ranks = np.arange(1, self.keys + 1) if self.layout == SKEWED else np.ones(self.keys)
        shares: npt.NDArray[np.float64] = 1 / ranks / (1 / ranks).sum()
        return shares

    @property
    def _time_range(self) -> int:
        return self.rows * TICKS_A_ROW if self.is_growing else TIME_RANGE

    @property
    def on(self) -> dict[str, float | int]:
        """The attributes with their tolerances."""
        if self.is_narrow:
            return {"t": HALF_RANGE, "x": self.epsilon}
        return dict.fromkeys(["t"] if self.keys else "xyz"[: self.dimensions], self.epsilon)

    @property
    def by(self) -> str | None:
        """The equality key."""
        return "k" if self.keys else None

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Both sides."""
        return self.table(0), self.table(1)

    def sources(self) -> tuple[pa.Table, ...]:
        """All that is joined."""
        return self.tables()

    def table(self, side: int) -> pa.Table:
        """One side."""
        generator = np.random.default_rng([self.seed, side])
        columns: dict[str, Any] = {}
        if self.keys:
            columns["k"] = self._keys(generator)
            columns["t"] = generator.integers(0, self._time_range, self.rows)
        else:
            length = self.rows * (2 * STRIP_WIDTH) ** 2 / self.matches if self.is_growing else 1.0
            for name in self.on:
                columns[name] = generator.random(self.rows) * length
                length = 1.0  # only the first attribute grows
        if self.layout == SORTED:
            order = np.argsort(columns[next(iter(self.on))])
            columns = {name: values[order] for name, values in columns.items()}
        columns["id"] = np.arange(self.rows)
        for number in range(len(columns), self.row_bytes // 8):
            columns[f"number{number}"] = generator.random(self.rows)
        return pa.table({**columns, **_texts(self.texts, columns["id"])})

    def _keys(self, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        if self.layout in (SKEWED, HOT):
            return generator.choice(self.keys, self.rows, p=self._shares)
        return generator.integers(0, self.keys, self.rows)

    def run(self, left: pa.Table, right: pa.Table, **options: Any) -> int:
        """Join the tables; how many rows came out."""
        call: Any = matwin.epsilon_join if self.join == "epsilon" else matwin.bestmatch_join
        how = "inner" if self.join == "epsilon" else self.how
        options = {"threads": THREADS, **options}
        return drain(call(left, right, on=self.on, by=self.by, how=how, **options))


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
    few = case.of_rows(min(case.rows, WARM_ROWS))
    few.run(*few.sources(), **options)
