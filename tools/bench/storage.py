"""`matwin bench storage`: the page file beside a raw file, and rows through each form of window.

Each measurement runs next to a raw file doing the same in the same run, because only the ratio
means anything on another machine:

    append      pages written in transactions     write() of the same bytes, the same syncs
    sequential  every page read in order          pread() of the same bytes, no checksum
    random      every page read in random order   pread() at the same places
    slide       old pages freed as new ones come  a ring of the same length, overwritten in place

The best of `--repeat` runs counts on both sides: the other runs measure what else the machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from matwin.storage import LmdbPageFile, PageId, Store, read_trace
from matwin.storage.layout import encode_page, schema_mark, seal
from matwin.storage.pagefile import TRANSACTION_BYTES_MAX, record_bytes
from matwin.storage.units import format_size, parse_size

PAGE_SIZES = ("64KiB", "256KiB", "1MiB")
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("v", pa.int64())])
ROW_BYTES = 24
PAGE_NUMBER_AT = 16
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our rate beside the raw file's."""

    work: str
    page_size: str
    rate: float
    raw_rate: float
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times as long as the raw file we take."""
        return self.raw_rate / self.rate


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="matwin-bench-") as folder:
        rows = list(
            measure(Path(folder), parse_size(args.size), args.rows, args.memory, args.repeat)
        )
    if args.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2))
    else:
        print(table(rows))
    return 0


def measure(folder: Path, size: int, rows: int, memory: str, repeat: int) -> Iterator[Row]:
    """Every row of the table."""
    for page_size in PAGE_SIZES:
        yield from _pages(folder, page_size, max(size // parse_size(page_size), 64), repeat)
    for form in ("standard", "grid", "slab"):
        yield _window(folder, form, rows, memory, repeat)
    yield _trace_cost(folder, rows, memory, repeat)


def table(rows: list[Row]) -> str:
    """The rows as text."""
    head = f"{'work':<22}{'page':>8}{'MatWin':>10}{'beside':>10}  {'unit':<9}{'times':>6}  note"
    lines = [head, "─" * len(head)]
    for row in rows:
        lines.append(
            f"{row.work:<22}{row.page_size:>8}{row.rate:>10.2f}{row.raw_rate:>10.2f}"
            f"  {row.unit:<9}{row.ratio:>5.2f}×  {row.note}"
        )
    return "\n".join(lines)


# ── pages ────────────────────────────────────────────────────────────────────────────────────


def _pages(folder: Path, page_size: str, count: int, repeat: int) -> Iterator[Row]:
    size = parse_size(page_size)
    data = _full_page(size)
    total = count * len(data) / 1e9
    best: dict[str, Pair] = {}
    for _ in range(repeat):
        for work, (ours, raw) in _times(folder, size, data, count).items():
            before = best.get(work, (ours, raw))
            best[work] = (min(ours, before[0]), min(raw, before[1]))
    note = f"file {_slide_ratio(folder, size, data, count):.2f}× the live pages"
    for work, (ours, raw) in best.items():
        yield Row(
            work, page_size, total / ours, total / raw, "GB/s", note if work == "slide" else ""
        )


def _times(folder: Path, size: int, data: pa.Buffer, count: int) -> dict[str, Pair]:
    """Seconds that each work takes us and the raw file."""
    per_write = max(TRANSACTION_BYTES_MAX // size, 1)
    order = np.random.default_rng(0).permutation(count).tolist()
    ours, raw = folder / "pages", folder / "raw"
    file = LmdbPageFile(ours, page_size=size, durability="epoch")
    times = {
        "append, synced": (
            _append(file, data, count, per_write),
            _timed(lambda: _raw_append(raw, data, count, per_write)),
        )
    }
    _read(file, range(count))  # the reads are of hot pages
    _raw_read(raw, range(count), len(data))
    times |= {
        "read, sequential": (
            _timed(lambda: _read(file, range(count))),
            _timed(lambda: _raw_read(raw, range(count), len(data))),
        ),
        "read, random": (
            _timed(lambda: _read(file, order)),
            _timed(lambda: _raw_read(raw, order, len(data))),
        ),
    }
    file.close()
    _remove(ours, raw)
    live = _live(count)
    ring = LmdbPageFile(ours, page_size=size)
    times["slide"] = (
        _slide(ring, data, count, live),
        _timed(lambda: _raw_slide(raw, data, count, live)),
    )
    ring.close()
    _remove(ours, raw)
    return times


def _slide_ratio(folder: Path, size: int, data: pa.Buffer, count: int) -> float:
    """The file's size after sliding, as a multiple of the pages that are live."""
    file = LmdbPageFile(folder / "pages", page_size=size)
    _slide(file, data, count, _live(count))
    ratio = file.file_bytes / (_live(count) * size)
    file.close()
    _remove(folder / "pages", folder / "raw")
    return ratio


def _live(count: int) -> int:
    return max(count // 4, 32)


def _full_page(size: int) -> pa.Buffer:
    """A page as full as pages get, so that the rates count what a user stores."""
    rows = (record_bytes(size) - 4096) // ROW_BYTES
    batch = _batch(0, rows, np.random.default_rng(0))
    cells = np.zeros(rows, np.int64)
    t = batch.column("t").to_numpy()
    return encode_page(PageId(0, 0), batch, [cells, t], schema_mark(SCHEMA))[0]


def _append(file: LmdbPageFile, data: pa.Buffer, count: int, per_write: int) -> float:
    seconds = 0.0
    for first in range(0, count, per_write):
        seconds += _write(file, data, range(first, min(first + per_write, count)))
    return seconds


def _write(file: LmdbPageFile, data: pa.Buffer, numbers: range) -> float:
    """Seconds to seal and write copies of a page under other numbers."""
    copies = [(PageId(0, number), pa.py_buffer(bytearray(data))) for number in numbers]
    start = time.perf_counter()
    for page_id, page in copies:
        struct.pack_into("<Q", page, PAGE_NUMBER_AT, page_id.page)
        seal(page)
    file.write(copies)
    return time.perf_counter() - start


def _raw_append(path: Path, data: pa.Buffer, count: int, per_write: int) -> None:
    with path.open("wb", buffering=0) as file:
        for number in range(count):
            file.write(data)
            if (number + 1) % per_write == 0:
                os.fdatasync(file.fileno())
        os.fdatasync(file.fileno())


def _read(file: LmdbPageFile, order: Iterable[int]) -> None:
    for number in order:
        file.read(PageId(0, number))


def _raw_read(path: Path, order: Iterable[int], size: int) -> None:
    buffer = bytearray(size)
    with path.open("rb", buffering=0) as file:
        for number in order:
            os.preadv(file.fileno(), [buffer], number * size)


def _slide(file: LmdbPageFile, data: pa.Buffer, count: int, live: int) -> float:
    seconds = 0.0
    step = min(max(TRANSACTION_BYTES_MAX // file.page_size, 1), max(live // 16, 1))
    for first in range(0, count, step):
        seconds += _write(file, data, range(first, first + step))
        if first + step > live:
            gone = range(max(first - live, 0), first + step - live)
            start = time.perf_counter()
            file.free([PageId(0, number) for number in gone])
            seconds += time.perf_counter() - start
    return seconds


def _raw_slide(path: Path, data: pa.Buffer, count: int, live: int) -> None:
    with path.open("wb", buffering=0) as file:
        for number in range(count):
            os.pwrite(file.fileno(), data, (number % live) * len(data))


# ── windows ──────────────────────────────────────────────────────────────────────────────────


def _window(folder: Path, form: str, rows: int, memory: str, repeat: int) -> Row:
    seconds, note = 1e9, ""
    for _ in range(repeat):
        with Store(memory=memory, scratch=folder) as store:
            seconds = min(seconds, _timed(lambda: _stream(store, form, rows)))
            note = _window_note(store, rows)
    batches = list(_batches(rows))
    raw = min(_timed(lambda: _raw_rows(folder / "raw", batches)) for _ in range(repeat))
    return Row(
        f"window, {form}", "256KiB", rows / seconds / 1e6, rows / raw / 1e6, "M rows/s", note
    )


def _window_note(store: Store, rows: int) -> str:
    counters = store.pool.counters
    return (
        f"{format_size(counters.bytes_written)} written for "
        f"{format_size(rows * ROW_BYTES)} of rows, file {format_size(store.file.file_bytes)}"
    )


def _trace_cost(folder: Path, rows: int, memory: str, repeat: int) -> Row:
    """The slab form with a trace beside the same without: turns, so that both see the same disk."""
    with_trace, without = 1e9, 1e9
    for _ in range(2 * repeat):
        without = min(without, _timed(lambda: _traced(folder, rows, memory, None)))
        with_trace = min(with_trace, _timed(lambda: _traced(folder, rows, memory, folder / "t")))
    note = f"with a trace ({read_trace(folder / 't').num_rows:,} events) beside without"
    return Row("trace", "16KiB", rows / with_trace / 1e6, rows / without / 1e6, "M rows/s", note)


def _traced(folder: Path, rows: int, memory: str, trace: Path | None) -> None:
    """Small pages make many events; the trace is written to the end within the time."""
    with Store(memory=memory, page_size="16KiB", scratch=folder, trace=trace) as store:
        _stream(store, "slab", rows)


def _stream(store: Store, form: str, rows: int) -> None:
    """Rows in order through a window that keeps half of them, and one scan of what is left."""
    window = store.window(form, SCHEMA, on={"t": rows // 50, "x": 0.25}, materialize=form)
    for number, batch in enumerate(_batches(rows), 1):
        window.append(batch)
        if number % 4 == 0:
            window.expire(below=number * batch.num_rows - rows // 2)
            window.settle()
    for _ in window.scan():
        pass


def _raw_rows(path: Path, batches: list[pa.RecordBatch]) -> None:
    """The same rows written to a raw file and half of them read back, unsorted."""
    size = sum(batch.nbytes for batch in batches)
    with path.open("w+b", buffering=0) as file:
        for batch in batches:
            for column in batch.columns:
                file.write(column.buffers()[1])
        file.seek(size // 2)
        while file.read(2**18):
            pass


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(0)
    for first in range(0, rows, 65_536):
        yield _batch(first, min(65_536, rows - first), generator)


def _batch(first: int, rows: int, generator: np.random.Generator) -> pa.RecordBatch:
    t = np.arange(first, first + rows)
    return pa.record_batch([t, generator.random(rows), t], schema=SCHEMA)


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _remove(folder: Path, file: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit("run it as: matwin bench storage")
