"""A power cut at any moment of a continuous query: what has been acknowledged is in the sink, once.

A process runs a query to its end, with a restart on the way, and says of each epoch that it has
been delivered.  strace records it, and disks are rebuilt as a power cut could have left them, state
folder and sink together (``power.py``).  On each of them every acknowledged epoch is in the sink,
whole, before anything is started; and the query, started again, brings every row once.

DuckDB writes one of its blocks over itself when it takes its log into the file.  Power that goes in
the middle of that write leaves a file that DuckDB refuses, and so do we: nothing is lost unseen.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from power import STRACE, images, is_unsynced, recorded
from proofs import tried
from support import campaign, each_in_fork, needs_root, strace

import matwin
from matwin.storage import StoreError
from matwin.storage import pagefile as pagefile_module

pytestmark = [
    pytest.mark.fault,
    needs_root,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

ROWS, WIDTH = 84, 12
EPOCHS, STOP = ROWS // WIDTH, 4
SINKS = ("parquet", "sqlite", "sqlite wal", "duckdb", "duckdb checkpoints", "function")


def newest(windows: Any) -> pa.Table:
    windows.notes["epochs"] = windows.notes.get("epochs", 0) + 1
    return windows.newest("a").to_arrow()


def rows_of(epoch: int) -> list[int]:
    return list(range(epoch * WIDTH - WIDTH, epoch * WIDTH))


def ask(folder: Path, kind: str) -> Any:
    data = pa.table({"ts": range(ROWS), "id": range(ROWS), "text": ["x" * 200] * ROWS})
    sink: Any = {
        "parquet": str(folder / "new" / "out"), "sqlite": f"{folder}/out.sqlite:found",
        "duckdb": f"{folder}/out.duckdb:found",
    }.get(kind.split()[0])  # fmt: skip
    if sink is None:

        def sink(epoch: int, rows: pa.RecordBatchReader) -> None:
            put_down(folder / "lines", epoch, rows.read_all()["id"].to_pylist())

    return matwin.continuous_query(
        newest, {"a": data}, cut=matwin.cut.every(WIDTH, on="ts"), keep=2, state=folder / "state",
        sink=sink, memory="512KiB", page_size="4KiB",
    )  # fmt: skip


def put_down(file: Path, epoch: int, ids: list[int]) -> None:
    """An epoch as a line, by somebody who knows that a power cut loses what is not synced."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"\n{json.dumps([epoch, ids])}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)
    folder = os.open(file.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def work(folder: str, kind: str, log: str) -> int:
    """Run to the end, with a stop on the way; each epoch is acknowledged by a line."""
    told = os.open(f"{log}.told", os.O_WRONLY | os.O_CREAT)
    with strace(*STRACE, log):
        if kind == "sqlite wal":
            with sqlite3.connect(Path(folder) / "out.sqlite") as database:
                database.execute("PRAGMA journal_mode = WAL")
            database.close()
        for last in (STOP, EPOCHS):
            query = ask(Path(folder), kind)
            for epoch in query:
                os.write(told, f"{epoch.id}\n".encode())
                if kind == "duckdb checkpoints":  # in every epoch, instead of once for 16 MB
                    query._sink._database.execute("CHECKPOINT")
                if epoch.id == last:
                    query.stop()
    return epoch.id


def in_sink(folder: Path, kind: str) -> dict[int, list[int]]:
    """What a reader of the sink sees, by epoch."""
    if kind == "parquet":
        out = folder / "new" / "out"
        records = [json.loads(r.read_text()) for r in (out / "_commits").glob("*.json")]
        return {r["epoch"]: pq.read_table(out / r["file"])["id"].to_pylist() for r in records}
    if kind == "function":
        return in_lines(folder / "lines")
    found: dict[int, list[int]] = {}
    for epoch, row in in_table(folder, kind):
        found.setdefault(epoch, []).append(row)
    return {epoch: sorted(ids) for epoch, ids in found.items()}


def in_lines(file: Path) -> dict[int, list[int]]:
    """The epochs of a function may come again: the same number, the same rows."""
    found: dict[int, list[int]] = {}
    for line in file.read_bytes().split(b"\n") if file.exists() else []:
        try:
            epoch, ids = json.loads(line)
        except ValueError:  # torn, or empty
            continue
        assert found.setdefault(epoch, ids) == ids
    return found


def in_table(folder: Path, kind: str) -> list[tuple[int, int]]:
    file = folder / f"out.{kind.split()[0]}"
    asked = "SELECT matwin_epoch, id FROM found"
    if not file.exists():
        return []
    if file.suffix == ".sqlite":
        with sqlite3.connect(file) as database:
            there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'found'").fetchone()
            return database.execute(asked).fetchall() if there else []
    import duckdb

    with duckdb.connect(str(file)) as database:
        there = database.execute(
            "SELECT 1 FROM duckdb_tables() WHERE table_name = 'found'"
        ).fetchone()
        return database.execute(asked).fetchall() if there else []


def look(folder: str, kind: str, told: int) -> str:
    """Look at what a power cut has left, and go on to the end: '' or why that can't be."""
    pagefile_module.boot_id = lambda: "another start"
    copy = Path(f"{folder}-copy")  # a reader of a database also mends it
    shutil.copytree(folder, copy)
    try:
        there = in_sink(copy, kind)
    except Exception as e:
        with pytest.raises(StoreError, match=f"the sink {folder}/.*Corrupt database file"):
            ask(Path(folder), kind)
        return str(e)
    ask(Path(folder), kind).run()
    whole = in_sink(Path(folder), kind)
    assert whole == {n: rows_of(n) for n in range(1, EPOCHS + 1)}, "rows are lost, or there twice"
    assert all(there.get(n) == rows_of(n) for n in range(1, told + 1)), (
        f"{told} were acknowledged, and {sorted(there)} are there"
    )
    assert sorted(there) in (list(range(1, told + 1)), list(range(1, told + 2))), (told, there)
    shutil.rmtree(folder)
    shutil.rmtree(copy)
    return ""


@pytest.mark.proof("power cut of whole queries")
@pytest.mark.parametrize("order", ["ordered", "any"])
@pytest.mark.parametrize("kind", SINKS)
def test_power_cuts(tmp_path: Path, kind: str, order: str) -> None:
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    (fate,) = each_in_fork(work, [[str(disk), kind, str(log)]])
    assert (fate.signal, fate.error, fate.value) == (0, "", EPOCHS)
    ops = recorded(log, disk, Path(f"{log}.told"))
    assert sum(op.kind == "told" for op in ops) == EPOCHS
    count = campaign(6, 500)
    seed = random.Random(f"{kind} {order}").randrange(2**32)
    while count > 0:
        some = images(ops, disk, tmp_path, min(count, 250), seed + count, order)
        fates = each_in_fork(look, [[folder, kind, told] for told, _, folder in some])
        for (told, at, folder), fate in zip(some, fates, strict=True):
            last = ops[max(at - 1, 0)]
            assert (fate.signal, fate.error) == (0, ""), (told, at, folder, last.kind, last.path)
            if fate.value:
                assert "Corrupt database file" in fate.value, (told, at, folder)
                assert is_unsynced(ops[:at], disk / "out.duckdb"), (told, at, folder)
            tried()
        count -= len(some)
