"""Functions as sources: first, normal and last call, buffers, cuts, and rows by their numbers."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from growth import impatient, listed, there  # noqa: F401  (a fixture)
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.calls import Call
from matwin.inbox import Bell, Inbox
from matwin.storage.errors import InputError

NUMBERS = pa.schema([("n", pa.int64())])


class Counting:
    """Gives numbers, and notes how it was called."""

    def __init__(self, upto: int, at_once: int = 1) -> None:
        self.upto, self.at_once = upto, at_once
        self.kinds: list[str] = []
        self.chunks: list[int] = []
        """Calls before this one in the same chunk."""
        self.scans: list[dict[str, Any]] = []

    def __call__(self, call: Call) -> Any:
        self.kinds.append(call.kind)
        if call.kind == "first":
            self.scans.append(call.scan)
        if call.kind != "normal":
            return None
        self.chunks.append(call.chunk.setdefault("calls", 0))
        call.chunk["calls"] += 1
        first = call.query.setdefault("next", 0)
        if first >= self.upto:
            raise StopIteration
        call.query["next"] = min(first + self.at_once, self.upto)
        return [{"n": n} for n in range(first, call.query["next"])]


def newest(windows: Any) -> pa.Table:
    return windows.newest("a").to_arrow()


def epochs(query: Any) -> list[list[int]]:
    return [epoch.result.to_arrow()["n"].to_pylist() for epoch in query]


def test_first_normal_and_last_calls() -> None:
    function = Counting(5, at_once=2)
    source = matwin.captured(function, schema=NUMBERS)
    assert listed(source.items()) == [{"n": n} for n in range(5)]
    assert function.kinds == ["first", "normal", "normal", "normal", "normal", "last"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 30), st.integers(1, 7), st.integers(1, 9))
def test_a_chunks_buffer_lives_from_cut_to_cut(upto: int, at_once: int, rows: int) -> None:
    function = Counting(upto, at_once)
    source = matwin.captured(function, schema=NUMBERS)
    query = matwin.continuous_query(newest, {"a": source}, cut=matwin.cut.count(rows))
    found = epochs(query)
    assert found == [list(range(a, min(a + rows, upto))) for a in range(0, upto, rows)]
    assert function.kinds == ["first", *["normal"] * len(function.chunks), "last"]
    assert function.chunks == _places(upto, at_once, rows)


def _places(upto: int, at_once: int, rows: int) -> list[int]:
    """For each call, how many came before it while the same chunk was open."""
    found, before, chunk = [], 0, 0
    for row in [*range(0, upto, at_once), upto]:
        is_later = row // rows
        if is_later != chunk:
            before, chunk = 0, is_later
        found.append(before)
        before += 1
    return found


def test_a_function_that_has_nothing_now() -> None:
    answers: list[Any] = [None, {"n": 1}, None, None, pa.table({"n": [2, 3]})]

    def function(call: Call) -> Any:
        if call.kind == "normal":
            if not answers:
                raise StopIteration
            return answers.pop(0)
        return None

    source = matwin.captured(function, schema=NUMBERS)
    query = matwin.continuous_query(newest, {"a": source}, cut=matwin.cut.count(2))
    assert epochs(query) == [[1, 2], [3]]


def test_the_last_call_may_give_what_is_left() -> None:
    def function(call: Call) -> Any:
        if call.kind == "last":
            return {"n": call.scan["n"]}
        if call.kind == "normal":
            raise StopIteration
        call.scan["n"] = 7
        return None

    assert listed(matwin.captured(function, schema=NUMBERS).items()) == [{"n": 7}]


def test_draining_ends_at_the_first_nothing() -> None:
    def function(call: Call) -> Any:
        call.scan["left"] = call.scan.get("left", 4) - 1
        return {"n": 1} if call.kind == "normal" and call.scan["left"] > 0 else None

    source = matwin.captured(function, schema=NUMBERS)
    source.drain()
    assert listed(source.items()) == [{"n": 1}] * 2


def test_each_scan_has_its_own_buffers_and_its_own_last_call() -> None:
    function = Counting(2)
    source = matwin.captured(function, schema=NUMBERS)
    assert listed(source.items()) == listed(source.items()) == [{"n": 0}, {"n": 1}]
    one, other = function.scans
    assert one is not other
    assert function.kinds.count("last") == 2


def test_the_last_call_comes_also_when_a_query_is_stopped() -> None:
    function = Counting(10**9)
    source = matwin.captured(function, schema=NUMBERS)
    query = matwin.continuous_query(newest, {"a": source}, cut=matwin.cut.count(3))
    for epoch in query:
        if epoch.id == 2:
            query.stop()
    _join_threads()
    assert function.kinds[-1] == "last"
    assert function.kinds.count("last") == 1


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("matwin stream"):
            thread.join(timeout=30)
            assert not thread.is_alive()


def test_the_last_call_comes_also_after_an_error() -> None:
    kinds: list[str] = []

    def function(call: Call) -> None:
        kinds.append(call.kind)
        if call.kind == "normal":
            raise RuntimeError("the sensor is gone")

    with pytest.raises(RuntimeError, match="the sensor is gone"):
        listed(matwin.captured(function, schema=NUMBERS).items())
    assert kinds == ["first", "normal", "last"]


def test_a_closed_inbox_makes_the_last_call() -> None:
    function = Counting(10**9)
    inbox = Inbox(matwin.captured(function, schema=NUMBERS).items(), Bell(), "a", 2**20)
    inbox.start()
    next(inbox)
    inbox.close()
    assert inbox._thread is not None
    inbox._thread.join(timeout=30)
    assert function.kinds[-1] == "last"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (1, "counts: call 2 is a int"),
        ({"m": 1}, "call 2 has column 'm'"),
        ({"n": 1.5}, "call 2: column 'n' is no int64"),
        (pa.table({"n": ["a"]}), "call 2: column 'n' is string, and int64 in the source"),
    ],
)
def test_what_is_no_row_is_named(answer: Any, message: str) -> None:
    def counts(call: Call) -> Any:
        return answer if call.kind == "normal" else None

    with pytest.raises(InputError, match=message):
        listed(matwin.captured(counts, schema=NUMBERS).items())


def test_what_is_no_capture_function_is_refused() -> None:
    with pytest.raises(InputError, match="first call has returned something"):
        listed(matwin.captured(lambda call: {"n": 1}, schema=NUMBERS).items())
    with pytest.raises(InputError, match="a int is no function"):
        matwin.captured(1, schema=NUMBERS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="schema is a str"):
        matwin.captured(print, schema="n")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a list is no function of a row's number"):
        matwin.replayable([], schema=NUMBERS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at row 0 it returned a NoneType"):
        listed(matwin.replayable(lambda row: None, schema=NUMBERS).items())  # type: ignore


def test_a_replayable_function_keeps_plain_data() -> None:
    def function(call: Call) -> None:
        call.query["open"] = object()

    source = matwin.captured(function, schema=NUMBERS, replayable=True)
    with pytest.raises(InputError, match=r"call\.query holds what JSON can't"):
        listed(source.items())


# ── restarts ─────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=campaign(8, 500), deadline=None)
@given(
    st.integers(0, 25),
    st.integers(1, 6),
    st.integers(1, 7),
    st.lists(st.integers(1, 4), max_size=4),
    st.sampled_from(["function", "offsets"]),
)
def test_a_restart_gives_the_same_epochs(
    upto: int, at_once: int, rows: int, stops: list[int], kind: str
) -> None:
    def source() -> Any:
        if kind == "function":
            return matwin.captured(Counting(upto, at_once), schema=NUMBERS, replayable=True)
        return matwin.replayable(lambda row: _from(row, upto, at_once), schema=NUMBERS)

    with tempfile.TemporaryDirectory() as folder:
        taken: dict[int, list[int]] = {}
        for stop in [*stops, None]:
            query = matwin.continuous_query(
                newest, {"a": source()}, cut=matwin.cut.count(rows), state=Path(folder, "state")
            )
            for number, epoch in enumerate(query, 1):
                found = epoch.result.to_arrow()["n"].to_pylist()
                assert taken.setdefault(epoch.id, found) == found
                if number == stop:
                    query.close()
                    break
        whole = [n for epoch in sorted(taken) for n in taken[epoch]]
        assert whole == list(range(upto))


def _from(row: int, upto: int, at_once: int) -> Iterator[Any]:
    for first in range(row, upto, at_once):
        yield None
        yield [{"n": n} for n in range(first, min(first + at_once, upto))]


def test_a_source_is_captured_once_in_a_query() -> None:
    source = matwin.captured(Counting(3), schema=NUMBERS)
    with pytest.raises(InputError, match="a and b are the same source"):
        matwin.continuous_query(newest, {"a": source, "b": source}, cut=matwin.cut.count(2))


def test_functions_in_an_ordinary_live_join() -> None:
    schema = pa.schema([("t", pa.int64()), ("k", pa.int64())])

    def clock(step: int) -> Any:
        def function(call: Call) -> Any:
            if call.kind == "normal":
                call.scan["t"] = call.scan.get("t", 0) + step
                if call.scan["t"] > 30:
                    raise StopIteration
                return {"t": call.scan["t"], "k": 0}
            return None

        return matwin.stream(matwin.captured(function, schema=schema), on="t")

    left, right = clock(2), clock(3)
    assert left.is_live
    assert right.is_live
    found = matwin.window_join({"a": left, "b": right}, time="t", windows=1, by="k")
    pairs = {(a, b) for a in range(2, 31, 2) for b in range(3, 31, 3) if abs(a - b) <= 1}
    table = found.to_arrow()
    assert set(zip(table["a_t"].to_pylist(), table["b_t"].to_pylist(), strict=True)) == pairs


def test_there_is_nothing_between_batches(tmp_path: Path) -> None:
    source = matwin.replayable(lambda row: iter([None, {"n": 1}, None]), schema=NUMBERS)
    items = source.items()
    assert there(items) == []
    assert there(items) == [{"n": 1}]
    assert listed(source.batches()) == [{"n": 1}]
