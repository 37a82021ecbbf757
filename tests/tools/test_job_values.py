"""Every key of a job with every kind of value: one line that names the file, never a traceback.

What a key takes by accident (a list that is a pair, a huge text that is a name) may run, or be
refused further in; either way the exit code is 0 or 2.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from matwin.tools.cli import main

VALUES = {
    "int": "1", "negative": "-5", "float": "1.5", "nan": "nan", "bool": "true", "list": "[1, 2]",
    "no list": "[]", "table": "{x = 1}", "NUL": r'"a\u0000b"', "empty": '""',
    "huge": '"' + "x" * 20_000 + '"', "date": "2026-01-01", "nested": "[[[1]]]", "large": "9" * 18,
}  # fmt: skip
SOURCE = 'path = "a.parquet"'
JOIN = 'join = "epsilon_join"\nleft = "a"\nright = "b"\non = {ts = 5}\nby = "pid"'
PARTS = {
    "": "", "sources.a": SOURCE, "sources.b": SOURCE, "tables": "", "windows": "",
    "cut": 'every = 500\non = "ts"', "query": JOIN,
}  # fmt: skip
KEYS = [
    *(("", key) for key in ("keep", "memory", "page_size", "scratch", "idle_after", "trace", "sink",
                            "sink_from", "state")),
    *(("sources.a", key) for key in ("path", "format", "on", "order", "late", "follow", "schema",
                                     "peers", "listen", "connect")),
    ("tables", "t"), ("windows", "w"),
    *(("cut", key) for key in ("every", "on", "align", "count", "on_change")),
    *(("query", key) for key in ("join", "left", "right", "on", "by", "how", "pairs", "suffixes",
                                 "where", "distances", "memory", "threads", "schedule", "sql")),
]  # fmt: skip
ALONE = {"count": "cut", "on_change": "cut", "listen": "sources.a", "connect": "sources.a",
         "sql": "query"}  # fmt: skip


def job(part: str, key: str, value: str) -> str:
    """A job that runs, but for one value."""
    text = ""
    for name, lines in PARTS.items():
        kept = [] if name == ALONE.get(key) else lines.splitlines()
        if name == part:
            kept = [line for line in kept if line.split(" = ")[0] != key] + [f"{key} = {value}"]
        text += "\n".join([f"[{name}]" if name else "", *kept, ""])
    return text


@pytest.mark.parametrize(("part", "key"), KEYS, ids=lambda word: word or "top")
def test_values_of_every_kind(
    part: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    times = pa.table({"ts": range(0, 1000, 200), "pid": [0, 1, 0, 1, 0]})
    pq.write_table(times, "a.parquet")
    for kind, value in VALUES.items():
        Path("job.toml").write_text(job(part, key, value), encoding="utf-8")
        code = main(["query", "job.toml", "--once", "-q"])
        told = capsys.readouterr().err
        assert code in (0, 2), (kind, told)
        if code == 2:
            assert told.startswith("matwin: error: job.toml: "), (kind, told[:300])
            assert told.count("\n") == 1 and len(told) < 1500, (kind, told[:300])


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("query", "by", "1", r"query.by: 1; write by ="),
        ("", "sink", VALUES["NUL"], r"sink: 'a\x00b' has a NUL"),
        ("", "idle_after", "5", r"idle_after: 5; write"),
        ("sources.a", "format", "[1]", r"sources.a.format: [1] is no text"),
        ("sources.a", "peers", "[]", r'sources.a.peers: []; choose "one" or "all"'),
        ("", "memory", "1", "memory=1 is too small"),
    ],
)
def test_what_is_said(
    part: str, key: str, value: str, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"ts": [1], "pid": [0]}), "a.parquet")
    Path("job.toml").write_text(job(part, key, value), encoding="utf-8")
    assert main(["query", "job.toml", "--once", "-q"]) == 2
    assert said in capsys.readouterr().err
