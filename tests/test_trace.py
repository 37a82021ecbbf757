"""The trace: its counts are the pool's, bad files are named, and no input is replaced."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import SCHEMA as SCHEMA_OF_ROWS
from support import rows

import matwin
from matwin.storage import InputError, Store, StoreError, read_trace, smallest_budget
from matwin.storage.trace import SCHEMA, TraceFile

COUNTED = {
    "pin": "pins", "hit": "hits", "read": "reads", "make": "makes", "write": "writes",
    "evict": "evictions", "drop": "drops", "expire": "expiries",
}  # fmt: skip


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
def test_counts_equal_the_pools(form: str, tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    with Store(memory=smallest_budget(4096), page_size=4096, trace=path) as store:
        window = store.window("left", schema, on={"t": 500, "x": 0.5}, materialize=form)
        for step in range(12):
            t = np.arange(step * 1000, (step + 1) * 1000)
            window.append(pa.record_batch([t, t % 7 / 7], schema=schema))
            window.expire(below=step * 1000 - 3000)
            store.commit()
            sum(batch.num_rows for batch in window.scan())
        counters = store.pool.counters.as_dict()
    events = read_trace(path)
    found = Counter(events["event"].to_pylist())
    assert {event: found[event] for event in COUNTED} == {
        event: counters[name] for event, name in COUNTED.items()
    }
    assert all(found[event] > 0 for event in COUNTED if event != "drop" or form != "slab")
    by_event = events.group_by("event").aggregate([("bytes", "sum")]).to_pylist()
    size = {row["event"]: row["bytes_sum"] for row in by_event}
    assert size["read"] == counters["bytes_read"]
    assert size["write"] == counters["bytes_written"]
    assert events["seq"].to_pylist() == list(range(events.num_rows))
    times = events["time_ns"].to_numpy()
    assert (np.diff(times) >= 0).all()
    assert found["complete"] == 12
    assert max(events["epoch"].to_pylist()) == 12
    assert set(events["window"].to_pylist()) == {"left", ""}
    assert f"{form}: asked for" in events["why"].to_pylist()


def test_every_page_is_made_before_it_is_used_and_leaves_its_frame_to_one(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    schema = pa.schema([("t", pa.int64())])
    with Store(memory=smallest_budget(4096), page_size=4096, trace=path) as store:
        window = store.window("w", schema, on={"t": 100}, materialize="slab")
        window.append(pa.record_batch({"t": np.arange(40_000)}))
        for _ in range(2):
            sum(batch.num_rows for batch in window.scan())
    holder: dict[int, int] = {}
    for event in read_trace(path).to_pylist():
        frame, page = event["frame"], event["page"]
        if event["event"] in ("make", "read"):
            assert frame not in holder
            holder[frame] = page
        elif event["event"] in ("hit", "pin", "unpin", "write"):
            assert holder[frame] == page
        elif event["event"] in ("evict", "drop", "expire") and frame >= 0:
            assert holder.pop(frame) == page


def test_names_are_carried_faithfully(tmp_path: Path) -> None:
    path = tmp_path / "hostile.trace"
    trace = TraceFile(path)
    names = ["../../x", "a\0b", "</script>", "'; drop", "ε"]
    for name in names:
        trace.record("choose", name, -1, -1, 0, 0, f"why {name}")
    trace.close()
    trace.close()
    assert read_trace(path)["window"].to_pylist() == names


def test_more_events_than_one_batch(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "t")
    for number in range(20_000):
        trace.record("hit", f"w{number // 5000}", number, 0, 1, 0, f"reason {number % 7}")
    trace.close()
    events = read_trace(tmp_path / "t")
    assert events["page"].to_pylist() == list(range(20_000))
    assert events["window"].to_pylist()[::5000] == ["w0", "w1", "w2", "w3"]


def test_bad_trace_files_are_named(tmp_path: Path) -> None:
    good = tmp_path / "good"
    trace = TraceFile(good)
    trace.record("hit", "w", 1, 1, 1, 1, "")
    trace.close()
    (tmp_path / "cut").write_bytes(good.read_bytes()[:-40])
    (tmp_path / "text").write_text("no trace")
    with pa.ipc.new_file(str(tmp_path / "other"), SCHEMA):
        pass
    newer = SCHEMA.with_metadata({"matwin.trace": "99"})
    with pa.ipc.new_file(str(tmp_path / "newer"), newer):
        pass
    for name in ("cut", "text", "other", "newer", "missing"):
        with pytest.raises(StoreError, match=name):
            read_trace(tmp_path / name)
    with pytest.raises(StoreError, match="nowhere"):
        Store(memory="8MiB", trace=tmp_path / "nowhere" / "x")


# ── what a trace may replace ─────────────────────────────────────────────────────────────────────

JOINS: dict[str, Callable[..., Any]] = {
    "bestmatch": lambda one, two, **o: matwin.bestmatch_join(one, two, on={"seq": 1}, **o),
    "inner": lambda one, two, **o: matwin.bestmatch_join(one, two, on={"seq": 1}, how="inner", **o),
    "epsilon": lambda one, two, **o: matwin.epsilon_join(one, two, on={"seq": 1}, **o),
    "fixed": lambda one, two, **o: matwin.fixed_window_join(
        one, two, time="seq", period=1, on={"page": 0}, every=100, **o
    ),
    "window": lambda one, two, **o: matwin.window_join(
        {"a": one, "b": two}, time="seq", windows=1, **o
    ),
    "verify": lambda one, two, **o: matwin.verify(one, two, on={"seq": 1}, **o),
}


def test_the_trace_of_two_readings_is_of_the_second(tmp_path: Path) -> None:
    """The first is not put on pages for a trace that nobody would see."""
    table, report = pa.table({"seq": range(500)}), matwin.Report()
    found = JOINS["inner"](table, table, trace=tmp_path / "x", report=report, memory="8MiB")
    assert found.read_all().num_rows == 500
    first = [said for said in report.decisions if said.startswith("first reading")]
    assert first == ["first reading, for the frontier: memory: everything fits, judged in one step"]
    events = read_trace(tmp_path / "x")["event"].to_pylist()
    assert events.count("read") == report.pages_read


def recorded(path: Path) -> bytes:
    """A trace that may be read as an input, too; its bytes."""
    with Store(memory=smallest_budget(4096), page_size=4096, trace=path) as store:
        store.window("w", SCHEMA_OF_ROWS, on={"t": 100}).append(rows(range(20)))
    return path.read_bytes()


@pytest.mark.parametrize("name", ["old.arrow", "link.arrow", "second.arrow", "sub/../old.arrow"])
@pytest.mark.parametrize("join", JOINS)
def test_a_trace_never_replaces_an_input(tmp_path: Path, join: str, name: str) -> None:
    content = recorded(tmp_path / "old.arrow")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.arrow").symlink_to("old.arrow")
    (tmp_path / "second.arrow").hardlink_to(tmp_path / "old.arrow")
    table = read_trace(tmp_path / "old.arrow")
    for source in (str(tmp_path / "old.arrow"), [tmp_path / "ol*.arrow"]):
        for sides in ((source, table), (table, matwin.stream(source))):
            with pytest.raises(InputError, match="is an input"):
                JOINS[join](*sides, trace=tmp_path / name)
    assert (tmp_path / "old.arrow").read_bytes() == content


@pytest.mark.parametrize("join", ["bestmatch", "epsilon", "fixed", "window"])
def test_a_trace_that_is_replaced_is_not_cut(tmp_path: Path, join: str) -> None:
    """Somebody may have it mapped: perhaps the very table that is joined."""
    content = recorded(tmp_path / "old.arrow")
    table = read_trace(tmp_path / "old.arrow")
    (tmp_path / "old.arrow").chmod(0o640)
    (tmp_path / "link.arrow").symlink_to("old.arrow")
    with (tmp_path / "old.arrow").open("rb") as old:
        result = JOINS[join](table, table, trace=tmp_path / "link.arrow", materialize="slab")
        batches = iter(result)
        next(batches)
        assert (tmp_path / "old.arrow").read_bytes() == content, "it stays until the new is whole"
        list(batches)
        assert old.read() == content
    assert (tmp_path / "link.arrow").is_symlink()
    assert (tmp_path / "old.arrow").read_bytes() != content
    assert read_trace(tmp_path / "old.arrow").num_rows > 0
    assert stat.S_IMODE((tmp_path / "old.arrow").stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.arrow", "old.arrow"]
