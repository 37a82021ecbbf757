"""`matwin query`: jobs run as the library would run them, and what they print and leave."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jobs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.tools.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    jobs.write_files(tmp_path)
    return tmp_path


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def printed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def by_epoch(query: Any, **more: Any) -> dict[int, Counter[tuple[Any, ...]]]:
    """What the library gives for the same question."""
    found = matwin.continuous_query(
        query, {"a": "a.parquet", "b": "b.parquet"}, cut=matwin.cut.every("60s", on="ts"), **more
    )
    return {epoch.id: bag(epoch.result.to_arrow()) for epoch in found}


def in_folder(path: Path) -> dict[int, Counter[tuple[Any, ...]]]:
    """What a folder of Parquet files has, by epoch."""
    files = sorted(path.glob("epoch-*.parquet"))
    return {int(f.stem.removeprefix("epoch-")): bag(pq.read_table(f)) for f in files}


# ── what is asked ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pairs", ["all", "new"])
def test_a_job_is_the_query_of_its_words(folder: Path, pairs: str) -> None:
    query = jobs.NEAR.replace('left = "a"', 'left = {stream = "a", last = 2}')
    jobs.write_job(folder, f'{query}pairs = "{pairs}"\n', more="keep = 3")
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0
    bound = partial(matwin.epsilon_join, matwin.chunks("a", last=2), matwin.chunks("b"),
                    on={"ts": "3s"}, by="pid")  # fmt: skip
    expected = by_epoch(bound, keep=3, pairs=pairs)
    assert in_folder(folder / "out") == expected and sum(map(len, expected.values())) > 5


@pytest.mark.parametrize(
    ("words", "join", "given"),
    [
        ('join = "asof_join"\nleft = "a"\nright = "b"\non = "ts"\nby = "pid:pid"\n'
         'tolerance = "1min"\ndirection = "nearest"',
         matwin.asof_join, {"on": "ts", "by": "pid", "tolerance": "1min", "direction": "nearest"}),
        ('join = "bestmatch_join"\nleft = "a"\nright = "b"\n'
         'on = {"ts:ts" = ["-9s", "0s"], pid = 1}\nsuffixes = ["", "_b"]',
         matwin.bestmatch_join,
         {"on": {"ts": ("-9s", "0s"), "pid": 1}, "suffixes": ("", "_b")}),
    ],
)  # fmt: skip
def test_two_sided_joins(folder: Path, words: str, join: Any, given: dict[str, Any]) -> None:
    jobs.write_job(folder, f"[query]\n{words}\n")
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0
    expected = by_epoch(partial(join, matwin.chunks("a"), matwin.chunks("b"), **given))
    assert in_folder(folder / "out") == expected and any(expected.values())


def test_window_joins(folder: Path) -> None:
    words = 'join = "window_join"\nstreams = ["a", "b"]\ntime = "ts"\nby = "pid"\n'
    jobs.write_job(folder, f'[query]\n{words}windows = {{"a,b" = {{then = "9s"}}}}\n')
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0
    both = {"a": matwin.chunks("a"), "b": matwin.chunks("b")}
    bound = partial(matwin.window_join, both, time="ts", by="pid",
                    windows={("a", "b"): matwin.then("9s")})  # fmt: skip
    expected = by_epoch(bound)
    assert in_folder(folder / "out") == expected and any(expected.values())


def test_sql_with_tables_and_windows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT name, count(*) AS n, (SELECT count(*) FROM newest) AS new FROM a JOIN names n"
    more = f"""keep = 2
query = "{text} ON a.pid = n.pid GROUP BY ALL"
windows = {{newest = {{stream = "a", last = 1}}}}
tables = {{names = "names.csv"}}"""
    jobs.write_job(folder, "", more=more)
    assert main(["query", "job.toml", "--once", "--format", "jsonl"]) == 0
    found = printed(capsys.readouterr().out)
    assert {(row["matwin_epoch"], row["name"], row["n"], row["new"]) for row in found} == {
        (epoch, name, 3 if epoch == 1 else 6, 12)
        for epoch in range(1, 6)
        for name in ("zero", "one", "two")
    }


def test_counts_and_changes_cut_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cut, epochs in (("count = 25", 3), ('on_change = "pid"', 60)):
        text = f'query = "SELECT count(*) AS n FROM a"\n[sources]\na = "a.parquet"\n[cut]\n{cut}\n'
        (folder / "cut.toml").write_text(text, encoding="utf-8")
        assert main(["query", "cut.toml", "--once"]) == 0
        told = capsys.readouterr()
        rows = list(csv.DictReader(io.StringIO(told.out)))
        assert [int(row["matwin_epoch"]) for row in rows] == list(range(1, epochs + 1))
        assert sum(int(row["n"]) for row in rows) == 60
        assert told.err.startswith(f"{epochs} epochs in ")


def test_paths_are_relative_to_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.write_job(folder, more='state = "kept"\nsink = "out"')
    other = folder / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    assert main(["query", "../job.toml", "--once", "-q"]) == 0
    assert (folder / "kept" / "pages").is_dir() and len(in_folder(folder / "out")) == 5
    assert main(["query", "../job.toml", "--once", "-q", "--sink", "mine", "--state", "own"]) == 0
    assert (other / "own" / "pages").is_dir() and len(in_folder(other / "mine")) == 5


def test_text_files_take_the_types_that_are_declared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.csv").write_text("ts,pid\n2026-01-01 00:00:01,007\n", encoding="utf-8")
    (folder / "j.toml").write_text(
        'query = "SELECT typeof(ts) AS t, pid FROM a"\n[sources.a]\npath = "a.csv"\n'
        'format = "csv"\nschema = {ts = "timestamp[us]", pid = "string"}\n'
        'order = {lateness = "5s"}\nlate = "drop"\n[cut]\nevery = "60s"\non = "ts"\n',
        encoding="utf-8",
    )
    assert main(["query", "j.toml", "--once", "--format", "jsonl"]) == 0
    assert printed(capsys.readouterr().out) == [{"matwin_epoch": 1, "t": "TIMESTAMP", "pid": "007"}]


# ── what is printed ──────────────────────────────────────────────────────────────────────────


def test_a_line_of_json_for_each_epoch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.write_job(folder, more="keep = 2")
    assert main(["query", "job.toml", "--once", "--json"]) == 0
    alone = capsys.readouterr()
    assert main(["query", "job.toml", "--once", "--json", "--sink", "out"]) == 0
    told = printed(capsys.readouterr().out)
    lines = printed(alone.out)
    assert alone.err == "" and [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    files = [pq.read_table(f).num_rows for f in sorted((folder / "out").glob("*.parquet"))]
    assert [len(line["rows"]) for line in lines] == [line["rows_out"] for line in told] == files
    assert all(line["rows_in"] == {"a": 12, "b": 12} for line in lines) and "rows" not in told[0]
    assert lines[0]["rows"][0].keys() == {"ts_left", "pid", "ts_right"}
    assert lines[0]["lag_seconds"] > 0 and lines[0]["state_rows"] == 24
    assert lines[1]["state_rows"] == lines[4]["state_rows"] == 48


def test_quiet_says_nothing_and_a_pipe_hears_no_status(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.write_job(folder)
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")
    assert main(["query", "job.toml", "--once", "--sink", "more"]) == 0
    assert capsys.readouterr().err.count("\n") == 1


def test_late_rows_are_told_in_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "late.jsonl").write_text('{"t": 25}\n{"t": 3}\n{"t": 26}\n', encoding="utf-8")
    (folder / "j.toml").write_text(
        'query = "SELECT * FROM a"\n[sources.a]\npath = "late.jsonl"\norder = {lateness = 5}\n'
        'late = "drop"\n[cut]\nevery = 10\non = "t"\n', encoding="utf-8",
    )  # fmt: skip
    assert main(["query", "j.toml", "--once"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == ['"matwin_epoch","t"', "1,25", "1,26"]
    assert "a: 1 rows late" in told.err


def test_a_reader_that_goes_away_ends_it(folder: Path) -> None:
    jobs.write_job(folder)
    with jobs.running(folder, "query", "job.toml", "--once", "--json") as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.wait(60) == 141


ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_a_terminal_shows_one_line_and_keeps_none(folder: Path) -> None:
    jobs.write_job(folder, more="keep = 2")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (20, 120))
    with subprocess.Popen(
        [sys.executable, "-c", jobs.MAIN, "query", "job.toml", "--once", "--sink", "out"],
        cwd=folder, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs,
        env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        | {"TERM": "xterm"},
    ) as child:  # fmt: skip
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 65536):
                shown += piece
        os.close(ours)
    text = ANSI.sub("", shown.decode())
    assert child.returncode == 0
    assert re.search(
        r"epoch \d  2026-01-01 00:0\d:00 … 00:0\d:00  [\d,]+ rows in  \d+ out", text
    ) or (
        "epoch 0" in text  # a machine that is quicker than the first look
    )
    assert text.rstrip().splitlines()[-1].startswith("5 epochs in ")


# ── restarts and signals ─────────────────────────────────────────────────────────────────────


def test_a_restart_goes_on_and_a_sink_has_each_epoch_once(folder: Path) -> None:
    jobs.write_job(folder, more='keep = 3\nstate = "state"\nsink = "out"')
    whole = pq.read_table(folder / "a.parquet")
    pq.write_table(whole.slice(0, 30), folder / "a.parquet")
    assert main(["query", "job.toml", "--once", "-q"]) == 0
    before = in_folder(folder / "out")
    shutil.copytree(folder / "out", folder / "copy")
    assert main(["query", "job.toml", "--once", "-q"]) == 0
    assert in_folder(folder / "out") == before
    assert main(["state", "verify", "state", "-q"]) == 0


def test_another_query_on_the_state_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.write_job(folder, more='state = "state"')
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0
    jobs.write_job(folder, jobs.NEAR.replace("3s", "4s"), more='state = "state"')
    capsys.readouterr()
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("matwin: error: job.toml: state is the state of another query: on was")
    assert "'3s'" in told and "'4s'" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_epoch_end(folder: Path, number: signal.Signals) -> None:
    (folder / "live.toml").write_text(jobs.LIVE, encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--json", "--state", "state") as child:
        jobs.say(child, {"t": 1, "k": "x"}, {"t": 2, "k": "y"}, {"t": 11, "k": "x"})
        assert child.stdout is not None and child.stderr is not None
        first = json.loads(child.stdout.readline())
        assert [(row["k"], row["n"]) for row in first["rows"]] == [("x", 1), ("y", 1)]
        child.send_signal(number)
        assert child.wait(60) == 128 + number
        [last] = printed(child.stdout.read())
        assert last["is_partial"] and last["rows"] == [{"k": "x", "n": 1}]
        assert child.stderr.read() == ""


def test_the_second_signal_breaks_off_and_the_epoch_before_stands(folder: Path) -> None:
    slow = jobs.LIVE.replace("count(*) AS n", "count(*) AS n, sum(x.i) AS s").replace(
        "FROM a", "FROM a, range(40000) x(i), range(if(a.t < 10, 1, 400000)) y(j)"
    )
    (folder / "live.toml").write_text(slow, encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--json", "--state", "state") as child:
        jobs.say(child, {"t": 1, "k": "x"}, {"t": 11, "k": "x"})
        assert child.stdout is not None and child.stdin is not None
        assert json.loads(child.stdout.readline())["epoch"] == 1
        child.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):  # it goes on with the epoch, for hours
            child.wait(1)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 143
    assert main(["state", "show", str(folder / "state")]) == 0


def test_standard_input_is_read_to_its_end_with_once(folder: Path) -> None:
    (folder / "live.toml").write_text(jobs.LIVE, encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--once", "--format", "csv") as child:
        jobs.say(child, {"t": 1, "k": "x"}, {"t": 31, "k": "y"})
        out, told = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out.splitlines() == ['"matwin_epoch","k","n"', '1,"x",1', '4,"y",1']
    assert told.startswith("4 epochs in ")


def test_followed_files_end_with_once_and_go_on_without(folder: Path) -> None:
    text = jobs.LIVE.replace('path = "-"', 'path = "grows.jsonl"\nfollow = true')
    (folder / "live.toml").write_text(text, encoding="utf-8")
    grows = folder / "grows.jsonl"
    grows.write_text('{"t": 1, "k": "x"}\n{"t": 12, "k": "y"}\n', encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--once", "--json") as child:
        out, _ = child.communicate(timeout=60)
    assert [line["epoch"] for line in printed(out)] == [1, 2]
    with jobs.running(folder, "query", "live.toml", "--json") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["epoch"] == 1
        with grows.open("a", encoding="utf-8") as file:
            file.write('{"t": 25, "k": "z"}\n')
        assert json.loads(child.stdout.readline())["rows"] == [{"k": "y", "n": 1}]
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 143


def test_sockets_are_listened_to(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = jobs.LIVE.replace('path = "-"', f'listen = ":{port}"')
    (folder / "live.toml").write_text(text, encoding="utf-8")
    with jobs.running(folder, "query", "live.toml", "--json", "--status", ":0") as child:
        assert child.stderr is not None and child.stdout is not None
        assert "status page" in child.stderr.readline()  # so it listens by now
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            peer.sendall(b'{"t": 1, "k": "x"}\n{"t": 11, "k": "y"}\n')
            assert json.loads(child.stdout.readline())["rows"] == [{"k": "x", "n": 1}]
        assert json.loads(child.stdout.readline())["rows"] == [{"k": "y", "n": 1}]
        assert child.wait(60) == 0


def test_a_followed_file_goes_on_where_it_was(folder: Path) -> None:
    text = jobs.LIVE.replace('path = "-"', 'path = "grows.jsonl"\nfollow = true')
    (folder / "live.toml").write_text(text, encoding="utf-8")
    words = ("query", "live.toml", "--json", "--state", "state", "--sink", "out")
    with (folder / "grows.jsonl").open("w", encoding="utf-8") as grows:
        for t in (1, 2, 12):
            grows.write(json.dumps({"t": t, "k": "x"}) + "\n")
        grows.flush()
        with jobs.running(folder, *words) as child:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["epoch"] == 1
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 143 and child.stdout.read() == ""
        for t in (13, 25):
            grows.write(json.dumps({"t": t, "k": "x"}) + "\n")
    with jobs.running(folder, *words, "--once") as child:
        out, _ = child.communicate(timeout=60)
    assert [line["epoch"] for line in printed(out)] == [2], "more may come of what is unfinished"
    with (folder / "grows.jsonl").open("a", encoding="utf-8") as grows:
        for t in (26, 31):
            grows.write(json.dumps({"t": t, "k": "x"}) + "\n")
    with jobs.running(folder, *words, "--once") as child:
        out, _ = child.communicate(timeout=60)
    assert [line["epoch"] for line in printed(out)] == [3]
    assert in_folder(folder / "out") == {n: {("x", 2): 1} for n in (1, 2, 3)}


PAPER = """
query = '''
SELECT floor(S1.ts / 60) AS minute, COUNT(*) AS found
FROM STREAM_get_packets (RT1, 'CUT ON ts BY 60 SECS', 'BLOCK') S1,
     STREAM_get_packets (RT2, 'CUT ON ts BY 60 SECS', 'BLOCK', 2) S2,
WHERE S1.pid = S2.pid GROUP BY minute
'''
[sources]
RT1 = "rt1.jsonl"
RT2 = "rt2.jsonl"
"""


def test_the_papers_query_is_durable(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, late in (("rt1", 0), ("rt2", 30)):
        rows = [{"pid": i, "ts": i + late} for i in range(0, 180, 10)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "paper.toml").write_text(PAPER, encoding="utf-8")
    job = str(folder / "paper.toml")
    words = ["query", job, "--state", str(folder / "kept"), "--sink", str(folder / "minutes")]
    assert main(words) == 0
    # Packets of a minute that the second router has seen by its end, or in the minute before.
    assert in_folder(folder / "minutes") == {
        1: {(0.0, 3): 1}, 2: {(1.0, 3): 1}, 3: {(2.0, 3): 1}, 4: {},
    }  # fmt: skip
    assert main(words) == 0
    assert "at epoch" in capsys.readouterr().err
    (folder / "paper.toml").write_text(PAPER.replace("[sources]", "keep = 2\n[sources]"))
    assert main(words) == 2
    assert "keep: the query says by STREAM_" in capsys.readouterr().err
