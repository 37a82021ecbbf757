"""Joins that fit the memory are divided too where rows are many: the same rows come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin import driver
from matwin.report import Report

ROWS = 4000


def table(seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table({
        "t": chance.integers(0, ROWS, ROWS), "x": chance.random(ROWS),
        "k": chance.integers(0, 40, ROWS), "id": np.arange(ROWS),
    })  # fmt: skip


def window(left: pa.Table, right: pa.Table, **options: Any) -> pa.Table:
    return matwin.window_join(
        {"a": left, "b": right}, time="t", windows=30, by="k", **options
    ).read_all()


JOINS: dict[str, Any] = {
    "epsilon": lambda a, b, **o: matwin.epsilon_join(a, b, on={"t": 9, "x": 0.1}, **o).read_all(),
    "keyed": lambda a, b, **o: matwin.epsilon_join(a, b, on={"t": 9}, by="k", **o).read_all(),
    "left": lambda a, b, **o: matwin.bestmatch_join(a, b, on={"t": 9, "x": 0.1}, **o).read_all(),
    "full": lambda a, b, **o: matwin.bestmatch_join(
        a, b, on={"t": 9, "x": 0.1}, how="full", **o
    ).read_all(),
    "window": window,
}


def bag(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", JOINS)
def test_the_same_rows_in_parts_that_fit_the_cache(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = table(1), table(2)
    whole = JOINS[name](left, right)
    monkeypatch.setattr(driver, "DIVIDES_FROM", 1 << 12)
    report = Report()
    divided = JOINS[name](left, right, report=report)
    assert any("fits the cache" in decision for decision in report.decisions)
    assert report.pages_written == 0
    assert bag(divided) == bag(whole)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_one_attribute_or_sorted_rows_stay_whole(
    is_sorted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = table(1), table(2)
    if is_sorted:
        left, right = left.sort_by("t"), right.sort_by("t")
    monkeypatch.setattr(driver, "DIVIDES_FROM", 1 << 12)
    report = Report()
    on = {"t": 9, "x": 0.1} if is_sorted else {"t": 9}
    matwin.epsilon_join(left, right, on=on, report=report).read_all()
    assert not any("parts" in decision for decision in report.decisions)
