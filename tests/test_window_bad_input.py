"""Bad input to window joins: refused before a row is read, or told with stream, column and row.

The table of bad input, for `window_join`: arguments, options, names and sources.  Odd values are in
`test_window_bad_values.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import INF, PAGES, ids, never, unread

import matwin
from matwin import BudgetError, InputError
from matwin.report import Report
from matwin.storage.pool import smallest_budget

A = pa.table({"t": [1, 2, 3], "x": [0.0, 1.0, 2.0], "k": ["a", "b", "a"]})
B = pa.table({"t": [1, 2, 4], "x": [0.5, -0.0, 2.0], "k": ["a", "b", "b"], "v": [1, 2, 3]})
C = pa.table({"t": [1, 3, 4], "k": ["a", "b", "b"]})


def refused(says: str, streams: Any = None, **arguments: Any) -> str:
    """The message of an `InputError` that comes before any row is read, in one line."""
    streams = (
        {n: unread(t) for n, t in (("a", A), ("b", B), ("c", C))} if streams is None else streams
    )
    with pytest.raises(InputError, match=says) as told:
        matwin.window_join(streams, **{"time": "t", "windows": 1, **arguments})
    return str(told.value)


# ── arguments, before any data is read ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("streams", "says"),
    [
        ({}, "at least two"),
        ({"a": A}, "at least two"),
        ([A, B], "mapping"),
        (A, "mapping"),
        ("ab", "mapping"),
        ({"a": A, 5: B}, "5 is no name"),
        ({"a": A, "": B}, "'' is no name"),
        ({"a": A, "b": None}, "^b: "),
        ({"a": A, "b": 5}, "^b: "),
        ({"a": A, "b": "nowhere.parquet"}, "^b: .*nowhere.parquet"),
        ({"a": A, "b": []}, "^b: "),
    ],
)
def test_what_are_no_streams(streams: Any, says: str) -> None:
    refused(says, streams)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"time": "z"}, r"^a: column 'z' is not there; the columns are \['t', 'x', 'k'\]"),
        ({"time": "x"}, "^c: column 'x' is not there"),
        ({"time": "k"}, "^a: column 'k' is string"),
        ({"time": {"a": "t", "b": "k", "c": "t"}}, "'k' is string"),
        ({"time": {"a": "t", "b": "t"}}, "'c' is missing"),
        ({"time": {"a": "t", "b": "t", "c": "t", "d": "t"}}, "'d' is no stream"),
        ({"time": 5}, "time=5"),
        ({"time": None}, "time=None"),
        ({"by": "z"}, "^a: column 'z' is not there"),
        ({"by": "v"}, "^a: column 'v' is not there"),
        ({"by": ["k", "k"]}, "names a column twice"),
        ({"by": []}, r"by=\[\]"),
        ({"by": 5}, "by=5"),
        ({"by": {"a": "k", "b": "k"}}, "'c' is missing"),
        ({"by": {"a": "k", "b": ["k", "v"], "c": "k"}}, "as many key columns"),
        ({"by": {"a": "k", "b": "v", "c": "k"}}, "a 'k' is string and b 'v' is int64.*cast one"),
        ({"by": {"a": "k", "b": "k", "z": "k"}}, "'z' is no stream"),
        ({"algorithm": "quick"}, "algorithm='quick'; choose one of auto, merge"),
        ({"algorithm": None}, "algorithm=None; choose one of"),
        ({"bounds": "wide"}, "bounds='wide'; choose one of auto, global, local, graph"),
        ({"algorithm": "backward-hash"}, "give by=.*'backward-nested-loop'"),
        ({"algorithm": "forward-hash"}, "give by=.*'forward-nested-loop'"),
    ],
)
def test_bad_questions(arguments: dict[str, Any], says: str) -> None:
    refused(says, **arguments)


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        (0, r"\(0, 0\)"),
        (-1, "-1"),
        (math.nan, "finite"),
        (INF, "finite"),
        (None, "windows=None"),
        (True, "windows=True"),
        ("10min", "needs a time column"),
        (timedelta(minutes=1), "needs a time column"),
        (b"1", "b'1'"),
        ((0, 5), "needs its streams"),
        ({("a", "b"): 0, ("b", "c"): 1}, r"\(0, 0\)"),
        ({("a", "b"): (2, 1), ("b", "c"): 1}, r"\('a', 'b'\).*admits nothing"),
        ({("a", "z"): 1}, "'z'.*is no stream; the streams are a, b, c"),
        ({("a", "a"): 1}, "one stream twice"),
        ({("a", "b"): 1, ("b", "a"): 1, ("b", "c"): 1}, r"\('b', 'a'\) has two windows"),
        ({("a", "b"): 1}, r"\{a, b\} and \{c\}"),
        ({("a", "b"): (5, 6), ("b", "c"): (5, 6), ("a", "c"): 1}, "contradict.*a.*b.*c"),
        (matwin.path(["a", "b"], windows=[1]), "each stream once"),
        (2**63, "64-bit"),
    ],
)
def test_bad_windows(windows: Any, says: str) -> None:
    refused(says, windows=windows)


def test_messages_name_the_time_column() -> None:
    said = refused("finite", windows=INF)
    assert "'t'" in said
    assert "None for no limit" not in said  # there is no window without a limit


@pytest.mark.parametrize("text", ["soon", "10 parsecs", "", "5ns"])
def test_bad_durations(text: str) -> None:
    times = ids(pa.array([1], pa.timestamp("us")))
    refused(repr(text), {"a": unread(times), "b": unread(times)}, windows=text)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (5, "where=5"),
        ("a.x", "where='a.x'"),
        ([5], "where="),
        ({"a.x": 1}, "'a.x' does not name columns"),
        ({("a.x",): 1}, "two streams"),
        ({("a.x", "a.t"): 1}, "two streams"),
        ({("a.x", "b.x", "c.t"): max}, "two streams"),
        ({("a.x", "z.x"): 1}, "'z.x' is no stream.column; the streams are a, b, c"),
        ({("a.x", "b.z"): 1}, "b: column 'z' is not there"),
        ({("x", "b.x"): 1}, "'x' is no stream.column"),
        ({("a.x", 5): 1}, "does not name columns"),
        ({("a.x", "b.k"): 1}, "'b.k'.*double and string"),
        ({("a.k", "b.k"): 1}, "string"),
        ({("a.x", "b.x", "b.v"): 1}, "one column of each stream"),
        ({("a.x", "b.x"): None}, "'a.x'"),
        ({("a.x", "b.x"): -1}, "'a.x'.*-1 is negative"),
        ({("a.x", "b.x"): math.nan}, "'a.x'.*finite"),
        ({("a.x", "b.x"): (2, 1)}, "'a.x'.*admits nothing"),
        ({("a.x", "b.x"): "5s"}, "'a.x'.*time column"),
        ({("a.x", "b.x"): "soon"}, "'a.x'"),
    ],
)
def test_bad_predicates(where: Any, says: str) -> None:
    refused(says, where=where)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"page_size": 0}, "page_size=0: the smallest that works is 4KiB"),
        ({"memory": "much"}, "'much' is not a size"),
        ({"threads": 0}, "threads=0: give a whole number from 1 on"),
        ({"materialize": "heap"}, "materialize='heap'; choose one of auto, standard, grid, slab"),
        ({"schedule": "zigzag"}, "schedule='zigzag'; choose one of"),
        ({"schedule": "crabstep"}, "schedule='crabstep' is for two streams.*there are 3.*'gallop'"),
        ({"schedule": "lookahead"}, "schedule='lookahead' is for two streams.*leave it out"),
        ({"progress": 5}, "progress=5"),
        ({"max_output_rows": 0}, "max_output_rows=0"),
        ({"max_delay": "-1s"}, "max_delay='-1s' is negative"),
        ({"trace": 5}, "trace=5: give a path"),
        ({"scratch": 5}, "scratch=5: give a path"),
        ({"report": 5}, "report=5"),
    ],
)
def test_bad_options(options: dict[str, Any], says: str) -> None:
    refused(says, **options)


def test_unknown_options_are_no_options() -> None:
    with pytest.raises(TypeError, match=r"^window_join\(\).*'speed'; the options are memory"):
        matwin.window_join({"a": unread(A), "b": unread(B)}, time="t", windows=1, speed=9)


def test_a_report_counts_one_join() -> None:
    report = Report()
    matwin.window_join({"a": A, "b": B}, time="t", windows=1, report=report).read_all()
    refused("report=.*another join", report=report)


@pytest.mark.parametrize("page_size", [4096, 1 << 16])
@pytest.mark.parametrize("short_by", [1, 10**9])
def test_a_budget_too_small_says_what_works(page_size: int, short_by: int) -> None:
    smallest = smallest_budget(page_size)
    streams = {"a": unread(A), "b": unread(B), "c": unread(C)}
    given: dict[str, Any] = {"time": "t", "windows": 1, "page_size": page_size}
    with pytest.raises(BudgetError, match=str(smallest)) as told:
        matwin.window_join(streams, memory=smallest - short_by, **given)
    assert told.value.smallest_bytes == smallest
    found = matwin.window_join(
        {"a": A, "b": B, "c": C}, memory=smallest, materialize="slab", **given
    )
    assert found.read_all().num_rows > 0


def test_merge_is_not_for_live_streams() -> None:
    streams = {"a": matwin.stream(never(), schema=A.schema), "b": B}
    refused("algorithm='merge' is for finite sources.*backward", streams, algorithm="merge")


def test_the_same_arguments_are_refused_when_explained() -> None:
    with pytest.raises(InputError, match=r"\{a, b\} and \{c\}"):
        matwin.explain_window_join(
            {"a": unread(A), "b": unread(B), "c": unread(C)}, time="t", windows={("a", "b"): 1}
        )


# ── names ────────────────────────────────────────────────────────────────────────────────────


def test_output_names_that_clash() -> None:
    one, other = pa.table({"t": [1], "b_x": [1]}), pa.table({"t": [1], "x": [1]})
    said = refused("'a_b_x'", {"a": unread(one), "a_b": unread(other)})
    assert "a.b_x" in said and "a_b.x" in said and "rename" in said


def test_a_key_that_clashes_with_a_column() -> None:
    one, other = pa.table({"t": [1], "b_x": [1]}), pa.table({"t": [1], "k": [1], "x": [1]})
    refused("'b_x'", {"a": unread(one), "b": unread(other)}, by={"a": "b_x", "b": "k"})


@pytest.mark.parametrize("names", [["t", "t"], ["t", "v", "v"]])
def test_names_that_stand_twice(names: list[str]) -> None:
    twice = pa.table([[1]] * len(names), names=names)
    refused(r"^b: .*(twice|rename)", {"a": A, "b": twice})


def test_names_that_are_ours() -> None:
    refused(
        r"^b: column 'matwin x'.*rename it", {"a": A, "b": pa.table({"t": [1], "matwin x": [1]})}
    )


HOSTILE = [
    "../x", "/etc/passwd", 'say "t"', "it's", "</script><script>alert(1)</script>", "a\0b", " ",
    "ünïcødé 🚲", "t\nu", "select", "%s {x}", "a.b", "x" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=[repr(name)[:20] for name in HOSTILE])
@pytest.mark.parametrize("options", [{}, PAGES], ids=["memory", "pages"])
def test_hostile_names_are_carried(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """As names of streams and of columns, in predicates too; no file comes of them."""
    table = pa.table({name: [1, 2, 9], "k" + name: ["p", "q", "q"], "x": [1.0, 1.5, 2.0]})
    found = matwin.window_join(
        {name: table, name + "2": table}, time=name, windows={(name, name + "2"): (1, 7)},
        by="k" + name, where={(f"{name}.x", f"{name}2.x"): 0.5}, scratch=tmp_path, **options,
    ).read_all()  # fmt: skip
    assert found.column_names == [
        "k" + name, f"{name}_{name}", f"{name}_x", f"{name}2_{name}", f"{name}2_x"
    ]  # fmt: skip
    assert found.to_pydict()[f"{name}_{name}"] == [2]
    assert list(tmp_path.iterdir()) == []


# ── sources ──────────────────────────────────────────────────────────────────────────────────


def test_one_reader_under_two_names() -> None:
    reader = A.to_reader()
    refused("a and b are the same source.*only once", {"a": reader, "b": reader})


def test_one_generator_in_two_streams() -> None:
    """Each would get a part of the rows, and nobody would notice."""
    items = iter(A.to_batches())
    streams = {name: matwin.stream(items, schema=A.schema) for name in "ab"}
    with pytest.raises(InputError, match="only once"):
        matwin.window_join(streams, time="t", windows=1).read_all()


def test_one_table_under_two_names_is_a_self_join() -> None:
    rows = ids([1, 2, 9])
    windows = {("a", "b"): (1, 1), ("b", "c"): (-1, 0)}
    found = matwin.window_join({"a": rows, "b": rows, "c": rows}, time="t", windows=windows)
    shown = found.read_all().select(["a_i", "b_i", "c_i"]).to_pylist()
    assert sorted(tuple(row.values()) for row in shown) == [(0, 1, 0), (0, 1, 1)]


@pytest.mark.parametrize("damage", ["noise", "cut"])
def test_damaged_files(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    pq.write_table(pa.table({"t": list(range(200))}), path)
    whole = path.read_bytes()
    path.write_bytes(bytes(range(256)) * 8 if damage == "noise" else whole[: len(whole) // 2])
    said = refused(r"^b: file '.*some\.parquet'", {"a": A, "b": str(path)})
    assert "\n" not in said


def test_columns_with_bad_offsets() -> None:
    offsets = pa.py_buffer(np.array([0, 4, 2, 5], np.int32))
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abcde")])
    bad = pa.table({"t": pa.array([1, 2, 3]), "name": text})
    with pytest.raises(InputError, match=r"^b: "):
        matwin.window_join({"a": A, "b": bad}, time="t", windows=1).read_all()


def test_batches_that_change_their_columns() -> None:
    batches = [A.to_batches()[0], B.to_batches()[0]]
    with pytest.raises(InputError, match=r"^b: batch 1 has column 'v'"):
        matwin.window_join({"a": A, "b": batches}, time="t", windows=1).read_all()


@pytest.mark.parametrize("item", [5, "text", [1], object()])
def test_items_that_are_nothing(item: Any) -> None:
    live = matwin.stream(iter([A, item]), schema=A.schema)
    with pytest.raises(InputError, match=r"^b: batch 1 is a"):
        matwin.window_join({"a": A, "b": live}, time="t", windows=1).read_all()


def test_a_source_that_raises_lets_its_error_through() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from A.to_batches()
        raise ConnectionError("the sensor is gone")

    with pytest.raises(ConnectionError, match="the sensor is gone"):
        matwin.window_join({"a": broken(), "b": B}, time="t", windows=1).read_all()
