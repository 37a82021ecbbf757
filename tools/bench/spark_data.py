"""What `matwin bench spark` asks: questions on random tables, in Parquet files, for both engines.

    SparkCase        window      equal keys, times within a window
     ├─ tables()     epsilon     1-D or 2-D, no key
     ├─ ours()       bestmatch   2-D, the best partners of each left row
     └─ embedded()   before      1-D, the latest partner before each left row, equal keys
                     asof        the same, however long before
                     nearest     1-D, the nearest partner of each left row

Tolerances are chosen so that a row has about `matches` rows of the other side within reach.  In the
last three no two partners are equally good, because Spark's own joins give one of them and we all.
Both sides of a comparison read the same files; each side is in several, so that all cores read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import matwin

from .joins import THREADS, TIME_RANGE, drain

KINDS = ("window", "epsilon", "bestmatch", "before", "asof", "nearest")
SPACED = ("before", "asof", "nearest")
FILES = 4
GAP = 1_000
"""Between two right rows of `SPACED`, whose times are all different."""


@dataclass(frozen=True, slots=True)
class SparkCase:
    """One question on random tables of the same size."""

    kind: str
    rows: int
    matches: float
    keys: int = 0
    dimensions: int = 1
    payload: int = 0
    """Bytes of payload in each row, which no compression makes smaller."""
    seed: int = 0

    @property
    def name(self) -> str:
        """What the case is called in tables.

        >>> SparkCase("window", 10, 10, keys=1000).name, SparkCase("epsilon", 10, 9).name
        ('window join, 1,000 keys', 'ε-join 1-D')
        """
        what = {
            "window": "window join", "epsilon": "ε-join", "bestmatch": "left bestmatch",
            "before": "latest before", "asof": "as-of", "nearest": "nearest",
        }[self.kind]  # fmt: skip
        where = f", {self.keys:,} keys" if self.keys else f" {self.dimensions}-D"
        return what + where + (f", {self.payload} bytes of payload" if self.payload else "")

    def of_rows(self, rows: int) -> SparkCase:
        """The same with another number of rows."""
        return replace(self, rows=rows)

    @property
    def on(self) -> dict[str, tuple[Any, Any]]:
        """The attributes with the lowest and the highest difference, right - left; None: any."""
        if self.kind == "asof":
            return {"t": (None, 0)}
        if self.dimensions == 2:
            epsilon = (self.matches / self.rows) ** 0.5 / 2
            return {"x": (-epsilon, epsilon), "y": (-epsilon, epsilon)}
        reach = self.matches * max(self.keys, 1) * self._time_range / self.rows
        if self.kind == "before":
            return {"t": (-max(round(reach), 1), 0)}
        half = max(round(reach / 2), 1)
        return {"t": (-half, half)}

    @property
    def _time_range(self) -> int:
        return self.rows * GAP if self.kind in SPACED else TIME_RANGE

    # ── tables ───────────────────────────────────────────────────────────────────────────────

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Both sides."""
        return self._table(0), self._table(1)

    def _table(self, side: int) -> pa.Table:
        generator = np.random.default_rng([self.seed, side])
        columns: dict[str, Any] = {}
        if self.keys:
            columns["k"] = generator.integers(0, self.keys, self.rows)
        if self.dimensions == 2:
            columns["x"], columns["y"] = generator.random((2, self.rows))
        else:
            columns["t"] = self._times(generator, side)
        columns["id"] = np.arange(self.rows)
        if self.payload:
            columns["payload"] = _payload(generator, self.rows, self.payload)
        return pa.table(columns)

    def _times(self, generator: np.random.Generator, side: int) -> Any:
        if self.kind not in SPACED:
            return generator.integers(0, TIME_RANGE, self.rows)
        if side == 1:
            return generator.permutation(self.rows) * GAP
        # Never in the middle between two of the other side.
        return generator.integers(0, self.rows, self.rows) * GAP + generator.integers(
            1, GAP // 2, self.rows
        )

    def written(self, folder: Path) -> tuple[str, str]:
        """Both sides as folders of Parquet files."""
        paths = []
        for name, table in zip(("left", "right"), self.tables(), strict=True):
            path = folder / f"{name}-{abs(hash(self)):x}"
            path.mkdir(exist_ok=True)
            part = -(-self.rows // FILES)
            for at in range(FILES):
                pq.write_table(table.slice(at * part, part), path / f"part-{at}.parquet")
            paths.append(str(path))
        return paths[0], paths[1]

    # ── our answers ──────────────────────────────────────────────────────────────────────────

    def ours(self, frames: tuple[Any, Any], **options: Any) -> Any:
        """The question asked of `matwin.spark`: a lazy DataFrame."""
        import matwin.spark

        return self._asked(matwin.spark, *frames, options)

    def embedded(self, paths: tuple[str, str]) -> int:
        """The same asked of the embedded joins, on the same files; how many rows came out."""
        left, right = (f"{path}/*.parquet" for path in paths)
        found: Iterable[pa.RecordBatch] = self._asked(matwin, left, right, {"threads": THREADS})
        return drain(found)

    def _asked(self, engine: Any, left: Any, right: Any, options: Mapping[str, Any]) -> Any:
        by = "k" if self.keys else None
        if self.kind == "window":
            streams = {"l": left, "r": right}
            window = self.on["t"][1]
            return engine.window_join(streams, time="t", windows=window, by=by, **options)
        if self.kind == "asof":
            suffixes = "_left", "_right"
            return engine.asof_join(
                left, right, on="t", by=by, how="inner", suffixes=suffixes, **options
            )
        join = engine.epsilon_join if self.kind == "epsilon" else engine.bestmatch_join
        return join(left, right, on=self.on, by=by, **options)


def _payload(generator: np.random.Generator, rows: int, size: int) -> pa.Array:
    data = pa.py_buffer(generator.bytes(rows * size))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, data]).cast(
        pa.binary()
    )
