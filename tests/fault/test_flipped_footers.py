"""Any bit of a file's footer, page headers and messages may be another: the answer is the same, or
an error names the file, and no process ends.

    forks of one process │ batch of flips │ batch of flips │ …      a fork that dies is repeated,
                                                                    flip by flip, to see which

A footer has no checksum.  So a bit may also make another file of it, whose columns have other types
or other names; whoever reads it sees them.  Such flips are counted, and are few.  Whether a column
has nulls is no such thing: its pages say it too.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proofs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support import call_in_child, campaign, drawn_seed, in_fork

import matwin
from matwin.ipc_layout import is_stream, messages
from matwin.parquet_footer import Footer
from matwin.parquet_pages import pages
from matwin.sources import source_of
from matwin.storage.errors import MatwinError

pytestmark = pytest.mark.fault

ROWS = 40
BATCH = 50
SECONDS = 60
"""A flip that takes longer hangs."""
USUAL = ("same", "refused", "another file")


def simple() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "t": pa.array([n // 2 for n in numbers], pa.int64()),
            "x": [n / 7 if n % 5 else None for n in numbers],
            "text": [f"key {n % 4}" for n in numbers],
            "at": pa.array([10**15 + n for n in numbers], pa.timestamp("us")),
            "b": [n % 3 == 0 for n in numbers],
        }
    )


def nested() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "t": pa.array([n // 2 for n in numbers], pa.int32()),
            "list": [[n] * (n % 3) for n in numbers],
            "struct": [{"a": n, "b": [str(n)] * (n % 2)} for n in numbers],
            "money": pa.array(numbers, pa.decimal128(12, 2)),
            "small": pa.array(numbers, pa.uint16()),
            "key": pa.array([f"key {n % 4}" for n in numbers]).dictionary_encode(),
        }
    )


def by_duckdb(path: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("rows", simple())
        connection.execute(f"copy rows to '{path}' (format parquet)")


def ipc(path: Path, make: Any, rows: pa.Table, codec: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with make(str(path), rows.schema, options=options) as writer:
        for batch in rows.to_batches(max_chunksize=15):
            writer.write_batch(batch)


PARQUET: dict[str, Callable[[Path], None]] = {
    "one.parquet": lambda path: pq.write_table(pa.table({"t": [1, 2, 3]}), path),
    "groups.parquet": lambda path: pq.write_table(simple(), path, row_group_size=15),
    "plain.parquet": lambda path: pq.write_table(
        simple(), path, use_dictionary=False, compression="none"
    ),
    "second.parquet": lambda path: pq.write_table(
        simple(), path, data_page_version="2.0", data_page_size=64, store_schema=False,
        compression="zstd",
    ),
    "nested.parquet": lambda path: pq.write_table(
        nested(), path, row_group_size=25, write_page_index=True
    ),
    "bare.parquet": lambda path: pq.write_table(
        nested(), path, data_page_version="2.0", write_page_checksum=True, store_schema=False
    ),
    "duckdb.parquet": by_duckdb,
}  # fmt: skip
IPC: dict[str, Callable[[Path], None]] = {
    "plain.arrow": lambda path: ipc(path, pa.ipc.new_file, simple()),
    "packed.arrow": lambda path: ipc(path, pa.ipc.new_file, simple(), "zstd"),
    "keys.arrow": lambda path: ipc(path, pa.ipc.new_file, nested()),
    "plain.arrows": lambda path: ipc(path, pa.ipc.new_stream, simple(), "lz4"),
    "keys.arrows": lambda path: ipc(path, pa.ipc.new_stream, nested()),
}
KINDS = {**PARQUET, **IPC}


# ── what is flipped ──────────────────────────────────────────────────────────────────────────────


def parquet_bytes(data: bytes) -> Iterator[int]:
    """The bytes of the footer and of all page headers."""

    def read_at(place: int, count: int) -> bytes:
        return data[place : place + count]

    footer = Footer.of(read_at, len(data))
    yield from range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))
    for group in range(footer.groups):
        for leaf in range(len(footer.leaves)):
            chunk = footer.chunk(group, leaf)
            for page in pages(read_at, chunk.start, chunk.packed):
                yield from range(page.header, page.place)


def ipc_bytes(data: bytes) -> Iterator[int]:
    """The bytes of all messages but for their rows, and of the directory."""

    def read_at(place: int, count: int) -> bytes:
        return data[place : place + count]

    bodies = {
        at for message in messages(read_at, len(data)) for at in range(message.body, message.end)
    }
    yield from (at for at in range(len(data)) if at not in bodies)
    assert bodies or is_stream(read_at, len(data))


def bytes_of(name: str, data: bytes) -> list[int]:
    """What is flipped in a file of this name."""
    return list((parquet_bytes if name in PARQUET else ipc_bytes)(data))


# ── what is asked ────────────────────────────────────────────────────────────────────────────────


def joined(bad: str, good: str) -> pa.Table:
    return matwin.epsilon_join(bad, good, on={"t": 0}, memory="32MiB").to_arrow()


def on_pages(bad: str, good: str) -> pa.Table:
    return matwin.epsilon_join(
        bad, good, on={"t": 0}, memory="256KiB", page_size="4KiB", materialize="slab"
    ).to_arrow()  # fmt: skip


def by_sql(bad: str, good: str) -> pa.Table:
    return matwin.sql(f"select * from '{bad}'", memory="32MiB").to_arrow()


def joined_by_sql(bad: str, good: str) -> pa.Table:
    query = f"select a.*, b.t as u from '{bad}' a join '{good}' b on a.t = b.t"
    return matwin.sql(query, memory="32MiB").to_arrow()


def filtered(bad: str, good: str) -> pa.Table:
    """A dataset with a condition, for which Arrow looks at the statistics of row groups."""
    kind = ds.ParquetFileFormat() if bad.endswith("parquet") else ds.IpcFileFormat()
    system = pa.fs.LocalFileSystem()
    schema = source_of(good, "good").schema
    found = ds.FileSystemDataset([kind.make_fragment(bad, system)], schema, kind)
    return matwin.epsilon_join(found.filter(pc.field("t") > 1), good, on={"t": 0}).to_arrow()


WAYS = {
    "joined": joined, "on pages": on_pages, "sql": by_sql, "sql join": joined_by_sql,
    "dataset": filtered,
}  # fmt: skip


JOINS, SQL, FEW = ["joined", "on pages", "dataset"], ["sql", "sql join"], ["joined", "dataset"]


def answer(way: str, bad: str, good: str) -> list[str]:
    """The rows, in no order."""
    found = WAYS[way](bad, good)
    try:
        return sorted(map(repr, found.to_pylist()))
    except (ArithmeticError, ValueError):  # other types, whose values Python does not have
        return []


def columns_of(source: Any) -> list[str]:
    """A file's columns; one that is told to have no nulls is no other column for that."""
    return [f"{field.name}: {field.type}" for field in source.schema]


def shape(path: str) -> tuple[list[str], int]:
    """A file's columns and how many rows it has."""
    source = source_of(path, "left")
    first = source.schema.names[:1]
    return columns_of(source), sum(b.num_rows for b in source.batches(first))


def outcome(way: str, bad: str, good: str, wanted: list[str], told: list[Any]) -> str:
    """What came of a file with a flipped bit; a word, or a sentence where it should not be so."""
    problem = ""
    try:
        found = answer(way, bad, good)
        if found == wanted:
            return "same"
        problem = f"{len(found)} rows for {len(wanted)}, or others"
    except MatwinError as e:
        if bad in str(e):
            return "refused"
        problem = f"an error without the file's name: {e}"
    if columns_of(source_of(bad, "left")) == told[0]:
        return problem
    try:
        return "another file" if shape(bad)[1] == told[1] else problem
    except MatwinError as e:
        return "another file" if bad in str(e) else problem


def outcomes(path: str, name: str, way: str, bits: list[int], wanted: Any, told: Any) -> list[str]:
    """What came of each of some flips."""
    data, found = Path(path).read_bytes(), []
    bad = str(Path(path).with_name(f"bad-{name}"))
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        Path(bad).write_bytes(changed)
        signal.alarm(SECONDS)
        found.append(outcome(way, bad, path, wanted, told))
    return found


# ── many flips ───────────────────────────────────────────────────────────────────────────────────


def try_flips(folder: str, kinds: list[str], ways: list[str], seed: int, count: int) -> Any:
    """Flips spread over all kinds of files; how many came out how, and what went wrong."""
    chance, tally, problems = random.Random(seed), Counter[str](), []
    # What Arrow says of a crash would fill the report.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # Datasets have no streams.
    pairs = [(n, w) for n in kinds for w in ways if w != "dataset" or not n.endswith("arrows")]
    for name, way in pairs:
        path = str(Path(folder) / name)
        KINDS[name](Path(path))
        places = bytes_of(name, Path(path).read_bytes())
        # In forks too: threads of DuckDB would be missing in the forks to come.
        told, wanted = in_fork(shape, path).value, in_fork(answer, way, path, path).value
        assert wanted, (name, way)
        left = count // len(pairs) + 1
        while left > 0:
            bits = [
                8 * chance.choice(places) + chance.randrange(8) for _ in range(min(left, BATCH))
            ]
            left -= len(bits)
            for bit, word in zip(bits, _found(path, name, way, bits, wanted, told), strict=True):
                tally[word if word in USUAL else "wrong"] += 1
                if word not in USUAL:
                    problems.append(f"{name}, byte {bit // 8}, bit {bit % 8}, {way}: {word}")
    return tally, problems


def _found(path: str, name: str, way: str, bits: list[int], wanted: Any, told: Any) -> list[str]:
    fate = in_fork(outcomes, path, name, way, bits, wanted, told)
    if not fate.signal and not fate.error:
        return list(fate.value)
    if len(bits) == 1:
        return [f"signal {fate.signal}" if fate.signal else fate.error]
    return [word for bit in bits for word in _found(path, name, way, [bit], wanted, told)]


def check(kinds: dict[str, Any], folder: Path, ways: list[str], part: int, count: int) -> None:
    seed = campaign(drawn_seed(), part)
    tally, problems = call_in_child(
        try_flips, str(folder), list(kinds), ways, seed, count, timeout=7200
    )
    tried = sum(tally.values())
    proofs.tried(tried)
    print(json.dumps({"seed": seed, **tally}))
    assert problems == [], (seed, tally)
    assert tried >= count
    if tried >= 60:  # of a few flips all may have hit what matters
        assert tally["same"] > tried // 10 < tally["refused"]
    assert tally.get("another file", 0) < tried // 30 + 5


def some(kinds: dict[str, Any]) -> dict[str, Any]:
    """All kinds, or a few of them where a query for each would take too long."""
    chosen = random.Random(drawn_seed()).sample(list(kinds.items()), campaign(3, len(kinds)))
    return dict(chosen)


@pytest.mark.proof("flipped bits in Parquet footers and page headers")
@pytest.mark.parametrize("part", range(campaign(1, 10)))
def test_parquet_joins(tmp_path: Path, part: int) -> None:
    check(PARQUET, tmp_path, campaign(FEW, JOINS), part, campaign(140, 4500))


@pytest.mark.proof("flipped bits in Parquet footers and page headers")
@pytest.mark.parametrize("part", range(campaign(1, 10)))
def test_parquet_in_sql(tmp_path: Path, part: int) -> None:
    check(some(PARQUET), tmp_path, campaign(["sql join"], SQL), part, campaign(21, 2500))


@pytest.mark.proof("flipped bits in IPC footers")
@pytest.mark.parametrize("part", range(campaign(1, 10)))
def test_ipc_joins(tmp_path: Path, part: int) -> None:
    check(IPC, tmp_path, campaign(FEW, JOINS), part, campaign(100, 2000))


@pytest.mark.proof("flipped bits in IPC footers")
@pytest.mark.parametrize("part", range(campaign(1, 10)))
def test_ipc_in_sql(tmp_path: Path, part: int) -> None:
    check(some(IPC), tmp_path, campaign(["sql join"], SQL), part, campaign(15, 1000))
