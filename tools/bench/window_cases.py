"""What `matwin bench window` measures: keyed window joins of two and more random tables.

    WindowCase      clique   every two streams within the window
     ├─ sources()   chain    every stream within the window of the one before it
     └─ run()       growing  the window stays, the time grows with the rows

The window is chosen so that a row of the first stream is part of about `matches` results.  With
density ρ (rows of one key in one unit of time) there are, for each row,

    clique of n    n (ρw)^(n-1)      the volume in which n times, one of them 0, spread at most w
    chain of n     (2ρw)^(n-1)

Two streams are both, and their tables and window those of the ε-join's keyed case, so that all
rivals of that benchmark can be asked as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import pyarrow as pa

import matwin

from .joins import THREADS, Case, drain

NAMES = "abcdef"
CLIQUE, CHAIN = SHAPES = ("clique", "chain")


@dataclass(frozen=True, slots=True)
class WindowCase(Case):
    """One window join on random tables of the same size."""

    streams: int = 2
    shape: str = CLIQUE

    @property
    def name(self) -> str:
        """What the case is called in tables.

        >>> WindowCase("window", 10, 10, keys=1000).name
        '2-way, 1,000 keys'
        >>> WindowCase("window", 10, 10, keys=1000, streams=3, shape="chain").name
        '3-way chain, 1,000 keys'
        """
        shape = "" if self.streams == 2 else f" {self.shape}"
        texts = f", {self.texts} texts a side" if self.texts else ""
        return f"{self.streams}-way{shape}, {self.keys:,} keys{texts}"

    @property
    def pair(self) -> Case:
        """The ε-join that asks the same of two streams."""
        told = asdict(self) | {"join": "epsilon"}
        return Case(**{field.name: told[field.name] for field in fields(Case)})

    @property
    def epsilon(self) -> int:
        """The window, in units of time."""
        others = self.streams - 1
        within = float((self.matches / self.streams) ** (1 / others))
        if self.shape == CHAIN:
            within = float(self.matches ** (1 / others)) / 2
        return max(round(within * self.even_keys * self._time_range / self.rows), 1)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of streams that have a window."""
        names = NAMES[: self.streams]
        if self.shape == CHAIN:
            return list(pairwise(names))
        return [(one, other) for at, one in enumerate(names) for other in names[at + 1 :]]

    @property
    def windows(self) -> int | dict[tuple[str, str], int]:
        """What `windows=` gets."""
        return self.epsilon if self.shape == CLIQUE else dict.fromkeys(self.pairs, self.epsilon)

    def sources(self) -> tuple[pa.Table, ...]:
        """All streams."""
        return tuple(self.table(at) for at in range(self.streams))

    def run(self, left: pa.Table, right: pa.Table, *more: pa.Table, **options: Any) -> int:
        """Join the tables; how many rows came out."""
        named = dict(zip(NAMES, (left, right, *more), strict=False))
        options = {"threads": THREADS, **options}
        return drain(
            matwin.window_join(named, time="t", windows=self.windows, by=self.by, **options)
        )
