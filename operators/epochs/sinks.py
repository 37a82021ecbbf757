"""Where the results of epochs go, each exactly once.

    prepare(epoch, rows)    before the commit: the rows are put down, and nobody sees them yet
    ── commit ──            from here on the epoch has happened
    deliver(epoch, …)       after it: they are seen, once, however often this is called

A crash before the commit leaves something that nobody sees, and the epoch is run again.  A crash
behind it is made good at the next start: what was committed and perhaps not delivered is delivered,
and a sink knows by the epoch's number that it has it already.

    "folder/"           Parquet files by epoch, and a commit record for each, which readers trust
    Sqlite(file)        a table, written in one transaction with the epoch's number
    a function          called with the epoch; told its number, so that it can tell repetitions
    None                whoever iterates; asking for the next epoch says that one has been handled
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from matwin.plain import csv_batch, csv_type
from matwin.storage.errors import InputError, MatwinError, StoreError
from matwin.storage.scratch import make_folder, os_errors, sync_names, told

from .spool import Spooled, Summed

COMMITS = "_commits"


class Sink(Protocol):
    """Takes results by epoch."""

    def told(self) -> str:
        """Where they go, in words."""

    def last(self) -> int | None:
        """The number of the last epoch that it has, 0 for none; None where nobody keeps count."""

    def deliver(self, epoch: int, result: Spooled) -> None:
        """Take an epoch's result; one that it has already is left as it is."""

    def close(self) -> None:
        """No more results."""


class Nowhere:
    """Results are taken by whoever iterates."""

    def told(self) -> str:
        """In words."""
        return "whoever iterates"

    def last(self) -> int | None:
        """Nobody has kept count."""
        return None

    def deliver(self, epoch: int, result: Spooled) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class Function:
    """A function of the caller's, called with the number of the epoch and its rows."""

    def __init__(self, function: Callable[[int, pa.RecordBatchReader], object]) -> None:
        self._function = function

    def told(self) -> str:
        """The function's name."""
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def last(self) -> int | None:
        """Only the function knows."""
        return None

    def deliver(self, epoch: int, result: Spooled) -> None:
        """Call it; should it fail, the epoch stands and is delivered again at the next start."""
        reader = pa.RecordBatchReader.from_batches(result.schema, iter(result))
        with failures(self.told(), epoch):
            self._function(epoch, reader)

    def close(self) -> None:
        """Nothing to do."""


@contextmanager
def failures(sink: str, epoch: int, path: Path | None = None) -> Iterator[None]:
    """A sink's errors as ours; epoch 0 is when it is opened and asked what it has."""
    try:
        yield
    except MatwinError:
        raise
    except Exception as e:
        what = f"failed with epoch {epoch}" if epoch else "can't be used"
        then = (
            "the epoch is kept, and with state= it is delivered again at the next start"
            if epoch else "mend that, and start again: no epoch is lost"
        )  # fmt: skip
        if path is not None and is_full(e):
            full = told(OSError(errno.ENOSPC, ""), path.parent)
            raise StoreError(
                errno.ENOSPC, f"the sink {sink} {what}: {full}; {then}", str(path)
            ) from e
        raise StoreError(f"the sink {sink} {what}: {type(e).__name__}: {e}; {then}") from e


def is_full(error: Exception) -> bool:
    """Whether an error, also a database's, says that the disk is full."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return True
    return any(words in str(error) for words in (os.strerror(errno.ENOSPC), "disk is full"))


class Parquet:
    """A folder with a file for each epoch, and a commit record that says that it is whole.

    epoch-00000012.parquet      the rows
    _commits/00000012.json      rows, bytes and checksum; written last, so readers look here
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        with os_errors(self.folder):
            make_folder(self.folder / COMMITS)
            for left in self.folder.glob(".epoch-*.part"):
                left.unlink(missing_ok=True)

    def told(self) -> str:
        """The folder."""
        return str(self.folder)

    def epochs(self) -> list[int]:
        """The epochs that are there whole."""
        with os_errors(self.folder):
            found = [path.stem for path in (self.folder / COMMITS).glob("*.json")]
        return sorted(int(stem) for stem in found if stem.isdecimal())

    def last(self) -> int:
        """The last of them whose rows are there."""
        found = (n for n in reversed(self.epochs()) if self._rows(n).exists())
        with os_errors(self.folder):
            return next(found, 0)

    def _rows(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:08d}.parquet"

    def deliver(self, epoch: int, result: Spooled) -> None:
        """Write the file under another name, sync it, name it, then say so."""
        record = self.folder / COMMITS / f"{epoch:08d}.json"
        final = self._rows(epoch)
        part = self.folder / f".epoch-{epoch:08d}.part"
        with failures(self.told(), epoch, record):
            if record.exists():
                return
            with part.open("wb") as plain:
                file = Summed(plain)
                with pq.ParquetWriter(file, result.schema) as writer:
                    for batch in result:
                        writer.write_batch(batch)
                _synced(plain)
            part.replace(final)
            sync_names(self.folder)
            about = {"epoch": epoch, "file": final.name, "rows": result.rows, "bytes": file.size,
                     "crc32": file.crc}  # fmt: skip
            self._say(record, about)

    def _say(self, record: Path, about: Mapping[str, Any]) -> None:
        part = record.with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            json.dump(about, file)
            _synced(file)
        part.replace(record)
        sync_names(record.parent)

    def close(self) -> None:
        """Nothing to do."""


def _synced(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


EPOCHS_TABLE = "matwin_epochs"


class Sqlite:
    """A table of an SQLite file: an epoch's rows and its number are one transaction."""

    def __init__(self, path: str | Path, table: str = "results") -> None:
        self._path, self.table = Path(path).expanduser(), table
        with failures(self.told(), 0, self._path):
            self._database = sqlite3.connect(self._path, isolation_level=None,
                                             check_same_thread=False)  # fmt: skip
            try:
                self._begin()
            except BaseException:
                self._database.close()
                raise

    def _begin(self) -> None:
        # A commit removes the journal; with FULL, the default, nobody syncs the folder then: a
        # power cut brings the journal back, and with it the state before.
        self._database.execute("PRAGMA synchronous = EXTRA")
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} "
            "(sink TEXT, epoch INTEGER, rows INTEGER, PRIMARY KEY (sink, epoch))"
        )

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
        with failures(self.told(), epoch, self._path), self._transaction() as database:
            there = f"SELECT 1 FROM {EPOCHS_TABLE} WHERE sink = ? AND epoch = ?"
            if database.execute(there, [self.table, epoch]).fetchone():
                return
            names = ["matwin_epoch", *result.schema.names]
            columns = ", ".join(map(_quoted, names))
            database.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self.table)} ({columns})")
            places = ", ".join("?" * len(names))
            insert = f"INSERT INTO {_quoted(self.table)} ({columns}) VALUES ({places})"
            for batch in result:
                database.executemany(insert, _sql_rows(epoch, batch))
            database.execute(
                f"INSERT INTO {EPOCHS_TABLE} VALUES (?, ?, ?)", [self.table, epoch, result.rows]
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # an error of the disk has ended it, perhaps
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _quoted(name: str) -> str:
    if not name or "\0" in name:
        raise InputError(f"the name {name!r} can't be said in SQL; rename it")
    return '"' + name.replace('"', '""') + '"'


def _sql_rows(epoch: int, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows of values that SQLite has; what it has not, such as times, as text."""
    plain = csv_batch(batch, pa.schema([f.with_type(csv_type(f.type)) for f in batch.schema]))
    return zip([epoch] * batch.num_rows, *map(_sql_column, plain.columns), strict=True)


def _sql_column(column: pa.Array) -> list[Any]:
    kinds = pa.types
    is_whole = kinds.is_integer(column.type) and column.type != pa.uint64()
    if not (is_whole or kinds.is_floating(column.type) or kinds.is_boolean(column.type)):
        column = column.cast(pa.string())
    found: list[Any] = column.to_pylist()
    return found


def sink_of(sink: object) -> Sink:
    """The sink that a folder, an SQLite file or a function is."""
    if sink is None:
        return Nowhere()
    if isinstance(sink, str | os.PathLike):
        return _file_sink(str(sink))
    if hasattr(sink, "deliver") and hasattr(sink, "told"):
        found: Any = sink
        return found  # type: ignore[no-any-return]
    if callable(sink):
        return Function(sink)
    raise InputError(
        f"sink is a {type(sink).__name__}; give a folder for Parquet files, 'file.sqlite:table', "
        "'file.duckdb:table', or a function of the epoch's number and its rows"
    )


def _file_sink(text: str) -> Sink:
    path, _, table = text.partition(":")
    if Path(path).suffix.lower() in (".sqlite", ".sqlite3", ".db"):
        return Sqlite(path, table or "results")
    if Path(path).is_file() or Path(path).suffix:
        raise InputError(
            f"sink={text!r}: give a folder for Parquet files by epoch, or a database, "
            "'file.sqlite:table' or 'file.duckdb:table'"
        )
    return Parquet(text)
