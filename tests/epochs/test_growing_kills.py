"""kill -9 while a query follows logs that are rotated: no row is lost, none comes twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from growth import append
from support import campaign

import matwin

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
LATE, WIDTH, REACH = 20, 100, 3
CHILD = """
import sys, threading, time
from functools import partial
import matwin
from test_growing_kills import SCHEMA, LATE, WIDTH, REACH

folder, is_last = sys.argv[1], sys.argv[2] == "last"
streams = {
    name: matwin.stream(
        matwin.tail(f"{folder}/{name}.jsonl", schema=SCHEMA, once=is_last, from_oldest=True),
        on="t", order=matwin.Lateness(LATE),
    )
    for name in "ab"
}
join = partial(
    matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("b"), on={"t": REACH}, by="k"
)
query = matwin.continuous_query(
    join, streams, cut=matwin.cut.every(WIDTH, on="t"), keep=2, pairs="new",
    state=folder + "/state", sink=folder + "/out",
)

def tick():
    while not is_last:
        print(".", flush=True)
        time.sleep(0.001)

threading.Thread(target=tick, daemon=True).start()
query.run()
"""


def child(folder: Path, word: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    paths = f"import sys; sys.path[:0] = {[str(here), str(here.parent)]!r}\n"
    return subprocess.Popen(
        [sys.executable, "-c", paths + CHILD, folder, word],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def rotate(path: Path) -> None:
    """As logrotate does it."""
    old = len(list(path.parent.glob(path.name + ".*")))
    for number in range(old, 0, -1):
        path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))
    path.touch()


def bag(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_a_query_over_rotated_logs_is_killed_again_and_again(tmp_path: Path) -> None:
    dice, kills, count = random.Random(7), campaign(5, 200), campaign(3000, 60_000)
    rows = {
        name: [
            {"t": i + dice.randrange(LATE), "k": dice.randrange(3), "id": i} for i in range(count)
        ]
        for name in "ab"
    }
    for kill in range(kills):
        process = child(tmp_path, "live")
        assert process.stdout is not None
        for _ in range(dice.randrange(1, 120)):
            assert process.stdout.readline() == ".\n"
        for name, all_rows in rows.items():
            path = tmp_path / f"{name}.jsonl"
            part = all_rows[count * kill // kills : count * (kill + 1) // kills]
            append(path, b"".join(json.dumps(row).encode() + b"\n" for row in part))
            if dice.random() < 0.6:
                rotate(path)
        for _ in range(dice.randrange(1, 200)):
            assert process.stdout.readline() == ".\n"
        process.kill()
        process.communicate()
    last = child(tmp_path, "last")
    last.communicate(timeout=120)
    assert last.returncode == 0
    tables = (pa.Table.from_pylist(rows[name], SCHEMA) for name in "ab")
    expected = matwin.epsilon_join(*tables, on={"t": REACH}, by="k").to_arrow()
    found = pa.concat_tables([pq.read_table(p) for p in (tmp_path / "out").glob("*.parquet")])
    assert bag(found, expected.column_names) == bag(expected, expected.column_names)
