"""Growing sources in queries: rotated and restarted, the rows of a batch join, each once."""

from __future__ import annotations

import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from growth import append, impatient  # noqa: F401  (a fixture)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.streams import Lateness, Stream

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
LATE, WIDTH, REACH = 8, 10, 4


def disordered(seed: int, count: int) -> list[dict[str, int]]:
    """Rows in raw order: late by less than `LATE`."""
    dice = random.Random(seed)
    return [{"t": i + dice.randrange(LATE), "k": dice.randrange(3), "id": i} for i in range(count)]


class Log:
    """Somebody who writes a log, a piece at a time, and rotates it."""

    def __init__(self, path: Path, rows: list[dict[str, int]]) -> None:
        self.path, self._pieces = path, [json.dumps(row).encode() + b"\n" for row in rows]
        path.touch()

    def write(self, share: float, dice: random.Random) -> None:
        """Write a part of what is left, rotated or not."""
        lines = [self._pieces.pop(0) for _ in range(round(share * len(self._pieces)))]
        append(self.path, b"".join(lines))
        if dice.random() < 0.5:
            self._rotate()

    def _rotate(self) -> None:
        old = len(list(self.path.parent.glob(self.path.name + ".*")))
        for number in range(old, 0, -1):
            self.path.with_name(f"{self.path.name}.{number}").rename(
                self.path.with_name(f"{self.path.name}.{number + 1}")
            )
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()


def streams(logs: dict[str, Log]) -> dict[str, Stream]:
    """The logs as they are, and as they will be."""
    return {
        name: matwin.stream(
            matwin.tail(log.path, schema=SCHEMA, from_oldest=True), on="t", order=Lateness(LATE)
        )
        for name, log in logs.items()
    }


def stop_when_read(query: Any, sources: dict[str, Stream]) -> None:
    """Stop a query when its sources have found nothing new, some times."""
    looks = dict.fromkeys(sources, 0)

    def looked(name: str) -> None:
        looks[name] += 1
        if min(looks.values()) > 4:
            query.stop()
        time.sleep(0.001)

    for name, each in sources.items():
        each.source.switch.wait = partial(looked, name)  # type: ignore[attr-defined]


@settings(max_examples=campaign(6, 300), deadline=None)
@example(0, 26, 20, 4)  # one stream had read far ahead of the epoch when it was stopped
@given(st.integers(0, 1000), st.integers(1, 80), st.integers(1, 80), st.integers(1, 4))
def test_a_query_that_is_stopped_and_goes_on_over_rotated_logs(
    seed: int, ours: int, theirs: int, runs: int
) -> None:
    dice = random.Random(seed)
    rows = {"a": disordered(seed, ours), "b": disordered(seed + 1, theirs)}
    join: Any = partial(matwin.epsilon_join, on={"t": REACH}, by="k")
    expected = join(*(pa.Table.from_pylist(rows[name], SCHEMA) for name in "ab")).to_arrow()
    with tempfile.TemporaryDirectory() as folder:
        logs = {name: Log(Path(folder, f"{name}.jsonl"), rows[name]) for name in rows}
        found: dict[int, pa.Table] = {0: expected.slice(0, 0)}
        for run in range(runs):
            for log in logs.values():
                log.write(1 if run == runs - 1 else 0.5, dice)
            sources = streams(logs)
            query = matwin.continuous_query(
                partial(join, matwin.chunks("a"), matwin.chunks("b")), sources,
                cut=matwin.cut.every(WIDTH, on="t"), keep=2, pairs="new",
                state=Path(folder, "state"),
            )  # fmt: skip
            if run < runs - 1:
                stop_when_read(query, sources)
            else:
                for each in sources.values():
                    each.drain()
            for epoch in query:
                result = epoch.result.to_arrow()
                assert found.setdefault(epoch.id, result).equals(result)
        assert bag(pa.concat_tables(found.values())) == bag(expected)


def bag(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_folder_and_a_file_in_an_ordinary_join(tmp_path: Path) -> None:
    rows = disordered(1, 60)
    log = tmp_path / "a.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "in").mkdir()
    for at in range(0, 60, 20):
        part = pa.Table.from_pylist(rows[at : at + 20], SCHEMA)
        pq.write_table(part, tmp_path / "in" / f"{at:03}.parquet")
    sources = [matwin.tail(log, once=True), matwin.tail(tmp_path / "in", once=True)]
    left, right = (matwin.stream(s, on="t", order=Lateness(LATE)) for s in sources)
    assert left.is_live
    assert right.is_live
    table = pa.Table.from_pylist(rows, SCHEMA)
    on: Any = {"t": REACH}
    expected = matwin.epsilon_join(table, table, on=on, by="k").to_arrow()
    assert bag(matwin.epsilon_join(left, right, on=on, by="k").to_arrow()) == bag(expected)
    again = [matwin.tail(log, once=True), matwin.tail(tmp_path / "in", once=True)]
    assert bag(matwin.epsilon_join(*again, on=on, by="k").to_arrow()) == bag(expected)


def test_results_leave_a_live_join_while_its_files_grow(tmp_path: Path) -> None:
    logs = {name: tmp_path / f"{name}.jsonl" for name in "ab"}
    for path in logs.values():
        path.write_bytes(b'{"t": 0, "k": 1, "id": 0}\n')
    sources = {name: matwin.tail(path, schema=SCHEMA) for name, path in logs.items()}
    live = {name: matwin.stream(s, on="t") for name, s in sources.items()}
    batches = iter(matwin.window_join(live, time="t", windows=2, by="k"))
    assert next(batches).num_rows == 1
    for number in (10, 20, 30):
        for path in logs.values():
            append(path, json.dumps({"t": number, "k": 1, "id": number}).encode() + b"\n")
        assert next(batches)["a_t"].to_pylist() == [number]
    for source in sources.values():
        source.drain()
    with pytest.raises(StopIteration):
        next(batches)
