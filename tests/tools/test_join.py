"""`matwin join` and `matwin verify`, from the words on the command line to files and exit codes."""

from __future__ import annotations

import io
import json
import re
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
from matwin.report import Report
from matwin.storage import kernel
from matwin.storage.errors import InputError
from matwin.tools.cli import main
from matwin.tools.progress import Progress, counts_of, share_of
from matwin.tools.words import names_of, on_of

MINUTE = 60_000_000
TEMP = pa.table(
    {
        "t": pa.array([0, 10 * MINUTE, 20 * MINUTE, None], pa.int64()).cast(pa.timestamp("us")),
        "room": ["a", "b", "a", "a"],
        "x": [0.1, 0.2, 0.3, 0.4],
        "celsius": [20.5, 21.0, 19.0, 18.0],
    }
)
HUM = pa.table(
    {
        "ts": pa.array([MINUTE, 9 * MINUTE, 21 * MINUTE], pa.int64()).cast(pa.timestamp("us")),
        "room": ["a", "b", "b"],
        "x": [0.2, 0.3, 0.9],
        "percent": [40, 41, 42],
    }
)
ON = ["--on", "t:ts=10min"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two Parquet files."""
    paths = [tmp_path / "temp.parquet", tmp_path / "hum.parquet"]
    for path, table in zip(paths, (TEMP, HUM), strict=True):
        pq.write_table(table, path)
    return [str(path) for path in paths]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "best", "arguments"),
    [
        ([], True, {}),
        (["--how", "full", "--keep-unmatched"], True, {"how": "full", "keep_unmatched": True}),
        (["--by", "room", "--distances"], True, {"by": "room", "distances": True}),
        (["--order", "t=youngest"], True, {"orders": {("t", "ts"): "youngest"}}),
        (["--pairs", "all"], False, {}),
        (["--pairs", "all", "--how", "anti"], False, {"how": "anti"}),
        (["--suffixes", "_a,_b", "--on", "x"], True, {"suffixes": ("_a", "_b")}),
    ],
)
def test_the_words_mean_what_the_arguments_mean(
    files: list[str], tmp_path: Path, words: list[str], best: bool, arguments: dict[str, Any]
) -> None:
    on: dict[Any, Any] = {("t", "ts"): "10min"}
    if "x" in words:
        on["x"] = None
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    expected = join(TEMP, HUM, on=on, **arguments).read_all()
    out = tmp_path / "out.parquet"
    assert main(["join", *files, *ON, *words, "-o", str(out)]) == 0
    found = pq.read_table(out)
    assert found.schema.names == expected.schema.names
    assert as_bag(found) == as_bag(expected)
    assert expected.num_rows > 0


def test_rows_go_to_standard_output_and_the_rest_does_not(
    files: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["join", *files, *ON, "--format", "csv"]) == 0
    out, err = capfdbinary.readouterr()
    found = pa_csv.read_csv(io.BytesIO(out))
    assert found["percent"].to_pylist() == [40, 41, 42]
    assert b"\r" not in err and b"\x1b" not in err  # no progress in a pipe
    assert b"4 rows in, 3 used, 1 rejected" in err and b"out    3 rows" in err


def test_quiet_is_quiet(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["join", *files, *ON, "--quiet", "--format", "csv"]) == 0
    assert capfd.readouterr().err == ""


def test_the_summary_as_json(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["join", *files, *ON, "--json", "-o", str(tmp_path / "out.csv")]) == 0
    out, err = capfd.readouterr()
    summary = json.loads(out)
    assert err == ""
    assert summary["rows_out"] == 3
    assert summary["left"]["rows_in"] == 4 and summary["left"]["rejected"] == 1
    assert summary["peak_resident_bytes"] > 0 and summary["verification"] is None
    assert main(["join", *files, *ON, "--json", "--format", "csv"]) == 0
    assert json.loads(capfd.readouterr().err)["rows_out"] == 3


def test_a_failed_join_leaves_the_old_output_alone(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("what was there")
    before = sorted(tmp_path.iterdir())
    words = ["--pairs", "all", "--max-output-rows", "1", "-o", str(out), "--overwrite"]
    assert main(["join", *files, "--on", "t:ts=1h", *words]) == 2
    assert out.read_text() == "what was there"
    assert sorted(tmp_path.iterdir()) == before
    assert capfd.readouterr().err.startswith("matwin: error:")


# ── verification ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.csv", "-"])
def test_join_with_verification(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    out = name if name == "-" else str(tmp_path / name)
    words = ["--distances", "--verify", "-o", out, *(["--format", "csv"] if name == "-" else [])]
    assert main(["join", *files, *ON, *words]) == 0
    assert "equal: DuckDB finds the same rows, 3 in all" in capfd.readouterr().err


def test_verify_runs_the_join(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *files, *ON]) == 0
    assert capfd.readouterr().out == "equal: DuckDB finds the same rows, 3 in all\n"


def test_verify_finds_a_missing_row(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    assert main(["join", *files, *ON, "--quiet", "-o", str(out)]) == 0
    pq.write_table(pq.read_table(out).slice(1), out)
    capfd.readouterr()
    assert main(["verify", *files, *ON, "--result", str(out)]) == 1
    assert "1 missing:" in capfd.readouterr().out
    assert main(["verify", *files, *ON, "--result", str(out), "--json"]) == 1
    verdict = json.loads(capfd.readouterr().out)
    assert (verdict["is_equal"], verdict["missing"], verdict["extra"]) == (False, 1, 0)


@pytest.mark.parametrize("command", ["join", "verify"])
def test_the_sql_runs_on_the_files(
    files: list[str], capfd: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, *files, *ON, "--sql"]) == 0
    text = capfd.readouterr().out
    with duckdb.connect() as database:
        found = database.sql(text).to_arrow_table()
    expected = matwin.bestmatch_join(TEMP, HUM, on={("t", "ts"): "10min"})
    assert as_bag(found) == as_bag(expected)


def test_explain_says_what_would_be_done(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    assert main(["join", *files, *ON, "--explain", "-o", str(out)]) == 0
    assert len(capfd.readouterr().out.strip()) > 0
    assert not out.exists()


# ── bad input ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "t:ts=abc"], "not a duration"),
        (["--on", "t:ts=1h-30min"], "'1h-30min' is not a duration; write text such as"),
        (["--on", "t:ts=5mss"], "not a duration"),
        (["--on", "t:ts=10"], "--on 't:ts=10': '10' has no unit"),
        (["--on", "t:ts="], "--on 't:ts=': a limit is missing"),
        (["--on", "=1"], "--on '': a column's name is missing"),
        (["--on", "x=1min"], "--on 'x=1min': '1min' is no number"),
        (["--on", "x=1..", "--on", "x=2"], "is no number"),
        (["--on", "x=1", "--on", "x=2"], "--on 'x=2': the column was given before"),
        (["--on", "nowhere=1"], "'nowhere' is not there"),
        (["--on", "x=1", "--order", "x"], "--order 'x': the order is missing"),
        (["--on", "x=1", "--order", "y=youngest"], "--on does not name 'y'"),
        (["--on", "x=1", "--order", "x=oldest"], "is no order"),
        (["--on", "x=1", "--pairs", "all", "--keep-unmatched"], "goes with --pairs best"),
        (["--on", "x=1", "--suffixes", "_a"], "--suffixes _left,_right"),
        (["--on", "x=1", "--how", "semi"], "choose one of"),
        (["--on", "x=1", "--schedule", "sideways"], "--schedule 'sideways'; choose one of"),
        (["--on", "x=1", "--memory", "much"], "'much' is not a size"),
    ],
)
def test_bad_words_are_one_clear_line(
    files: list[str], capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["join", *files, *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err and err.count("\n") == 1 and "Traceback" not in err


def test_examples_come_with_a_bad_tolerance(
    files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["join", *files, "--on", "x=wide"]) == 2
    assert "write for example --on t=10min" in capfd.readouterr().err


def test_a_file_that_is_not_there(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["join", files[0], "nowhere.parquet", *ON]) == 2
    assert "nowhere.parquet" in capfd.readouterr().err


# ── words ────────────────────────────────────────────────────────────────────────────────────

SCHEMA = pa.schema([("x", pa.float64()), ("n", pa.int64()), ("t", pa.timestamp("us"))])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", {"x": None}),
        ("x=0.5", {"x": 0.5}),
        ("n=3", {"n": 3}),
        ("n=9007199254740993", {"n": 9007199254740993}),
        ("x=-0.5..1e3", {"x": (-0.5, 1000.0)}),
        ("t=10min", {"t": "10min"}),
        ("t=-10min..0s", {"t": ("-10min", "0s")}),
        ("t=0", {"t": 0}),
        ("x:n=1", {("x", "n"): 1}),
        ("x:x=1", {"x": 1}),
        (r"a\=b\:c=1", {"a=b:c": 1}),
        (r"a\\:n=1", {("a\\", "n"): 1}),
    ],
)
def test_tolerances_as_they_are_written(text: str, expected: dict[Any, Any]) -> None:
    found = on_of([text], SCHEMA, SCHEMA)
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_can_be_written(left: str, right: str) -> None:
    def escaped(name: str) -> str:
        return "".join("\\" + c if c in "\\=:" else c for c in name)

    key = left if left == right else (left, right)
    nothing = pa.schema([])
    assert on_of([f"{escaped(left)}:{escaped(right)}=1"], nothing, nothing) == {key: 1}
    assert names_of(f"{escaped(left)}:{escaped(right)}", "--by", "") == key


def test_a_time_on_either_side_wants_a_unit() -> None:
    with pytest.raises(InputError, match="has no unit"):
        on_of(["x:t=5"], SCHEMA, SCHEMA)


@pytest.mark.parametrize("limit", ["1ms", "5", "-1.5..2", "-10min..0s"])
def test_a_column_that_is_not_there_is_named_whatever_its_limit(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [1]}), path)
    assert main(["join", str(path), str(path), "--on", f"nope={limit}"]) == 2
    assert "left: column 'nope' is not there" in capsys.readouterr().err


# ── progress ─────────────────────────────────────────────────────────────────────────────────


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def report(left: int, right: int, expected: int | None = 100) -> Report:
    made = Report()
    made.left.rows_in, made.right.rows_in = left, right
    made.left.rows_expected = made.right.rows_expected = expected
    return made


def test_the_progress_bar_is_wiped() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        assert progress.callback is not None
        progress.callback(report(10, 20))
    assert "30 of 200 rows" in stream.getvalue() and "reading" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")


def percents(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+)%", text)]


def test_one_bar_for_all_phases_never_runs_backward() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        for read, planned, visited, out in (
            (50, 0, 0, 0), (100, 0, 0, 0), (100, 10, 5, 0), (100, 40, 6, 9), (100, 40, 40, 90),
        ):  # fmt: skip
            made = report(read, read)
            made.pairs_planned, made.pairs_visited, made.rows_out = planned, visited, out
            progress(made)
    shown = stream.getvalue()
    assert shown.index("reading") < shown.index("judging") < shown.index("writing")
    assert percents(shown) == sorted(percents(shown)) and percents(shown)[-1] == 100


def test_the_bar_tells_of_compiling() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        progress(report(100, 50))
        assert kernel.on_compiling is not None
        kernel.on_compiling("judge")
    assert kernel.on_compiling is None
    assert "compiling kernels, once for this machine" in stream.getvalue()
    assert percents(stream.getvalue())[0] == percents(stream.getvalue())[-1] == 38


@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_bar_is_one_line(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    with Progress(stream) as progress:
        made = report(2 * 10**9, 2 * 10**9, 10**10)
        made.rows_out, made.pages_read = 10**12, 10**9
        progress(made)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert shown.count("\n") <= 1 and max(map(len, shown.splitlines())) <= width
    assert width < 80 or ("writing" in shown and "10%" in shown)


def test_no_progress_where_nobody_looks() -> None:
    for stream, is_wanted in ((io.StringIO(), True), (Terminal(), False)):
        with Progress(stream, is_wanted=is_wanted) as progress:
            assert progress.callback is None
        assert stream.getvalue() == ""


@given(st.integers(0, 300), st.integers(0, 300), st.none() | st.integers(0, 100))
def test_the_share_is_a_share(left: int, right: int, expected: int | None) -> None:
    made = report(left, right, expected)
    share = share_of(made)
    assert share is None or 0 <= share <= 1
    assert (share is None) == (not expected)
    assert f"{left + right:,}" in counts_of(made)


# ── standard input and output ────────────────────────────────────────────────────────────────


def test_one_side_from_standard_input(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = Path(files[0]).read_bytes()
    words = ["--pairs", "all", *ON, "-o", "-", "--format", "jsonl", "--quiet", "--verify"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["join", "-", files[1], *words]) == 0
    piped = capfdbinary.readouterr().out
    assert main(["join", *files, *words]) == 0
    assert piped == capfdbinary.readouterr().out
    assert piped.count(b"\n") > 0
