"""The prompt, driven through a pseudo terminal as a person would; and the shell behind it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from pathlib import Path

import pexpect
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
import matwin.tools.sql.shell
from matwin.tools import cli
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.complete import completions
from matwin.tools.sql.prompt import coloured, prompt
from matwin.tools.sql.shell import Shell, is_complete

TEMP = pa.table({"t": [1, 5, 9], "celsius": [20, 21, 22]})
HUM = pa.table({"t": [2, 5, 8], "percent": [40, 50, 60]})
QUERY = "select celsius, percent from temp left bestmatch join hum on temp.t mindist hum.t"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(TEMP, tmp_path / "temp.parquet")
    pq.write_table(HUM, tmp_path / "hum.parquet")
    return tmp_path


@pytest.fixture
def terminal(folder: Path) -> object:
    environment = {
        **os.environ, "TERM": "xterm", "MATWIN_HISTORY": str(folder / "history"),
        "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "120", "LINES": "40",
    }  # fmt: skip
    words = ["-m", "matwin.tools", "sql", "temp=temp.parquet", "hum=hum.parquet"]
    code = "import sys; from matwin.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    child = pexpect.spawn(
        sys.executable, ["-c", code, *words[2:]], cwd=str(folder), env=environment, timeout=20,
        encoding="utf-8", dimensions=(40, 120),
    )  # fmt: skip
    child.expect("matwin>")
    yield child
    child.close(force=True)


def test_a_person_at_the_prompt(terminal: pexpect.spawn, folder: Path) -> None:
    terminal.sendline(".tables")
    terminal.expect("hum\r\n")
    terminal.expect("temp\r\n")
    terminal.sendline(".schema temp")
    terminal.expect("celsius  int64")
    # A query of two lines: Enter does not end it, a semicolon does.
    terminal.sendline(QUERY)
    terminal.expect(r"\.\.\.>")
    terminal.sendline("where abs(temp.t - hum.t) <= 1 order by celsius;")
    terminal.expect(re.escape("\x1b[2K\x1b[1mcelsius  percent"))  # the bar's line is wiped first
    terminal.expect("20")
    terminal.expect("3 rows")
    # A mistake is told with its place, and the prompt goes on.
    terminal.sendline("select tt from temp;")
    terminal.expect("error: line 1, column 8")
    terminal.expect(r"\^\^")
    terminal.sendline(".timer on")
    terminal.expect("timer on")
    terminal.sendline("select count(*) from temp;")
    terminal.expect(r"1 row in \d")
    terminal.sendline(".mode csv")
    terminal.expect("mode csv")
    terminal.sendline("select max(percent) as best from hum;")
    terminal.expect('"best"\r\n60')
    terminal.sendline(f".explain {QUERY};")
    terminal.expect("bestmatch join, the best for each left row")
    # Ctrl-C drops what is typed; Ctrl-D leaves.
    terminal.send("select nothing")
    terminal.sendcontrol("c")
    terminal.expect("matwin>")
    terminal.sendcontrol("d")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "where abs(temp.t - hum.t) <= 1" in (folder / "history").read_text(encoding="utf-8")
    assert (folder / "history").stat().st_mode & 0o077 == 0


def test_tab_completes_tables_and_columns(terminal: pexpect.spawn) -> None:
    terminal.send("SEL\t")
    terminal.expect("ECT")
    terminal.send(" hum.perc\t")
    terminal.expect("ent")
    terminal.send(" from hum;\r")
    terminal.expect("3 rows")
    terminal.sendline(".quit")
    terminal.expect(pexpect.EOF)


def test_a_terminal_of_a_few_lines(folder: Path) -> None:
    environment = {**os.environ, "TERM": "xterm", "MATWIN_HISTORY": str(folder / "history"),
                   "PROMPT_TOOLKIT_NO_CPR": "1"}  # fmt: skip
    code = "import sys; from matwin.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    child = pexpect.spawn(
        sys.executable, ["-c", code, "sql"], cwd=str(folder), env=environment, timeout=20,
        encoding="utf-8", dimensions=(6, 80),
    )  # fmt: skip
    child.expect("matwin>")
    child.send("select 7 as seven;\r")
    child.expect("1 row")
    assert "too small" not in child.before
    child.close(force=True)


def test_searching_pasting_and_going_on(terminal: pexpect.spawn) -> None:
    # A comment behind the semicolon is no reason to go on, an open string is.
    terminal.sendline("select 7 as seven; -- done")
    terminal.expect("1 row")
    terminal.sendline("select 'a;")
    terminal.expect(r"\.\.\.>")
    terminal.sendline("b' as open;")
    terminal.expect("1 row")
    # Enter takes what a search has found; the next one runs it.  (Before the prompt is there,
    # Ctrl-R is the terminal's own.)
    terminal.expect("matwin>")
    terminal.sendcontrol("r")
    terminal.send("seven")
    terminal.send("\r")
    terminal.send("\r")
    terminal.expect("1 row")
    # Pasted text: commands end with their lines, and queries come one after the other.
    pasted = ".mode csv\nselect 1 as a; select 2 as b;\n.mode table\n"
    terminal.send(f"\x1b[200~{pasted}\x1b[201~\r")
    terminal.expect('mode csv\r\n"a"\r\n1\r\n"b"\r\n2\r\nmode table')
    terminal.sendline("exit")
    terminal.expect(pexpect.EOF)


def shell() -> tuple[Shell, io.StringIO]:
    out = io.StringIO()
    return Shell(Catalog({"temp": TEMP, "hum": HUM}), out=out), out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (".tables", "hum\ntemp\n"),
        (".schema hum", "hum\n  t  int64\n  percent  int64\n"),
        (".schema nobody", "error: there is no table 'nobody'\n"),
        (".timer", "timer on\n"),
        (".mode yaml", "error: 'yaml' is no mode; there are table, csv, tsv, jsonl, markdown, "
         "line\n"),
        (".mode CSV", "mode csv\n"),
        (".mode box", "mode table\n"),
        (".explian", "error: there is no command .explian (did you mean 'explain'?); .help lists "
         "them\n"),
        (".load x", "error: write .load NAME FILE\n"),
        (".trace off", "trace off\n"),
        (".trace", "trace off\n"),
        (".trace /nowhere/x.trace", "error: there is no folder '/nowhere' for the trace\n"),
        (".trace x.trace\n.trace", "trace to x.trace\ntrace to x.trace\n"),
        (".timer maybe", "error: write .timer on or .timer off, not 'maybe'\n"),
        (".explain maybe", "error: write .explain on or .explain off, or .explain QUERY, not "
         "'maybe'\n"),
        (".tables EM", "temp\n"),
        (".tables x", "no table has 'x' in its name\n"),
        ("\n\n select oops;", "error: line 3, column 9: "),
        (";", ""),
    ],
)  # fmt: skip
def test_commands_of_the_shell(line: str, said: str) -> None:
    taken, out = shell()
    taken.take(line)
    assert out.getvalue() == said or (said.endswith(": ") and out.getvalue().startswith(said))


def test_what_is_said_beside_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken, out = shell()
    taken.take(
        f".trace {folder / 'x.trace'}\nselect 1 as a where false; .timer\nselect 1 where false"
    )
    lines = out.getvalue().splitlines()
    assert lines[1] == "no trace: the query has no join of MatWin's"
    assert lines[3].startswith("in 0.")  # the table itself says that there are no rows
    taken, out = shell()
    taken.catalog = Catalog({})
    taken.take(".tables\n.schema")
    assert out.getvalue().count("no tables; .load NAME FILE") == 2


def test_colours_know_what_a_line_belongs_to() -> None:
    lines = coloured(
        "select 'a\nfrom' /* x\ny */ || cast(1 as text);\n.mode csv\n-- a\nselect $$\n$$"
    )
    kinds = [[(style.removeprefix("class:"), piece) for style, piece in line if piece.strip()]
             for line in lines]  # fmt: skip
    assert kinds[0] == [("keyword", "select"), ("string", "'a")]
    assert kinds[1] == [("string", "from'"), ("comment", "/* x")]
    assert kinds[2][0] == ("comment", "y */") and ("keyword", "cast") in kinds[2]
    assert kinds[3:] == [
        [("command", ".mode csv")], [("comment", "-- a")],
        [("keyword", "select"), ("string", "$$")], [("string", "$$")],
    ]  # fmt: skip


def test_a_table_that_is_not_there_is_told_at_once(folder: Path) -> None:
    with pytest.raises(matwin.InputError, match="nowhere"):
        prompt(Catalog({"temp": str(folder / "nowhere.parquet")}), {})


def test_values_are_shown_as_duckdb_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    query = "select interval '14 months 1 day 2 hours' as i, '\\x00b'::blob as b"
    shown = {}
    for mode in ("csv", "jsonl", "line", "markdown"):
        assert cli.main(["sql", "-q", "-c", query, "--format", mode]) == 0
        shown[mode] = capsys.readouterr().out
    assert '"1 year 2 months 1 day 02:00:00"' in shown["csv"]
    assert '"i": "1 year 2 months 1 day 02:00:00"' in shown["jsonl"]
    assert shown["line"] == "i = 1 year 2 months 1 day 02:00:00\nb = \\x00b\n"
    assert shown["markdown"].splitlines()[:2] == ["| i | b |", "| --- | --- |"]


def test_the_prompt_survives_what_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None  # as DuckDB does

    def broken(*_: object) -> None:
        raise ValueError("zip() argument 2 is shorter")

    taken, out = shell()
    monkeypatch.setattr(matwin.tools.sql.shell, "started", interrupted)
    taken.take("select 1; select 2;")
    assert out.getvalue() == "stopped\n"  # and the second is not wanted either
    monkeypatch.setattr(matwin.tools.sql.shell, "started", broken)
    taken.take("select 1; .timer on")
    said = out.getvalue().removeprefix("stopped\n")
    assert said.startswith("error: ValueError: zip() argument 2 is shorter\nThis is a fault of")
    assert said.endswith("timer on\n")
    taken.take('.load "unclosed small.csv')
    assert out.getvalue().endswith("error: write .load NAME FILE: no closing quotation\n")
    taken.take(".load new /nowhere/new.csv")
    assert "new" not in taken.catalog.names()


def test_load_names_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken, out = shell()
    taken.mode = "csv"
    taken.take(f".load again '{folder / 'temp.parquet'}'")
    taken.take("select sum(celsius) as s from again;")
    assert out.getvalue() == ""
    assert capsys.readouterr().out == '"s"\n63\n'


def test_traces_of_the_prompt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken, _ = shell()
    taken.take(f".trace {folder / 'x.trace'}")
    taken.take(f"{QUERY} where abs(temp.t - hum.t) <= 1;")
    assert (folder / "x.trace").exists()


@pytest.mark.parametrize(
    "text",
    ["select 1;", ".help", " ", "select 1; -- done", "select 1; /* done */", "-- nothing", "help",
     "quit;", "select ';' as \";\";", "select $$;$$;", ".mode csv\nselect 1;\n.mode table",
     "select r'.y1 from R as r';"],
)  # fmt: skip
def test_enter_ends_a_query(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    ["select 1", "select 1;\nfrom", "select 'abc;", 'select "a;', "select 1; /* a;",
     "/* /* a */ select 1;", "select $$a;", "select $tag$a;$$;", "select 1 -- a;", "select e'\\';"],
)  # fmt: skip
def test_enter_goes_on(text: str) -> None:
    assert not is_complete(text)


def test_statements_keep_their_places(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    file = folder / "two.sql"
    file.write_text("\ufeffselect 1 as a;\n\n  select 2 as b; select oops;\nselect 3", "utf-8")
    assert cli.main(["sql", "-q", str(file)]) == 2
    found = capsys.readouterr()
    assert found.out == '"a"\n1\n"b"\n2\n'
    assert "line 3, column 25: " in found.err


def test_the_summary_of_a_query_without_a_join(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "-c", "select 1 as a"]) == 0
    assert capsys.readouterr().err.startswith("out    1 row in ")
    assert cli.main(["sql", "--json", "-c", "select 1 as a"]) == 0
    assert json.loads(capsys.readouterr().err)["is_done"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "select 1; select 2", "-o", "x.csv"], "-o is for one query, and here are 2"),
        (["-c", "select 1; select 2", "--format", "ipc"], "--format ipc is for one query"),
        (["-c", "select 1;\n.mode csv"], ".mode is a command of the prompt"),
    ],
)
def test_several_queries_that_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sql", *words]) == 2
    found = capsys.readouterr()
    assert said in found.err and not found.out


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("select * from te", "temp"),
        ("select temp.cel", "temp.celsius"),
        ("select a.per", ""),
        ("select * from hum a where a.per", "a.percent"),
        ("select cel from temp where cel", "celsius"),
        (".sch", ".schema"),
        ("select * from temp left best", "bestmatch join"),
        ("select * from temp bestmatch join hum on temp.t minatt", "minattrdist"),
        ("select perc", "percent"),
        ("SELE", "SELECT"),
        (".schema ", "hum"),
        (".schema t", "temp"),
        (".mode ma", "markdown"),
        (".timer ", "on"),
        (".explain select max(temp.cel", "temp.celsius"),
        ("select 1;\n.sch", ".schema"),
    ],
)
def test_completions(text: str, wanted: str) -> None:
    found = [word for word, _ in completions(text, text, Catalog({"temp": TEMP, "hum": HUM}))]
    assert wanted in found if wanted else not found


def test_orders_come_first_after_an_attribute() -> None:
    catalog = Catalog({"temp": TEMP, "hum": HUM})
    best = "select * from temp bestmatch join hum on temp.t "
    for text in (best, f"{best} mindist hum.t, temp.celsius "):
        assert next(iter(completions(text, text, catalog))) == ("mindist", "order")
    after = f"{best} mindist hum.t where temp.t > "
    assert next(iter(completions(after, after, catalog)))[1] == "table"


def test_files_are_completed_inside_quotes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for text in ("select * from 'te", ".load x te", ".load x 'te"):
        assert [word for word, _ in completions(text, text, Catalog({}))] == ["temp.parquet"]
