"""The rows of a source for which an Arrow expression is true, tested portion by portion.

    source ─▶ portion, with the columns that the expression reads ─▶ those that pass, gathered

Invariant: the rows, their order and types are those of Arrow's own filter: null is not true.

Left out: expressions that call a column by its number; Arrow scans those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from .reading import Source, guarded, sliced
from .shares import ReadShare
from .spool import gathered


@dataclass(frozen=True)
class Filtered(Source):
    """Some of the rows of a source."""

    source: Source
    condition: Any
    tested: tuple[str, ...]
    """The columns that the condition reads."""

    @classmethod
    def of(cls, source: Source, condition: Any, tested: Sequence[str]) -> Filtered:
        """The rows of a source for which the condition holds."""
        return cls(
            source.name, source.schema, source.is_repeatable, None, None, source, condition,
            tuple(tested), share=source.share,
        )  # fmt: skip

    @property
    def paths(self) -> tuple[str, ...]:
        return self.source.paths

    def within(self, share: ReadShare) -> Filtered:
        return replace(self, share=share, source=self.source.within(share))

    def named(self, name: str) -> Filtered:
        return replace(self, name=name, source=self.source.named(name))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        names = self.schema.names if columns is None else list(columns)
        return self._batches(names)

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        read = names + [name for name in self.tested if name not in names]
        passed = (batch.filter(self.condition) for batch in self.source.batches(read))
        some = (batch.select(names) for batch in guarded(passed, self.name) if batch.num_rows)
        for batch in gathered(some, self.share.portion_bytes):
            yield from sliced(batch, self.share.portion_bytes)


def columns_of(condition: Any, schema: pa.Schema) -> list[str] | None:
    """The columns that an expression reads, found out by leaving some out; None where a batch of
    these columns is not enough to tell whether it is true.

    >>> import pyarrow.compute as pc
    >>> columns_of(pc.field("t") > 1, pa.schema([("t", pa.int64()), ("x", pa.int64())]))
    ['t']
    """
    if "FieldPath" in str(condition) or not _is_enough(condition, schema):
        return None
    return _needed(condition, schema, schema.names)


def _needed(condition: Any, schema: pa.Schema, names: list[str]) -> list[str]:
    """Those of the names that the expression reads, by halves."""
    without = set(names)
    if _is_enough(condition, pa.schema([f for f in schema if f.name not in without])):
        return []
    if len(names) < 2:
        return names
    half = len(names) // 2
    return [*_needed(condition, schema, names[:half]), *_needed(condition, schema, names[half:])]


def _is_enough(condition: Any, schema: pa.Schema) -> bool:
    # A column more, so that there is a table even without columns; nobody has this name.
    empty = schema.append(pa.field("\x00", pa.bool_())).empty_table()
    try:
        empty.filter(condition)
    except (pa.ArrowException, TypeError):
        return False
    return True
