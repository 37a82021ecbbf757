"""The trace: its counts are the pool's, and bad files are named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from matwin.storage import Store, StoreError, read_trace, smallest_budget
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
