"""The prompt, driven through a pseudo terminal as a person would; and the shell behind it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pexpect
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.complete import completions
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
    terminal.send("select cels\t")
    terminal.sendcontrol("u")
    terminal.send("select hum.perc")
    terminal.send("\t")
    terminal.expect("hum.percent")
    terminal.sendcontrol("c")
    terminal.expect("matwin>")
    terminal.sendline(".quit")
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
        (".mode yaml", "error: 'yaml' is no mode; there are table, csv, tsv, jsonl\n"),
        (".explian", "error: there is no command .explian (did you mean 'explain'?); .help lists "
         "them\n"),
        (".load x", "error: write .load NAME FILE\n"),
        (".trace off", "trace off\n"),
        (";", ""),
    ],
)  # fmt: skip
def test_commands_of_the_shell(line: str, said: str) -> None:
    taken, out = shell()
    taken.take(line)
    assert out.getvalue() == said


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


def test_a_query_is_complete_with_its_semicolon() -> None:
    assert is_complete("select 1;") and is_complete(".help") and is_complete(" ")
    assert not is_complete("select 1")
    assert not is_complete("select 1;\nfrom")


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
    ],
)
def test_completions(text: str, wanted: str) -> None:
    found = [word for word, _ in completions(text, text, Catalog({"temp": TEMP, "hum": HUM}))]
    assert wanted in found if wanted else not found


def test_files_are_completed_inside_quotes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = "select * from 'te"
    assert [word for word, _ in completions(text, text, Catalog({}))] == ["temp.parquet"]
