"""Events and their summary: the counts are the pool's, and those of a plain loop."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

from matwin.storage import Store, read_trace, smallest_budget
from matwin.storage.trace import EVENTS, SCHEMA
from matwin.tools import cli
from matwin.tools.trace.events import Events
from matwin.tools.trace.summary import COUNTED, overlap, summarize
from matwin.tools.trace.walks import OPEN_MAX, walk_number, walks


def plain(table: pa.Table) -> dict[str, dict[str, int]]:
    """The counts of each window, one event after the other."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    words = {kind: name for name, kind in COUNTED.items()}
    seen = set()
    for event in table.to_pylist():
        own, kind = found[event["window"]], event["event"]
        if kind in words:
            own[words[kind]] += 1
        if kind == "read":
            own["bytes_read"] += event["bytes"]
            own["rereads"] += (event["window"], event["page"]) in seen
            seen.add((event["window"], event["page"]))
        if kind == "write":
            own["bytes_written"] += event["bytes"]
        if kind == "visit":
            for window in {event["window"], event["mate_window"]}:
                found[window]["visits"] += 1
    return found


def assert_like_plain(table: pa.Table) -> None:
    summary = summarize(table)
    expected = plain(table)
    for name, counts in summary["windows"].items():
        assert counts == {key: expected[name][key] for key in counts}, name
    missing = set(expected) - set(summary["windows"])
    assert not any(any(expected[name].values()) for name in missing)
    for key in (*COUNTED, "rereads", "bytes_read", "bytes_written"):
        assert summary["totals"][key] == sum(w[key] for w in expected.values())


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
def test_counts_equal_the_pools(form: str, tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    with Store(memory=smallest_budget(4096), page_size=4096, trace=path) as store:
        window = store.window("left", traces.ROWS, on={"t": 500, "x": 0.5}, materialize=form)
        batch = traces.rows(8000)
        for step in range(8):
            window.append(batch.slice(step * 1000, 1000))
            window.expire(below=step * 1000 - 3000)
            store.commit()
            sum(batch.num_rows for batch in window.scan())
        counters = store.pool.counters.as_dict()
    table = read_trace(path)
    summary = summarize(table)
    totals = {**summary["totals"], "pins": counters["pins"], "bytes_peak": counters["bytes_peak"]}
    assert {name: totals[name] for name in counters} == counters
    assert summary["complete_steps"] == 8
    assert summary["totals"]["hit_rate"] == counters["hits"] / counters["pins"]
    assert sum(summary["expiry_reasons"].values()) == counters["expiries"]
    assert f"{form}: asked for" in [choice["why"] for choice in summary["choices"]]
    assert_like_plain(table)


@pytest.mark.parametrize("names", [("readings", "weather"), ("events",)])
def test_a_walk_is_counted(names: tuple[str, ...], tmp_path: Path) -> None:
    trace, counters = traces.walked(tmp_path, names=names)
    table = read_trace(trace)
    summary = summarize(table)
    assert {key: summary["totals"][key] for key in ("reads", "hits", "makes", "evictions")} == {
        key: counters[key] for key in ("reads", "hits", "makes", "evictions")
    }
    assert_like_plain(table)
    (plan,) = summary["plans"]
    assert plan["visits"] == plan["pairs"] == 29
    assert plan["reads"] + plan["hits"] == plan["page_reads"]
    assert plan["is_self"] == (len(names) == 1)
    assert (plan["left"], plan["right"]) == (names[0], names[-1])
    assert plan["outcome"] == "done"
    assert 0 <= plan["overlap"]["overlapped"] <= plan["overlap"]["fetches"] == plan["reads"]


def test_peak_of_frames_is_what_was_in_use_at_once(tmp_path: Path) -> None:
    trace, _ = traces.walked(tmp_path)
    table = read_trace(trace)
    used: set[int] = set()
    peak = 0
    for event in table.to_pylist():
        if event["event"] in ("make", "fetch"):
            used.add(event["frame"])
        elif event["event"] in ("evict", "expire", "drop"):
            used.discard(event["frame"])
        peak = max(peak, len(used))
    assert summarize(table)["totals"]["frames_peak"] == peak


@given(st.lists(st.sampled_from(["f0", "f1", "r0", "r1", "(", ")"]), max_size=24))
def test_overlap_is_what_a_loop_finds(words: list[str]) -> None:
    """A read overlaps when a pair is being visited at any time from its beginning to its end."""
    kinds = {"f": "fetch", "r": "read", "(": "visit", ")": "visited"}
    layout = json.dumps({"left": [0, 1], "right": [0], "reach": [[0, 0, 1]]})
    rows = [("plan", "w", -1, "v", -1, layout)]
    rows += [
        (kinds[word[0]], "w", int(word[1]), "", -1, "")
        if word[0] in "fr"
        else (kinds[word], "w", 0, "v", 0, "")
        for word in words
    ]
    events = Events(table_of(rows))
    begun: dict[int, list[bool]] = {}
    running = overlapped = fetches = 0
    for word in words:
        running += {"(": 1, ")": -1}.get(word, 0)
        if word == "(":
            for state in begun.values():
                state[0] = True
        elif word[0] == "f":
            fetches += 1
            begun[int(word[1])] = [running > 0]
        elif word[0] == "r":
            state = begun.pop(int(word[1]), [False])
            overlapped += state[0]
    found = overlap(events, walk_number(events, 0))
    assert found == {"fetches": fetches, "overlapped": overlapped}


def table_of(rows: list[tuple[str, str, int, str, int, str]]) -> pa.Table:
    """A trace of (event, window, page, mate_window, mate_page, why)."""
    names = ("event", "window", "page", "mate_window", "mate_page", "why")
    listed = [
        {
            "seq": at, "time_ns": at, "frame": -1, "bytes": 1, "epoch": 0,
            **dict(zip(names, row, strict=True)),
        }
        for at, row in enumerate(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(listed, SCHEMA)


def test_over_time_adds_up(tmp_path: Path) -> None:
    trace, counters = traces.walked(tmp_path)
    summary = summarize(read_trace(trace))
    stretches = summary["hit_rate_over_time"]
    assert 1 <= len(stretches) <= 200
    for key in ("hits", "reads", "bytes_read", "bytes_written"):
        assert sum(stretch[key] for stretch in stretches) == counters[key]
    times = [stretch["time_ns"] for stretch in stretches]
    assert times == sorted(times)


def test_walks_end_where_they_end(tmp_path: Path) -> None:
    layout = json.dumps({"left": [5, 3], "right": [7], "reach": [[1, 0, 1]], "frames": 2})
    events = [
        ("make", "a", 5, 0, 1, 0, ""),
        ("plan", "a", -1, -1, 0, 0, layout, ("b", -1)),
        ("read", "b", 7, 0, 1, 0, ""),
        ("read", "a", 3, 1, 1, 0, ""),
        ("read", "c", 3, 2, 1, 0, ""),
        ("visit", "a", 3, -1, 0, 0, "", ("b", 7)),
        ("visit", "a", 9, -1, 0, 0, "", ("b", 7)),
        ("walked", "a", -1, -1, 0, 0, "given up", ("b", -1)),
        ("read", "a", 5, 3, 1, 0, ""),
        ("plan", "a", -1, -1, 0, 0, layout, ("b", -1)),
        ("plan", "a", -1, -1, 0, 0, layout, ("b", -1)),
    ]
    found = Events.open(traces.written(tmp_path / "t", events))
    first, second, third = walks(found)
    assert [(w.start, w.end, w.outcome) for w in (first, second, third)] == [
        (1, 8, "given up"), (9, 10, ""), (10, 11, ""),
    ]  # fmt: skip
    assert first.uses(found, "read")[1].tolist() == [2, 1]  # page 7 is right place 0, node 2
    assert [part.tolist() for part in first.visits(found)] == [[5], [1], [0]]
    assert first.pages_needed == 2
    assert first.triples == [(1, 0, 1)]


def plan_of(left: list[int], right: list[int], windows: tuple[str, str]) -> tuple[object, ...]:
    reach = [[i, 0, len(right)] for i in range(len(left))]
    layout = json.dumps({"left": left, "right": right, "reach": reach, "frames": 4})
    return ("plan", windows[0], -1, -1, 0, 0, layout, (windows[1], -1))


def visit_of(one: tuple[str, int], other: tuple[str, int]) -> list[tuple[object, ...]]:
    return [(kind, *one, -1, 0, 0, "", other) for kind in ("visit", "visited")]


def read_of(window: str, page: int) -> list[tuple[object, ...]]:
    return [(kind, window, page, 0, 1, 0, "") for kind in ("fetch", "read")]


def walked_of(why: str, windows: tuple[str, str]) -> tuple[object, ...]:
    return ("walked", windows[0], -1, -1, 0, 0, why, (windows[1], -1))


def mode_of(mode: str, windows: tuple[str, str]) -> tuple[object, ...]:
    return ("mode", windows[0], -1, -1, 0, 0, f"{mode}: asked for", (windows[1], -1))


def test_walks_over_different_windows_may_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = ("a", "b"), ("c", "d")
    events = [
        plan_of([0, 1], [0], one),
        mode_of("gallop", one),
        *read_of("a", 0), *read_of("b", 0),
        *visit_of(("a", 0), ("b", 0)),
        plan_of([0], [0, 1], other),
        mode_of("crabstep", other),
        *read_of("c", 0), *read_of("a", 1), *read_of("d", 0),
        *visit_of(("c", 0), ("d", 0)), *visit_of(("a", 1), ("b", 0)),
        walked_of("given up", one),
        *read_of("d", 1), *read_of("a", 0),
        *visit_of(("c", 0), ("d", 1)),
        walked_of("done", other),
    ]  # fmt: skip
    path = traces.written(tmp_path / "t", events)
    found = Events.open(path)
    first, second = walks(found)
    assert (first.outcome, second.outcome) == ("given up", "done")
    assert [part.tolist() for part in first.visits(found)[1:]] == [[0, 1], [0, 0]]
    plans = summarize(found)["plans"]
    for plan in plans:
        assert (plan["visits"], plan["reads"], plan["pairs"]) == (2, 3, 2)
        assert plan["overlap"]["fetches"] == 3
        assert not plan["is_contested"]
    modes = [found.whys(walk.places_of(found, "mode")) for walk in (first, second)]
    assert modes == [["gallop: asked for"], ["crabstep: asked for"]]
    # Page 0 of a is read once more when its walk is over: no walk's, but within the other's time.
    for number, pages in (("0", 3), ("1", 4)):
        assert cli.main(["trace", "matrix", str(path), "--plan", number]) == 0
        assert "2 of 2 pairs visited, 3 pages read" in capsys.readouterr().out
        assert cli.main(["trace", "replay", str(path), "--plan", number, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["uses"]["pages"] == pages


def test_walks_over_the_same_windows_are_told_apart_by_their_pages(tmp_path: Path) -> None:
    pair = ("a", "b")
    events = [
        plan_of([0, 1], [0, 1], pair),
        *visit_of(("a", 0), ("b", 0)),
        plan_of([5], [5], pair),
        *visit_of(("a", 1), ("b", 1)), *visit_of(("a", 5), ("b", 5)),
        walked_of("done", pair),
        *visit_of(("a", 1), ("b", 0)),
        walked_of("done", pair),
    ]  # fmt: skip
    found = Events.open(traces.written(tmp_path / "t", events))
    outer, inner = summarize(found)["plans"]
    assert (outer["visits"], inner["visits"]) == (3, 1)
    assert (outer["outcome"], inner["outcome"]) == ("done", "done")
    assert not outer["is_contested"] and not inner["is_contested"]


@pytest.mark.parametrize("pair", [("a", "b"), ("a", "c")])
def test_walks_that_cannot_be_told_apart_are_said_to_be(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        plan_of([0, 1], [0, 1], ("a", "b")),
        plan_of([1, 2], [0, 1], pair),
        *read_of("a", 0), *read_of("a", 1), *read_of("a", 2), *read_of(pair[1], 0),
        *visit_of(("a", 1), (pair[1], 0)),
        walked_of("done", pair),
        walked_of("done", ("a", "b")),
    ]  # fmt: skip
    path = traces.written(tmp_path / "t", events)
    summary = summarize(Events.open(path))
    first, second = summary["plans"]
    assert first["is_contested"] and second["is_contested"]
    for name, total in (("visits", 1), ("reads", 4)):
        assert first[name] + second[name] == summary["totals"][name] == total
    assert (first["reads"], second["visits"]) == (1, 1)
    for command in ("summary", "matrix", "replay"):
        assert cli.main(["trace", command, str(path)]) == 0
        assert "can't be told apart" in capsys.readouterr().out


def test_no_more_walks_are_open_than_can_be_looked_at(tmp_path: Path) -> None:
    pairs = [(f"left {i}", f"right {i}") for i in range(OPEN_MAX + 10)]
    events = [plan_of([0], [0], pair) for pair in pairs]
    found = walks(Events.open(traces.written(tmp_path / "t", events)))
    assert [walk.end for walk in found[:10]] == [walk.start + OPEN_MAX for walk in found[:10]]
    assert {walk.end for walk in found[10:]} == {len(events)}


def test_names_and_numbers_that_make_no_sense_are_counted_all_the_same(tmp_path: Path) -> None:
    events = [
        ("read", "a\x1b[2J\n\0</script>", -7, -9, -(2**60), -1, "\x07"),
        ("no such word", "", 3, 2**31 - 1, 2**62, 5, ""),
        ("read", "ε", 2**62, 5, 2**62, 5, "x"),
        ("mode", "ε", -1, -1, 0, 0, "no colon\u202e"),
        ("visit", "ε", 5, -1, 0, 0, "", ("nobody", 2**63 - 1)),
    ]
    path = traces.written(tmp_path / "t", events, {"page_size": "-3", "budget_bytes": "many"})
    summary = summarize(read_trace(path))
    assert summary["unknown_events"] == 1
    assert summary["page_size"] is None and summary["budget_bytes"] is None
    assert summary["modes"][0]["mode"] == "no colon\u202e"
    assert summary["totals"]["reads"] == 2
    json.dumps(summary)


def test_text_escapes_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a\x1b[31m\n\0", "</script>\u202e")
    trace, _ = traces.walked(tmp_path, names=names)
    for command in (["summary"], ["pages"], ["matrix"], ["replay"], ["diff", str(trace)]):
        assert cli.main(["trace", command[0], str(trace), *command[1:]]) == 0
        out = capsys.readouterr().out
        assert all(c.isprintable() or c == "\n" for c in out), command
        if command[0] != "diff":
            assert "\\x1b[31m\\n\\x00" in out
    assert cli.main(["trace", "pages", str(trace), "--window", names[0], "--page", "3"]) == 0
    assert cli.main(["trace", "pages", str(trace), "--window", "a\\x1b[31m\\n\\x00"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_trace_without_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(traces.written(tmp_path / "t", []))
    assert cli.main(["trace", "summary", path]) == 0
    assert "0 events" in capsys.readouterr().out
    assert cli.main(["trace", "summary", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hit_rate_over_time"] == []
    assert cli.main(["trace", "pages", path]) == 0
    assert cli.main(["trace", "diff", path, path]) == 0
    assert "no difference" in capsys.readouterr().out


def test_json_is_what_summarize_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    assert cli.main(["trace", "summary", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == summarize(read_trace(trace))


def test_events_of_many_batches_and_nulls(tmp_path: Path) -> None:
    """Dictionaries that differ from chunk to chunk, and nulls where there should be none."""
    first = table_of([("read", "a", 1, "", -1, ""), ("hit", "b", 1, "", -1, "")])
    second = table_of([("hit", "b", 1, "", -1, ""), ("read", "a", 1, "", -1, "")])
    holes = pa.Table.from_pylist([{}], SCHEMA)
    events = Events(pa.concat_tables([first, second, holes]))
    assert [EVENTS[k] for k in events.kind[:4]] == ["read", "hit", "hit", "read"]
    assert events.kind[4] == -1
    assert [events.names[w] for w in events.window] == ["a", "b", "b", "a", ""]
    assert events.is_reread.tolist() == [False, False, False, True, False]
    assert np.array_equal(events.page, [1, 1, 1, 1, -1])
