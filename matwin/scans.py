"""pyarrow's datasets and scanners as sources.

    Dataset of Parquet ─▶ its fragments as files of ours
    other Dataset      ─▶ a scan for each reading: few rows at a time, nothing ahead
    Scanner            ─▶ its own scan, which somebody else has set up, once

Arrow's scan decodes whole row groups of Parquet, however few rows are asked for: 40,000 rows of
10 KB grew the process by 1,033 MB in a budget of 16, and by 122 MB as a file of ours.

Left out: a filtered dataset does not show its fragments, so Arrow scans it and a row group is open
as a whole; a scanner reads ahead as it was told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .file import File, described_file
from .files import sum_of, with_columns
from .formats import Parquet
from .places import Place
from .reading import Source, checked_schema, first_line, read
from .spool import rows_at_a_time


def dataset_source(dataset: Any, name: str) -> Source:
    """The source of a `pyarrow.dataset.Dataset`."""
    import pyarrow.dataset as ds  # here: whoever has a dataset has loaded it

    is_parquet = isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat)
    try:
        fragments = list(dataset.get_fragments()) if is_parquet else []
    except ValueError:  # it has a filter, and Arrow tells neither that nor its fragments
        is_parquet = False
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"{name}: the dataset can't be listed: {first_line(e)}") from e
    if not is_parquet:
        return Scanned.of(dataset, name)
    files = [_file(fragment, dataset, name) for fragment in fragments]
    return sum_of(files, checked_schema(dataset.schema, name), name)


def _file(fragment: Any, dataset: Any, name: str) -> File:
    """A fragment as a file, with the columns that its dataset has besides."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    is_local = isinstance(dataset.filesystem, LocalFileSystem)
    place = Place(fragment.path, fragment.path if is_local else None, dataset.filesystem,
                  fragment.path)  # fmt: skip
    file = described_file(place, name, Parquet)
    told = ds.get_partition_keys(fragment.partition_expression)
    values = {
        field.name: pa.scalar(told.get(field.name), field.type)
        for field in dataset.schema
        if field.name in told or field.name not in file.schema.names
    }
    groups = tuple(group.id for group in fragment.row_groups)
    rows = sum(group.num_rows for group in fragment.row_groups)
    return replace(with_columns(file, values), groups=groups, rows_hint=rows)


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
        schema = pa.schema([self.schema.field(name) for name in names])
        try:
            return self.dataset.scanner(
                columns=names,
                batch_size=rows_at_a_time(schema, self.share.portion_bytes),
                batch_readahead=0,
                fragment_readahead=0,
                use_threads=False,
                cache_metadata=False,
            ).to_reader()
        except (pa.ArrowException, OSError, ValueError) as e:
            raise InputError(f"{self.name}: the dataset can't be read: {first_line(e)}") from e


def scan_of(scanner: Any, name: str) -> pa.RecordBatchReader:
    """The reader of a scanner."""
    try:
        return scanner.to_reader()
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"{name}: the scanner can't be read: {first_line(e)}") from e
