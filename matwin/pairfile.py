"""Pairs on file: candidates put down in runs, and read back by their places in a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matwin.storage.columns import Int64s

from .candidates import Candidates
from .spill import Spill


@dataclass(frozen=True, slots=True)
class Run:
    """Pairs on file: all probe rows, then all base rows, then the keys."""

    place: int
    pairs: int
    columns: int


class PairFile:
    """Runs of pairs in a file without a name.  What black boxes compare is not put down."""

    def __init__(self, name: str, scratch: str | Path | None) -> None:
        self._spill = Spill(name, scratch)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._spill.size

    def write(self, found: Candidates) -> Run:
        """Put pairs down."""
        place = self._spill.size
        for array in (found.probe, found.base, found.keys):
            self.write_numbers(array)
        return Run(place, len(found), found.keys.shape[1])

    def write_numbers(self, numbers: Int64s) -> int:
        """Put numbers down; where they are."""
        place = self._spill.size
        if numbers.size:
            self._spill.write(np.ascontiguousarray(numbers))
        return place

    def read(self, run: Run, first: int, limit: int) -> Candidates:
        """Some pairs of a run."""
        count, columns, after = limit - first, run.columns, run.place + 16 * run.pairs
        return Candidates(
            self.probes(run, first, limit),
            self.numbers(run.place + 8 * (run.pairs + first), count),
            self.numbers(after + 8 * columns * first, columns * count).reshape(count, columns),
        )

    def probes(self, run: Run, first: int, limit: int) -> Int64s:
        """The probe rows of some pairs."""
        return self.numbers(run.place + 8 * first, limit - first)

    def numbers(self, place: int, count: int) -> Int64s:
        """Numbers from a place on.  A copy, because kernels are compiled for arrays that can be
        written."""
        return np.frombuffer(self._spill.read_at(place, 8 * count), np.int64).copy()

    def close(self) -> None:
        """Give the space back."""
        self._spill.close()
