"""Help, examples, completion, tables and quiet: what people see of the command before any row."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin.asof import DIRECTIONS, HOWS, TIES
from matwin.fitting import fitted, shorter_times, widths_of
from matwin.question import BESTMATCH_HOWS, EPSILON_HOWS
from matwin.scheduler import MODES
from matwin.storage.materialize import FORMS
from matwin.text import cut, width_of
from matwin.tools import arguments
from matwin.tools.bench import progress as bench_progress
from matwin.tools.cli import main
from matwin.tools.commands import COMMANDS
from matwin.tools.completion import SHELLS
from matwin.tools.trace import arguments as trace_arguments
from matwin.tools.trace.caches import REPLACEMENTS

MINUTE = 60_000_000
JOB = """
[sources]
a = "trades.parquet"
b = "quotes.parquet"
[cut]
every = "10min"
on = "t"
[query]
join = "asof_join"
left = "a"
right = "b"
on = "t"
"""
LONG = ("bench", "demo", "warm", "completion")
HELP = """
import sys, time
from matwin.tools.cli import main
main([*sys.argv[1:], "--help"])
heavy = {"rich", "pyarrow", "numpy"} & set(sys.modules)
print(time.process_time(), *sorted(heavy), file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the examples name."""
    monkeypatch.chdir(tmp_path)
    t = pa.array([MINUTE * n for n in range(40)], pa.int64()).cast(pa.timestamp("us"))
    room, x = ["a", "b"] * 20, [float(n) for n in range(40)]
    pq.write_table(pa.table({"t": t, "room": room, "x": x, "celsius": x}), "temperature.parquet")
    pq.write_table(pa.table({"t": t, "room": room, "x": x, "percent": x}), "humidity.parquet")
    pq.write_table(pa.table({"t": t, "stock": room, "price": x}), "trades.parquet")
    pq.write_table(pa.table({"t": t, "stock": room, "bid": x}), "quotes.parquet")
    Path("job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("path", [(), *COMMANDS])
def test_every_help_has_examples(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    head, _, examples = shown.partition("\nexamples:\n")
    assert head and f"matwin {' '.join(path)}".strip() in examples
    assert max(map(len, shown.splitlines())) <= 80
    typed = shlex.split(examples.replace("\\\n", " "), comments=True)
    if path:
        expected = [word for example in COMMANDS[path].examples for word in shlex.split(example)]
        assert typed == expected


@pytest.mark.parametrize("path", [(), ("trace",), ("bench",), ("state",), *COMMANDS])
def test_help_loads_nothing_heavy(path: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, *path], capture_output=True, text=True, check=True
    )
    assert len(done.stderr.split()) == 1, f"only the seconds: {done.stderr}"
    words = re.findall(r"--(?:json|quiet)\b", done.stdout.partition("\nexamples:")[0])
    speaks = path in COMMANDS and path != ("completion",)
    assert set(words) == ({"--json", "--quiet"} if speaks else set())


def test_small_examples_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = [c for path, c in COMMANDS.items() if path[0] not in (*LONG, "trace")]
    lines = [example for command in small for example in command.examples]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, (line, capfd.readouterr().err)
    Path("other.trace").write_bytes(Path("walk.trace").read_bytes())
    for path, command in COMMANDS.items():
        for line in command.examples if path[0] == "trace" and path[1] != "dump" else ():
            assert main(shlex.split(line)[1:]) == 0, (line, capfd.readouterr().err)


def test_joins_come_first_and_benchmarks_late() -> None:
    first = list(dict.fromkeys(path[0] for path in COMMANDS))
    assert first[0] == "join" and first.index("join") < first.index("bench")


def test_choices_are_those_of_the_library() -> None:
    assert (trace_arguments.MODES, trace_arguments.REPLACEMENTS) == (MODES, REPLACEMENTS)
    assert set(arguments.MODES) == set(MODES) and set(arguments.FORMS) == {"auto", *FORMS}
    assert (arguments.BESTMATCH_HOWS, arguments.EPSILON_HOWS) == (BESTMATCH_HOWS, EPSILON_HOWS)
    assert (arguments.DIRECTIONS, arguments.TIES) == (DIRECTIONS, TIES)
    assert arguments.ASOF_HOWS == HOWS


# ── as-of joins ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--tolerance", "1min", "--how", "inner"], {"tolerance": "1min", "how": "inner"}),
        (["--direction", "forward", "--no-exact-matches"],
         {"direction": "forward", "allow_exact_matches": False}),
        (["--direction", "nearest", "--ties", "first", "--suffixes", "_a,_b"],
         {"direction": "nearest", "ties": "first", "suffixes": ("_a", "_b")}),
    ],
)  # fmt: skip
def test_asof_is_the_join_of_that_name(
    folder: Path, words: list[str], given: dict[str, object]
) -> None:
    asked = ["asof", "trades.parquet", "quotes.parquet", "--on", "t", "--by", "stock"]
    assert main([*asked, *words, "-o", "out.parquet", "-q"]) == 0
    expected = matwin.asof_join(
        "trades.parquet", "quotes.parquet", on="t", by="stock", **given  # type: ignore[arg-type]
    )  # fmt: skip
    assert pq.read_table("out.parquet").equals(expected.to_arrow())


@pytest.mark.parametrize("words", [["-o", "verified.parquet"], ["--ties", "first"]])
def test_asof_is_verified(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["asof", *ASKED["asof"], *words, "--verify", "--overwrite"]
    assert main(asked) == 0
    assert "equal: DuckDB finds the same rows" in capsys.readouterr().err


# ── --json and -q ────────────────────────────────────────────────────────────────────────────

ASKED = {
    "join": ["temperature.parquet", "humidity.parquet", "--on", "t=10min"],
    "asof": ["trades.parquet", "quotes.parquet", "--on", "t"],
    "window-join": ["a=trades.parquet", "b=quotes.parquet", "--time", "t", "--window", "1min"],
}


@pytest.mark.parametrize("command", ASKED)
def test_summaries_as_json_and_not_at_all(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [command, *ASKED[command], "--overwrite", "-o", "out.parquet"]
    assert main([*asked, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows_out"] > 0 and told.err == ""
    assert main([*asked, "-q"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.mark.parametrize(
    "words",
    [
        *(["trace", word, "walk.trace"] for word in ("summary", "pages", "matrix", "replay")),
        ["trace", "diff", "walk.trace", "walk.trace"],
        ["trace", "pages", "walk.trace", "--window", traces.LEFT, "--page", "3"],
        ["trace", "dump", "walk.trace", "--window", traces.LEFT, "--page", "3"],
        ["bench", "storage", "--rows", "1000", "--size", "1MiB", "--repeat", "1"],
    ],
)
def test_answers_as_json_or_not_at_all(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    traces.walked(folder)
    capsys.readouterr()
    assert main([*words, "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.err == "" and (told.out == "") == (words[0] == "trace")
    assert main([*words, "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_quiet_benchmark_has_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(bench_progress.Progress, "is_wanted", True)
    for quiet in (False, True):
        shown.truncate(0)
        bench_progress.begin(argparse.Namespace(quiet=quiet))
        bench_progress.Progress(3).say(1, "sorting")
        assert ("1/3  sorting" in shown.getvalue()) == (not quiet)


def test_quiet_verification_speaks_by_its_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["verify", *ASKED["join"], "-q"]
    assert main(asked) == 0
    assert main([*asked, "--result", "humidity.parquet"]) == 1
    assert capsys.readouterr().out == ""


# ── completion ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    run = "import sys; from matwin.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    return {
        shell: subprocess.run(
            [sys.executable, "-c", run, "completion", shell],
            capture_output=True, text=True, check=True,
        ).stdout
        for shell in SHELLS
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["jo"], ["join"]),
        (["bench", "stor"], ["storage"]),
        (["join", "--ov"], ["--overwrite"]),
        (["join", "a", "b", "--how", "s"], ["semi"]),
        (["asof", "--direction", "near"], ["nearest"]),
        (["trace", "summary", "--js"], ["--json"]),
        (["completion", "fi"], ["fish"]),
        (["join", "x"], []),
    ],
)
def test_bash_completes(scripts: dict[str, str], words: list[str], expected: list[str]) -> None:
    line = " ".join(map(shlex.quote, ["matwin", *words]))
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _matwin; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", f"{scripts['bash']}\n{ask}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == expected


def test_every_shell_knows_every_command(scripts: dict[str, str]) -> None:
    for script in scripts.values():
        assert all(path[-1] in script for path in COMMANDS)
    assert scripts["zsh"].endswith(scripts["bash"])


# ── tables ───────────────────────────────────────────────────────────────────────────────────

WORDS = st.text("abcdef", min_size=0, max_size=60)
KINDS = st.sampled_from(["text", "number", "time"])


@given(st.data(), st.integers(1, 6), st.integers(0, 6), st.sampled_from([40, 80, 200]))
def test_no_cell_loses_what_tells_it_apart(
    data: st.DataObject, count: int, rows: int, width: int
) -> None:
    head = [f"c{n}" for n in range(count)]
    columns = [data.draw(st.lists(WORDS, min_size=rows, max_size=rows)) for _ in head]
    kinds = [data.draw(KINDS) for _ in head]
    widths = widths_of(head, columns, kinds, width)
    for cells, kind, wide in zip(columns, kinds, widths, strict=True):
        if max(map(width_of, cells), default=0) > width:
            continue
        assert len({cut(cell, wide) for cell in cells}) == len(set(cells))
        assert kind == "text" or all(width_of(cell) <= wide for cell in cells)
    lines = fitted(head, columns, kinds, width).splitlines()
    assert max(map(width_of, lines)) <= width


def test_a_wide_terminal_is_used() -> None:
    cells = ["x" * 70 + "1" + "x" * 70, "y"]
    assert cells[0] in fitted(["a"], [cells], ["text"], 200)
    assert cells[0] not in fitted(["a"], [cells], ["text"], 80)


def test_columns_that_fit_in_no_block_are_named() -> None:
    head = [f"column_{n}" for n in range(1000)]
    lines = fitted(head, [["123456789"]] * 1000, ["number"] * 1000, 80).splitlines()
    assert len(lines) < 30 and "more columns: column_" in lines[-1]


@given(st.lists(st.integers(0, 10**6 - 1), min_size=1))
def test_shorter_times_are_the_same_times(micros: list[int]) -> None:
    cells = [f"10:00:00.{n:06}" for n in micros]
    shorter = shorter_times(cells)
    assert len({len(cell) for cell in shorter}) == 1
    padded = [f"{cell if '.' in cell else cell + '.'}".ljust(15, "0") for cell in shorter]
    assert padded == cells


# ── terminals ────────────────────────────────────────────────────────────────────────────────

MAIN = "import sys; from matwin.tools.cli import main; sys.exit(main())"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(words: list[str], columns: int) -> tuple[int, str]:
    """A command's exit code, and what it shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    unset = {"COLUMNS", "LINES", "NO_COLOR"}
    environment = {k: v for k, v in os.environ.items() if k not in unset} | {"TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
    ) as child:  # fmt: skip
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 65536):
                shown += piece
        os.close(ours)
    return child.returncode, shown.decode()


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_a_table_in_its_width(folder: Path, columns: int) -> None:
    code, shown = on_terminal(["join", *ASKED["join"], "-q"], columns)
    lines = ANSI.sub("", shown).splitlines()
    assert code == 0 and max(map(width_of, lines)) <= columns
    assert any("1970-01-01 00:39:00" in line for line in lines) or "more rows" in lines[-1]
    assert "1970-01-01 00:01:00" in "".join(lines) and "00.000" not in "".join(lines)
    assert sum("t_left" in line and "t_right" in line for line in lines) == 1


def test_an_error_on_a_terminal_has_colour_and_no_markup(folder: Path) -> None:
    code, shown = on_terminal(["join", *ASKED["join"], "--by", "[red]room"], 200)
    assert code == 2 and "\x1b[1;31merror:" in shown
    assert "'[red]room' is not there" in ANSI.sub("", shown)


def test_progress_leaves_nothing_but_the_summary(folder: Path) -> None:
    code, shown = on_terminal(["join", *ASKED["join"], "-o", "out.csv"], 80)
    assert code == 0 and ANSI.sub("", shown).splitlines()[-1].startswith("chose")


@pytest.mark.parametrize("command", ASKED)
@pytest.mark.parametrize("words", [[], ["--format", "csv"]], ids=["table", "csv"])
def test_rows_on_a_terminal_have_no_bar_among_them(
    folder: Path, command: str, words: list[str]
) -> None:
    code, shown = on_terminal([command, *ASKED[command], *words], 200)
    assert code == 0
    # What a terminal shows: a line that is erased (ESC [2K) has left nothing.
    lines = [ANSI.sub("", re.split(r"\x1b\[2K", line)[-1]) for line in shown.split("\n")]
    assert not any("━" in line.rpartition("\r")[2] for line in lines if line.strip())
    head = next(line for line in lines if re.search(r"\bt_left|\bt\b|\ba_t\b", line))
    assert "━" not in head


def test_help_into_a_closed_pipe_is_no_noise(folder: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    for words in (["--help"], ["asof", *ASKED["asof"]], ["completion", "bash"]):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *words, *(["-q"] if words[0] == "asof" else [])],
            stdout=write_end, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (141, b""), words
    os.close(write_end)


@pytest.mark.parametrize(
    "words",
    [
        ["join", *ASKED["join"], "--sql"],
        ["join", *ASKED["join"], "--explain"],
        ["asof", *ASKED["asof"], "--explain"],
        ["window-join", *ASKED["window-join"], "--sql"],
        ["window-join", *ASKED["window-join"], "--explain"],
        ["verify", *ASKED["join"]],
        ["verify", *ASKED["join"], "--sql"],
        *(["trace", word, "walk.trace"] for word in ("summary", "pages", "matrix", "replay")),
        ["trace", "html", "walk.trace", "-o", "walk.html"],
        ["trace", "perfetto", "walk.trace", "-o", "walk.json"],
    ],
)
def test_answers_as_json(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] == "trace":
        assert main(["join", *ASKED["join"], "--trace", "walk.trace", "-q", "-o", "o.csv"]) == 0
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


# ── what an input is ─────────────────────────────────────────────────────────────────────────


def in_every_format(folder: Path) -> dict[str, bytes]:
    """The same rows as each format has them, in files whose names don't tell."""
    table = pa.table({"t": [1, 4, 9], "name": ["a,b", "c", "d"]})
    for word, suffix in (("parquet", ".parquet"), ("arrow", ".arrow"), ("csv", ".csv"),
                         ("tsv", ".tsv"), ("jsonl", ".jsonl")):  # fmt: skip
        matwin.epsilon_join(table, table, on={"t": 0}, how="semi").write(f"{word}{suffix}")
        Path(f"{word}{suffix}").rename(word)
    pq.write_table(pa.table({"t": [2, 4], "b": [20, 40]}), "right.parquet")
    return {w: Path(w).read_bytes() for w in ("parquet", "arrow", "csv", "tsv", "jsonl")}


@pytest.mark.parametrize("command", ["join", "asof", "window-join"])
@pytest.mark.parametrize("word", ["parquet", "arrow", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize("place", ["file", "folder", "stdin"])
def test_input_formats(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, word: str, place: str
) -> None:
    data = in_every_format(folder)[word]
    left = {"file": word, "folder": "rows", "stdin": "-"}[place]
    if place == "folder":
        Path("rows").mkdir()
        Path(word).rename("rows/part-00000")
        Path("rows/_SUCCESS").touch()
    words = [command, left, "right.parquet", "--on", "t"]
    if command == "join":
        words[-1:] = ["t=0"]
    elif command == "window-join":
        words = [command, f"a={left}", "b=right.parquet", "--time", "t", "--window", "a,b=0..0"]
    given = Path("given")
    given.write_bytes(data)
    with given.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main([*words, "--input-format", word, "-q", "-o", "out.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    rows = [{name.split("_")[-1]: value for name, value in row.items()} for row in rows]
    matched = [row for row in rows if row["b"] is not None]
    assert [row["b"] for row in matched] == ([40, 40] if command == "asof" else [40])
    assert matched[0]["name"] == "c"


def test_an_input_format_that_is_misspelt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", *ASKED["join"], "--input-format", "cvs"]) == 2
    assert "'cvs' is none of parquet, csv, tsv, jsonl, arrow (did you mean 'csv'?)" in (
        capsys.readouterr().err
    )
