"""The one place where DuckDB is opened, for SQL, for epochs, for sinks and for verification.

    budget ──▶ memory_limit          what does not fit goes to a folder in `scratch`
    SHUT   ──▶ no files, no network, no extensions, no variables of Python's, no settings
    errors ──▶ BudgetError: too little memory, and what to give
               StoreError: no room in `scratch`, or a file that can't be read or written
               InputError: the question itself

A database that is given Arrow streams and nothing else is shut in.  A sink's file is not: it is
opened by its path, and only statements of our own are run in it.

One thread, unless more are asked for: our joins have their own, rows come in the same order each
time, and each thread of DuckDB's needs some 30 MiB by itself.

Invariant: a folder for what is put down lives as long as the database, and one that a killed
process has left is removed by the next.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.extras import needed
from matwin.report import Report
from matwin.storage.errors import BudgetError, InputError, MatwinError, StoreError
from matwin.storage.machine import free_memory
from matwin.storage.scratch import scratch_folder
from matwin.storage.units import format_size

LIMIT_MIN = 32 * 2**20
"""DuckDB sorts, groups and counts 3M rows of text in 32 MiB a thread, and not in 24; it has so much
whatever is given, as it has its code."""
SHARE = 2
"""Beside joins of ours, DuckDB has a half: it sorts 9M rows of 60 bytes in 64 MiB, and not in 32,
and our joins take little more time with half of what they had."""
EDGE_SHARE = 16
"""What is handed to DuckDB at once, and what it hands over."""
BLOCK_BYTES = 2**18
"""What DuckDB puts down at once, and the size of our own pages."""
VECTOR_ROWS = 2048
"""DuckDB works on so many rows at a time."""
BATCH_ROWS = 65_536
SAMPLE_SECONDS = 0.1
_FOLDER = "matwin-duckdb-"
_NO_MEMORY, _NO_FILE = "Out of Memory Error", "IO Error"
_CLOSED = "SET enable_external_access = false"
_QUIET = ("SET enable_progress_bar = false",)
_LOCKED = "SET lock_configuration = true"


def share_beside_joins(budget_bytes: int) -> tuple[int, int]:
    """What DuckDB has of a budget beside joins of ours, and what these have.

    >>> [n >> 20 for n in share_beside_joins(2**30)], [n >> 20 for n in share_beside_joins(2**25)]
    ([512, 512], [32, 16])
    """
    ours = max(budget_bytes // SHARE, LIMIT_MIN)
    return ours, max(budget_bytes - ours, budget_bytes // 2)


def share_alone(budget_bytes: int) -> int:
    """What DuckDB has of a budget without joins of ours: all but the rows that go in and out."""
    return budget_bytes - 2 * (budget_bytes // EDGE_SHARE)


class Database:
    """A connection that keeps to a limit."""

    def __init__(
        self, *, memory: int | None = None, scratch: str | Path | None = None,
        threads: int | None = 1, path: Path | None = None, before: Sequence[str] = (),
        reads: Sequence[str] = (), parts: int = 1,
    ) -> None:  # fmt: skip
        """Open it: in memory and shut in, or the file at `path`.

        `memory` is what DuckDB may take, by default a quarter of what is free, and one of so many
        `parts` of what the user gave; `before` is run before the settings are locked, and `reads`
        are files that it may read; `threads` None leaves their number to DuckDB.
        """
        self._duckdb = needed("duckdb")
        self.limit_bytes = max(free_memory() // 4 if memory is None else memory, LIMIT_MIN)
        self._parts = parts
        self.spilled_bytes = self.used_bytes = 0
        """The most that was seen on disk, and in memory."""
        self._sampled = 0.0
        with ExitStack() as stack:
            self.folder = stack.enter_context(
                scratch_folder(Path(scratch) if scratch else None, _FOLDER)
            )
            config: dict[str, Any] = {
                "python_enable_replacements": False,
                "memory_limit": f"{self.limit_bytes // 1024}KiB",
                "temp_directory": str(self.folder / "spilled"),
            }
            if threads is not None:
                config["threads"] = threads
            with self.errors_of("opening DuckDB"):
                self.connection = self._duckdb.connect(str(path or ":memory:"), config=config)
                stack.callback(self.connection.close)
                if reads:
                    self.connection.execute("SET allowed_paths = ?", [list(reads)])
                for statement in (*before, *([] if path else [_CLOSED]), *_QUIET, _LOCKED):
                    self.connection.execute(statement)
            # Also where nobody closes it: at the end of the process, but not of a fork's.
            self._close = weakref.finalize(self, _closed, stack.pop_all(), os.getpid())

    def cursor(self) -> Any:
        """Another connection to the same database, within the same limit."""
        return self.connection.cursor()

    def close(self) -> None:
        """Close it, and remove what it has put down."""
        self._close()

    # ── what it takes ────────────────────────────────────────────────────────────────────────

    def sample(self) -> None:
        """See what it takes; called by whoever hands it rows or takes some."""
        now = time.monotonic()
        if now - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = now
        told = self.cursor()
        try:
            sums = "sum(memory_usage_bytes), sum(temporary_storage_bytes)"
            used, spilled = told.execute(f"SELECT {sums} FROM duckdb_memory()").fetchone()
        finally:
            told.close()
        self.used_bytes = max(self.used_bytes, int(used))
        self.spilled_bytes = max(self.spilled_bytes, int(spilled))

    def count(self, report: Report) -> None:
        """Add to a report what was seen."""
        report.peak_bytes += self.used_bytes
        if self.spilled_bytes:
            report.pages_written += -(-self.spilled_bytes // BLOCK_BYTES)
            report.decide(f"DuckDB put down {format_size(self.spilled_bytes)} in scratch")

    # ── errors ───────────────────────────────────────────────────────────────────────────────

    def is_foreign(self, error: BaseException) -> bool:
        """Whether an error is DuckDB's own, perhaps as a reader of Arrow's tells it."""
        if isinstance(error, MatwinError):
            return False
        return isinstance(error, self._duckdb.Error | pa.ArrowException | OSError)

    def shortage(self, error: BaseException, what: str = "the query") -> MatwinError | None:
        """The error of a query that found too little memory or disk; None where that is not it.

        By its words: an error that comes through a reader of Arrow's has no type of DuckDB's.
        """
        said = str(error)
        if said.startswith(_NO_MEMORY):
            return self._too_little(said, what)
        if said.startswith(_NO_FILE):
            return StoreError(f"{what}: {said.splitlines()[0].removeprefix(_NO_FILE).strip(': ')}")
        return None

    def meant(self, error: BaseException, what: str = "the query") -> MatwinError:
        """DuckDB's error as ours; `what` was being done."""
        return self.shortage(error, what) or InputError(f"{what} failed: {first_lines(error)}")

    def _too_little(self, said: str, what: str) -> MatwinError:
        if "max_temp_directory_size" in said:
            return StoreError(
                f"{what}: there is no room left for what DuckDB puts down in {self.folder}; make "
                "room, or name another folder with scratch="
            )
        smallest = 2 * self.limit_bytes * self._parts
        has = format_size(self.limit_bytes)
        return BudgetError(
            f"{what}: DuckDB has {has} here and needs more, although it puts down what it can; "
            f"give memory={format_size(smallest).replace(' ', '')!r} or more, or have the query "
            "hold less at a time",
            smallest_bytes=smallest,
        )

    @contextmanager
    def errors_of(self, what: str) -> Iterator[None]:
        """DuckDB's errors as ours."""
        try:
            yield
        except self._duckdb.Error as error:
            raise self.meant(error, what) from error


@contextmanager
def opened(
    *, memory: int | None = None, scratch: str | Path | None = None, threads: int | None = 1,
    reads: Sequence[str] = (),
) -> Iterator[Database]:  # fmt: skip
    """A database in memory for the length of a block."""
    database = Database(memory=memory, scratch=scratch, threads=threads, reads=reads)
    try:
        yield database
    finally:
        database.close()


def portions(reader: pa.RecordBatchReader, portion_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a reader of `VECTOR_ROWS` in batches of at most so many bytes.

    A number of rows bounds nothing: 65,536 rows of 10 KB are 650 MB.  Gathering costs no more than
    larger batches do: 3M rows took 0.037 s in place of 0.034.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        if waiting and (size + batch.nbytes > portion_bytes or rows >= BATCH_ROWS):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if rows:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _closed(stack: ExitStack, pid: int) -> None:
    if os.getpid() == pid:
        stack.close()


def first_lines(error: BaseException) -> str:
    """What an error says, without advice about settings, which are locked."""
    text = str(error).partition("Possible solutions")[0]
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[:4])
