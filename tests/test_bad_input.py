"""Bad input: what RELIABILITY's table says comes of it, for every way into a join.

    entry point         left=, right=                   what is bad
    bestmatch_join      tables, files, batches          values, tolerances, options, names
    epsilon_join        the same                        the same
    matwin.stream       as the left and as the right    order, late rows
    matwin join         files                           the same, told in one line, exit code 2

A message names the source, the column, the row and the remedy as far as there are any.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import call_in_child, campaign, memory_limit

import matwin
from matwin import BudgetError, InputError, OrderError
from matwin.report import Report
from matwin.storage.pool import smallest_budget
from matwin.tools.cli import main

INF = math.inf
PAGES: dict[str, Any] = {"materialize": "slab", "page_size": "4KiB", "memory": 32 * 4096}
JOINS = (matwin.bestmatch_join, matwin.epsilon_join)

each_join = pytest.mark.parametrize("join", JOINS, ids=["bestmatch", "epsilon"])
each_place = pytest.mark.parametrize("options", [{}, PAGES], ids=["memory", "pages"])

LEFT = pa.table({"t": [1, 2, 3], "x": [0.0, 1.0, 2.0], "k": ["a", "b", "a"]})
RIGHT = pa.table({"t": [1, 2, 4], "x": [0.5, -0.0, 2.0], "k": ["a", "b", "b"], "v": [1, 2, 3]})


def never() -> Iterator[pa.RecordBatch]:
    """A source that must not be read."""
    raise AssertionError("data was read before the arguments were checked")
    yield


def unread(table: pa.Table) -> Any:
    return matwin.stream(never(), schema=table.schema, live=False)


def pairs(reader: pa.RecordBatchReader, left: str, right: str) -> list[tuple[Any, Any]]:
    table = reader.read_all()
    found = zip(table[left].to_pylist(), table[right].to_pylist(), strict=True)
    return sorted(found, key=lambda pair: [(v is None, v) for v in pair])


def ids(values: Any) -> pa.Table:
    """A table of one join attribute, its rows numbered."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.table({"t": column, "i": pa.array(range(len(column)), pa.int64())})


def id_pairs(join: Any, left: Any, right: Any, **arguments: Any) -> list[tuple[Any, Any]]:
    return pairs(join(ids(left), ids(right), **arguments), "i_left", "i_right")


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
        ({"on": "t"}, "on= names no column"),
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


# ── values ───────────────────────────────────────────────────────────────────────────────────

ODD = [0.0, math.nan, INF, -INF, None, -0.0]
ALONE = [1, 2, 3, 4]  # what of ODD matches nothing
ZEROS = [(0, 0), (0, 5), (5, 0), (5, 5)]


@each_place
@pytest.mark.parametrize("tolerance", [0, 1e300, None])
def test_nan_null_and_infinities_never_match(tolerance: Any, options: dict[str, Any]) -> None:
    report = Report()
    on = {"t": tolerance}
    found = id_pairs(matwin.epsilon_join, ODD, ODD, on=on, report=report, **options)
    assert found == ZEROS
    assert (report.left.used, report.left.rejected, report.right.rejected) == (2, 4, 4)
    report.check()


@each_place
@pytest.mark.parametrize(
    ("how", "lonely"),
    [
        ("left", [(i, None) for i in ALONE]),
        ("right", [(None, i) for i in ALONE]),
        ("full", [(i, None) for i in ALONE] + [(None, i) for i in ALONE]),
    ],
)
def test_what_never_matches_is_kept(how: str, lonely: list[Any], options: dict[str, Any]) -> None:
    for join, more in (
        (matwin.bestmatch_join, {"keep_unmatched": True}),
        (matwin.epsilon_join, {}),
    ):
        found = id_pairs(join, ODD, ODD, on={"t": 0}, how=how, **more, **options)
        assert Counter(found) == Counter(ZEROS + lonely)
    dropped = id_pairs(matwin.bestmatch_join, ODD, ODD, on={"t": 0}, how=how, **options)
    assert dropped == ZEROS


def test_what_never_matches_has_no_partner() -> None:
    def alone(how: str) -> list[int]:
        reader = matwin.epsilon_join(ids(ODD), ids(ODD), on={"t": 1}, how=how)
        return sorted(reader.read_all()["i"].to_pylist())

    assert alone("anti") == ALONE
    assert alone("semi") == [0, 5]


@each_join
@each_place
def test_keys_with_odd_floats(join: Any, options: dict[str, Any]) -> None:
    table = pa.table({"t": [0] * 6, "k": ODD, "i": range(6)})
    found = pairs(join(table, table, on={"t": 0}, by="k", **options), "i_left", "i_right")
    assert found == [(0, 0), (0, 5), (2, 2), (3, 3), (5, 0), (5, 5)]


@each_join
@each_place
def test_the_ends_of_64_bits(join: Any, options: dict[str, Any]) -> None:
    ends = [-(2**63), 2**63 - 1]
    assert id_pairs(join, ends, ends, on={"t": 1}, **options) == [(0, 0), (1, 1)]
    far = id_pairs(matwin.epsilon_join, ends, ends, on={"t": 2**64 - 1}, **options)
    assert len(far) == 4
    assert id_pairs(join, ends, ends, on={"t": (2**64 - 1, 2**64)}, **options) == [(0, 1)]
    unsigned = pa.array([0, 2**64 - 1], pa.uint64())
    assert id_pairs(join, unsigned, unsigned, on={"t": 1}, **options) == [(0, 0), (1, 1)]


@each_join
def test_the_ends_of_64_bits_as_streams(join: Any) -> None:
    ends = ids([-(2**63), -(2**63), 0, 2**63 - 2, 2**63 - 1])
    reader = join(matwin.stream(ends), matwin.stream(ends), on={"t": (1, 1)})
    assert pairs(reader, "i_left", "i_right") == [(3, 4)]


@each_join
def test_whole_numbers_do_not_pass_through_floats(join: Any) -> None:
    assert id_pairs(join, [2**53, 2**53 + 1], [2**53 + 1], on={"t": 0}) == [(1, 0)]
    nanos = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    later = pa.array([1_700_000_000_000_000_002], pa.timestamp("ns"))
    assert id_pairs(join, nanos, later, on={"t": 0}) == []
    assert id_pairs(join, nanos, later, on={"t": "1ns"}) == [(0, 0)]


@each_join
@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([2**53 + 1], [1.0], "left: column 't', row 1: the value does not fit double"),
        ([1], pa.array([0, 2**63], pa.uint64()), "right: column 't', row 2: .* not fit int64"),
    ],
)
def test_numbers_that_would_be_rounded(join: Any, left: Any, right: Any, message: str) -> None:
    def padded(values: Any) -> pa.Array:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return pa.concat_arrays([array.slice(0, 1).cast(array.type).filter([False]),
                                 pa.array([None], array.type), array])  # fmt: skip

    with pytest.raises(InputError, match=message):
        join(ids(padded(left)), ids(padded(right)), on={"t": 1}).read_all()


# ── times ────────────────────────────────────────────────────────────────────────────────────


def times(counts: list[int | None], unit: str, zone: str | None = None) -> pa.Array:
    return pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))


@each_join
def test_aware_and_naive_never_mix(join: Any) -> None:
    naive, aware = ids(times([0], "us")), ids(times([0], "us", "UTC"))
    for sides in ((naive, aware), (aware, naive)):
        with pytest.raises(InputError, match=r"'t' is timestamp.*give both a time zone or neither"):
            join(*map(unread, sides), on={"t": "1s"})


@each_join
def test_zones_compare_as_instants(join: Any) -> None:
    moments = [0, 3_600_000_000]
    left, right = times(moments, "us", "Asia/Tokyo"), times(moments, "us", "America/New_York")
    assert id_pairs(join, left, right, on={"t": 0}) == [(0, 0), (1, 1)]
    table = join(ids(left), ids(right), on={"t": 0}).read_all()
    assert table["t_left"].type.tz == "Asia/Tokyo"
    assert table["t_right"].type.tz == "America/New_York"


@each_join
@each_place
def test_units_are_brought_to_the_finer_one(join: Any, options: dict[str, Any]) -> None:
    left = times([1, 2, None], "s")
    right = times([10**9 + 1, 2 * 10**9], "ns")
    assert id_pairs(join, left, right, on={"t": 0}, **options) == [(1, 1)]
    assert id_pairs(join, right, left, on={"t": "1ns"}, **options) == [(0, 0), (1, 1)]


@each_join
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_time_that_does_not_fit_the_finer_unit(join: Any, side: str) -> None:
    tables = {"left": ids(times([1], "ns")), "right": ids(times([1], "ns"))}
    tables[side] = ids(times([1, None, 2**60, 5], "s"))
    message = rf"{side}: column 't', row 2: the value does not fit timestamp\[ns\].*cast or filter"
    with pytest.raises(InputError, match=message):
        join(tables["left"], tables["right"], on={"t": 0}).read_all()


@each_join
def test_what_can_not_be_compared(join: Any) -> None:
    for left, right in (
        ([1], times([1], "us")),
        ([1.5], pa.array([date(2020, 1, 1)])),
        (times([1], "us", "UTC"), pa.array([date(2020, 1, 1)])),
        (pa.array([timedelta(1)]), times([1], "us")),
    ):
        with pytest.raises(InputError, match="can't be compared; cast one of them"):
            join(unread(ids(left)), unread(ids(right)), on={"t": 0})


# ── streams ──────────────────────────────────────────────────────────────────────────────────

TANGLED = pa.table({"t": [5, 7, 1, 9, 8], "v": [*"abcde"]})
EVERY = pa.table({"t": list(range(12)), "w": list(range(12))})


@each_join
@each_place
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_stream_that_is_not_sorted(join: Any, side: str, options: dict[str, Any]) -> None:
    sides = {"left": EVERY, "right": EVERY, side: matwin.stream(TANGLED)}
    message = f"^{side}: row 2 is late: its 't' is 1 after 7, .*Lateness.*late='drop'"
    with pytest.raises(OrderError, match=message):
        join(*sides.values(), on={"t": 1}, **options).read_all()


@each_join
def test_a_stream_goes_by_its_own_name(join: Any) -> None:
    with pytest.raises(OrderError, match=r"^barometer: row 2 is late"):
        join(EVERY, matwin.stream(TANGLED, name="barometer"), on={"t": 1}).read_all()


@each_join
def test_late_rows_are_named_by_their_number_among_all(join: Any) -> None:
    """Rows without a value count too, and so do those of earlier batches."""
    batches = [{"t": 1.0}, {"t": None}, {"t": 4.0}, {"t": math.nan}, {"t": 2.0}]
    live = matwin.stream(iter(batches), schema=pa.schema([("t", pa.float64())]))
    with pytest.raises(OrderError, match=r"row 4 is late: its 't' is 2.0 after 4.0"):
        join(live, pa.table({"t": [1.0]}), on={"t": 1}).read_all()


@each_join
@each_place
def test_late_rows_are_dropped_and_counted(join: Any, options: dict[str, Any]) -> None:
    report = Report()
    reader = join(matwin.stream(TANGLED, late="drop"), EVERY, on={"t": 0}, report=report, **options)
    assert pairs(reader, "v", "w") == [("a", 5), ("b", 7), ("d", 9)]
    side = report.left
    assert (side.rows_in, side.used, side.late, side.rejected) == (5, 3, 2, 0)
    report.check()


ROWS = st.lists(st.none() | st.integers(0, 20) | st.just(math.nan), max_size=30)
ORDERS = st.sampled_from(
    [matwin.Sorted(), matwin.Lateness(0), matwin.Lateness(3), matwin.ReadAhead(2),
     matwin.GridOrdered(4)]
)  # fmt: skip


@each_join
@given(left=ROWS, right=ROWS, order=ORDERS, sizes=st.integers(1, 7), paged=st.booleans())
@settings(max_examples=campaign(60, 2000))
def test_no_row_is_lost(
    join: Any, left: list[Any], right: list[Any], order: Any, sizes: int, paged: bool
) -> None:
    """Rows in = used + late + rejected, and the join is that of the used rows."""
    tables = [ids(pa.array(rows, pa.float64())) for rows in (left, right)]
    report = Report()
    live = [
        matwin.stream(table.to_batches(max_chunksize=sizes), order=order, late="drop",
                      schema=table.schema)
        for table in tables
    ]  # fmt: skip
    options = {**PAGES, "max_delay": "0s"} if paged else {}
    found = join(*live, on={"t": 2}, report=report, **options).read_all()
    report.check()
    used = []
    for side, table in zip((report.left, report.right), tables, strict=True):
        kept = in_time(table, order)
        assert (side.rows_in, side.used) == (table.num_rows, kept.num_rows)
        assert side.rejected == sum(v is None or v != v for v in table["t"].to_pylist())
        used.append(kept)
    assert as_bag(found) == as_bag(join(*used, on={"t": 2}).read_all())


def in_time(table: pa.Table, order: Any) -> pa.Table:
    """The rows that keep the promise, by a plain reading of what it says."""
    kept: list[int] = []
    seen: list[float] = []
    complete = -INF  # everything below has come …
    for row, t in enumerate(table["t"].to_pylist()):
        if t is None or t != t or t < complete:
            continue
        kept.append(row)
        seen.append(t)
        match order:
            case matwin.Sorted():
                complete = max(complete, t)
            case matwin.Lateness(lateness):
                complete = max(complete, math.nextafter(t - lateness, INF))  # … or is equal
            case matwin.ReadAhead(rows):
                complete = max(complete, min(seen[-rows:])) if len(seen) >= rows else complete
            case matwin.GridOrdered(width):
                complete = max(complete, t // width * width)
    return table.take(pa.array(kept, pa.int64()))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: matwin.stream(LEFT, on="z"), "column 'z' is not there"),
        (lambda: matwin.stream(LEFT, order="rising"), "order='rising' is not an order"),
        (lambda: matwin.stream(LEFT, late="ignore"), "late='ignore'"),
        (lambda: matwin.stream(LEFT, order=matwin.Punctuated()), "only an iterable"),
        (lambda: matwin.stream(LEFT, schema=RIGHT.schema), "its columns are"),
        (lambda: matwin.stream(matwin.stream(LEFT)), "a stream already"),
        (lambda: matwin.stream(5), "is no source"),
        (lambda: matwin.Lateness(-1), "negative"),
        (lambda: matwin.Lateness(math.nan), "finite"),
        (lambda: matwin.Lateness(INF), "finite"),
        (lambda: matwin.Lateness("late"), "'late' is not a duration"),
        (lambda: matwin.ReadAhead(0), "at least one row"),
        (lambda: matwin.GridOrdered(0), "wider than nothing"),
    ],
)
def test_bad_promises(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


@each_join
def test_a_stream_ordered_by_another_column(join: Any) -> None:
    with pytest.raises(
        InputError, match=r"left: the stream is ordered by 'x'.*'t'; name 'x' first"
    ):
        join(matwin.stream(LEFT, on="x"), RIGHT, on={"t": 1})


# ── a user's functions ───────────────────────────────────────────────────────────────────────


def failing(a: Any, b: Any) -> Any:
    if a == 2:
        raise KeyError("boom")
    return abs(a - b)


def seldom_nan(a: Any, b: Any) -> Any:
    return math.nan if a == 2 else 1.0


def seldom_none(a: Any, b: Any) -> Any:
    return None if a == 2 else 1.0


def seldom_text(a: Any, b: Any) -> Any:
    return "near" if a == 2 else 1.0


def dividing(a: Any, b: Any) -> Any:
    return b / (a - 2)


def shapeless(a: Any, b: Any) -> Any:
    return np.zeros(7)


def listing(a: Any, b: Any) -> Any:
    return [a, b]


@each_place
@pytest.mark.parametrize("how", ["left", "right", "full", "inner"])
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (failing, "fails for left 2 and right .: KeyError: 'boom'"),
        (seldom_nan, "returns NaN for left 2 and right "),
        (seldom_none, "(returns None for|fails for) left 2 and right "),
        (seldom_text, "returns 'near' for left 2 and right "),
        (dividing, "fails for left 2 and right .: ZeroDivisionError"),
        (shapeless, "returns array"),
        (listing, r"returns \[1, 1\] for left 1 and right 1"),
    ],
)
def test_functions_that_fail(
    function: Any, says: str, how: str, options: dict[str, Any], tmp_path: Path
) -> None:
    reader = matwin.bestmatch_join(
        LEFT, RIGHT, on={"t": 9}, orders={"t": function}, how=how, scratch=tmp_path, **options
    )
    with pytest.raises(InputError, match=f"'{function.__name__}' {says}"):
        reader.read_all()
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_functions_of_text_that_fail() -> None:
    on = {"t": 9, "k": None}
    with pytest.raises(InputError, match=r"'listing' returns \['a', 'a'\] for left 'a'"):
        matwin.bestmatch_join(LEFT, RIGHT, on=on, orders={"k": listing}).read_all()


@pytest.mark.parametrize("make", [matwin.minimize, matwin.partial_order])
def test_what_is_no_function(make: Any) -> None:
    with pytest.raises(InputError, match="5 is not a function"):
        make(5)


def breaking(one: Any, other: Any) -> Any:
    raise KeyError("boom")


def chatty(one: Any, other: Any) -> Any:
    return "yes"


def numeric(one: Any, other: Any) -> Any:
    return 1


def many(one: Any, other: Any) -> Any:
    return np.array([True, False])


def refusing(one: Any, other: Any) -> Any:
    return False


@each_place
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (breaking, r"'breaking' fails for \(1, 1\) and \(1, 2\): KeyError: 'boom'"),
        (chatty, r"'chatty' returns 'yes' for \(1, 1\) and \(1, 2\); .*True, False or None"),
        (numeric, "'numeric' returns 1 for"),
        (many, "'many' returns array"),
        (refusing, r"'refusing' says that \(1, 1\) is worse than \(1, 2\) and the other way"),
    ],
)
def test_partial_orders_that_are_none(function: Any, says: str, options: dict[str, Any]) -> None:
    orders = {"t": matwin.partial_order(function)}
    with pytest.raises(InputError, match=says):
        matwin.bestmatch_join(LEFT, RIGHT, on={"t": 9}, orders=orders, **options).read_all()


def square(a: Any, b: Any) -> Any:
    return (a - b) ** 2


def float_square(a: Any, b: Any) -> Any:
    return float(a - b) ** 2


def test_whole_numbers_beyond_64_bits_are_no_distances() -> None:
    """Squares of nanoseconds: three seconds are the last that fit."""
    left, right = ids([0]), ids([3 * 10**9 + 1, 4 * 10**9 + 7, 7 * 10**9])
    with pytest.raises(
        InputError, match=r"'square' goes beyond 64-bit .* left 0 and right 4000000007"
    ):
        matwin.bestmatch_join(left, right, on={"t": None}, orders={"t": square}).read_all()
    assert id_pairs(
        matwin.bestmatch_join, [0], right["t"].combine_chunks(), on={"t": None},
        orders={"t": float_square},
    ) == [(0, 0)]  # fmt: skip


# ── many rows ────────────────────────────────────────────────────────────────────────────────


@each_join
@pytest.mark.parametrize(
    "times",
    [
        np.tile(np.linspace(-100, 100, 40_000), 2),
        np.repeat([2**62 + 7, -(2**62) - 7], 40_000),
    ],
    ids=["floats", "ints"],
)
def test_two_sorted_stretches_are_not_sorted(join: Any, times: Any) -> None:
    """A fall so deep that its difference wraps around is still a fall."""
    right = pa.table({"t": np.unique(times)[::-1]})
    reader = join(pa.table({"t": times}), right, on={"t": 0}, page_size="16KiB", memory="1MiB")
    assert reader.read_all().num_rows == 80_000


@each_join
def test_nothing_matches(join: Any) -> None:
    for how in ("inner", "left", "right", "full"):
        report = Report()
        found = join(ids([1]), ids([9]), on={"t": 1}, report=report, how=how).read_all()
        assert report.is_done and report.left.used == report.right.used == 1
        assert report.rows_out == found.num_rows


@each_join
@each_place
def test_all_times_equal(join: Any, options: dict[str, Any]) -> None:
    left, right = ids([7] * 60), ids([7] * 50)
    found = pairs(join(left, right, on={"t": 0}, **options), "i_left", "i_right")
    assert found == [(i, j) for i in range(60) for j in range(50)]


@each_join
@each_place
def test_one_key_has_nearly_all_rows(join: Any, options: dict[str, Any]) -> None:
    t = np.arange(4000)
    keys = np.where(t % 10 == 3, t, 0)
    table = pa.table({"t": t, "k": keys, "i": t})
    report = Report()
    reader = join(table, table, on={"t": (-1, -1)}, by="k", report=report, **options)
    expected = [(i, i - 1) for i in range(1, 4000) if keys[i] == keys[i - 1]]
    assert pairs(reader, "i_left", "i_right") == expected


@pytest.mark.parametrize("options", [{}, {**PAGES, "memory": "2MiB"}], ids=["memory", "pages"])
@each_join
def test_a_huge_reach_stops_at_the_limit(join: Any, options: dict[str, Any]) -> None:
    rows = pa.table({"t": np.arange(3000)})
    orders = {"orders": {"t": nothing}} if join is matwin.bestmatch_join else {}
    reader = join(rows, rows, on={"t": 2**62}, max_output_rows=100_000, **orders, **options)
    message = "more than max_output_rows=100000 rows after 3000 left and 3000 right rows; narrow"
    got = 0
    with pytest.raises(InputError, match=message):
        for batch in reader:
            got += batch.num_rows
    assert got <= 100_000


def nothing(a: Any, b: Any) -> Any:
    """An order by which all pairs are equally good."""
    return 0


@each_join
def test_the_limit_itself_is_allowed(join: Any) -> None:
    rows = ids([1] * 10)
    assert join(rows, rows, on={"t": 0}, max_output_rows=100).read_all().num_rows == 100
    with pytest.raises(InputError, match="max_output_rows=99"):
        join(rows, rows, on={"t": 0}, max_output_rows=99).read_all()


def explode(best: bool, options: dict[str, Any]) -> str:
    """In a child process: hundreds of millions of pairs, until the limit."""
    rows = pa.table({"t": np.zeros(20_000, np.int64), "v": np.arange(20_000)})
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    try:
        for _ in join(rows, rows, on={"t": 1}, max_output_rows=15_000_000, **options):
            pass
    except InputError as e:
        return str(e)
    return "no error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "options"),
    [(True, {}), (False, {}), (False, {"materialize": "slab", "memory": "64MiB"})],
)
def test_memory_stays_flat_while_the_output_explodes(best: bool, options: dict[str, Any]) -> None:
    with memory_limit(400 << 20) as group:
        options = {"memory": "64MiB", **options}
        told = call_in_child(explode, best, options, before=group.enter)
    assert "max_output_rows=15000000" in told


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
        (["--on", "t=1", "--memory", "1KiB"], "the smallest that works is 8 MiB"),
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
