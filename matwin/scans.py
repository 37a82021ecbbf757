"""pyarrow's datasets and scanners as sources.

    Dataset of files  ─▶ its fragments as files of ours (`fragments.py`); a filter is put to each
                         portion (`filtered.py`)
    other Dataset     ─▶ a scan for each reading: few rows at a time, nothing ahead
    Scanner           ─▶ its own scan, which somebody else has set up, once

Left out: a scanner shows neither its dataset nor its filter, and reads ahead as it was told, whole
row groups of Parquet and batches of IPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from matwin.storage.errors import InputError

from .file import File
from .files import sum_of
from .filtered import Filtered, columns_of
from .fragments import check, file_of
from .reading import Source, checked_schema, first_line, read
from .spool import rows_at_a_time

FIRST_ROWS = 8
"""Rows of a scanned file that tell how wide they are: 838 rows of 100 KB in ORC took more than 250
MB when they were scanned 128 at a time."""
_NOT_AHEAD: dict[str, Any] = {
    "batch_readahead": 0, "fragment_readahead": 0, "use_threads": False, "cache_metadata": False,
}  # fmt: skip


def dataset_source(dataset: Any, name: str) -> Source:
    """The source of a `pyarrow.dataset.Dataset`."""
    schema = checked_schema(dataset.schema, name)
    if not hasattr(dataset, "_scanner_options"):  # Arrow's own, and it may go
        return Scanned.of(dataset, name)
    try:
        condition = _condition(dataset)
        tested = [] if condition is None else columns_of(condition, schema)
        files = None if tested is None else _files(dataset, condition, name)
        if files is None and _is_of_files(dataset):
            for fragment in dataset._get_fragments(condition):
                check(fragment, condition, name)
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"{name}: the dataset can't be listed: {first_line(e)}") from e
    if tested is None or files is None:
        return Scanned.of(dataset, name)
    source = sum_of(files, schema, name)
    return source if condition is None else Filtered.of(source, condition, tested)


def _condition(dataset: Any) -> Any:
    """The filter of a dataset, which Arrow tells nobody but its own scanners."""
    return dataset._scanner_options({}).get("filter")


def _files(dataset: Any, condition: Any, name: str) -> list[File] | None:
    """The files of a dataset that may have rows; None where some of them Arrow has to read."""
    if not _is_of_files(dataset):
        return None
    found = []
    for fragment in dataset._get_fragments(condition):  # the public one refuses filtered datasets
        file = file_of(fragment, dataset.schema, condition, name)
        if file is None:
            return None
        found.append(file)
    return found


def _is_of_files(dataset: Any) -> bool:
    if isinstance(dataset, ds.UnionDataset):
        return all(map(_is_of_files, dataset.children))
    return isinstance(dataset, ds.FileSystemDataset)


@dataclass(frozen=True)
class Scanned(Source):
    """The rows of a dataset that Arrow scans."""

    dataset: Any

    @classmethod
    def of(cls, dataset: Any, name: str) -> Scanned:
        """The source of a `pyarrow.dataset.Dataset`."""
        return cls(name, checked_schema(dataset.schema, name), True, None, None, dataset)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        names = self.schema.names if columns is None else list(columns)
        return read(self._reader(names), names, self.name, self.share.portion_bytes)

    def _reader(self, names: list[str]) -> pa.RecordBatchReader:
        try:
            rows = self._rows(names)
            return self.dataset.scanner(columns=names, batch_size=rows, **_NOT_AHEAD).to_reader()
        except (pa.ArrowException, OSError, ValueError) as e:
            raise InputError(f"{self.name}: the dataset can't be read: {first_line(e)}") from e

    def _rows(self, names: list[str]) -> int:
        """How many rows are asked for at a time; the fewer, the wider the first ones are."""
        schema = pa.schema([self.schema.field(name) for name in names])
        rows = rows_at_a_time(schema, self.share.portion_bytes)
        if not isinstance(self.dataset, ds.FileSystemDataset):
            return rows
        # Of a fragment, not of the dataset: its filter may let no row pass.
        first = next(iter(self.dataset._get_fragments(None)), None)
        if first is None:
            return rows
        some = first.scanner(
            schema=self.schema, columns=names, batch_size=FIRST_ROWS, **_NOT_AHEAD
        ).head(FIRST_ROWS)
        width = int(some.nbytes // max(some.num_rows, 1))
        return max(1, min(rows, self.share.portion_bytes // max(width, 1)))


def scan_of(scanner: Any, name: str) -> pa.RecordBatchReader:
    """The reader of a scanner."""
    try:
        return scanner.to_reader()
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"{name}: the scanner can't be read: {first_line(e)}") from e
