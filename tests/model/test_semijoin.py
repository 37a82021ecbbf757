"""The two-node joins against the plain window join and plain loops, and what goes over the link.

semijoin(…)            == matwin.window_join, as bags: any ship, block, resend, batches
Last                   == a loop over the arrivals, which keeps two lists
messages under way     == the same, as long as node 1 keeps rows; what it does not keep is counted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign

import matwin
from matwin.operators.semijoin import Last, Link, row_bytes, semijoin
from matwin.operators.semijoin_link import Message
from matwin.operators.semijoin_nodes import SemiJoin, SimpleJoin
from matwin.operators.semijoin_window import FULL, PARTIAL, Row, Spans

NAN = float("nan")
KEYS = {
    "number": (pa.int64(), st.sampled_from([1, 2, 3, None])),
    "text": (pa.string(), st.sampled_from(["a", "b", "", None])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, NAN, None])),
    "time": (pa.timestamp("ns"), st.sampled_from([1, 2, 1_000_000_001, None])),
}
TIMES = {
    "whole": (pa.int32(), st.integers(-5, 15)),
    "float": (pa.float64(), st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 1.0, 7.5])),
    "stamp": (pa.timestamp("ms"), st.integers(0, 20)),
}


# ── tables ───────────────────────────────────────────────────────────────────────────────────


@st.composite
def streams(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, dict[str, Any]]:
    """Two streams in order of time, some times and keys missing; and the arguments."""
    time_type, times = TIMES[draw(st.sampled_from(sorted(TIMES)))]
    keys = [KEYS[draw(st.sampled_from(sorted(KEYS)))] for _ in range(draw(st.integers(1, 2)))]
    tables = []
    for _ in range(2):
        count = draw(st.integers(0, 14))
        found = sorted(draw(st.lists(times, min_size=count, max_size=count)))
        is_there = draw(st.lists(st.integers(0, 7).map(bool), min_size=count, max_size=count))
        shown = [t if there else None for t, there in zip(found, is_there, strict=True)]
        columns = {"t": pa.array(shown, pa.int64() if time_type != pa.float64() else time_type)}
        columns["t"] = columns["t"].cast(time_type)
        for name, (kind, values) in zip("kj", keys, strict=False):
            drawn = draw(st.lists(values, min_size=count, max_size=count))
            columns[name] = pa.array(drawn, kind)
        columns["text"] = pa.array([f"row {row}" for row in range(count)], pa.string())
        tables.append(pa.table(columns))
    width = (
        st.integers(0, 6) if time_type != pa.float64() else st.sampled_from([0.0, 0.1, 0.2, 5.0])
    )
    low, high = draw(width), draw(width)
    window: Any = (-low, high)
    if pa.types.is_timestamp(time_type):
        window = (f"-{low}ms", f"{high}ms")
    return tables[0], tables[1], {"time": "t", "by": list("kj"[: len(keys)]), "window": window}


def joined(left: Any, right: Any, arguments: dict[str, Any]) -> Counter[Any]:
    arguments = dict(arguments)
    windows = {("left", "right"): arguments.pop("window")}
    found = matwin.window_join({"left": left, "right": right}, windows=windows, **arguments)
    return as_bag(found.read_all())


@given(streams(), st.sampled_from([1, 2, 3, 50]), st.booleans(), st.integers(1, 5))
@settings(max_examples=campaign(150, 10_000))
def test_the_window_join(
    asked: tuple[pa.Table, pa.Table, dict[str, Any]], block: int, resend: bool, rows: int
) -> None:
    left, right, arguments = asked
    expected = joined(left, right, arguments)
    for ship in ("full", "partial"):
        sources = [table.to_reader(max_chunksize=rows) for table in (left, right)]
        link = Link()
        found = semijoin(
            *sources, **arguments, ship=ship, block=block, resend=resend, link=link
        ).read_all()
        assert as_bag(found) == expected, ship
        assert link.under_way == 0


def test_one_duration_means_both_ways_and_includes_its_ends() -> None:
    left = pa.table({"t": [0, 10], "k": [1, 1]})
    right = pa.table({"t": [5, 16], "k": [1, 1]})
    found = semijoin(left, right, time="t", by="k", window=5).read_all()
    assert found.to_pydict() == {"k": [1, 1], "left_t": [0, 10], "right_t": [5, 5]}


# ── a loop over arrivals ─────────────────────────────────────────────────────────────────────

Arrival = tuple[bool, int, int]
"""Whether it is one of stream 1, its time and its key."""
arrivals = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3)), max_size=40
).map(lambda steps: list(_in_time(steps)))


def _in_time(steps: Sequence[tuple[bool, int, int]]) -> Iterator[Arrival]:
    time = 0
    for is_first, later, key in steps:
        time += later
        yield is_first, time, key


def rows_of(came: Sequence[Arrival]) -> list[tuple[bool, Row]]:
    counts = {True: 0, False: 0}
    rows = []
    for is_first, time, key in came:
        number = counts[is_first]
        counts[is_first] += 1
        rows.append((is_first, Row(number, time, key, (is_first, number), 100, 10)))
    return rows


def by_loop(rows: Sequence[tuple[bool, Row]], windows: Last | Spans) -> Counter[Any]:
    """Every tuple meets the window of the other stream, then comes into its own."""
    kept: dict[bool, list[Row]] = {True: [], False: []}
    pairs: list[Any] = []
    for is_first, row in rows:
        for other in kept[not is_first]:
            s1, s2 = (row, other) if is_first else (other, row)
            if isinstance(windows, Spans):
                near = -windows.span_2 <= s2.time - s1.time <= windows.span_1
            else:
                near = True
            if near and s1.key == s2.key:
                pairs.append((s1.payload, s2.payload))
        kept[is_first].append(row)
        if isinstance(windows, Last):
            most = windows.rows_1 if is_first else windows.rows_2
            kept[is_first] = kept[is_first][max(len(kept[is_first]) - most, 0) :]
    return Counter(pairs)


limits = st.one_of(
    st.builds(Last, st.integers(0, 6), st.integers(0, 6)),
    st.builds(Spans, st.integers(0, 5), st.integers(0, 5)),
)


def run(join: SimpleJoin | SemiJoin, rows: Sequence[tuple[bool, Row]]) -> Counter[Any]:
    """One at a time, nothing under way."""
    for is_first, row in rows:
        (join.node_1 if is_first else join.node_2).insert([row])
        join.link.settle()
        join.node_2.advance(row.time)
        join.node_2.check()
    assert join.node_2.missed == 0
    return Counter(join.node_2.pairs)


@given(arrivals, limits, st.booleans())
@settings(max_examples=campaign(200, 20_000))
def test_tuple_by_tuple(came: list[Arrival], windows: Last | Spans, resend: bool) -> None:
    rows = rows_of(came)
    expected = by_loop(rows, windows)
    assert run(SimpleJoin(windows, Link()), rows) == expected
    assert run(SemiJoin(windows, Link(), resend=resend), rows) == expected


@given(arrivals, st.integers(0, 6), st.integers(0, 6), st.sampled_from([1, 2, 5]))
@settings(max_examples=campaign(100, 5000))
def test_last_rows_of_tables(came: list[Arrival], most_1: int, most_2: int, block: int) -> None:
    """Blocks larger than one are another order: left rows of a block before its right rows."""
    came = sorted(came, key=lambda one: (one[1], not one[0]))  # left first at equal times
    tables = []
    for is_first in (True, False):
        mine = [one for one in came if one[0] == is_first]
        columns = {"t": [t for _, t, _ in mine], "k": [k for _, _, k in mine]}
        columns["n"] = list(range(len(mine)))
        tables.append(pa.table({n: pa.array(c, pa.int64()) for n, c in columns.items()}))
    rows = rows_of(came)
    order = [
        row
        for at in range(0, len(rows), block)
        for row in sorted(rows[at : at + block], key=lambda one: not one[0])
    ]
    windows = Last(most_1, most_2)
    for ship in ("full", "partial"):
        found = semijoin(*tables, time="t", by="k", window=windows, ship=ship, block=block)
        numbers = found.read_all().select(["left_n", "right_n"]).to_pydict().values()
        assert Counter(((True, a), (False, b)) for a, b in zip(*numbers, strict=True)) == by_loop(
            order, windows
        )


# ── messages under way ───────────────────────────────────────────────────────────────────────


class Slow:
    """A join whose messages arrive when a list says so; which tuples came to node 2, in order."""

    def __init__(self, make: Any) -> None:
        self.link = Link()
        self.join = make(self.link)
        self.seen: list[tuple[bool, Row]] = []
        self._rows: dict[int, Row] = {}
        receive = self.join.node_2.receive

        def watched(message: Message) -> None:
            if message.kind != "reply":
                self.seen += [(True, self._rows[tuple_.number]) for tuple_ in message.items]
            receive(message)

        self.link._receivers["forward"] = watched

    def run(self, rows: Sequence[tuple[bool, Row]], delays: Sequence[tuple[int, int]]) -> None:
        for at, (is_first, row) in enumerate(rows):
            if is_first:
                self._rows[row.number] = row
                self.join.node_1.insert([row])
            else:
                self.seen.append((False, row))
                self.join.node_2.insert([row])
            forward, back = delays[at % len(delays)] if delays else (0, 0)
            for _ in range(forward):
                self.link.deliver("forward")
            for _ in range(back):
                self.link.deliver("back")
            self.join.node_2.check()
        self.link.settle()
        self.join.node_2.check()


delays = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=10)


@given(arrivals, limits, delays, st.booleans())
@settings(max_examples=campaign(200, 20_000))
def test_with_delays_and_slack(
    came: list[Arrival], windows: Last | Spans, pace: list[tuple[int, int]], resend: bool
) -> None:
    rows = rows_of(came)
    for make in (
        lambda link: SimpleJoin(windows, link),
        lambda link: SemiJoin(windows, link, resend=resend, slack=1000),
    ):
        slow = Slow(make)
        slow.run(rows, pace)
        expected = by_loop(slow.seen, windows)
        assert Counter(slow.join.node_2.pairs) == expected
        assert slow.join.node_2.missed == 0
        if isinstance(windows, Spans):  # in whatever order things come
            assert expected == by_loop(rows, windows)


@given(arrivals, limits, delays)
@settings(max_examples=campaign(200, 20_000))
def test_with_delays_and_no_slack_what_is_missed_is_counted(
    came: list[Arrival], windows: Last | Spans, pace: list[tuple[int, int]]
) -> None:
    slow = Slow(lambda link: SemiJoin(windows, link))
    slow.run(rows_of(came), pace)
    found, expected = Counter(slow.join.node_2.pairs), by_loop(slow.seen, windows)
    assert found <= expected
    assert found.total() + slow.join.node_2.missed == expected.total()


def test_a_request_that_comes_too_late() -> None:
    join = SemiJoin(Spans(2, 2), Link())
    came = [(True, 0, 7), (True, 9, 1), (True, 20, 1), (False, 1, 7), (False, 2, 7)]
    rows = [row for _, row in rows_of(came)]
    join.node_1.insert(rows[:1])
    join.link.settle()
    join.node_2.insert(rows[3:4])  # asks, and the request is under way while time goes on
    join.node_1.insert(rows[1:2])
    join.node_1.insert(rows[2:3])
    join.link.settle()
    assert (join.node_2.pairs, join.node_2.missed) == ([], 1)
    join.node_2.insert(rows[4:])  # it would have met it too
    assert (join.node_2.pairs, join.node_2.missed, join.link.under_way) == ([], 2, 0)


# ── the mirror ───────────────────────────────────────────────────────────────────────────────


def test_full_and_partial_tuples_of_one_value_in_the_mirror() -> None:
    """s2; s1 finds it and is full; s2 expires; s1' stays partial; the next s2 meets both."""
    rows = rows_of([(False, 0, 7), (True, 9, 7), (True, 11, 7), (False, 12, 7)])
    join = SemiJoin(Spans(10, 10), Link())
    for is_first, row in rows[:3]:
        (join.node_1 if is_first else join.node_2).insert([row])
        join.link.settle()
    assert [s1.state for s1 in join.node_2._mirror.of(7)] == [FULL, PARTIAL]
    join.node_2.insert([rows[3][1]])
    join.link.settle()
    assert Counter(join.node_2.pairs) == by_loop(rows, Spans(10, 10))
    assert (len(join.node_2.pairs), join.node_2.mixed) == (3, 1)


# ── what goes over the link ──────────────────────────────────────────────────────────────────


@given(arrivals, limits)
@settings(max_examples=campaign(150, 10_000))
def test_what_is_counted_adds_up(came: list[Arrival], windows: Last | Spans) -> None:
    rows = rows_of(came)
    firsts = sum(is_first for is_first, _ in rows)
    simple, semi, lean = Link(), Link(), Link()
    pairs = run(SimpleJoin(windows, simple), rows)
    run(SemiJoin(windows, semi), rows)
    run(SemiJoin(windows, lean, resend=False), rows)
    assert (simple.count().messages, simple.count().size_bytes) == (firsts, 100 * firsts)
    for link in (semi, lean):
        partial, reply = link.count(kind="partial"), link.count(kind="reply")
        back = link.count("back")
        assert (partial.messages, partial.size_bytes) == (firsts, 10 * firsts)
        assert (back.messages, back.size_bytes) == (reply.messages, 10 * back.tuples)
        assert reply.size_bytes == 100 * reply.tuples
        # A tuple that finds something when it comes is asked for alone.
        at_once = {
            s1 for s1, s2 in pairs
            if rows.index(_of(rows, s1)) > rows.index(_of(rows, s2))
        }  # fmt: skip
        assert link.count(kind="ask one").tuples == len(at_once)
    # A full tuple is shipped if it is in a result, and without resending only once.
    assert lean.count(kind="reply").tuples == len({s1 for s1, _ in pairs})
    assert semi.count(kind="reply").tuples >= lean.count(kind="reply").tuples
    assert semi.count().messages == lean.count().messages


def _of(rows: list[tuple[bool, Row]], payload: Any) -> tuple[bool, Row]:
    return next(one for one in rows if one[1].payload == payload)


@pytest.mark.parametrize(
    ("matching", "expected"),
    [(0, (6, 60)), (3, (6 + 2, 60 + 10 + 3 * 100)), (6, (6 + 2, 60 + 10 + 6 * 100))],
)
def test_counts_of_a_simple_case(matching: int, expected: tuple[int, int]) -> None:
    """Six tuples, some of one value; then one s2 of it."""
    came = [(True, at, 1 if at < matching else 2) for at in range(6)] + [(False, 6, 1)]
    link = Link(latency=0.5, bytes_per_second=100)
    run(SemiJoin(Last(10, 10), link), rows_of(came))
    assert (link.count().messages, link.count().size_bytes) == expected
    assert link.seconds == pytest.approx(0.5 * expected[0] + expected[1] / 100)


def test_full_tuples_are_sent_again_only_with_resend() -> None:
    rows = rows_of([(False, 0, 7), (True, 9, 7), (True, 11, 7), (False, 12, 7)])
    shipped = []
    for resend in (True, False):
        link = Link()
        run(SemiJoin(Spans(10, 10), link, resend=resend), rows)
        shipped.append(link.count(kind="reply").tuples)
    assert shipped == [3, 2]


def test_blocks_need_fewer_messages_for_the_same_tuples() -> None:
    left = pa.table({"t": range(1000), "k": [n % 50 for n in range(1000)], "x": ["x" * 90] * 1000})
    right = pa.table({"t": range(0, 2000, 2), "k": [n % 75 for n in range(1000)]})
    messages, rows = [], set()
    for block in (1, 10, 100):
        link = Link()
        found = semijoin(left, right, time="t", by="k", window=40, block=block, link=link)
        rows.add(found.read_all().num_rows)
        messages.append(link.count().messages)
    assert len(rows) == 1 and rows.pop() > 100
    assert messages[0] > 4 * messages[1] > 16 * messages[2]


def test_bytes_of_rows() -> None:
    batch = pa.record_batch(
        {"t": pa.array([1, 2], pa.int32()), "k": ["abc", None], "on": [True, None],
         "many": [[1], [2]]}
    )  # fmt: skip
    assert row_bytes(batch, ["t", "on"]).tolist() == [5, 5]
    assert row_bytes(batch, ["k"]).tolist() == [7, 4]
    assert (row_bytes(batch, ["many"]) > 0).all()


# ── arguments ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"ship": "half"}, "ship='half'"),
        ({"block": 0}, "block=0"),
        ({"by": None}, "by=None"),
        ({"by": "nothing"}, "nothing"),
        ({"window": (1, 5)}, "from 0 or less"),
        ({"window": None}, "window"),
    ],
)
def test_bad_arguments(wrong: dict[str, Any], match: str) -> None:
    table = pa.table({"t": [1], "k": [1]})
    arguments = {"time": "t", "by": "k", "window": 5, **wrong}
    with pytest.raises(matwin.InputError, match=match):
        semijoin(table, table, **arguments)


def test_bad_values() -> None:
    for make in (
        lambda: Last(-1, 5), lambda: Spans(-1, 5), lambda: Link(latency=-1),
        lambda: Link(bytes_per_second=0), lambda: Link(latency=NAN),
    ):  # fmt: skip
        with pytest.raises(matwin.InputError):
            make()
    link = Link()
    SimpleJoin(Last(1, 1), link)
    with pytest.raises(matwin.InputError, match="own Link"):
        SimpleJoin(Last(1, 1), link)


@pytest.mark.parametrize("times", [[2, 1], [1, 5, 3]])
def test_a_stream_out_of_order(times: list[int]) -> None:
    late = pa.table({"t": times, "k": [1] * len(times)}).to_reader(max_chunksize=1)
    fine = pa.table({"t": [1], "k": [1]})
    with pytest.raises(matwin.OrderError, match="left: usable row"):
        semijoin(late, fine, time="t", by="k", window=5).read_all()
