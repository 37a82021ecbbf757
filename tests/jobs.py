"""Jobs of continuous queries for tests: small files, and a job that asks something of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAIN = "import sys; from matwin.tools.cli import main; sys.exit(main())"
SECOND = 1_000_000
BEGIN = 1_767_225_600 * SECOND
"""A full minute."""
NEAR = """
[query]
join = "epsilon_join"
left = "a"
right = "b"
on = {ts = "3s"}
by = "pid"
"""


def rows(count: int, step: int, keys: int, offset: int = 0) -> pa.Table:
    """Rows every `step` seconds, in turn of so many keys."""
    ts = pa.array([BEGIN + (n * step + offset) * SECOND for n in range(count)], pa.int64())
    pid = pa.array([n % keys for n in range(count)], pa.int64())
    return pa.table({"ts": ts.cast(pa.timestamp("us")), "pid": pid})


def write_files(folder: Path, count: int = 60) -> None:
    """Two streams of five minutes, and the table of names."""
    pq.write_table(rows(count, 5, 4), folder / "a.parquet")
    pq.write_table(rows(count, 5, 6, offset=1), folder / "b.parquet")
    (folder / "names.csv").write_text("pid,name\n0,zero\n1,one\n2,two\n", encoding="utf-8")


def write_job(folder: Path, query: str = NEAR, *, name: str = "job.toml", more: str = "") -> Path:
    """A job over these files; `more` is what stands at its top."""
    text = f"""{more}
[sources]
a = "a.parquet"
b = "b.parquet"
[cut]
every = "60s"
on = "ts"
{query}
"""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


LIVE = """
[sources.a]
path = "-"
schema = {t = "int64", k = "string"}
[cut]
every = 10
on = "t"
[query]
sql = "SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY k"
"""


@contextmanager
def running(folder: Path, *words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`matwin` in a process of its own, killed in the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], cwd=folder, text=True, stdin=subprocess.PIPE,
        stdout=more.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, env=dict(os.environ),
        **more,
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def say(child: subprocess.Popen[str], *rows: dict[str, Any]) -> None:
    """Write lines of JSON to its standard input."""
    assert child.stdin is not None
    child.stdin.writelines(json.dumps(row) + "\n" for row in rows)
    child.stdin.flush()
