"""Continuous queries in SQL, run by DuckDB over chunks; and DuckDB tables as sinks.

    select … from a, hosts …     a: the chunks of stream a   ─┐ one scan for each place in it:
                                 hosts: a table, loaded once  │ the first gives rows as they come,
                                                             ─┘ every other the same rows again

One connection lives as long as the query.  A stream's name stands for an object that DuckDB asks
for rows anew in every scan, so that aggregates are under way before the chunk is cut, and a stream
that is named twice gives the same rows twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.operators.duckdb import (
    EDGE_SHARE,
    VECTOR_ROWS,
    Database,
    first_lines,
    portions,
    share_alone,
)
from matwin.operators.epochs.chunks import Stopped
from matwin.operators.epochs.query import Chunks, Rows, Windows
from matwin.operators.epochs.sinks import EPOCHS_TABLE, failures
from matwin.operators.epochs.spool import Spooled
from matwin.storage.alive import new_folder, sweep
from matwin.storage.errors import InputError, MatwinError, StoreError
from matwin.storage.scratch import sync_file, sync_names

from .verify_sql import quoted

_FOLDER = ".matwin-duckdb-"
"""Where a database is made."""
SINK_BYTES = 2**26
"""An epoch's rows go through a sink one after the other: more memory would not make it faster."""


class Scanned:
    """Chunks or a table under a name, for DuckDB to ask."""

    def __init__(self, wanted: Chunks, schema: pa.Schema) -> None:
        self._wanted, self._schema = wanted, schema
        self.windows: Windows | None = None
        self.error: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        """The columns; nobody's rows are taken for them."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows, for one scan."""
        reader = pa.RecordBatchReader.from_batches(self._schema, self._rows())
        return reader.__arrow_c_stream__(requested_schema)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        assert self.windows is not None
        try:
            yield from self.windows.source(self._wanted).batches()
        except BaseException as e:
            self.error = e  # DuckDB would only tell its text
            raise


class Sql:
    """A SELECT over chunks and tables."""

    def __init__(self, text: str, names: Mapping[str, Chunks]) -> None:
        self._text, self._names = text, names
        self._scanned: dict[str, Scanned] = {}
        self._database: Database | None = None
        self._portion = 0

    def check(self, windows: Windows) -> None:
        """Refuse what is no SELECT, and names that are nobody's."""
        for name, wanted in self._names.items():
            if not isinstance(wanted, Chunks):
                raise InputError(f"windows: {name!r} is {wanted!r}; give matwin.chunks(...)")
            if name in windows:
                raise InputError(f"windows: {name!r} is a stream's or a table's name already")
            windows.check(wanted)
        self._portion = windows.memory // EDGE_SHARE
        self._database = Database(
            memory=share_alone(windows.memory), scratch=windows.scratch, parts=2
        )
        try:
            statements = self._connection.extract_statements(self._text)
            if len(statements) != 1 or statements[0].type.name != "SELECT":
                raise InputError("the query is not one SELECT statement; give one question")
            self._register(windows)
            self._connection.sql(self._text)  # binds names and types; nothing is read
        except Exception as e:
            if not self._database.is_foreign(e):
                raise
            raise InputError(f"the query can't be asked: {first_lines(e)}") from e

    @property
    def _connection(self) -> Any:
        assert self._database is not None
        return self._database.connection

    def _register(self, windows: Windows) -> None:
        wanted = {name: Chunks(name) for name in windows} | dict(self._names)
        for name, chunks in wanted.items():
            schema = windows.source(chunks).schema
            self._scanned[name] = Scanned(chunks, schema)
            self._connection.register(name, self._scanned[name])

    def told(self) -> dict[str, str]:
        """The text."""
        return {"query": self._text, "windows": str(dict(self._names))}

    def run(self, windows: Windows) -> Rows:
        """The epoch's answer, as DuckDB finds it."""
        for scanned in self._scanned.values():
            scanned.windows, scanned.error = windows, None
        with self._errors():
            reader = self._connection.sql(self._text).to_arrow_reader(VECTOR_ROWS)
        return _Answer(reader, self._portion, self._errors)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """A failure of DuckDB as what it is about: perhaps a failure of ours."""
        assert self._database is not None
        try:
            yield
        except Exception as e:
            if not self._database.is_foreign(e):
                raise
            ours = next((s.error for s in self._scanned.values() if s.error is not None), None)
            if isinstance(ours, MatwinError | Stopped):
                raise ours from e
            raise self._database.meant(e) from e

    def interrupt(self) -> None:
        """Break off what DuckDB is doing; another thread may call it."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()


class _Answer:
    """DuckDB's rows; its errors become ours."""

    def __init__(
        self, reader: pa.RecordBatchReader, portion_bytes: int,
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        self.schema, self._reader = reader.schema, reader
        self._portion, self._errors = portion_bytes, errors

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        found = portions(self._reader, self._portion)
        while True:
            with self._errors():
                batch = next(found, None)
            if batch is None:
                return
            yield batch


def _connected(path: Path) -> Database:
    database = Database(path=path, memory=SINK_BYTES)
    try:
        database.connection.execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} "
            "(sink VARCHAR, epoch BIGINT, rows BIGINT, PRIMARY KEY (sink, epoch))"
        )
    except BaseException:
        database.close()
        raise
    return database


def _make_whole(path: Path) -> None:
    """Make a new file that has its name when it is whole.  DuckDB writes a new file block by block
    under its own name; one whose process was killed meanwhile can't be opened any more."""
    folder = path.resolve().parent
    sweep(folder, _FOLDER)
    with new_folder(folder, _FOLDER) as draft:
        _connected(draft / path.name).close()
        sync_file(draft / path.name)
        with suppress(FileExistsError):
            os.link(draft / path.name, path)
        sync_names(folder)


class DuckDb:
    """A table of a DuckDB file: an epoch's rows and its number are one transaction."""

    def __init__(self, path: str | Path, table: str) -> None:
        self._path, self.table = Path(path).expanduser(), table
        with failures(self.told(), 0, self._path):
            if not self._path.exists():
                _make_whole(self._path)
            try:
                self._open = _connected(self._path)
            except (InputError, StoreError) as e:  # what DuckDB says of a file
                raise StoreError(
                    f"the sink {self.told()} can't be used: {e}; mend that, and start again"
                ) from e
        self._database = self._open.connection

    def told(self) -> str:
        """File and table."""
        return f"{self._path}:{self.table}"

    def last(self) -> int:
        """The last epoch that is in the table."""
        asked = f"SELECT max(epoch) FROM {EPOCHS_TABLE} WHERE sink = ?"
        with failures(self.told(), 0, self._path):
            return self._database.execute(asked, [self.table]).fetchone()[0] or 0

    def deliver(self, epoch: int, result: Spooled) -> None:
        """Insert the rows, unless the epoch is there."""
        rows = pa.RecordBatchReader.from_batches(result.schema, iter(result))
        with failures(self.told(), epoch, self._path):
            self._database.begin()
            try:
                self._insert(epoch, rows, result.rows)
                self._database.commit()
            except BaseException as e:
                with suppress(Exception):  # an error of the disk has ended the transaction
                    self._database.rollback()
                shortage = self._open.shortage(e, f"the sink {self.told()}, epoch {epoch}")
                if shortage is not None:
                    raise shortage from e
                raise
            sync_file(self._path.resolve().parent)

    def _insert(self, epoch: int, rows: pa.RecordBatchReader, count: int) -> None:
        there = f"SELECT 1 FROM {EPOCHS_TABLE} WHERE sink = ? AND epoch = ?"
        if self._database.execute(there, [self.table, epoch]).fetchone():
            return
        self._database.register("matwin_rows", rows)
        chosen = f"SELECT {epoch}::BIGINT AS matwin_epoch, * FROM matwin_rows"
        if self._has_table():
            self._database.execute(f"INSERT INTO {quoted(self.table)} BY NAME {chosen}")
        else:
            self._database.execute(f"CREATE TABLE {quoted(self.table)} AS {chosen}")
        self._database.execute(
            f"INSERT INTO {EPOCHS_TABLE} VALUES (?, ?, ?)", [self.table, epoch, count]
        )

    def _has_table(self) -> bool:
        asked = "SELECT 1 FROM duckdb_tables() WHERE table_name = ?"
        return self._database.execute(asked, [self.table]).fetchone() is not None

    def close(self) -> None:
        """Close the file."""
        self._open.close()
