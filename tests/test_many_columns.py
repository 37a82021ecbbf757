"""Tables of very many columns: every step takes them in one pass.

What is asked of a step is how its work grows, as the processor's time for eight times the columns:
about eight times as much, and 64 times where it is quadratic.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import call_in_child, resident

import matwin
from matwin import ways
from matwin.jsonl import declared_schema, line_of, schema_of
from matwin.sizes import bytes_at, fixed_bytes
from matwin.sources import source_of
from matwin.storage import Store
from matwin.storage.errors import InputError
from matwin.storage.names import listed, repeated
from matwin.tools.compare import compare
from matwin.tools.verify_sql import sql_of
from matwin.tools.window_question import PlainQuestion
from matwin.tools.window_sql import question_sql
from matwin.tools.words import question_of

COLUMNS = 4000


def wide(mark: str, columns: int = COLUMNS) -> pa.Table:
    values = pa.array(np.arange(3))
    return pa.table([values] * (columns + 1), ["t", *(f"{mark}{n}" for n in range(columns))])


def test_joins_take_very_many_columns(tmp_path: Path) -> None:
    left, right = wide("c"), wide("d")
    path = tmp_path / "wide.parquet"
    pq.write_table(wide("c", COLUMNS // 10), path)
    for result in (
        matwin.bestmatch_join(left, right, on={"t": 0}),
        matwin.epsilon_join(left, left, on={"t": 0}, how="full"),
        matwin.window_join({"a": left, "b": right}, time="t", windows={("a", "b"): (0, 0)}),
        matwin.bestmatch_join(str(path), [left.to_batches()[0]], on={"t": 0}),
    ):
        assert sum(batch.num_rows for batch in result) == 3
    for refused in ({"x": 1}, {("t", "x"): 1}):
        with pytest.raises(InputError) as caught:
            matwin.epsilon_join(left, right, on=refused)
        assert len(str(caught.value)) < 1000


def test_a_page_of_very_many_columns_is_decoded_while_it_is_pinned() -> None:
    """Arrow takes 400 bytes for a column's view, more than its values where rows are few; frames
    are counted by their bytes."""
    kept = []
    for columns in (3, COLUMNS):
        rows = wide("c", columns).to_batches()[0]
        with Store(memory="64MiB") as store:
            window = store.window("w", rows.schema, on={"t": 1})
            window.append(rows)
            with store.pool.pin(window.pages()[0].page_id) as page:
                batch = weakref.ref(page.batch)
            kept.append(batch() is not None)
            assert store.pool.is_resident(window.pages()[0].page_id)
    assert kept == [True, False]


def four_windows(store: Store, rows: pa.RecordBatch) -> list[Any]:
    """As a full bestmatch join has them, each with a tenth of the budget to sort."""
    return [store.window(f"w{n}", rows.schema, on={"t": 1}) for n in range(4)]


def test_few_rows_of_very_many_columns_share_pages() -> None:
    """Each column of a page takes 48 bytes, however few rows it has: 2,500 columns in 8 MiB were
    written two rows at a time, and a full bestmatch join took over ten minutes for 8,000 rows."""
    ids = pa.array(np.arange(6))
    rows = pa.record_batch([ids] * 2500, ["t", *(f"c{n}" for n in range(2499))])
    with Store(memory="8MiB") as store:
        window = four_windows(store, rows)[0]
        for _ in range(8):
            window.append(rows)
        pages = window.pages()
        assert sum(page.rows for page in pages) == 48
        assert len(pages) <= 10


def test_the_beginning_of_a_batch_is_no_larger_than_its_end() -> None:
    """Arrow encodes the first row of a batch with the bytes of the next seven, and the row was
    refused for its size."""
    ids = pa.array(np.arange(8))
    rows = pa.record_batch([ids] * 2500, ["t", *(f"c{n}" for n in range(2499))])
    with Store(memory="8MiB") as store:
        first, last, *_ = four_windows(store, rows)
        last.append(rows.slice(7, 1))
        first.append(rows.slice(0, 1))
        assert [page.size for page in first.pages()] == [page.size for page in last.pages()]


def waiting_rows(columns: int) -> int:
    """How much a process grows by rows that wait to be sorted."""
    rows = wide("c", columns).to_batches()[0].slice(2, 1)
    with Store(memory="256MiB") as store:
        window = store.window("w", rows.schema, on={"t": 1})
        window.append(rows)
        before = resident("VmRSS")
        for _ in range(50):
            window.append(rows)
        return resident("VmRSS") - before


def test_rows_of_very_many_columns_wait_as_bytes() -> None:
    """The columns of 50 waiting rows took 4 MB a row, and none of that was counted."""
    assert call_in_child(waiting_rows, 10_000) < 100_000_000


def test_few_rows_of_very_many_columns_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes 400 bytes a column by itself: what is left of two becomes one."""
    monkeypatch.setattr(ways, "FORCED", "slabs")  # pages would do as well
    many = pa.table([pa.array(np.arange(96))] * 2500, ["t", *(f"c{n}" for n in range(2499))])
    batches, report = many.to_batches(max_chunksize=12), matwin.Report()
    found = matwin.bestmatch_join(batches, batches, on={"t": 0}, memory="8MiB", report=report)
    assert sum(batch.num_rows for batch in found) == 96
    assert report.pages_written == 0
    assert any("slab by slab" in decision for decision in report.decisions)


def test_bytes_of_rows_by_their_types() -> None:
    rows = pa.record_batch(
        {"t": [1, 2, 3], "b": [True, None, False], "s": ["a", "bcd", None], "f": [1.5, 2.5, 3.5]}
    )
    fixed, others = fixed_bytes(rows.schema)
    assert (fixed, others) == (17, [2])  # 64 + 1 + 64 bits, and 3 that say whether they are null
    assert bytes_at(rows, np.array([1, 0, 1])).tolist() == [17 + 8 + 3, 17 + 8 + 1, 17 + 8 + 3]


def json_lines(columns: int) -> None:
    text = "{" + ",".join(f'"c{n}": {n}' for n in range(columns)) + "}"
    line = line_of(text.encode(), 1, "here")
    assert line and len(schema_of([line], "here")) == columns


def plan(columns: int) -> None:
    left, right = wide("c", columns), wide("d", columns)
    sql_of(question_of(left.schema, right.schema, best=True, on={"t": 0}))


def window_plan(columns: int) -> None:
    schemas = {"a": wide("c", columns).schema, "b": wide("d", columns).schema}
    asked = {"time": "t", "windows": {("a", "b"): (0, 0)}}
    question_sql(PlainQuestion.of(schemas, **asked))
    matwin.explain_window_join({n: s.empty_table() for n, s in schemas.items()}, **asked)


def fitted(columns: int) -> None:
    table = wide("c", columns)
    noted = table.replace_schema_metadata({"a": "note"})
    source = source_of([table, noted], "left")
    assert len(list(source.batches(table.column_names))) == 2


def told_apart(columns: int) -> None:
    compare(wide("c", columns), wide("c", columns))
    assert len(str(compare(wide("c", columns), wide("d", columns)))) < 2000


STEPS: dict[str, Callable[[int], object]] = {
    "declared": lambda n: declared_schema(
        ",".join(f"c{at}:timestamp[us, tz=UTC]" for at in range(n)), "--schema"
    ),
    "json": json_lines, "plan": plan, "window plan": window_plan, "fitted": fitted,
    "compare": told_apart,
}  # fmt: skip


def seconds(step: Callable[[int], object], columns: int) -> float:
    """The processor's time, the least of some tries."""
    found = []
    for _ in range(4):
        began = time.process_time()
        step(columns)
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_quadratic_in_columns(name: str) -> None:
    few, many = seconds(STEPS[name], 1500), seconds(STEPS[name], 12_000)
    assert many < 20 * few, f"{many / few:.0f} times as much work for 8 times the columns"


def test_names_are_looked_at_once() -> None:
    seen = 0

    class Name(str):
        """Text that counts how often it is compared."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal seen
            seen += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

        __hash__ = str.__hash__

    names = [Name(f"c{n}") for n in range(10_000)]
    assert repeated([*names, Name("c5")]) == ["c5"]
    assert seen < 100
    assert len(listed(names)) < 300
