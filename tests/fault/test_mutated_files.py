"""Input files with flipped, cut and inserted bytes: an answer or one clear line, and never a crash.

One process loads everything; each case is a fork of it, so that a crash is seen and costs nothing.
"""

from __future__ import annotations

import gzip
import io
import os
import random
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import proofs
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from support import call_in_child, campaign, drawn_seed, in_fork

import matwin
from matwin.tools import cli

pytestmark = pytest.mark.fault

ROWS = 300
TRACES = ("summary", "pages", "matrix", "replay", "html")


def table() -> pa.Table:
    """Columns of every kind that files hold."""
    numbers = range(ROWS)
    return pa.table(
        {
            "t": pa.array(numbers, pa.timestamp("us")),
            "x": [n / 7 if n % 9 else None for n in numbers],
            "k": pa.array([f"key {n % 13}" for n in numbers]).dictionary_encode(),
            "text": [f"row {n} ü" * (n % 3) for n in numbers],
            "list": [[n, n + 1][: n % 3] for n in numbers],
            "struct": [{"a": n, "b": str(n)} for n in numbers],
        }
    )


def plain() -> pa.Table:
    return table().select(["t", "x", "text"])


def write_ipc(path: Path, make: Callable[..., pa.ipc.RecordBatchFileWriter], codec: str) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec or None)
    with make(str(path), table().schema, options=options) as writer:
        for batch in table().to_batches(max_chunksize=100):
            writer.write_batch(batch)


def write_csv(path: Path) -> None:
    pa_csv.write_csv(plain(), path)


def write_gzip(path: Path) -> None:
    kept = io.BytesIO()
    pa_csv.write_csv(plain(), kept)
    path.write_bytes(gzip.compress(kept.getvalue()))


def write_json(path: Path) -> None:
    lines = [
        f'{{"t": {n}, "x": {n / 7}, "s": "ü {n}", "l": [{n}], "d": {{"a": "b"}}}}'
        for n in range(ROWS)
    ]
    path.write_text("\n".join(lines) + "\n")


def write_trace(path: Path) -> None:
    small = pa.table({"t": range(3000), "x": [float(n % 50) for n in range(3000)]})
    matwin.bestmatch_join(
        small, small, on={"t": 5, "x": 3.0}, memory="200KiB", page_size="4KiB", trace=path
    ).read_all()


KINDS: dict[str, Callable[[Path], None]] = {
    "a.parquet": lambda path: pq.write_table(table(), path, row_group_size=100),
    "b.parquet": lambda path: pq.write_table(
        table(), path, compression="zstd", data_page_version="2.0", write_page_checksum=True,
        use_dictionary=False,
    ),
    "a.csv": write_csv,
    "a.csv.gz": write_gzip,
    "a.arrow": lambda path: write_ipc(path, pa.ipc.new_file, ""),
    "b.arrow": lambda path: write_ipc(path, pa.ipc.new_file, "zstd"),
    "a.arrows": lambda path: write_ipc(path, pa.ipc.new_stream, ""),
    "b.arrows": lambda path: write_ipc(path, pa.ipc.new_stream, "lz4"),
    "a.jsonl": write_json,
    "a.trace": write_trace,
}  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes, most of them where files keep what they say of
    themselves: at both ends."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        size = len(changed)
        at = chance.randrange(size + 1)
        if chance.random() < 0.4:
            at = chance.choice((at % 512, max(size - 1 - at % 512, 0)))
        at = min(at, max(size - 1, 0))
        kind = chance.choice(("flip", "flip", "byte", "cut", "insert", "copy", "end"))
        piece = chance.randrange(1, 40)
        if kind == "flip" and size:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == "byte" and size:
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x0A))
        elif kind == "cut":
            del changed[at : at + piece]
        elif kind == "insert":
            changed[at:at] = chance.randbytes(piece)
        elif kind == "copy":
            start = chance.randrange(size + 1)
            changed[at:at] = changed[start : start + piece]
        elif kind == "end":
            del changed[at:]
    return bytes(changed)


def words_of(path: Path, chance: random.Random) -> list[str]:
    """A command that reads the file."""
    if path.suffix == ".trace":
        which = chance.choice(TRACES)
        more = ["-o", str(path.with_name("page.html")), "--overwrite"] if which == "html" else []
        return ["trace", which, str(path), *more]
    small = ["--memory", "16MiB", "--quiet", "--format", "jsonl", "-o", "/dev/null"]
    if path.suffix == ".jsonl":
        streams = [f"a={path}", f"b={path}"]
        return ["window-join", *streams, "--time", "t", "--window", "5", *small]
    limit = "t=5us" if chance.random() < 0.7 else "x=0.5"
    return ["join", str(path), str(path), "--on", limit, *small]


def read_mutated(path: str, name: str, seed: int) -> tuple[int, str]:
    """The exit code of a command on a mutated file, and what it says."""
    chance = random.Random(seed)
    data = mutated(Path(path).read_bytes(), chance)
    bad = Path(path).with_name(f"bad-{name}")
    bad.write_bytes(data)
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = cli.main(words_of(bad, chance))
    return code, said.getvalue()


def read_each(folder: str, first: int, count: int) -> list[str]:
    """Many mutations of each kind of file; what went wrong."""
    paths = {name: Path(folder) / name for name in KINDS}
    for name, path in paths.items():
        KINDS[name](path)
        said = io.StringIO()
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            code = cli.main(words_of(path, random.Random(0)))  # here: forks find all loaded
        assert code == 0, (name, said.getvalue())
    # What Arrow says of a crash would fill the report.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    problems = []
    for seed in range(first, first + count):
        name = list(KINDS)[seed % len(KINDS)]
        fate = in_fork(read_mutated, str(paths[name]), name, seed)
        if problem := wrong(fate.signal, fate.value, fate.error):
            problems.append(f"case {seed}: {name}: {problem}")
    return problems


def wrong(signal: int, value: tuple[int, str] | None, error: str) -> str:
    """What is wrong with the way a command ended; nothing if all is well."""
    if signal or error or value is None:
        return f"signal {signal} {error}"
    code, said = value
    if code == 2 and said.startswith("matwin: error: ") and said.count("\n") == 1:
        return ""
    return "" if code == 0 and not said else f"exit code {code}, and it says {said[-1500:]}"


@pytest.mark.proof("mutated input files")
@pytest.mark.parametrize("part", range(campaign(1, 10)))
def test_mutated_files(tmp_path: Path, part: int) -> None:
    count = campaign(120, 1000)
    first = campaign(drawn_seed(), part * count)
    problems = call_in_child(read_each, str(tmp_path), first, count, timeout=3600)
    proofs.tried(count)
    assert problems == []
