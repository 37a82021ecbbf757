"""Mistakes that people make: each is answered in one line that says what to write."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin import hints
from matwin.options import JoinOptions
from matwin.storage.errors import InputError
from matwin.tools.cli import main

MINUTE = 60_000_000


def times(*minutes: int) -> pa.Array:
    return pa.array([MINUTE * m for m in minutes], pa.int64()).cast(pa.timestamp("us"))


LEFT = pa.table({"t": times(0, 10), "room": ["a", "b"], "x": [0.1, 0.2]})
RIGHT = pa.table({"ts": times(1, 9), "t": times(1, 9), "room": ["a", "b"], "x": [0.2, 0.3]})

J = "join left.parquet right.parquet"
A = "asof left.parquet right.parquet"
W = "window-join a=left.parquet b=right.parquet"

MISTAKES = [
    # commands
    ("jion left.parquet right.parquet", "'jion' is not a command (did you mean 'join'?)"),
    ("Join left.parquet right.parquet", "(did you mean 'join'?)"),
    ("asoff left.parquet right.parquet", "(did you mean 'asof'?)"),
    ("windowjoin a=left.parquet", "(did you mean 'window-join'?)"),
    ("window_join a=left.parquet", "(did you mean 'window-join'?)"),
    ("trace sumary x", "(did you mean 'summary'?)"),
    ("bench bestmach", "(did you mean 'bestmatch'?)"),
    ("completion basch", "(did you mean 'bash'?)"),
    ("", "for example: matwin join"),
    # what is missing
    ("join left.parquet", "required: RIGHT, --on; for example: matwin join"),
    (J, "required: --on; for example: matwin join"),
    ("window-join a=left.parquet b=right.parquet", "required: --time; for example"),
    ("window-join left.parquet right.parquet --time t", "write for example a=A.parquet"),
    # options that are misspelt
    (f"{J} --onn t=10min", "--onn (did you mean --on?)"),
    (f"{J} -on t=10min", "-on has one dash; write --on"),
    (f"{J} --on t=10min --memmory 1GiB", "(did you mean --memory?)"),
    (f"{J} --on t=10min --pagesize 4KiB", "(did you mean --page-size?)"),
    (f"{J} --on t=10min --page_size 4KiB", "(did you mean --page-size?)"),
    (f"{J} --on t=10min --overwite", "(did you mean --overwrite?)"),
    (f"{J} --on t=10min --ouput x.csv", "(did you mean --output?)"),
    (f"{A} --on t --toleranse 5min", "(did you mean --tolerance?)"),
    (f"{W} --time t --windows 5min", "(did you mean --window?)"),
    # words of other libraries
    (f"{J} --on t=10min --direction backward", "matwin asof LEFT RIGHT --on t --direction"),
    (f"{J} --on t --tolerance 10min", "--on t=10min"),
    (f"{J} --left-on t --right-on ts", "--on t:ts=10min"),
    (f"{A} --left_on t --right_on ts", "--on t:ts"),
    (f"{J} --on t=10min --left-by room", "--by room:raum"),
    (f"{J} --on t=10min --key room", "--by room"),
    (f"{A} --on t --strategy backward", "--direction backward"),
    (f"{A} --on t --allow-exact-matches", "--no-exact-matches"),
    (f"{J} --on t=10min --memory-limit 1GB", "--memory 256MiB"),
    (f"{J} --on t=10min --n-jobs 4", "--threads 4"),
    (f"{J} --on t=10min --tmp-dir .", "--scratch"),
    (f"{J} --on t=10min --verbose", "-q leaves it out"),
    # choices
    (f"{J} --on t=10min --how lft", "--how 'lft' (did you mean 'left'?); choose one of inner"),
    (f"{J} --on t=10min --how asof", "`matwin asof`"),
    (f"{J} --on t=10min --how outer", "how='full'"),
    (f"{J} --on t=10min --pairs al", "(did you mean 'all'?)"),
    (f"{J} --on t=10min --schedule crabsteps", "(did you mean 'crabstep'?)"),
    (f"{A} --on t --direction backwards", "(did you mean 'backward'?)"),
    (f"{J} --on t=10min --format parqet", "(did you mean 'parquet'?)"),
    (f"{J} --on t=10min -o out.parqet", "(did you mean 'parquet'?)"),
    # columns and files
    (f"{J} --on T=10min", "left: column 'T' is not there (did you mean 't'?)"),
    (f"{J} --on t=10min --by rom", "column 'rom' is not there (did you mean 'room'?)"),
    (f"{J} --on t:tss=10min", "right: column 'tss' is not there (did you mean 'ts'?)"),
    (f"{A} --on t --by Room", "(did you mean 'room'?)"),
    (f"{W} --time T --window 5min", "a: column 'T' is not there (did you mean 't'?)"),
    (f"{W} --time t --window 5min --by rooms", "(did you mean 'room'?)"),
    ("join lefft.parquet right.parquet --on t=1min", "(did you mean 'left.parquet'?)"),
    # limits
    (f"{J} --on t=10", "'10' has no unit"),
    (f"{J} --on x=10min", "'10min' is no number"),
    (f"{A} --on t=10min", "write --on t --tolerance 10min"),
    (f"{A} --on t --tolerance 5", "--tolerance: '5' has no unit"),
    (f"{A} --on x --tolerance 5min", "--tolerance: '5min' is no number"),
    (f"{A} --on t --tolerance -5min", "--tolerance -5min is negative"),
    (f"{A} --on t --tolerance=-5min", "tolerance='-5min' is negative; it is a distance"),
    (f"{J} --on t=-10min", "is negative; it is a distance to either side"),
    (f"{J} --on t=10min..-10min", "its lower end comes first"),
    (f"{J} --on t:10min", "a limit comes after =, as in --on t=10min"),
    (f"{J} --on 't<10min'", "a limit comes after =, as in --on t=10min"),
    (f"{W} --time t --window 0", "on the command line 0..0"),
    # words too many, and several in one
    (f"{J} --on t 10min", "'10min' is a word too many; a limit comes after =, as in --on t=10min"),
    (f"{J} --on t=10min x=0.5", "--on t=10min --on x=0.5; `matwin join --help`"),
    (f"{J} --on t=10min,x=0.5", "each column has an --on of its own: --on t=10min --on x=0.5"),
    (f"{J} --on t=10min --by room x", "--by room --by x"),
    (f"{J} --on t=10min --by room,x", "write --by room --by x"),
    (f"{J} --on t=10min --by room=raum", "write --by room:raum"),
    (f"{J} --on t=10min --suffixes _l _r", "write --suffixes _l,_r"),
    ("join left.parquet right.parquet left.parquet --on t=1min", "a join has two inputs"),
    (f"{A} --on t --on x", "an as-of join has one column to be near in"),
    (f"{A} --on t,x", "an as-of join has one column to be near in"),
    ("warm now", "'now' is a word too many; `matwin warm --help`"),
    ("--on t=1 left.parquet", "--on comes before the command; write for example: matwin join"),
    # numbers, choices, outputs, places
    (f"{J} --on t=10min --threads many", "--threads 'many' is not a whole number"),
    ("bench storage --rows 1e6", "--rows '1e6' is not a whole number, such as 1000000"),
    (f"{J} --on t=10min --memory", "--memory needs a value"),
    (f"{A} --on t --direction both", "(did you mean 'nearest'?)"),
    (f"{A} --on t --direction previous", "(did you mean 'backward'?)"),
    (f"{J} --on t=10min -o rows", "write for example rows.parquet, or say it with"),
    (f"{J} --on t=10min -o folder", "'folder' is a folder; name a file in it"),
    (f"{W} --time t --then a=5min", "write for example --then a,b=5s"),
    ("join s3:/bucket/a.parquet right.parquet --on x=1", "(did you mean 's3://bucket/a.parquet'?)"),
    ("join http://host/a.csv right.parquet --on x=1", "download it first"),
    ("join notes.txt right.parquet --on x=1", "--input-format"),
]


@pytest.mark.parametrize(("line", "says"), MISTAKES)
def test_a_mistake_is_answered(
    line: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(LEFT, "left.parquet")
    pq.write_table(RIGHT, "right.parquet")
    Path("notes.txt").touch()
    Path("folder").mkdir()
    assert main(shlex.split(line)) == 2
    shown = capsys.readouterr()
    assert says in shown.err and shown.err.startswith("matwin: error: ")
    assert shown.err.count("\n") == 1 and shown.out == ""


@pytest.mark.parametrize("line", ["help", "help join", "version", "-V"])
def test_words_of_other_commands_are_understood(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 0
    assert "matwin" in capsys.readouterr().out


ON = {"t": "10min"}


@pytest.mark.parametrize(
    ("join", "arguments", "says"),
    [
        ("bestmatch_join", {"left_on": "t", "right_on": "ts"}, "on={('t', 'ts'): '10min'}"),
        ("bestmatch_join", {"on": ON, "direction": "backward"}, "matwin.asof_join"),
        ("epsilon_join", {"on": ON, "tolerance": 5}, "on={'t': '10min', 'x': 0.5}"),
        ("epsilon_join", {"on": ON, "strategy": "nearest"}, "direction='backward'"),
        ("epsilon_join", {"on": ON, "keys": "room"}, "by='room'"),
        ("epsilon_join", {"on": ON, "memory_limit": "1GB"}, "memory='256MiB'"),
        ("epsilon_join", {"on": ON, "n_jobs": 2}, "threads=4"),
        ("epsilon_join", {"on": ON, "memori": 2}, r"(did you mean 'memory'?); the options are"),
        ("asof_join", {"left_on": "t"}, "on=('t', 'ts') of matwin.asof_join"),
        ("asof_join", {"on": "t", "suffix": "_r"}, "suffixes=('_left', '_right')"),
    ],
)
def test_an_argument_of_another_library(join: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        getattr(matwin, join)(LEFT, RIGHT, **arguments)


def test_an_argument_of_another_library_in_a_window_join() -> None:
    streams = {"a": LEFT, "b": RIGHT}
    with pytest.raises(TypeError, match="windows='1h'"):
        matwin.window_join(streams, time="t", window="5min")  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"column 'T' is not there \(did you mean 't'\?\)"):
        matwin.window_join(streams, time="T", windows="5min")


def test_no_option_of_ours_is_foreign() -> None:
    assert not set(JoinOptions.__annotations__) & set(hints.FOREIGN)


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=20))
def test_a_suggestion_is_a_name_that_is_there(name: str, names: list[str]) -> None:
    found = hints.nearest(name, names)
    assert found is None or found in names
    if name in names and len(name) <= hints.LENGTH_MAX:
        assert found is not None and found.casefold() == name.casefold()
