"""`matwin bench asof --merge`: as-of joins that do not fit, beside the time in memory and a copy.

    in memory    the same join with room to spare
    copy         the rows written into LMDB and read again, twice, by nobody in particular
    merge        the join in 16 MiB, or in a fortieth of the rows where they are few

CPU seconds of the process, the best run of each, in turns.  The ratio is that of the merge to both
others together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

import pyarrow as pa

import matwin
from matwin.storage.layout import PageId, Piece
from matwin.storage.pagefile import LmdbPageFile

from .asof import Case
from .joins import THREADS
from .measures import Disagreement

Found = TypeVar("Found")
MEMORY = 1 << 24
PLENTY = "8GiB"
COPIED_ROWS, PAGE_BYTES = 8_192, 1 << 18
ASKED: dict[str, dict[str, Any]] = {
    "no key, no tolerance": {},
    "a key": {"by": "k"},
    "a tolerance": {"tolerance": 500},
    "both": {"by": "k", "tolerance": 500_000},
}


@dataclass(frozen=True, slots=True)
class Merged:
    """A question with the seconds of all three."""

    name: str
    rows: int
    memory_bytes: int
    in_memory: float
    copy: float
    merge: float

    @property
    def times(self) -> float:
        """How many times as long as both others together."""
        return self.merge / (self.in_memory + self.copy)


def measure(rows: int, repeat: int, seed: int) -> Iterator[Merged]:
    """Every question, in any order of rows."""
    tables = Case(rows, False, False, seed).tables()
    memory = max(min(MEMORY, sum(table.nbytes for table in tables) // 3), 1 << 17)
    for name, asked in ASKED.items():
        best = [float("inf")] * 3
        counts: set[tuple[int, int]] = set()
        for _ in range(repeat):
            roomy, inside = _spent(partial(_joined, tables, asked, PLENTY))
            _, copy = _spent(partial(_copied, tables))
            small, merge = _spent(partial(_joined, tables, asked, memory))
            counts |= {roomy, small}
            seconds = (inside, copy, merge)
            best = [min(pair) for pair in zip(best, seconds, strict=True)]
        if len(counts) > 1:
            raise Disagreement(f"{name}: rows and matches in memory and merged: {counts}")
        yield Merged(name, rows, memory, *best)


def _spent(work: Callable[[], Found]) -> tuple[Found, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def _joined(
    tables: tuple[pa.Table, pa.Table], asked: dict[str, Any], memory: int | str
) -> tuple[int, int]:
    rows = matches = 0
    for batch in matwin.asof_join(*tables, on="t", memory=memory, threads=THREADS, **asked):
        rows += batch.num_rows
        matches += batch.num_rows - batch.column("w").null_count
    return rows, matches


def _copied(tables: tuple[pa.Table, pa.Table]) -> int:
    """All rows into LMDB and out again, twice; the bytes that were read."""
    batches = [b for table in tables for b in table.to_batches(COPIED_ROWS)]
    file, read = LmdbPageFile(None, page_size=PAGE_BYTES), 0
    try:
        for turn in range(2):
            file.loosen(turn)
            pieces = []
            for number, batch in enumerate(batches):
                page_id, body = PageId(turn, number), batch.serialize()
                file.write([(page_id, body)])
                pieces.append(Piece(page_id, 0, body.size, crc32(body)))
            read += sum(file.read_pieces([piece])[0].size for piece in pieces)
    finally:
        file.close()
    return read


def text(rows: list[Merged]) -> str:
    """A line for each question."""
    head = f"{'as-of join, any order':<24}{'rows a side':>12}{'memory':>10}"
    head += f"{'in memory s':>13}{'copy s':>9}{'merge s':>9}{'times':>8}"
    lines = [head, "─" * len(head)]
    for row in rows:
        line = f"{row.name:<24}{row.rows:>12,}{row.memory_bytes / 2**20:>6.1f} MiB"
        line += f"{row.in_memory:>13.3f}{row.copy:>9.3f}{row.merge:>9.3f}{row.times:>7.1f}×"
        lines.append(line)
    return "\n".join(lines)
