"""What goes wrong around a continuous query: the last committed epoch stands, and the error says
what it was."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proofs import tried
from support import call_in_child, campaign, each_in_fork, needs_root, strace, tmpfs

import matwin
from matwin.operators.epochs import spool
from matwin.storage.errors import CorruptPage, InputError, MatwinError, OrderError, StoreError

pytestmark = pytest.mark.fault

ROWS = 60
DATA = pa.table({"ts": range(ROWS), "id": range(ROWS), "text": ["x" * 50] * ROWS})
CUT = matwin.cut.every(10, on="ts")


def newest(windows: Any) -> pa.Table:
    return windows.newest("a").to_arrow()


def ask(folder: Path, query: Any = newest, source: Any = DATA, **options: Any) -> Any:
    asked = {"cut": CUT, "keep": 2, "memory": "512KiB", "page_size": "4KiB", **options}
    return matwin.continuous_query(query, {"a": source}, state=folder / "state", **asked)


def taken(epochs: Any) -> dict[int, list[int]]:
    return {epoch.id: epoch.result.to_arrow()["id"].to_pylist() for epoch in epochs}


WHOLE = {n: list(range(n * 10 - 10, n * 10)) for n in range(1, 7)}


def some(folder: Path, epochs: int, **options: Any) -> None:
    """Run the query up to an epoch, and leave it as somebody does who is killed."""
    query = iter(ask(folder, **options))
    for _ in range(epochs):
        next(query)
    query.close()


def committed(folder: Path) -> int:
    with ask(folder) as query:
        return query.status.epoch


# ── another question ─────────────────────────────────────────────────────────────────────────────


def other(windows: Any) -> pa.Table:
    return windows["a"].to_arrow()


JOIN = partial(matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("a"))
CHANGED = pa.table({"ts": pa.array(range(ROWS), pa.int32()), "id": range(ROWS)})


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({}, {"query": other}, "query was newest and is other"),
        ({}, {"cut": matwin.cut.every(20, on="ts")},
         r"cut was every\(10, on='ts', align='round'\) and is every\(20"),
        ({}, {"cut": matwin.cut.count(10)}, r"cut was every.* and is count\(10\)"),
        ({}, {"keep": 3}, "keep of a was 2 and is 3"),
        ({"query": partial(JOIN, on={"ts": 3})}, {"query": partial(JOIN, on={"ts": 4})},
         r"on was \{'ts': 3\} and is \{'ts': 4\}"),
        ({"query": partial(JOIN, on={"ts": 3})},
         {"query": partial(JOIN, on={"ts": 3}), "pairs": "new"}, "pairs was all and is new"),
        ({"query": "SELECT * FROM a"}, {"query": "SELECT id FROM a"}, "query was SELECT"),
        ({}, {"source": CHANGED}, "columns of a was ts int64, id int64, text.* and is ts int32"),
        ({}, {"source": matwin.stream(DATA, order=matwin.Lateness(5))},
         r"order of a was Sorted\(\) and is Lateness\(lateness=5\)"),
        ({}, {"page_size": "8KiB", "memory": "4MiB"}, "has pages of 4096 bytes, not 8192"),
    ],
)  # fmt: skip
def test_the_state_of_another_query(tmp_path: Path, before: Any, now: Any, words: str) -> None:
    some(tmp_path, 2, **before)
    with pytest.raises(InputError, match=words):
        ask(tmp_path, **(before | now))
    left = ask(tmp_path, **before)
    assert left.status.epoch == 2
    assert [epoch.id for epoch in left] == [2, 3, 4, 5, 6]


def test_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some(tmp_path, 2)
    monkeypatch.setattr("matwin.operators.epochs.durable.VERSION", 2)
    with pytest.raises(InputError, match="has state of version 1, this is version 2"):
        ask(tmp_path)


def test_a_stream_that_is_gone(tmp_path: Path) -> None:
    some(tmp_path, 2)
    with pytest.raises(InputError, match=r"columns of a was ts int64.* and is not given"):
        matwin.continuous_query(newest, {"b": DATA}, cut=CUT, keep=2, state=tmp_path / "state",
                                memory="512KiB", page_size="4KiB")  # fmt: skip


# ── sources ──────────────────────────────────────────────────────────────────────────────────────


def batches(*parts: Any) -> matwin.Stream:
    return matwin.stream(iter(parts), schema=DATA.schema)


def part(first: int, last: int) -> pa.RecordBatch:
    return DATA.slice(first, last - first).combine_chunks().to_batches()[0]


def test_a_source_that_repeats_or_goes_back(tmp_path: Path) -> None:
    """A feed that begins anew after a restart: what is in an epoch is late, not taken twice; what
    had been read and is in none is taken."""
    source = batches(part(0, 25), part(25, 45))
    epochs = iter(ask(tmp_path, source=source))
    assert [next(epochs).id for _ in range(3)] == [1, 2, 3]
    epochs.close()
    with pytest.raises(OrderError, match=r"a: row 45 is late: .* is 0, .* 0 … 10 is over"):
        taken(ask(tmp_path, source=batches(part(0, 60))))
    assert committed(tmp_path) == 3
    dropping = matwin.stream(iter([part(0, 60)]), schema=DATA.schema, late="drop")
    query = ask(tmp_path, source=dropping)
    assert taken(query) == {n: WHOLE[n] for n in (3, 4, 5, 6)}
    assert query.status.late == {"a": 30}


def test_a_source_that_changes_its_columns(tmp_path: Path) -> None:
    source = batches(part(0, 25), CHANGED.slice(25).combine_chunks().to_batches()[0])
    with pytest.raises(InputError, match=r"a: batch 1.*"):
        taken(ask(tmp_path, source=source))
    assert committed(tmp_path) == 2


def test_a_source_that_fails(tmp_path: Path) -> None:
    def breaks() -> Iterator[Any]:
        yield part(0, 25)
        raise ConnectionResetError("the line is dead")

    for is_live in (True, False):
        folder = tmp_path / str(is_live)
        folder.mkdir()
        source = matwin.stream(breaks(), schema=DATA.schema, live=is_live)
        with pytest.raises(ConnectionResetError, match="the line is dead"):
            taken(ask(folder, source=source))
        assert committed(folder) == 2


# ── sinks ────────────────────────────────────────────────────────────────────────────────────────


def test_a_sink_that_fails(tmp_path: Path) -> None:
    """The epoch is committed, and delivered at the next start."""
    got: dict[int, list[int]] = {}
    is_broken = [False]

    def sink(epoch: int, rows: pa.RecordBatchReader) -> None:
        first = rows.read_next_batch()
        if is_broken[0] and epoch == 3:
            raise ConnectionError("nobody listens")
        got[epoch] = first["id"].to_pylist() + rows.read_all()["id"].to_pylist()

    is_broken[0] = True
    for _ in range(3):
        with pytest.raises(StoreError, match="the sink sink failed with epoch 3: ConnectionError"):
            ask(tmp_path, sink=sink).run()
        assert got == {n: WHOLE[n] for n in (1, 2)}
    is_broken[0] = False
    assert ask(tmp_path, sink=sink).run().epoch == 6
    assert got == WHOLE


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "duckdb"])
def test_a_sink_that_fails_half_way(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the epoch is seen; at the next start it is there once."""
    sink = sink_at(tmp_path, kind)
    plain = spool.Kept.opened

    def torn(kept: Any) -> Iterator[Any]:
        for batch in plain(kept):
            yield batch.slice(0, 4)
            if "00000003" in str(kept.path):
                raise OSError(5, "Input/output error")
            yield batch.slice(4)

    monkeypatch.setattr(spool.Kept, "opened", torn)
    for _ in range(2):
        with pytest.raises(StoreError, match="epoch 3"):
            ask(tmp_path, sink=sink).run()
        assert delivered(tmp_path, kind) == list(range(20))
    monkeypatch.undo()
    ask(tmp_path, sink=sink).run()
    assert delivered(tmp_path, kind) == list(range(60))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_start_that_fails_leaves_no_file_open(tmp_path: Path, kind: str) -> None:
    sink = sink_at(tmp_path, kind)
    file = Path(sink.partition(":")[0])
    file.write_bytes(b"no database at all " * 1000)
    with pytest.raises(StoreError, match=rf"the sink {sink} can't be used: .*start again"):
        ask(tmp_path, sink=sink)
    descriptors = Path("/proc/self/fd").iterdir()
    assert str(file) not in [str(fd.readlink()) for fd in descriptors if fd.is_symlink()]


META_CALLS = ("newfstatat", "fstat", "flock", "fstatfs", "mkdir", "chmod")


def fail_meta(base: str, kind: str, call: str, when: int) -> str:
    """A call that asks about files fails once, in a process that has all its modules."""
    run_whole(Path(base) / f"warm-{kind}-{call}-{when}", kind)
    return fail_once(base, kind, call, when)


@needs_root
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.proof("epochs: every write, sync, rename fails")
@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_what_asks_about_files_fails_once(tmp_path: Path, kind: str) -> None:
    rng = random.Random(kind)
    points = [(call, n) for call in META_CALLS for n in range(2, 220 if "stat" in call else 6)]
    cases = [[str(tmp_path), kind, *point] for point in rng.sample(points, campaign(8, 200))]
    fates = each_in_fork(fail_meta, cases)
    after = each_in_fork(go_on, cases)
    for case, fate, then in zip(cases, fates, after, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        assert (then.signal, then.error) == (0, ""), (case, fate, then)
        tried()


def sink_at(folder: Path, kind: str) -> str:
    return {
        "parquet": str(folder / "out"), "sqlite": f"{folder}/out.sqlite:found",
        "duckdb": f"{folder}/out.duckdb:found",
    }[kind]  # fmt: skip


def delivered(folder: Path, kind: str) -> list[int]:
    """What a reader of the sink sees, in order."""
    if kind == "parquet":
        records = sorted((folder / "out" / "_commits").glob("*.json"))
        names = [json.loads(record.read_text())["file"] for record in records]
        return [i for n in names for i in pq.read_table(folder / "out" / n)["id"].to_pylist()]
    if kind == "sqlite":
        with sqlite3.connect(folder / "out.sqlite") as database:
            return [i for (i,) in database.execute("SELECT id FROM found ORDER BY id")]
    import duckdb

    with duckdb.connect(str(folder / "out.duckdb")) as database:
        return [i for (i,) in database.execute("SELECT id FROM found ORDER BY id").fetchall()]


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "duckdb"])
def test_a_sink_of_another_run(tmp_path: Path, kind: str) -> None:
    """It has epochs of the same numbers: ours would be taken for those, and left out."""
    sink = sink_at(tmp_path, kind)
    ask(tmp_path, sink=sink).run()
    (tmp_path / "else").mkdir()
    with pytest.raises(InputError, match=r"has epoch 6, and the state in .* is at epoch 0"):
        ask(tmp_path / "else", sink=sink)
    with pytest.raises(InputError, match="has epoch 6, and a run without state= is at epoch 0"):
        matwin.continuous_query(newest, {"a": DATA}, cut=CUT, sink=sink)
    assert delivered(tmp_path, kind) == list(range(60))


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def flip(file: Path, place: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.proof("epochs: flipped bits in state")
def test_flipped_bits_in_a_result(tmp_path: Path) -> None:
    some(tmp_path, 3)
    (file,) = (tmp_path / "state" / "results").iterdir()
    data, rng = file.read_bytes(), random.Random(1)
    for _ in range(campaign(30, 1000)):
        flip(file, rng.randrange(len(data)), rng.randrange(8))
        with pytest.raises(CorruptPage, match=r"epoch-00000003.arrow is damaged: .*epoch 3"):
            taken(ask(tmp_path))
        file.write_bytes(data)
        tried()
    for cut in (0, 1, len(data) - 1):
        file.write_bytes(data[:cut])
        with pytest.raises(CorruptPage, match="is damaged"):
            taken(ask(tmp_path))
    file.unlink()
    with pytest.raises(StoreError, match=r"can't be read .*epoch 3"):
        taken(ask(tmp_path))
    file.write_bytes(data)
    assert taken(ask(tmp_path)) == {n: WHOLE[n] for n in (3, 4, 5, 6)}


def run_flipped(base: str, place: float, bit: int) -> str:
    """Go on with a page file in which a bit is flipped: what is said, or '' where all is right."""
    folder = Path(base) / f"flip-{os.getpid()}"
    shutil.copytree(Path(base) / "whole", folder)
    file = folder / "state" / "pages" / "data.mdb"
    flip(file, int(place * file.stat().st_size), bit)
    try:
        found = taken(ask(folder, other))
    except MatwinError as e:
        return f"{type(e).__name__}: {e}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert found == {n: list(range(max(n * 10 - 20, 0), n * 10)) for n in (3, 4, 5, 6)}, (
        "other rows than there were"
    )
    return ""


@pytest.mark.proof("epochs: flipped bits in state")
def test_flipped_bits_in_pages_and_notes(tmp_path: Path) -> None:
    """Damage is named, or it was where nobody looks; rows are never others."""
    (tmp_path / "whole").mkdir()
    some(tmp_path / "whole", 3, query=other)
    rng = random.Random(2)
    cases = [[str(tmp_path), rng.random(), rng.randrange(8)] for _ in range(campaign(60, 3000))]
    fates = each_in_fork(run_flipped, cases)
    for case, fate in zip(cases, fates, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        tried()
    assert 0 < sum(bool(fate.value) for fate in fates) < len(fates)


# ── two processes ────────────────────────────────────────────────────────────────────────────────


def try_same(folder: str) -> str:
    try:
        ask(Path(folder)).close()
    except MatwinError as e:
        return str(e)
    return ""


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    epochs = iter(ask(tmp_path))
    assert [next(epochs).id for _ in range(2)] == [1, 2]
    said = call_in_child(try_same, str(tmp_path))
    assert "state" in said and "process" in said, said
    assert [epoch.id for epoch in epochs] == [3, 4, 5, 6]
    assert call_in_child(try_same, str(tmp_path)) == ""


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────


def run_out(disk: str, kind: str, place: str, epoch: int, leave: int) -> str:
    """Fill the disk after an epoch; when there is space again, all is there once."""
    base, ballast = Path(disk), Path(disk) / "ballast"
    folder, roomy = base / f"q-{os.getpid()}", base.parent / f"roomy-{os.getpid()}"
    for path in (folder, roomy):
        path.mkdir()
    at = {"state": (folder, roomy), "sink": (roomy, folder)}[place]
    text = "y" * 3000

    def wide(windows: Any) -> pa.Table:
        ids = windows.newest("a").to_arrow()["id"].to_pylist()
        return pa.table({"id": ids, "wide": [f"{i}{text}" for i in ids]})

    def query() -> Any:
        return ask(at[0], wide, sink=sink_at(at[1], kind))

    said = ""
    try:
        epochs = query()
        for done in epochs:
            if done.id == epoch:
                fill(ballast, leave)
    except MatwinError as e:
        said = f"{type(e).__name__} {e}"
        stood = epochs.status.epoch
        assert stood >= epoch, (stood, epoch)
        assert "the disk is full" in said and " free" in said and str(base.parent) in said, said
        assert "cannot rollback" not in said, said
    finally:
        ballast.unlink(missing_ok=True)
    query().run()
    assert delivered(at[1], kind) == list(range(60))
    return said


def fill(ballast: Path, leave: int) -> None:
    with ballast.open("wb") as file:
        free = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, max(free.f_bavail * free.f_frsize - leave, 4096))


@needs_root
@pytest.mark.proof("epochs: full disk")
@pytest.mark.parametrize("place", ["state", "sink"])
def test_a_full_disk(tmp_path: Path, place: str) -> None:
    rng = random.Random(place)
    with tmpfs(tmp_path / "disk", 24 * 2**20) as disk:
        cases = [
            [str(disk), rng.choice(["parquet", "sqlite", "duckdb"]), place, rng.randrange(1, 5),
             rng.choice((0, 1, 2, 4, 8, 16)) * 4096]
            for _ in range(campaign(24, 400))
        ]  # fmt: skip
        fates = each_in_fork(run_and_clean, cases)
    for case, fate in zip(cases, fates, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        tried()
    assert sum(bool(fate.value) for fate in fates) > len(fates) // 3, [f.value for f in fates]


def run_and_clean(disk: str, *case: Any) -> str:
    try:
        return run_out(disk, *case)
    finally:
        shutil.rmtree(Path(disk) / f"q-{os.getpid()}", ignore_errors=True)


# ── every write, sync and rename fails once ──────────────────────────────────────────────────────

CALLS = ("pwrite64", "write", "writev", "fdatasync", "fsync", "ftruncate", "rename", "unlink")


def run_whole(folder: Path, kind: str) -> str:
    """Run to the end: '' or what was said."""
    folder.mkdir()
    try:
        ask(folder, sink=sink_at(folder, kind)).run()
    except MatwinError as e:
        return f"{type(e).__name__}: {e}"
    return ""


def counted(base: str, kind: str) -> dict[str, int]:
    """How many calls of each kind a whole run makes."""
    log = Path(base) / f"log-{kind}"
    with strace("-e", f"trace={','.join(CALLS)}", "-o", str(log)):
        assert run_whole(Path(base) / f"counted-{kind}", kind) == ""
    text = log.read_text()
    return {call: len(re.findall(rf"\b{call}\(", text)) for call in CALLS}


def fail_once(base: str, kind: str, call: str, when: int) -> str:
    folder = Path(base) / f"{kind}-{call}-{when}"
    fault = f"inject={call}:error=EIO:when={when}"
    with strace("-e", f"trace={call}", "-e", fault, "-o", "/dev/null"):
        return run_whole(folder, kind)


def go_on(base: str, kind: str, call: str, when: int) -> None:
    """Without the fault: every row is there once."""
    folder = Path(base) / f"{kind}-{call}-{when}"
    ask(folder, sink=sink_at(folder, kind)).run()
    assert delivered(folder, kind) == list(range(60))


@needs_root
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.proof("epochs: every write, sync, rename fails")
@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_every_call_fails_once(tmp_path: Path, kind: str) -> None:
    (fate,) = each_in_fork(counted, [[str(tmp_path), kind]])
    assert (fate.signal, fate.error) == (0, "")
    points = [(call, n) for call in CALLS for n in range(1, fate.value[call] + 1)]
    assert len(points) > 60, fate.value
    cases = [[str(tmp_path), kind, *point] for point in points[:: campaign(12, 1)]]
    fates = each_in_fork(fail_once, cases)
    after = each_in_fork(go_on, cases)
    for case, fate, then in zip(cases, fates, after, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        assert (then.signal, then.error) == (0, ""), (case, fate, then)
        tried()
    assert sum(bool(fate.value) for fate in fates) > len(fates) // 2, [f.value for f in fates]


def test_a_database_is_there_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB makes a file block by block: whoever was killed meanwhile left one that can't be
    opened."""

    def torn(path: Path) -> Any:
        path.write_bytes(b"DUCK")
        raise OSError("killed")

    sink = str(tmp_path / "out.duckdb")
    with monkeypatch.context() as patch:
        patch.setattr("matwin.tools.epoch_sql._connected", torn)
        with pytest.raises(StoreError, match="killed"):
            ask(tmp_path, sink=sink)
    assert not Path(sink).exists()
    assert ask(tmp_path, sink=sink).run().epoch == 6
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
