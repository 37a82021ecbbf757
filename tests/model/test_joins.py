"""Every join against a plain nested loop: in memory, on pages, and as streams, the same rows.

In memory with and without sorting; on pages with every materialization and schedule and a budget of
a few pages; as sorted streams that are fed a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import Case, as_bag, cases

import matwin
from matwin import memory
from matwin.kernels import strips
from matwin.report import Report
from matwin.scheduler import MODES
from matwin.storage.columns import order_key

FORMS = ("standard", "grid", "slab")
SMALL = {"page_size": "4KiB", "memory": 32 * 4096, "threads": 2}


def joined(case: Case, left: object = None, right: object = None, **options: Any) -> pa.Table:
    join = matwin.bestmatch_join if case.best else matwin.epsilon_join
    report = Report()
    reader = join(
        case.left if left is None else left,
        case.right if right is None else right,
        report=report, **case.arguments, **options,
    )  # fmt: skip
    table = reader.read_all()
    assert table.schema == case.question.schema
    report.check()
    assert report.rows_out == table.num_rows
    return table


@pytest.mark.parametrize("best", [True, False])
@given(data=st.data())
def test_in_memory(best: bool, data: st.DataObject) -> None:
    case = data.draw(cases(best=best, ties=True))
    assert as_bag(joined(case)) == case.expected


@pytest.mark.parametrize("best", [True, False])
@given(data=st.data())
def test_in_memory_sorted(best: bool, data: st.DataObject) -> None:
    case = data.draw(cases(best=best, rows_max=16, ties=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FEW_PAIRS", 0)
        patch.setattr(strips, "FEW_ROWS", 0)
        assert as_bag(joined(case)) == case.expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("best", [True, False])
@given(data=st.data())
def test_on_pages(best: bool, form: str, data: st.DataObject) -> None:
    case = data.draw(cases(best=best, rows_max=16, ties=True))
    mode = data.draw(st.sampled_from(MODES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strips, "FEW_ROWS", data.draw(st.sampled_from([0, strips.FEW_ROWS])))
        found = joined(case, materialize=form, schedule=mode, **SMALL)
    assert as_bag(found) == case.expected


def sorted_pieces(table: pa.Table, name: str, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """The rows by the order attribute, those without one anywhere, cut into pieces."""
    keys = order_key(table[name].combine_chunks())
    rows = table.take(pa.array(keys.argsort(kind="stable")))
    at = piece = 0
    while at < rows.num_rows:
        size = sizes[piece % len(sizes)]
        yield from rows.slice(at, size).combine_chunks().to_batches()
        at, piece = at + size, piece + 1


@pytest.mark.parametrize("best", [True, False])
@given(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_as_streams(best: bool, data: st.DataObject, sizes: list[int]) -> None:
    case = data.draw(cases(best=best, unconstrained_order=False, rows_max=16))
    order = case.question.order
    left = matwin.stream(sorted_pieces(case.left, order.left, sizes), schema=case.left.schema)
    right = matwin.stream(sorted_pieces(case.right, order.right, sizes), schema=case.right.schema)
    options = data.draw(st.sampled_from([{}, {"materialize": "slab", "max_delay": "0s", **SMALL}]))
    assert as_bag(joined(case, left, right, **options)) == case.expected
