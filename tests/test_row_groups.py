"""Statistics of Parquet's row groups choose the way of a join, and never its result."""

from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin import parquet
from matwin.files import files_source
from matwin.places import Place
from matwin.report import Report
from matwin.row_groups import RowGroup, are_alike, descend

ROWS, GROUP = 60_000, 5_000
MEMORY = "2MiB"


def row_groups(path: str, column: str) -> list[RowGroup] | None:
    return parquet.row_groups(Place(path, path), column)


def table(times: Any, seed: int = 0) -> pa.Table:
    made = np.random.default_rng(seed)
    columns = {"t": times, "n": np.arange(len(times)), "x": made.random(len(times))}
    return pa.table({**columns, "y": made.random(len(times))})


def random_times(seed: int) -> Any:
    """In no order; no two row groups have the same limits."""
    times = np.random.default_rng(seed).integers(100, 600_000, ROWS)
    times[::GROUP] = np.arange(ROWS // GROUP)
    times[1::GROUP] = 600_000 + np.arange(ROWS // GROUP)
    return times


def written(path: Path, times: Any, **options: Any) -> str:
    pq.write_table(table(times), path, row_group_size=GROUP, **options)
    return str(path)


def joined(left: object, right: object) -> tuple[list[tuple[int, int]], Report]:
    report = Report()
    found = matwin.epsilon_join(
        left, right, on={"t": 3}, memory=MEMORY, page_size="8KiB", report=report
    ).read_all()
    pairs = zip(found["n_left"].to_pylist(), found["n_right"].to_pylist(), strict=True)
    return sorted(pairs), report


def expected(left: Any, right: Any) -> list[tuple[int, int]]:
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left - 3, "left")
    high = np.searchsorted(right[order], left + 3, "right")
    return sorted((i, int(order[k])) for i in range(len(left)) for k in range(low[i], high[i]))


STATISTICS = "not sorted, by the statistics of its row groups"


def test_a_file_that_says_it_is_not_sorted_is_not_looked_through(tmp_path: Path) -> None:
    """The decision tells it, and the same rows without statistics have the same result."""
    left, right = random_times(1), random_times(2)
    wanted = expected(left, right)
    told = [written(tmp_path / f"{n}.parquet", t) for n, t in (("l", left), ("r", right))]
    found, report = joined(*told)
    assert found == wanted
    assert any(STATISTICS in told for told in report.decisions)
    bare = [written(tmp_path / f"{n}.parquet", t, write_statistics=False)
            for n, t in (("a", left), ("b", right))]  # fmt: skip
    found, report = joined(*bare)
    assert found == wanted
    assert not any("statistics" in told for told in report.decisions)


def test_ascending_row_groups_are_looked_through(tmp_path: Path) -> None:
    """Their rows may be in any order: only these tell whether they are sorted."""
    left, right = np.sort(random_times(1)), np.sort(random_times(2))
    shuffled = left.reshape(-1, GROUP)[:, ::-1].reshape(-1)  # the groups ascend, their rows don't
    base = written(tmp_path / "r.parquet", right)
    found, report = joined(written(tmp_path / "l.parquet", left), base)
    assert found == expected(left, right)
    assert "all inputs are sorted by the order attribute" in report.decisions
    found, report = joined(written(tmp_path / "s.parquet", shuffled), base)
    assert found == expected(shuffled, right)
    assert "all inputs are sorted by the order attribute" not in report.decisions


@pytest.mark.parametrize("times", ["sorted", "random"])
def test_wrong_statistics_give_right_results(tmp_path: Path, times: str) -> None:
    """Every least and greatest value of the file is replaced by those of other row groups."""
    left, right = random_times(1), random_times(2)
    if times == "sorted":
        left, right = np.sort(left), np.sort(right)
    paths = [written(tmp_path / f"{n}.parquet", t, use_dictionary=False, compression="none")
             for n, t in (("l", left), ("r", right))]  # fmt: skip
    before = row_groups(paths[0], "t")
    for path in paths:
        lie(Path(path))
    after = row_groups(paths[0], "t")
    assert before and after and before != after
    assert descend(after) != (times == "random")  # told the contrary of what is so
    assert joined(*paths)[0] == expected(left, right)


def lie(path: Path) -> None:
    """Mirror all values of `t` in the footer: what ascends descends, what is random ascends."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    body, footer, end = data[: -8 - length], data[-8 - length : -8], data[-8:]
    groups = row_groups(str(path), "t") or []
    limits = [group.limits for group in groups if group.limits]
    is_sorted = not descend(groups)
    for number, (low, high) in enumerate(limits):
        shift = len(limits) - number if is_sorted else number + 1
        old = [struct.pack("<q", value) for value in (low, high)]
        new = [struct.pack("<q", shift * 10**6), struct.pack("<q", shift * 10**6 + 1)]
        for was, is_now in zip(old, new, strict=True):
            footer = footer.replace(b"\x08" + was, b"\x08" + is_now)
    path.write_bytes(body + footer + end)


TIMES = {
    "int32": pa.array([1, 2, None, 4, 5, 6], pa.int32()),
    "uint64": pa.array([1, 2, 2**63, 2**63 + 4, 2**64 - 2, 2**64 - 1], pa.uint64()),
    "double": pa.array([1.0, float("nan"), 2.0, 3.0, 4.0, 5.0]),
    "ns": pa.array([1, 2, 3, 4, 5, 2**62], pa.timestamp("ns")),
    "zone": pa.array([dt.datetime(2020, 1, d) for d in range(1, 7)], pa.timestamp("us", "UTC")),
    "date": pa.array([1, 2, 3, 4, 5, 6], pa.date32()),
}


@pytest.mark.parametrize("kind", TIMES)
def test_columns_of_all_types_that_are_ordered(tmp_path: Path, kind: str) -> None:
    """Ascending values are told to ascend, also above 2**63 and with nulls and NaN between."""
    for name, values in ((kind, TIMES[kind]), (f"{kind} back", TIMES[kind][::-1])):
        pq.write_table(pa.table({"t": values}), tmp_path / f"{name}.parquet", row_group_size=2)
        groups = row_groups(str(tmp_path / f"{name}.parquet"), "t")
        assert groups is not None and [group.rows for group in groups] == [2, 2, 2]
        assert descend(groups) == ("back" in name)


@pytest.mark.parametrize(
    "values",
    [pa.array(["a", "b"]), pa.array([1.0, float("inf")]), pa.array([[1], [2]]),
     pa.array([{"a": 1, "b": 2}] * 2)],
)  # fmt: skip
def test_columns_of_which_nothing_is_known(tmp_path: Path, values: pa.Array) -> None:
    """Text, infinite values and what is nested."""
    pq.write_table(pa.table({"t": values}), tmp_path / "f.parquet")
    assert row_groups(str(tmp_path / "f.parquet"), "t") is None


def test_some_row_groups_are_sampled_where_all_are_alike(tmp_path: Path) -> None:
    """And all of them where they are not, or say nothing of themselves."""
    path = written(tmp_path / "f.parquet", random_times(1))
    some = files_source(path, "left").thinned(["t", "x"], 4)
    assert some is not None and some.rows_hint == 4 * GROUP
    numbers = [n for batch in some.batches(["n"]) for n in batch["n"].to_pylist()]
    assert numbers == [n for n in range(ROWS) if n // GROUP % 3 == 0]
    assert files_source(path, "left").thinned(["t", "n"], 4) is None
    assert files_source(path, "left").thinned(["t"], 12) is None
    bare = written(tmp_path / "b.parquet", random_times(1), write_statistics=False)
    assert files_source(bare, "left").thinned(["t"], 4) is None


def explained(path: str) -> str:
    told = matwin.explain_join(path, path, best=False, on={"t": 3}, memory=MEMORY, page_size="8KiB")
    return " ".join(told.split())


def test_explain_says_that_statistics_were_used(tmp_path: Path) -> None:
    """Of the order, of the plan that follows from it, and of the sample."""
    path = written(tmp_path / "f.parquet", random_times(1))
    told = explained(path)
    assert f"order of t not declared: {STATISTICS}" in told
    assert "inputs are not sorted" in told and "slabs if" not in told
    assert "sample of some row groups" in told
    path = written(tmp_path / "s.parquet", np.sort(random_times(1)))
    told = explained(path)
    assert "may be sorted, by the statistics of its row groups" in told
    assert "sample of some row groups" not in told


limits = st.one_of(st.none(), st.tuples(st.integers(-9, 9), st.integers(0, 5)))


@given(st.lists(limits, max_size=6))
def test_descending_row_groups_hold_no_sorted_rows(found: list[tuple[int, int] | None]) -> None:
    """Against the plain meaning: no sorted rows have these limits, group after group."""
    groups = [RowGroup(2, one and (one[0], one[0] + one[1])) for one in found]
    rows = [value for group in groups if group.limits for value in group.limits]
    assert descend(groups) == (rows != sorted(rows))
    assert not are_alike(groups) or all(group.limits for group in groups)
