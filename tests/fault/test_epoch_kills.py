"""kill -9 at any moment of an epoch's life: nothing is lost, and nothing comes twice.

A chain of processes runs one continuous query on one state folder.  Each is killed, at a random
moment or at the n-th of the steps that matter (a sync, a rename, a commit, a delivery), and the
next one goes on.  When the streams have ended, what the sink has is compared, as a bag, with a
plain loop over all rows; then the chain begins anew with other rows.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proofs import tried
from support import call_in_child, campaign

import matwin
from matwin.operators.epochs import chunks, continuous, durable, sinks, spool
from matwin.storage.store import Store

pytestmark = pytest.mark.fault

ROWS, WIDTH, NEAR, LATENESS = 90, 10, 9, 14
DELAY_MAX = 0.02
Pair = tuple[int, int]

# ── rows, and what has to come out ───────────────────────────────────────────────────────────────


def tables(seed: int) -> tuple[pa.Table, pa.Table]:
    """One that is sorted, and one whose rows come a little late."""
    rng = random.Random(seed)
    times = [sorted(rng.randrange(160) for _ in range(ROWS)) for _ in "ab"]
    times[1].sort(key=lambda t: t + rng.random() * (LATENESS - 1))
    return tuple(
        pa.table({"ts": t, "k": [rng.randrange(3) for _ in t], "id": range(len(t)),
                  "text": [f"row {i}" * (i % 5) for i in range(len(t))]})
        for t in times
    )  # fmt: skip


def pairs(seed: int) -> Counter[Pair]:
    a, b = ([tuple(row.values()) for row in t.to_pylist()] for t in tables(seed))
    return Counter((x[2], y[2]) for x in a for y in b if abs(x[0] - y[0]) <= NEAR and x[1] == y[1])


def sums(seed: int) -> Counter[Pair]:
    """The epoch and the sum of all times up to its end."""
    times = [t for table in tables(seed) for t in table["ts"].to_pylist()]
    first, last = min(times) // WIDTH, max(times) // WIDTH
    return Counter(
        (n - first + 1, sum(t for t in times if t // WIDTH <= n)) for n in range(first, last + 1)
    )


# ── the process that is killed ───────────────────────────────────────────────────────────────────

JOIN = partial(
    matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("b"), on={"ts": NEAR}, by="k", threads=1
)


def running_sum(windows: Any) -> pa.Table:
    total = sum(sum(windows.newest(n).to_arrow()["ts"].to_pylist()) for n in "ab")
    windows.notes["sum"] = windows.notes.get("sum", 0) + total
    return pa.table({"id_left": [windows.epoch], "id_right": [windows.notes["sum"]]})


def query(folder: Path, kind: str, seed: int) -> matwin.tools.continuous.ContinuousQuery:
    a, b = tables(seed)
    sources = {"a": a, "b": matwin.stream(b, order=matwin.Lateness(LATENESS))}
    is_sum = kind in ("iteration", "sqlite")
    sink = {
        "parquet": str(folder / "out"), "sqlite": f"{folder}/out.sqlite:found",
        "duckdb": f"{folder}/out.duckdb:found", "function": partial(told, folder / "told"),
    }.get(kind)  # fmt: skip
    return matwin.continuous_query(
        running_sum if is_sum else JOIN, sources, cut=matwin.cut.every(WIDTH, on="ts"),
        keep=2, pairs="all" if is_sum else "new", state=folder / "state", sink=sink,
        memory="512KiB", page_size="4KiB",
    )  # fmt: skip


def told(file: Path, epoch: int, rows: pa.RecordBatchReader) -> None:
    """Write an epoch down as somebody would who is told its number."""
    line = json.dumps([epoch, ids(rows.read_all())])
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"\n{line}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def ids(rows: pa.Table) -> list[Pair]:
    return list(zip(rows["id_left"].to_pylist(), rows["id_right"].to_pylist(), strict=True))


def work(folder: Path, kind: str, seed: int, pipe: int) -> None:
    """Run to the end; tell each epoch."""
    epochs = query(folder, kind, seed)
    os.write(pipe, b"open\n")
    for epoch in epochs:
        if kind == "iteration":
            told(folder / "told", epoch.id, epoch.result)
        os.write(pipe, f"epoch {epoch.id}\n".encode())
    os.write(pipe, b"end\n")


def die_at(count: int) -> None:
    """Make this process kill itself at the n-th step that matters."""
    left = [count]

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            step()
            found = plain(*args, **options)
            step()
            return found

        setattr(owner, name, watched)

    for owner, name in STEPS:
        around(owner, name)


STEPS: list[tuple[Any, str]] = [
    (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Store, "commit"),
    (durable.StateFolder, "sweep"), (chunks.ChunkWindow, "begin"), (chunks.ChunkWindow, "end"),
    (chunks.ChunkWindow, "_write"), (spool.Kept, "opened"), (sinks.Parquet, "deliver"),
    (sinks.Function, "deliver"), (sinks.Sqlite, "deliver"),
    (continuous.ContinuousQuery, "_commit"), (continuous.ContinuousQuery, "_acknowledge"),
]  # fmt: skip

# ── the chain ────────────────────────────────────────────────────────────────────────────────────


class Chain:
    """Processes one after the other, and what they have told."""

    def __init__(self, base: Path, kind: str, rng: random.Random) -> None:
        self.base, self.kind, self.rng = base, kind, rng
        self.seed = self.ends = self.epochs = 0
        self.problems: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.seed += 1
        self.folder = self.base / f"{self.kind}-{self.seed}"
        self.folder.mkdir()
        self.last = 0

    def run(self, *, is_killed: bool = True) -> None:
        receiver, sender = os.pipe()
        is_by_step = is_killed and self.rng.random() < 0.6
        steps = int(self.rng.expovariate(1 / 40))
        child = os.fork()
        if child == 0:
            os.close(receiver)
            try:
                if is_by_step:
                    die_at(steps)
                work(self.folder, self.kind, self.seed, sender)
            except BaseException as e:
                os.write(sender, f"error {e!r}\n".encode())
            os._exit(1)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            said = b""
            if is_killed and not is_by_step:
                said = self._waited(pipe.fileno())
                os.kill(child, signal.SIGKILL)
            said += pipe.read()
        os.waitpid(child, 0)
        self._listen(said.decode())

    def _waited(self, pipe: int) -> bytes:
        """Let some messages come, then a moment pass."""
        said = b""
        for _ in range(self.rng.choice((0, 1, 1, 2, 3, 4))):
            said += os.read(pipe, 4096)
        select.select([pipe], [], [], self.rng.random() * DELAY_MAX)
        return said

    def _listen(self, said: str) -> None:
        for line in said.splitlines():
            if line.startswith("error"):
                self.problems.append(f"{self.folder}: {line}")
            elif line.startswith("epoch"):
                self._epoch(int(line.split()[1]))
            elif line == "end":
                self.ends += 1
                self.problems += wrong_in(self.folder, self.kind, self.seed)
                self._begin()
                return

    def _epoch(self, number: int) -> None:
        """Some are not told: a process can die after the delivery."""
        if number < self.last:
            self.problems.append(f"{self.folder}: epoch {number} after {self.last}")
        self.last, self.epochs = number, self.epochs + 1


def wrong_in(folder: Path, kind: str, seed: int) -> list[str]:
    expected = (sums if kind in ("iteration", "sqlite") else pairs)(seed)
    found = FOUND[kind](folder)
    if found == expected:
        return []
    lost, twice = expected - found, found - expected
    return [f"{folder}: {lost.total()} lost, {twice.total()} too many: {lost} {twice}"]


def in_parquet(folder: Path) -> Counter[Pair]:
    found: Counter[Pair] = Counter()
    for record in (folder / "out" / "_commits").glob("*.json"):
        about = json.loads(record.read_text())
        rows = pq.read_table(folder / "out" / about["file"])
        assert rows.num_rows == about["rows"]
        found.update(ids(rows))
    return found


def in_sqlite(folder: Path) -> Counter[Pair]:
    with sqlite3.connect(folder / "out.sqlite") as database:
        return Counter(database.execute("SELECT id_left, id_right FROM found").fetchall())


def in_duckdb(folder: Path) -> Counter[Pair]:
    import duckdb

    with duckdb.connect(str(folder / "out.duckdb")) as database:
        return Counter(database.execute("SELECT id_left, id_right FROM found").fetchall())


def in_lines(folder: Path) -> Counter[Pair]:
    """What a reader makes of epochs that may come again: each number once, and only the last
    number comes again, with the same rows."""
    epochs: dict[int, list[Pair]] = {}
    last = 0
    for epoch, rows in lines(folder / "told"):
        assert epoch in (last, last + 1), (epoch, last)
        assert epochs.setdefault(epoch, rows) == rows
        last = epoch
    return Counter(tuple(pair) for rows in epochs.values() for pair in rows)


def lines(file: Path) -> Iterator[Any]:
    for line in file.read_text().splitlines():
        try:
            if line:
                yield json.loads(line)
        except ValueError:  # torn by a kill; it was not acknowledged
            continue


FOUND: dict[str, Callable[[Path], Counter[Pair]]] = {
    "parquet": in_parquet, "sqlite": in_sqlite, "duckdb": in_duckdb, "function": in_lines,
    "iteration": in_lines,
}  # fmt: skip


def kill_often(base: str, kind: str, kills: int, seed: int) -> dict[str, Any]:
    folder = Path(base) / "warm"
    folder.mkdir()
    query(folder, kind, 0).close()
    matwin.epsilon_join(*tables(0), on={"ts": NEAR}, by="k").read_all()  # compiled once for all
    chain = Chain(Path(base), kind, random.Random(seed))
    for _ in range(kills):
        chain.run()
    chain.run(is_killed=False)
    return {"problems": chain.problems[:5], "ends": chain.ends, "epochs": chain.epochs}


@pytest.mark.proof("kill -9 in the epoch cycle")
@pytest.mark.parametrize("kind", [*FOUND])
def test_kills(tmp_path: Path, kind: str) -> None:
    kills = campaign(60, 1000)
    seed = random.Random(kind).randrange(2**32)
    told = call_in_child(kill_often, str(tmp_path), kind, kills, seed, timeout=3600)
    assert told["problems"] == []
    tried(kills)
    assert told["epochs"] > kills // 2, told
    assert told["ends"] > 1, told
