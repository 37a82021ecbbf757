"""`matwin window-join` on files, from the words on the command line to rows and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import as_bag

import matwin
from matwin.report import Report, StreamReport
from matwin.storage.errors import InputError
from matwin.tools.cli import main
from matwin.tools.progress import counts_of
from matwin.tools.window_join import folded
from matwin.tools.window_words import by_of, listed, per_stream, streams_of, time_of

S = 1_000_000


def times(*seconds: float | None) -> pa.Array:
    counts = [None if s is None else int(s * S) for s in seconds]
    return pa.array(counts, pa.int64()).cast(pa.timestamp("us"))


TABLES = {
    "a": pa.table({"t": times(0, 10, 20, None), "obj": ["p", "q", "p", "p"], "x": [1.0, 2, 3, 4]}),
    "b": pa.table({"ts": times(1, 12, 19), "object": ["p", "q", "p"], "x": [1.5, 2.5, 9.0]}),
    "c": pa.table({"t": times(2, 13, 18), "obj": ["p", "q", "p"], "n": [7, 8, 9]}),
}
TIME = ["--time", "t", "--time", "b=ts"]
BY = ["--by", "a=obj,b=object,c=obj"]
ASKED = [*TIME, *BY, "--window", "a,b=5s", "--window", "b,c=3s"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three Parquet files as words."""
    words = []
    for name, table in TABLES.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        words.append(f"{name}={tmp_path / name}.parquet")
    return words


# ── rows ─────────────────────────────────────────────────────────────────────────────────────

WINDOWS: list[tuple[list[str], Any]] = [
    (["--window", "1h"], "1h"),
    (["--window", "a,b=5s", "--window", "b,c=3s"], {("a", "b"): "5s", ("b", "c"): "3s"}),
    (["--window", "a,b=-2s..5s", "--window", "c,b=3s"],
     {("a", "b"): ("-2s", "5s"), ("c", "b"): "3s"}),
    (["--then", "a,b=5s", "--window", "b,c=0..3s"],
     {("a", "b"): matwin.then("5s"), ("b", "c"): (0, "3s")}),
    (["--path", "a,b,c=5s,3s"], matwin.path(["a", "b", "c"], windows=["5s", "3s"])),
    (["--path", "a,b,c=5s,3s", "--both-ways"],
     matwin.path(["a", "b", "c"], windows=["5s", "3s"], both_ways=True)),
]  # fmt: skip


@pytest.mark.parametrize(("words", "windows"), WINDOWS, ids=lambda w: str(w)[:40])
def test_the_windows_mean_what_the_arguments_mean(
    files: list[str], tmp_path: Path, words: list[str], windows: Any
) -> None:
    time = {"a": "t", "b": "ts", "c": "t"}
    keys = {"a": "obj", "b": "object", "c": "obj"}
    expected = matwin.window_join(TABLES, time=time, by=keys, windows=windows).read_all()
    out = tmp_path / "out.parquet"
    assert main(["window-join", *files, *TIME, *BY, *words, "--verify", "-o", str(out)]) == 0
    found = pq.read_table(out)
    assert found.schema.names == expected.schema.names
    assert as_bag(found) == as_bag(expected)
    assert expected.num_rows > 0


@pytest.mark.parametrize(("words", "windows"), WINDOWS, ids=lambda w: str(w)[:40])
def test_the_sql_runs_on_the_files(
    files: list[str], capfd: pytest.CaptureFixture[str], words: list[str], windows: Any
) -> None:
    where = ["--where", "a.x,b.x=0..0.6"]
    assert main(["window-join", *files, *TIME, *BY, *words, *where, "--sql"]) == 0
    text = capfd.readouterr().out
    with duckdb.connect() as database:
        found = database.sql(text).to_arrow_table()
    expected = matwin.window_join(
        TABLES, time={"a": "t", "b": "ts", "c": "t"}, by={"a": "obj", "b": "object", "c": "obj"},
        windows=windows, where={("a.x", "b.x"): (0, 0.6)},
    )  # fmt: skip
    assert as_bag(found) == as_bag(expected)
    assert found.num_rows > 0


def test_tolerances_and_options(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.arrow"
    words = ["--where", "a.x,b.x=0.5", "--algorithm", "backward-hash", "--bounds", "local",
             "--memory", "64MiB", "--threads", "1"]  # fmt: skip
    assert main(["window-join", *files, *ASKED, *words, "--verify", "-o", str(out)]) == 0
    with pa.OSFile(str(out)) as file:
        rows = pa.ipc.open_file(file).read_all()
    assert sorted(zip(rows["a_x"].to_pylist(), rows["b_x"].to_pylist(), strict=True)) == [
        (1.0, 1.5), (2.0, 2.5),
    ]  # fmt: skip


def test_a_process_of_its_own(files: list[str]) -> None:
    code = "import sys; from matwin.tools.cli import main; sys.exit(main())"
    words = ["window-join", *files, *ASKED, "--format", "csv"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=True)
    found = pa_csv.read_csv(io.BytesIO(done.stdout))
    assert sorted(found["c_n"].to_pylist()) == [7, 8, 9]
    assert b"\r" not in done.stderr and b"\x1b" not in done.stderr  # no progress in a pipe
    assert b"a      4 rows in, 3 used, 1 rejected" in done.stderr
    assert b"out    3 rows" in done.stderr


def test_quiet_is_quiet(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["window-join", *files, *ASKED, "--quiet", "--format", "csv"]) == 0
    assert capfd.readouterr().err == ""


def test_the_summary_as_json(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--json", "-o", str(tmp_path / "out.csv")]
    assert main(["window-join", *files, *ASKED, *words]) == 0
    out, err = capfd.readouterr()
    summary = json.loads(out)
    assert err == ""
    assert summary["rows_out"] == 3 and "left" not in summary
    assert summary["streams"]["a"]["rows_in"] == 4 and summary["streams"]["a"]["rejected"] == 1
    assert summary["peak_resident_bytes"] > 0 and summary["verification"] is None


def test_explain_says_what_would_be_done(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    assert main(["window-join", *files, *ASKED, "--explain", "-o", str(out)]) == 0
    text = capfd.readouterr().out
    assert "a" in text and "merge" in text
    assert not out.exists()


# ── verification ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "-"])
def test_with_verification(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    out = name if name == "-" else str(tmp_path / name)
    words = ["--verify", "-o", out, *(["--format", "csv"] if name == "-" else [])]
    assert main(["window-join", *files, *ASKED, *words]) == 0
    assert "equal: DuckDB finds the same rows, 3 in all" in capfd.readouterr().err


def test_a_join_that_loses_a_row_is_found_out(
    files: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = matwin.window_join
    monkeypatch.setattr(
        matwin, "window_join", lambda *a, **k: whole(*a, **k).read_all().slice(1).to_reader()
    )
    for name in ("out.parquet", "out.csv"):  # the file itself, and a second run
        assert main(["window-join", *files, *ASKED, "--verify", "-o", str(tmp_path / name)]) == 1
        assert "1 missing:" in capfd.readouterr().err


# ── bad input ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TIME, "--window", "5"], "--window '5': '5' has no unit"),
        ([*TIME, "--window", "a,b="], "a limit is missing"),
        ([*TIME, "--window", "a,b=5s"], "nothing connects {a, b} and {c}"),
        ([*TIME, "--window", "a,b=5s", "--window", "1h"], "--window '1h': beside other windows"),
        ([*TIME, "--window", "a,b=5s", "--then", "b,a=1s"], "the pair has a window already"),
        ([*TIME, "--window", "a,b,c=5s"], "'a,b,c' is no pair of streams"),
        ([*TIME, "--window", "a,z=5s"], "'z'"),
        ([*TIME, "--window", "soon"], "is not a duration"),
        ([*TIME, "--window", "0"], "wider than nothing"),
        (TIME, "no window is given"),
        ([*TIME, "--path", "a,b,c"], "its windows are missing"),
        ([*TIME, "--path", "a,b,c=5s"], "3 streams have 2 steps"),
        ([*TIME, "--path", "a,b,c=5s,3s", "--window", "1h"], "--path says all windows"),
        ([*TIME, "--window", "1h", "--both-ways"], "--both-ways goes with --path"),
        (["--time", "t", "--window", "1h"], "'t' is not there"),
        ([*TIME, "--time", "t", "--window", "1h"], "--time 't': 't' is the time of all"),
        ([*TIME, "--time", "z=t", "--window", "1h"], "--time 'z=t': 'z' is no stream"),
        ([*TIME, "--window", "1h", "--by", "a=obj"], "the key of 'b' is missing"),
        ([*TIME, "--window", "1h", "--by", "obj"], "'obj' is not there"),
        ([*TIME, "--window", "1h", "--where", "a.x,b.x"], "its limit is missing"),
        ([*TIME, "--window", "1h", "--where", "a.x,b.x=1s"], "'1s' is no number"),
        ([*TIME, "--window", "1h", "--where", "a.x,z.x=1"], "'z.x' is no column"),
        ([*TIME, "--window", "1h", "--where", "a.x,a.t=1s"], "two streams"),
        ([*TIME, "--window", "1h", "--algorithm", "forward-hash"], "forward-hash"),
        ([*TIME, "--window", "1h", "--memory", "much"], "'much' is not a size"),
        ([*TIME, "--window", "1h", "--follow"], "--follow needs a stream that grows"),
        ([*TIME, "--window", "1h", "--late", "drop"], "--late goes with --follow"),
        ([*TIME, "--window", "1h", "--lateness", "1s"], "--lateness goes with --follow"),
        ([*TIME, "--window", "1h", "--schema", "a=t:int64"], "no JSON lines"),
        ([*TIME, "--window", "1h", "--max-output-rows", "1"], "max_output_rows"),
        ([*TIME, "--window", "1h", "d=-", "--verify"], "standard input"),
    ],
)
def test_bad_words_are_one_clear_line(
    files: list[str], capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    more = [word for word in words if word.startswith("d=")]
    rest = [word for word in words if word not in more]
    assert main(["window-join", *files, *more, *rest, "--format", "csv", "--quiet"]) == 2
    out, err = capfd.readouterr()
    assert len(out.splitlines()) <= 1  # the header, before the rows that are too many
    assert message in err and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=nowhere.parquet", "b=nowhere.parquet"], "nowhere.parquet"),
        (["a=x.parquet"], "a join needs two"),
        (["a.parquet", "b=x.parquet"], "'a.parquet' names no stream"),
        (["a=x.parquet", "a=y.parquet"], "a stream 'a' already"),
        (["a=-", "b=-"], "only one stream can be standard input"),
    ],
)
def test_bad_streams_are_one_clear_line(
    capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["window-join", *words, "--time", "t", "--window", "1h"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_a_failed_join_leaves_the_old_output_alone(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("what was there")
    words = [*TIME, "--window", "1h", "--max-output-rows", "1", "-o", str(out), "--overwrite"]
    assert main(["window-join", *files, *words]) == 2
    assert out.read_text() == "what was there"


# ── words ────────────────────────────────────────────────────────────────────────────────────

NAMES = st.text(min_size=1)


def escaped(name: str) -> str:
    return "".join("\\" + c if c in "\\=," else c for c in name)


@given(st.lists(NAMES, min_size=2, max_size=4, unique=True))
def test_any_name_can_be_written(names: list[str]) -> None:
    assert list(streams_of([f"{escaped(name)}=file" for name in names])) == names
    assert listed(",".join(map(escaped, names))) == names
    text = ",".join(f"{escaped(name)}={escaped(name)}" for name in names)
    assert per_stream(text, names, "--by") == {name: name for name in names}


def test_times_and_keys_of_all_and_of_each() -> None:
    assert time_of(["t"], ["a", "b"]) == "t"
    assert time_of(["t", "b=ts"], ["a", "b"]) == {"a": "t", "b": "ts"}
    assert time_of(["a=x,b=y"], ["a", "b"]) == {"a": "x", "b": "y"}
    assert by_of(["k", "l"], ["a", "b"]) == ["k", "l"]
    assert by_of(["k", "a=x,b=y"], ["a", "b"]) == {"a": ["k", "x"], "b": ["k", "y"]}
    with pytest.raises(InputError, match="names 'a' twice"):
        per_stream("a=x,a=y", ["a", "b"], "--by")


def test_the_progress_counts_all_streams() -> None:
    report = Report()
    report.streams = {
        "a": StreamReport(rows_in=10, rows_expected=100),
        "b": StreamReport(rows_in=15, rows_expected=100),
    }
    assert "25 of 200 rows" in counts_of(folded(report))
    report.streams["b"].rows_expected = None
    assert "25 rows" in counts_of(folded(report))
