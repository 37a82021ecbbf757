"""What rows take: the first ones of a frame, weighed in an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from .frames import Frame
from .ship import sent

LOOKED_ROWS = 1000


@dataclass(frozen=True)
class Weighing:
    """A task that tells how many bytes its rows have, whole and in some columns."""

    needed: tuple[str, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: rows, bytes, bytes of the columns needed."""
        rows = whole = narrow = 0
        for batch in batches:
            rows += batch.num_rows
            whole += batch.nbytes
            narrow += sum(batch.column(name).nbytes for name in self.needed)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "whole": [whole], "narrow": [narrow]})


def widths(frame: Frame, needed: tuple[str, ...]) -> tuple[float, float]:
    """Bytes of a row, whole and of some columns; runs a job."""
    # PySpark looks each column up by its name, and finds none with a dot or a backtick in it.
    names = {name: f"c{number}" for number, name in enumerate(frame.fields)}
    some = frame.frame.toDF(*names.values()).limit(LOOKED_ROWS)
    task = Weighing(tuple(names[name] for name in needed))
    weighed = some.mapInArrow(sent(task), "rows long, whole long, narrow long")
    # Of no rows at all Spark makes no task, and nobody tells anything.
    told = [(0, 0, 0), *weighed.collect()]
    rows, whole, narrow = (sum(column) for column in zip(*told, strict=True))
    return whole / max(rows, 1), narrow / max(rows, 1)


def fixed_width(schema: pa.Schema) -> int | None:
    """Bytes of a row; None where a column has no fixed size.

    >>> fixed_width(pa.schema({"t": pa.int64(), "k": pa.int32()}))
    12
    """
    try:
        return sum(-(-int(kind.bit_width) // 8) for kind in schema.types)
    except ValueError:
        return None
