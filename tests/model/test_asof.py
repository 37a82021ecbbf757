"""As-of joins against a plain loop: every direction, tie, end and type, in memory and elsewhere.

The loop says what a row's match is; the order of the left rows is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nearest import expected
from support import campaign

import matwin
from matwin import memory, ways

Row = tuple[Any, ...]
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-6, 6) | st.sampled_from([-(2**63), 2**63 - 1])),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 9) | st.sampled_from([2**63, 2**64 - 1])),
    "double": (
        pa.float64(),
        st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 1.0, -1.0, 1e300, math.nan, math.inf, 5e-324])
        | st.sampled_from([1e16, 1e16 + 2, 0.5, 0.25, -0.25, 1.7e308, -1.7e308]),
    ),
    "timestamp": (pa.timestamp("ns"), st.integers(-5, 5)),
}


@st.composite
def tables(draw: st.DrawFn, kind: str) -> tuple[pa.Table, pa.Table]:
    data_type, values = KINDS[kind]

    def table(name: str) -> pa.Table:
        rows = draw(st.lists(st.tuples(values | st.none(), st.sampled_from("ab") | st.none()),
                             max_size=12))  # fmt: skip
        times = pa.array([t for t, _ in rows], data_type)
        keys = pa.array([k for _, k in rows], pa.string())
        return pa.table({"t": times, "k": keys, name: list(range(len(rows)))})

    return table("a"), table("b")


@st.composite
def questions(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    far: Any = draw(st.sampled_from([None, 0, 1, 3]))
    if kind == "double":
        far = draw(st.sampled_from([None, 0.0, 0.1, 0.2, 1.5, 1e300]))
    elif kind == "timestamp" and far is not None:
        far = f"{far}ns"
    return {
        "on": "t", "by": draw(st.sampled_from([None, "k"])), "tolerance": far,
        "direction": draw(st.sampled_from(["backward", "forward", "nearest"])),
        "allow_exact_matches": draw(st.booleans()),
        "ties": draw(st.sampled_from(["last", "first", "all"])),
        "how": draw(st.sampled_from(["left", "inner"])),
    }  # fmt: skip


def found_by(left: Any, right: Any, asked: dict[str, Any], **options: Any) -> list[Row]:
    table = matwin.asof_join(left, right, **asked, **options).to_arrow()
    return list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))


def compare(found: list[Row], wanted: list[Row]) -> None:
    """The left rows in their order, and the matches of each in theirs."""
    assert found == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", [0, memory.FEW_PAIRS])
@given(data=st.data())
@settings(max_examples=campaign(60, 3000))
def test_in_memory(kind: str, few: int, data: st.DataObject) -> None:
    left, right = data.draw(tables(kind))
    asked = data.draw(questions(kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FEW_PAIRS", few)
        compare(found_by(left, right, asked), expected(left, right, asked))


@pytest.mark.parametrize("kind", ["int64", "double", "timestamp"])
@pytest.mark.parametrize("form", ["standard", "slab", "grid"])
@given(data=st.data())
@settings(max_examples=campaign(20, 1000))
def test_on_pages(kind: str, form: str, data: st.DataObject) -> None:
    left, right = data.draw(tables(kind))
    asked = data.draw(questions(kind))
    found = found_by(left, right, asked, materialize=form, memory="2MiB", page_size="4KiB")
    compare(found, expected(left, right, asked))


@pytest.mark.parametrize("kind", ["int64", "double"])
@given(data=st.data())
@settings(max_examples=campaign(30, 1000))
def test_in_parts(kind: str, data: st.DataObject) -> None:
    left, right = data.draw(tables(kind))
    asked = data.draw(questions(kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "FORCED", "parts")
        found = found_by(left, right, asked, memory="2MiB", page_size="4KiB")
    compare(found, expected(left, right, asked))


def test_in_parts_with_an_empty_side_and_a_tolerance_beyond_integers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ways, "FORCED", "parts")
    left = pa.table({"t": [0.0, 0.1], "a": [0, 1]})
    found = matwin.asof_join(
        left, left.slice(0, 0).rename_columns(["t", "b"]), on="t", tolerance=1e300, memory="2MiB",
        page_size="4KiB",
    )  # fmt: skip
    assert found.to_arrow().drop_columns(["t_right"]).to_pydict() == {
        "t": [0.0, 0.1], "a": [0, 1], "b": [None, None],
    }  # fmt: skip


def random_tables(rows: int, seed: int) -> tuple[pa.Table, pa.Table]:
    chance = np.random.default_rng(seed)

    def table(name: str) -> pa.Table:
        return pa.table({
            "t": chance.integers(0, 20 * rows, rows), "k": chance.integers(0, 50, rows),
            "text": pa.array(chance.integers(0, 9, rows)).cast(pa.string()),
            name: np.arange(rows),
        })  # fmt: skip

    return table("a"), table("b")


@pytest.mark.parametrize("by", [None, "k", "text", ["k", "text"]])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_every_way_gives_the_same(by: Any, direction: str) -> None:
    left, right = random_tables(6_000, 3)
    asked = {"on": "t", "by": by, "direction": direction, "tolerance": 500}
    inside = matwin.asof_join(left, right, **asked).to_arrow()
    assert inside["a"].to_pylist() == list(range(6_000))
    report = matwin.Report()
    for options in (
        {"memory": "2MiB", "page_size": "4KiB"},
        {"memory": "4MiB", "page_size": "8KiB", "materialize": "slab"},
    ):
        report = matwin.Report()
        found = matwin.asof_join(left, right, report=report, **asked, **options).to_arrow()
        assert found.equals(inside), options
        assert report.peak_bytes <= report.budget_bytes


def test_streams_come_as_they_are_sorted() -> None:
    left, right = random_tables(3_000, 5)
    asked = {"on": "t", "by": "k", "tolerance": 400}

    def pieces(table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from table.sort_by("t").to_batches(max_chunksize=100)

    streams = [
        matwin.stream(pieces(table), schema=table.schema, on="t", order=matwin.Sorted())
        for table in (left, right)
    ]
    found = matwin.asof_join(*streams, **asked).to_arrow()
    wanted = matwin.asof_join(left.sort_by("t"), right.sort_by("t"), **asked).to_arrow()
    assert found.equals(wanted)


def test_unordered_results_are_the_same_rows() -> None:
    left, right = random_tables(2_000, 7)
    one = matwin.asof_join(left, right, on="t", by="k", ordered=False).to_arrow()
    other = matwin.asof_join(left, right, on="t", by="k").to_arrow()
    assert one.sort_by("a").equals(other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"direction": "backwards"}, "choose one of backward, forward, nearest"),
        ({"ties": "any"}, "choose one of last, first, all"),
        ({"how": "outer"}, "choose one of left, inner"),
        ({"on": ["t", "k"]}, "an as-of join has one column"),
        ({"tolerance": (1, 2)}, "give one amount"),
        ({"tolerance": -1}, "tolerance"),
        ({"on": "k"}, "number"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], message: str) -> None:
    left = pa.table({"t": [1], "k": ["x"]})
    with pytest.raises(matwin.InputError, match=message):
        matwin.asof_join(left, left, **{"on": "t", **wrong})
