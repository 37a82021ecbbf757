"""What can be wrong in a job file, each told in one line with file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.storage.errors import InputError, MatwinError
from matwin.tools.cli import main
from matwin.tools.query.job import read_job

GOOD = """
[sources]
a = "a.parquet"
b = "b.parquet"
[cut]
every = "60s"
on = "ts"
[query]
join = "epsilon_join"
left = "a"
right = "b"
on = {ts = "3s"}
"""

# what is put in the place of what, and what is said
WRONG = {
    "no toml": ('left = "a"', "left = ", ("line 10, column", "mend the TOML")),
    "twice": ('left = "a"', 'left = "a"\nleft = "b"', ("line 11", "overwrite a value")),
    "misspelt": ("[cut]", "[cuts]", ("there is no key 'cuts' (did you mean 'cut'?)",)),
    "no cut": ('[cut]\nevery = "60s"\non = "ts"', "", ("cut is missing; write [cut]",)),
    "no query": (GOOD[GOOD.index("[query]") :], "", ("query is missing", "SELECT")),
    "source key": ('a = "a.parquet"', 'a = {path = "a.parquet", ordr = "sorted"}',
                   ("sources.a: there is no key 'ordr' (did you mean 'order'?)",)),
    "source path": ('a = "a.parquet"', 'a = {format = "csv"}', ("sources.a: path is missing",)),
    "source number": ('a = "a.parquet"', "a = 5", ("sources.a: 5 is no table",)),
    "order": ('a = "a.parquet"', 'a = {path = "a.parquet", order = "late"}',
              ("sources.a.order: 'late' is no order", 'write "sorted"')),
    "lateness": ('a = "a.parquet"', 'a = {path = "a.parquet", order = {lateness = -5}}',
                 ("sources.a.order.lateness: Lateness(-5) is negative",)),
    "late": ('a = "a.parquet"', 'a = {path = "a.parquet", late = "keep"}',
             ("sources.a.late: 'keep'; choose",)),
    "file": ('"a.parquet"', '"c.parquet"', ("sources.a", "c.parquet", "not there")),
    "format": ('a = "a.parquet"', 'a = {path = "a.parquet", format = "csv"}',
               ("sources.a.format: 'csv', and", "is called parquet")),
    "formats": ('a = "a.parquet"', 'a = {path = "a.parquet", format = "xls"}',
                ("sources.a.format: 'xls'; choose one of parquet",)),
    "schema": ('a = "a.parquet"', 'a = {path = "a.parquet", schema = {ts = "int64"}}',
               ("sources.a.schema:", "has types of its own")),
    "types": ('a = "a.parquet"', 'a = {path = "a.csv", schema = {ts = "integer8"}}',
              ("sources.a.schema: 'integer8' is no type; write for example",)),
    "follow": ('a = "a.parquet"', 'a = {path = "a.parquet", follow = true}',
               ("sources.a", "its suffix does not tell a format that grows")),
    "two places": ('a = "a.parquet"', 'a = {path = "a.parquet", listen = ":9000"}',
                   ("sources.a: path and listen; write one of",)),
    "socket": ('a = "a.parquet"', 'a = {listen = ":9000"}', ("sources.a: schema is missing",)),
    "peers": ('a = "a.parquet"', 'a = {path = "a.parquet", peers = "all"}',
              ("sources.a.peers: it goes with listen, not with path",)),
    "stdin twice": ('a = "a.parquet"\nb = "b.parquet"', 'a = "-"\nb = "-"',
                    ("sources.b: a and b are both on standard input",)),
    "width": ('"60s"', '"60 parsecs"', ("cut: '60 parsecs' is not a duration; write",)),
    "number": ('"60s"', "-4", ("cut: cut.every(-4): give a number above 0",)),
    "ways": ('every = "60s"', 'every = "60s"\ncount = 5', ("cut: every and count: it takes one",)),
    "cut on": ('on = "ts"\n[query]', "[query]", ('cut: on is missing', 'write on = "ts"')),
    "count on": ('every = "60s"', "count = 5", ("cut: on goes with every, not with count",)),
    "column": ('on = "ts"\n[query]', 'on = "tss"\n[query]',
               ("job.toml: a: it is cut by column 'tss', which is not there (did you mean",)),
    "join": ('"epsilon_join"', '"epsilon"',
             ("query.join: 'epsilon' (did you mean 'epsilon_join'?); choose one of",)),
    "both": ("[query]", '[query]\nsql = "SELECT 1"', ("query: it takes one of the two",)),
    "left": ('left = "a"\n', "", ('query: left is missing; write for example left = "a"',)),
    "stream": ('left = "a"', 'left = {stream = "c"}',
               ("query.left: 'c' is no stream or table", "there are a, b")),
    "last": ('left = "a"', 'left = {stream = "a", last = 0}',
             ("query.left: chunks('a', last=0): give a whole number",)),
    "kept": ('left = "a"', 'left = {stream = "a", last = 4}', ("only 1 are kept", "keep=4")),
    "argument": ("on = {ts", "byy = 'pid'\non = {ts", ("query: there is no key 'byy' (did",)),
    "foreign": ("on = {ts", "tolerance = '3s'\non = {ts", ("query: epsilon_join has no toler",)),
    "no on": ('on = {ts = "3s"}', "", ("query: on is missing, which epsilon_join needs",)),
    "pairs": ("on = {ts", "pairs = 'some'\non = {ts", ("query.pairs: 'some'; choose",)),
    "no unit": ('"3s"', "3", ("job.toml:", "ts")),
    "keep": ("[sources]", "keep = 0\n[sources]", ("job.toml: keep=0: give a whole number",)),
    "idle": ("[sources]", 'idle_after = "soon"\n[sources]', ("idle_after: 'soon' is not",)),
    "memory": ("[sources]", 'memory = "much"\n[sources]', ("memory: 'much' is not a size",)),
    "sink": ("[sources]", 'sink = "out.xls"\n[sources]', ("job.toml: sink=", "give a folder")),
    "state": ("[sources]", "state = 4\n[sources]", ("job.toml: state: 4 is no text",)),
    "windows": ("[sources]", 'windows = {w = "a"}\n[sources]', ("windows: names for SQL",)),
    "table": ("[sources]", '[tables]\nt = "no.csv"\n[sources]', ("tables.t:", "no.csv")),
    "sql": (GOOD[GOOD.index("[query]") :], '[query]\nsql = "SELEC 1"', ("the query can't be",)),
    "names": (GOOD[GOOD.index("[query]") :], '[query]\nsql = "SELECT pidd FROM a"', ("pidd",)),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    jobs.write_files(tmp_path)
    return tmp_path


def test_what_is_right(folder: Path) -> None:
    (folder / "job.toml").write_text(GOOD, encoding="utf-8")
    assert main(["query", "job.toml", "--once", "-q", "--sink", "out"]) == 0


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, told = WRONG[name]
    assert old in GOOD
    (folder / "job.toml").write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    assert main(["query", "job.toml", "--once"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("matwin: error: job.toml: ") and said.err.count("\n") == 1, said.err
    assert said.out == "" and [word for word in told if word not in said.err] == [], said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no.toml"], "no.toml: there is no such file"),
        (["job.toml", "--status", "8x"], "--status '8x' is no address; write --status :8080"),
        (["job.toml", "--status", ":70000"], "is no address"),
        (["job.toml", "--json", "--format", "csv"], "--json has them in its lines"),
        (["job.toml", "--format", "csv", "--sink", "out"], "results go to out"),
        (["job.toml", "--format", "parquet"], "choose one of csv, tsv, jsonl"),
        (["job.toml", "--memory", "1 apple"], "error: --memory: '1 apple' is not a size"),
        (["job.toml", "--trace", "a.parquet"], "no trace"),
        (["job.toml", "--onse"], "(did you mean --once?)"),
    ],
)
def test_words_on_the_command_line(
    folder: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.toml").write_text(GOOD, encoding="utf-8")
    assert main(["query", *words]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


def test_files_that_are_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.toml").write_bytes(b"a = '\xff'")
    assert main(["query", "job.toml"]) == 2
    assert "job.toml: byte 5 is not UTF-8" in capsys.readouterr().err
    assert main(["query", "."]) == 2
    assert "can't be read" in capsys.readouterr().err


values = st.recursive(
    st.integers(-5, 5) | st.booleans() | st.sampled_from(["a", "60s", "ts", "sorted", "-", ""]),
    lambda inner: st.lists(inner, max_size=2).map(lambda v: v)
    | st.dictionaries(st.sampled_from(["path", "every", "on", "stream", "last", "x"]), inner,
                      max_size=3),
    max_leaves=4,
)  # fmt: skip


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@given(
    key=st.sampled_from(["sources", "cut", "keep", "tables", "windows", "query", "sink", "state"]),
    value=values,
)
def test_whatever_is_written_is_a_job_or_a_named_error(
    key: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = {
        "sources": '{a = "a.parquet", b = "b.parquet"}', "cut": '{every = "60s", on = "ts"}',
        "query": '{join = "epsilon_join", left = "a", right = "b", on = {ts = "3s"}}',
    }  # fmt: skip
    parts[key] = _toml(value)
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text("\n".join(f"{k} = {v}" for k, v in parts.items()), encoding="utf-8")
    try:
        read_job(str(path))
    except MatwinError as e:
        assert isinstance(e, InputError) and str(e).startswith(f"{path}: ")
