"""Polars' LazyFrames as sources: the files themselves where a frame is no more than a scan of them.

    pl.scan_parquet(files), pl.scan_ipc(file), some columns of them  ─▶ files of ours, in portions
    any other plan                                                   ─▶ run by Polars, put down

Polars decodes whole row groups and batches, and says of no plan what it takes: 32,000 rows of 10 KB
in one row group took 330 MB, whatever the size of its morsels and chunks.

Whether a frame is such a scan, its plan is asked: the same scan is made once more, with nothing but
the paths, and has to be the same byte by byte.  So every option of a scan, known here or not, leads
to Polars, and so does a type that Polars may read in another way than we do.

Left out: folders and patterns, which Polars finds out by itself, and CSV, where Polars and Arrow do
not agree about what is null.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .reading import Source
from .spool import Lazy, Spooled

_SCAN = re.compile(r"^\s*(Parquet|Ipc) SCAN \[(.+)\]$", re.MULTILINE)
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def lazy_source(frame: Any, name: str) -> Source:
    """The source of a `LazyFrame`."""
    run = Spooled.of(Lazy(frame), name)
    return _files(frame, run.schema, name) or run


def _files(frame: Any, schema: pa.Schema, name: str) -> Source | None:
    """The files that a frame scans and nothing else; None where it may do more."""
    from .files import files_source

    paths = _scanned(frame, schema.names)
    if paths is None:
        return None
    try:
        files = files_source(paths, name)
    except InputError:  # a name without a known suffix, or files that differ; Polars may know
        return None
    is_same = all(_is_same(files.schema, field) for field in schema)
    return replace(files, schema=schema) if is_same else None


def _is_same(found: pa.Schema, wanted: pa.Field) -> bool:
    """Whether a column has the same values here and in Polars."""
    at = found.get_field_index(wanted.name)
    if at < 0 or pa.types.is_nested(wanted.type) or pa.types.is_dictionary(wanted.type):
        return False
    ours = found.field(at).type
    return bool(_LARGE.get(ours, ours) == wanted.type)


def _scanned(frame: Any, names: list[str]) -> list[str] | None:
    """The paths of a plain scan."""
    import polars

    try:
        found = _SCAN.search(frame.explain(optimized=False))
        if found is None:
            return None
        scan: Any = polars.scan_parquet if found[1] == "Parquet" else polars.scan_ipc
        paths = found[2].split(", ")
        every, plan = scan(paths), frame.serialize()
        is_plain = plan in (every.serialize(), every.select(names).serialize())
    except Exception:  # no plan has to be printed or written: that only helps us
        return None
    return paths if is_plain else None
