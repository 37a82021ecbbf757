"""What the tests of growing sources share: rows in every format, and files that grow in pieces."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from matwin import growing, peers

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.string())])
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    """Whoever finds nothing looks again at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "POLL_SECONDS", 0.001)
        patch.setattr(peers, "POLL_SECONDS", 0.001)
        yield


def some_rows(count: int, first: int = 0) -> Rows:
    """Rows that are a function of their number, texts with commas, quotes and line breaks."""
    texts = ["a", "b,c", 'd "e"', "f\ng", "ö"]
    return [{"t": i, "x": i / 4, "k": texts[i % 5]} for i in range(first, first + count)]


def written(rows: Sequence[dict[str, Any]], format: str, *, is_new: bool = True) -> bytes:
    """Rows as a file has them."""
    if format == "jsonl":
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    if format == "arrow":
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            start = sink.tell()
            for row in rows:
                stream.write_batch(pa.RecordBatch.from_pylist([row], SCHEMA))
            end = sink.tell()
        return sink.getvalue()[0 if is_new else start : end]
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if format == "tsv" else ",", lineterminator="\n")
    for row in ([list(SCHEMA.names)] if is_new else []) + [list(row.values()) for row in rows]:
        writer.writerow(row)
    return text.getvalue().encode()


def listed(items: Iterable[Any]) -> Rows:
    """The rows of all batches."""
    return [row for item in items if item is not None for row in item.to_pylist()]


def there(items: Iterator[Any]) -> Rows:
    """The rows that are there now."""
    found: Rows = []
    for item in items:
        if item is None:
            break
        found += item.to_pylist()
    return found


def append(path: Path, data: bytes) -> None:
    """What a writer does."""
    with path.open("ab") as file:
        file.write(data)


def begun_again(mark: tuple[Any, int]) -> tuple[Any, int]:
    """A mark as a commit keeps it."""
    found: tuple[Any, int] = (json.loads(json.dumps(mark[0])), mark[1])
    return found
