"""What a join returns: rows that come as they are asked for, in whatever form suits the caller.

    join ──batches──▶ Result ──▶ for batch in result           Arrow record batches, one at a time
                             ──▶ to_arrow(), to_pandas(), …    everything, in memory
                             ──▶ write("out.parquet")          a file, a portion at a time
                             ──▶ any Arrow consumer            through the C stream interface

The join runs while the rows are read: nothing happens before, and the rows are handed over once.
A second read is an error that says so, because an empty answer would look like one.

`repr` runs nothing.  A notebook shows the first rows, which runs the join up to its first batch;
these rows are kept and come first when the result is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from html import escape
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .report import Report

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 10


class Result:
    """The rows of a join.

    >>> import matwin
    >>> trades = pa.table({"t": [10, 20], "price": [1.5, 1.6]})
    >>> quotes = pa.table({"t": [8, 12, 19], "bid": [1.4, 1.5, 1.5]})
    >>> result = matwin.epsilon_join(trades, quotes, on={"t": (-2, 0)})
    >>> result
    <matwin.Result: t_left, price, t_right, bid; not read yet>
    >>> result.to_arrow().to_pydict()["bid"]
    [1.4, 1.5]
    >>> result
    <matwin.Result: t_left, price, t_right, bid; 2 rows, all read>
    >>> result.to_arrow()
    Traceback (most recent call last):
    matwin.storage.errors.InputError: these rows have been read already: a join hands them over \
once; keep what to_arrow() returns, or call the join again
    """

    def __init__(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], report: Report,
        explain: Callable[[], str],
    ) -> None:  # fmt: skip
        self._schema = schema
        self._batches = batches
        self._report = report
        self._explain = explain
        self._kept: deque[pa.RecordBatch] = deque()
        self._rows = 0
        self._is_done = self._is_closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns, known before a row is read."""
        return self._schema

    @property
    def report(self) -> Report:
        """What the join has counted and decided so far; complete when all rows are read."""
        return self._report

    def explain(self) -> str:
        """What the join does and why, as text; no row of the result is read."""
        return self._explain()

    # ── rows, a batch at a time ──────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches that have not been read yet."""
        self._check_readable()
        return self._rest()

    def _rest(self) -> Generator[pa.RecordBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        if self._kept:
            batch = self._kept.popleft()
        else:
            batch = next(self._batches, None)
        if batch is None:
            self._is_done = True
        else:
            self._rows += batch.num_rows
        return batch

    def _check_readable(self) -> None:
        if self._is_done:
            raise InputError(
                "these rows have been read already: a join hands them over once; keep what "
                "to_arrow() returns, or call the join again"
            )
        if self._is_closed:
            raise InputError("this result has been closed; call the join again")

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch; `StopIteration` after the last one."""
        batch = None if self._is_done else self._next()
        if batch is None:
            raise StopIteration
        return batch

    def close(self) -> None:
        """Stop the join, and give back what it holds."""
        if isinstance(self._batches, Generator):
            self._batches.close()
        self._kept.clear()
        self._is_closed = True

    def __enter__(self) -> Result:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    # ── all rows ─────────────────────────────────────────────────────────────────────────────

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(list(self), schema=self._schema)

    read_all = to_arrow
    """The name that `pyarrow.RecordBatchReader` has for it."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader of Arrow's own, for whoever insists on one."""
        return pa.RecordBatchReader.from_batches(self._schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that speaks Arrow, without a copy."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows as a pandas DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        _needs("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars DataFrame."""
        found: polars.DataFrame = _needs("polars").from_arrow(self.to_arrow())
        return found

    def to_duckdb(self, connection: Any) -> Any:
        """The rows as a DuckDB relation, to go on with in SQL.

        DuckDB may read a relation several times, so all rows are read first.
        """
        return connection.from_arrow(self.to_arrow())

    def write(self, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> int:
        """Write all rows to a file, a portion at a time; how many there were.

        The name says the format (.parquet, .arrow, .csv, .tsv, .jsonl) unless `format` does, and
        whether text is compressed (.csv.gz).  The file, or object (s3://…), appears when it is
        complete; one that is there is replaced if `overwrite` says so.
        """
        from .sinks import write  # here: it loads Arrow's CSV and Parquet writers

        if not overwrite and Path(path).is_file():
            raise InputError(f"{path} is there already; give overwrite=True, or another name")
        return write(self, str(path), format=format, overwrite=overwrite)

    # ── what people see ──────────────────────────────────────────────────────────────────────

    def __repr__(self) -> str:
        names = ", ".join(self._schema.names)
        if self._is_done:
            state = f"{self._rows:,} rows, all read"
        elif self._is_closed:
            state = "closed"
        else:
            state = f"{self._rows:,} rows read so far" if self._rows else "not read yet"
        return f"<matwin.Result: {names}; {state}>"

    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks; they are kept for whoever reads the result."""
        if self._is_done or self._is_closed:
            return f"<pre>{escape(repr(self))}</pre>"
        rows = list(islice(self._first_rows(), SHOWN_ROWS + 1))
        more = len(rows) > SHOWN_ROWS
        head = "".join(f"<th>{escape(name)}</th>" for name in self._schema.names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows[:SHOWN_ROWS]
        )
        note = f"the first {SHOWN_ROWS} rows" if more else f"all {len(rows)} rows"
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<small>matwin.Result: {note}; nothing has been taken from it</small>"
        )

    def _first_rows(self) -> Iterator[list[str]]:
        from .plain import shown_rows

        for batch in list(self._kept):
            yield from shown_rows(batch)
        while (batch := next(self._batches, None)) is not None:
            self._kept.append(batch)
            yield from shown_rows(batch)


def _needs(library: str) -> Any:
    """A library that not everybody has."""
    from importlib import import_module

    try:
        return import_module(library)
    except ModuleNotFoundError as e:
        raise InputError(f"to_{library}() needs {library}: pip install {library}") from e
