"""Bad arguments, sources and names: refused before data is read, and told in one line.

The table of bad input, for `bestmatch_join`, `epsilon_join`, `matwin.stream` and the command line.
A message names the source, the column and the remedy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import (
    INF,
    LEFT,
    ODD,
    PAGES,
    RIGHT,
    each_join,
    id_pairs,
    ids,
    unread,
)

import matwin
from matwin import BudgetError, InputError
from matwin.storage.pool import smallest_budget
from matwin.tools.cli import main

# ── tolerances and names, before any data is read ────────────────────────────────────────────


@each_join
@pytest.mark.parametrize("column", ["t", "x"])
@pytest.mark.parametrize(
    ("tolerance", "says"),
    [
        (-1, "-1 is negative"),
        (math.nan, "must be finite"),
        ((math.nan, 1), "must be finite"),
        ("10min", "needs a time column"),
        (timedelta(minutes=1), "needs a time column"),
        (True, "True is not a tolerance"),
        (b"1", "is not a tolerance"),
        ((1, -1), "admits nothing"),
        ((1, 2, 3), "a pair"),
    ],
)
def test_bad_tolerances(join: Any, column: str, tolerance: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as told:
        join(unread(LEFT), unread(RIGHT), on={column: tolerance})
    assert repr(column) in str(told.value)


@each_join
@pytest.mark.parametrize("column", ["t", "x"])
@pytest.mark.parametrize("tolerance", [INF, None, (None, 0), (0, None)])
def test_a_stream_needs_a_finite_reach(join: Any, column: str, tolerance: Any) -> None:
    with pytest.raises(InputError, match=rf"'{column}'.*(finite|needs a tolerance)"):
        join(unread(LEFT), RIGHT, on={column: tolerance})


@each_join
@pytest.mark.parametrize("text", ["soon", "10 parsecs", "", "5ns"])
def test_bad_durations(join: Any, text: str) -> None:
    times = ids(pa.array([1], pa.timestamp("us")))
    with pytest.raises(InputError, match=re.escape(repr(text))):
        join(unread(times), unread(times), on={"t": text})


@each_join
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"on": {}}, "on= names no column"),
        ({"on": "t"}, "on='t': say how far apart, such as on={'t': '10min'}"),
        ({"on": {1: 1}}, "on=1"),
        ({"on": {"z": 1}}, r"left: column 'z' is not there; the columns are \['t', 'x', 'k'\]"),
        ({"on": {("t", "z"): 1}}, "right: column 'z' is not there"),
        ({"on": {"k": 1}}, "left: column 'k' is string"),
        ({"on": {("t", "k"): 1}}, "right: column 'k' is string"),
        ({"on": {"t": 1}, "by": "z"}, "left: column 'z' is not there"),
        ({"on": {"t": 1}, "by": 5}, "by=5"),
        ({"on": {"t": 1}, "by": "t"}, "named twice"),
        ({"on": {"t": 1}, "by": ("k", "v")}, "cast one of them"),
        ({"on": {"t": 1}, "how": "sideways"}, "how='sideways'; choose one of"),
        ({"on": {"t": 1}, "suffixes": ("a",)}, "suffixes="),
        ({"on": {"t": 1}, "suffixes": ("", "")}, "stand twice"),
    ],
)
def test_bad_questions(join: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        join(unread(LEFT), unread(RIGHT), **arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"orders": 5}, "orders=5"),
        ({"orders": {"t": "subset"}}, "left: column 't' is int64; the order 'subset' needs lists"),
        ({"orders": {"x": "youngest"}}, r"\['x'\], which on= does not"),
        ({"orders": {"t": "fastest"}}, "'fastest' for column 't' is no order"),
        ({"how": "inner", "keep_unmatched": True}, "keep_unmatched"),
        ({"emit": "often"}, "emit='often'"),
        ({"emit": "updates"}, "goes with how='inner'"),
        ({"how": "semi"}, "choose one of"),
    ],
)
def test_bad_questions_of_bestmatch(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        matwin.bestmatch_join(unread(LEFT), unread(RIGHT), on={"t": 1}, **arguments)


@each_join
def test_a_reach_of_nothing_is_an_exact_match(join: Any) -> None:
    assert id_pairs(join, [1, 2, 2], [2, 3], on={"t": 0}) == [(1, 0), (2, 0)]
    assert id_pairs(join, [0.1 + 0.2, 0.0], [0.3, -0.0], on={"t": 0}) == [(1, 1)]


# ── options ──────────────────────────────────────────────────────────────────────────────────


@each_join
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"page_size": 0}, "page_size=0: the smallest that works is 4KiB"),
        ({"page_size": -5}, "page_size=-5"),
        ({"page_size": "wide"}, "'wide' is not a size"),
        ({"memory": "much"}, "'much' is not a size"),
        ({"memory": True}, "True is not a size"),
        ({"threads": 0}, "threads=0: give a whole number from 1 on"),
        ({"threads": 1.5}, "threads=1.5"),
        ({"materialize": "heap"}, "materialize='heap'; choose one of auto, standard, grid, slab"),
        ({"schedule": "zigzag"}, "schedule='zigzag'; choose one of"),
        ({"progress": 5}, "progress=5"),
        ({"max_output_rows": 0}, "max_output_rows=0"),
        ({"max_output_rows": "x"}, "max_output_rows='x'"),
        ({"max_delay": "soon"}, "'soon' is not a duration"),
        ({"max_delay": "-1s"}, "max_delay='-1s' is negative"),
        ({"max_delay": 5}, "max_delay=5"),
        ({"trace": 5}, "trace=5: give a path"),
        ({"scratch": 5}, "scratch=5: give a path"),
        ({"report": 5}, "report=5"),
    ],
)
def test_bad_options(join: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        join(unread(LEFT), unread(RIGHT), on={"t": 1}, **options)


@each_join
@pytest.mark.parametrize("page_size", [4096, 1 << 16])
@pytest.mark.parametrize("short_by", [1, 10**9])
def test_a_budget_too_small_says_what_works(join: Any, page_size: int, short_by: int) -> None:
    smallest = smallest_budget(page_size)
    with pytest.raises(BudgetError, match=str(smallest)) as told:
        join(
            unread(LEFT), unread(RIGHT), on={"t": 1}, page_size=page_size,
            memory=smallest - short_by,
        )  # fmt: skip
    assert told.value.smallest_bytes == smallest
    found = join(LEFT, RIGHT, on={"t": 1}, page_size=page_size, memory=smallest, schedule="gallop")
    assert found.read_all().num_rows > 0


@each_join
def test_unknown_options_are_no_options(join: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{join.__name__}\(\).*'speed'; the options are memory"):
        join(unread(LEFT), unread(RIGHT), on={"t": 1}, speed=9)


@each_join
def test_a_scratch_folder_that_can_not_be_used(join: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    many = pa.table({"t": np.random.default_rng(1).permutation(20_000)})
    with pytest.raises(matwin.MatwinError, match=str(file)):
        join(many, many, on={"t": 1}, scratch=file, **PAGES).read_all()
    assert file.read_text() == ""


# ── sources ──────────────────────────────────────────────────────────────────────────────────


@each_join
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "source", [None, 5, b"x", {"t": [1]}, object(), "nowhere.parquet", "*.nothing", [], [1], ""]
)
def test_what_is_no_source(join: Any, side: str, source: Any) -> None:
    sources = {"left": LEFT, "right": RIGHT, side: source}
    with pytest.raises(InputError, match=f"^{side}: "):
        join(*sources.values(), on={"t": 1})


DAMAGED = {
    "empty": lambda whole: b"",
    "noise": lambda whole: bytes(range(256)) * 8,
    "cut": lambda whole: whole[: len(whole) // 2],
    "no end": lambda whole: whole[:-3],
    "overwritten": lambda whole: whole[:-60] + b"\xff" * 40 + whole[-20:],
}


@each_join
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_damaged_files(join: Any, suffix: str, damage: str, tmp_path: Path) -> None:
    table = pa.table({"t": list(range(200)), "name": [f"row {i}" for i in range(200)]})
    path = tmp_path / f"some.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    path.write_bytes(DAMAGED[damage](path.read_bytes()))
    with pytest.raises(InputError, match=r"^left: file '.*some\.") as told:
        join(str(path), RIGHT, on={"t": 1}).read_all()
    assert "\n" not in str(told.value)


@each_join
@pytest.mark.parametrize("text", ["", "t,x\n1,2\n3\n", "t,x\n1,2\nhello,3\n"])
def test_bad_csv(join: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^left: (file '.*some\.csv'|column 't')"):
        join(str(path), RIGHT, on={"t": 1}).read_all()


@each_join
def test_columns_with_bad_offsets(join: Any) -> None:
    offsets = pa.py_buffer(np.array([0, 4, 2, 5], np.int32))
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abcde")])
    bad = pa.table({"t": pa.array([1, 2, 3]), "name": text})
    with pytest.raises(InputError, match=r"^left: "):
        join(bad, RIGHT, on={"t": 1}).read_all()


@each_join
def test_batches_that_change_their_columns(join: Any) -> None:
    batches = [LEFT.to_batches()[0], RIGHT.to_batches()[0]]
    with pytest.raises(InputError, match=r"^left: batch 1 has column 'v'"):
        join(batches, RIGHT, on={"t": 1}).read_all()


@each_join
def test_a_reader_that_was_read(join: Any) -> None:
    source = matwin.stream(LEFT.to_reader())
    assert join(source, RIGHT, on={"t": 1}).read_all().num_rows > 0
    with pytest.raises(InputError, match="read only once"):
        join(source, RIGHT, on={"t": 1}).read_all()


@each_join
def test_a_source_that_raises_lets_its_error_through(join: Any) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from LEFT.to_batches()
        raise ConnectionError("the sensor is gone")

    with pytest.raises(ConnectionError, match="the sensor is gone"):
        join(broken(), RIGHT, on={"t": 1}).read_all()


# ── names ────────────────────────────────────────────────────────────────────────────────────

HOSTILE = [
    "../x", "/etc/passwd", 'say "t"', "it's", "</script><script>alert(1)</script>", "a\0b", "", " ",
    "ünïcødé 🚲", "t\nu", "select", "#", "%s {x}", "\u202e", "x" * 3000,
]  # fmt: skip


@each_join
@pytest.mark.parametrize("name", HOSTILE, ids=[repr(name)[:20] for name in HOSTILE])
def test_hostile_names_are_carried(join: Any, name: str, tmp_path: Path) -> None:
    left = pa.table({name: [1.0, 2.0, None], "key": ["p", "q", "q"]})
    right = pa.table({name: [1.5, 2.0], "key" + name: ["p", "q"]})
    trace, page = tmp_path / "run.trace", tmp_path / "run.html"
    found = join(
        left, right, on={name: 1.0}, by=[("key", "key" + name)], distances=True, trace=trace,
        page_size="4KiB", memory=32 * 4096,
    ).read_all()  # fmt: skip
    expected = [f"{name}_left", "key", f"{name}_right", "key" + name, f"{name}_distance"]
    assert found.column_names == [n for at, n in enumerate(expected) if n not in expected[:at]]
    assert Counter(found[f"{name}_distance"].to_pylist()) == Counter([0.5, 0.0])
    assert main(["trace", "html", str(trace), "-o", str(page)]) == 0
    assert "<script>alert" not in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.trace"]


@each_join
def test_names_that_are_ours(join: Any) -> None:
    with pytest.raises(InputError, match=r"^left: column 'matwin t'.*rename it"):
        join(pa.table({"matwin t": [1]}), RIGHT, on={("matwin t", "t"): 1})


@pytest.mark.parametrize("names", [["t", "t"], ["t", "v", "v"]])
@each_join
def test_names_that_stand_twice(join: Any, names: list[str]) -> None:
    table = pa.table([[1]] * len(names), names=names)
    with pytest.raises(InputError, match=r"^left: .*(twice|rename)"):
        join(table, RIGHT, on={"t": 1})


# ── the command line ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "left.parquet", tmp_path / "right.parquet"]
    pq.write_table(pa.table({"t": ODD, "k": ["a"] * 6}), paths[0])
    pq.write_table(pa.table({"t": [0.5, None], "v": [1, 2]}), paths[1])
    return [str(path) for path in paths]


@pytest.mark.parametrize("which", ["best", "all"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "t=-1"], "'t': the tolerance -1 is negative"),
        (["--on", "t=nan"], "'nan' is no number"),
        (["--on", "t=inf"], "'inf' is no number"),
        (["--on", "t=10min"], "'10min' is no number"),
        (["--on", "z=1"], "left: column 'z' is not there"),
        (["--on", "t:v=1", "--by", "k:v"], "cast one of them"),
        (["--on", "t=1", "--by", "k"], "right: column 'k' is not there"),
        (["--on", "t=1", "--memory", "1KiB"], "the smallest that works is 128 KiB"),
        (["--on", "t=1", "--page-size", "0"], "the smallest that works is 4KiB"),
        (["--on", "t=1", "--threads", "0"], "threads=0"),
        (["--on", "t=1", "--schedule", "zigzag"], "choose one of"),
        (["--on", "t=1", "--max-output-rows", "1"], "more than max_output_rows=1 rows"),
    ],
)
def test_the_command_line_tells_it_in_one_line(
    files: list[str],
    capfd: pytest.CaptureFixture[str],
    which: str,
    words: list[str],
    says: str,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.parquet"
    assert main(["join", *files, *words, "--pairs", which, "-o", str(out)]) == 2
    shown = capfd.readouterr()
    assert says in shown.err and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    assert shown.out == "" and not out.exists()


def test_the_command_line_and_damaged_files(
    files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_bytes(b"PAR1" + bytes(100))
    assert main(["join", *files, "--on", "t=1"]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith("matwin: error: right: file") and shown.count("\n") == 1


def test_the_command_line_keeps_what_never_matches(files: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out.parquet")
    words = ["--on", "t=1", "--keep-unmatched", "-o", out, "--quiet"]
    assert main(["join", *files, *words]) == 0
    assert sorted(pq.read_table(out)["v"].to_pylist(), key=str) == [1, 1, None, None, None, None]
