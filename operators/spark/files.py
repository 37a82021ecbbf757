"""What a command reads and writes with Spark: files and folders by their names, tables, a few rows.

    data/*.parquet   table:NAME   out.csv ──read──▶ DataFrame ──written──▶ folder of files
                                                        └─────first_rows──▶ a table on a terminal

The format is the one given, or the one a name ends in, also before ``.gz`` and the like.  Text with
columns (CSV, JSON) has its types inferred from all of its rows.  A CSV file with line breaks in
quotes is read whole by one task, any other in parts.  Rows are counted on their way, so that
nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from matwin.storage.errors import InputError

TABLE = "table:"
FORMATS = {
    "parquet": "parquet", "pq": "parquet", "orc": "orc", "csv": "csv", "tsv": "tsv",
    "json": "json", "jsonl": "json", "ndjson": "json",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4")
_TABS = {"sep": "\t"}
# By itself Spark reads a quoted "" as null and a doubled quote as two, and takes blanks off texts
# that it writes.  What stands for null can't be in a file, so that "" is not it.
_CSV_READ = {
    "header": True,
    "inferSchema": True,
    "escape": '"',
    "nullValue": "\0",
    "emptyValue": "",
}
_CSV_WRITE = {
    "header": True, "escape": '"', "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
}  # fmt: skip
_READ: dict[str, dict[str, Any]] = {
    "csv": _CSV_READ, "tsv": _CSV_READ | _TABS, "json": {"inferTimestamp": True},
}  # fmt: skip
_WRITE: dict[str, dict[str, Any]] = {"csv": _CSV_WRITE, "tsv": _CSV_WRITE | _TABS}


def read(session: SparkSession, path: str, name: str, format: str | None = None) -> DataFrame:
    """The rows of a file, a folder, a glob or ``table:NAME``; `name` is what errors call it."""
    if path.startswith(TABLE):
        return session.table(path.removeprefix(TABLE))
    kind = _read_format(path, name, format)
    reader = session.read.format("csv" if kind == "tsv" else kind).options(**_READ.get(kind, {}))
    if kind in ("csv", "tsv") and _has_quoted_line_breaks(session, path, _READ[kind]):
        reader = reader.option("multiLine", True)
    frame = reader.load(path)
    if not frame.schema.fields:
        raise InputError(f"{name}: {path!r} has no columns; check the name and --input-format")
    return frame


def _has_quoted_line_breaks(session: SparkSession, path: str, options: dict[str, Any]) -> bool:
    """Whether a text of a CSV file may go on in the next line.

    Spark reads parts of a file at once by cutting it where any line ends, unless it is told not
    to.  A line that ends inside of quotes has an odd number of them, or one in the middle of a
    field, which opens nothing.
    """
    line, border = F.col("value"), options.get("sep", ",")
    quotes = F.length(line) - F.length(F.translate(line, '"', ""))
    in_field = rf'[^"{border}]"[^"{border}]|^[^"]*[^"{border}]"'
    lines = session.read.text(path).where((quotes % 2 == 1) | line.rlike(in_field))
    return not lines.isEmpty()


def _read_format(path: str, name: str, format: str | None) -> str:
    if format is not None:
        if format.lower() == "text":
            raise InputError(f"{name}: plain text has one column and nothing to join by")
        return FORMATS.get(format.lower(), format)
    kind = suffix_of(path)
    if kind not in FORMATS:
        raise InputError(
            f"{name}: the suffix of {path!r} is none of {', '.join(FORMATS)}; name the format with "
            "--input-format, or a table with table:NAME"
        )
    return FORMATS[kind]


def suffix_of(path: str) -> str:
    """What a name ends in, without what says that it is compressed.

    >>> suffix_of("s3://rooms/2026-*.csv.gz"), suffix_of("rooms.parquet/"), suffix_of("rooms")
    ('csv', 'parquet', '')
    """
    name = PurePosixPath(path).name
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return PurePosixPath(name).suffix.lower().removeprefix(".")


def written_format(path: str, format: str | None) -> str:
    """The format that a folder of results is written in; checked before anything runs."""
    word = (format or suffix_of(path)).lower()
    if word not in FORMATS:
        asked = f"the format {format!r}" if format is not None else f"the suffix of {path!r}"
        raise InputError(f"{asked} is none that Spark writes: {', '.join(FORMATS)}")
    return FORMATS[word]


def check_target(frames: Iterable[DataFrame], path: str) -> None:
    """Refuse to write over what is being read: Spark would remove it first."""
    target = _real(local_path(path))
    for frame in frames:
        for file in frame.inputFiles():
            source = _real(local_path(unquote(file)))
            if source == target or target in source.parents:
                raise InputError(f"{path!r} is being read; give -o another place")


def local_path(path: str) -> str:
    """The path without what says that it is on this machine.

    >>> local_path("file:///data/a.parquet"), local_path("s3://data/a.parquet")
    ('/data/a.parquet', 's3://data/a.parquet')
    """
    for prefix in ("file://", "file:"):
        path = path.removeprefix(prefix)
    return path


def _real(path: str) -> PurePosixPath:
    return PurePosixPath(path if "://" in path else Path(path).resolve())


def written(frame: DataFrame, path: str, kind: str, *, overwrites: bool) -> int:
    """Write all rows to a folder; how many there were."""
    counted, rows = _counted(frame)
    mode = "overwrite" if overwrites else "errorifexists"
    writer = counted.write.format("csv" if kind == "tsv" else kind)
    with _no_empty_folder(path):
        writer.options(**_WRITE.get(kind, {})).mode(mode).save(path)
    return rows()


@contextmanager
def _no_empty_folder(path: str) -> Iterator[None]:
    """Remove the folder that Spark leaves of a failed job, where it is on this machine."""
    folder = Path(path)
    was_there = folder.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            with suppress(OSError):  # it is not here, or not empty
                folder.rmdir()
        raise


def consumed(frame: DataFrame) -> int:
    """Compute all rows and keep none; how many there were."""
    counted, rows = _counted(frame)
    computed(counted)
    return rows()


def computed(frame: DataFrame) -> None:
    """Compute all rows and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def first_rows(frame: DataFrame, count: int) -> tuple[pa.Table, int]:
    """The first rows, and how many there are in all, in one job."""
    counted, rows = _counted(frame)
    table = counted.mapInArrow(_first(count), frame.schema).toArrow()
    return table.slice(0, count), rows()


def _first(count: int) -> Any:
    """A function made here, so that it is sent to executors whole."""

    def first(batches: Iterable[Any]) -> Iterator[Any]:
        missing = count
        for batch in batches:  # to the end: the rows are counted below
            if missing > 0:
                yield batch.slice(0, missing)
                missing -= batch.num_rows

    return first


def _counted(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The frame, and after an action the number of its rows."""
    seen = Observation()
    counted = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
    return counted, lambda: int(seen.get.get("rows") or 0)
