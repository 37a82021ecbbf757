"""As-of joins of many times the budget: the process stays near it, whatever the rows are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import call_in_child, peak_begins_anew, resident

import matwin

pytestmark = [pytest.mark.disk, pytest.mark.slow]

MB = 10**6
BUDGET = 1 << 20
ROWS = 200_000


def batches(seed: int, rows: int, span: int, width: int) -> Any:
    """Rows that nobody holds as a whole."""
    schema = pa.schema([("t", pa.int64()), ("id", pa.int64()), ("s", pa.string())])
    random = np.random.default_rng(seed)

    def made() -> Any:
        for first in range(0, rows, 1000):
            times = random.integers(0, span, 1000)
            ids = np.arange(first, first + 1000)
            yield pa.record_batch([times, ids, ["q" * width] * 1000], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, made())


def joined(case: dict[str, Any], memory: int) -> dict[str, Any]:
    """Join them; what came out and what it took."""
    report = matwin.Report()
    shape = {name: case[name] for name in ("rows", "span", "width")}
    asked = {name: value for name, value in case.items() if name not in shape}
    few = [batches(seed, 2000, 50, 9) for seed in (1, 2)]
    matwin.asof_join(*few, on="t", memory="256KiB", **asked).read_all()  # not measured
    peak_begins_anew()
    start = resident("VmRSS")
    found = matwin.asof_join(
        *(batches(seed, **shape) for seed in (1, 2)), on="t", memory=memory, report=report, **asked
    )
    rows = total = 0
    for batch in found:
        rows += batch.num_rows
        total += int(np.nan_to_num(np.asarray(batch["id_right"], np.float64)).sum()) % 1_000_003
    return {
        "rows": rows, "sum": total % 1_000_003, "counted": report.peak_bytes,
        "written": report.pages_written, "peak": resident("VmHWM") - start,
    }  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "any order": {"rows": ROWS, "span": 10 * ROWS, "width": 9},
    "one time": {"rows": ROWS, "span": 1, "width": 9, "direction": "nearest"},
    "wide": {"rows": 20_000, "span": 10**6, "width": 3000},
    "all matches": {"rows": 3000, "span": 12, "width": 9, "ties": "all", "tolerance": 3},
}


@pytest.mark.parametrize("name", CASES)
def test_the_process_stays_near_the_budget(name: str) -> None:
    case = CASES[name]
    told = call_in_child(joined, case, BUDGET)
    roomy = call_in_child(joined, case, 1 << 30)
    assert told["rows"] == roomy["rows"] >= case["rows"]
    assert told["sum"] == roomy["sum"]
    assert told["counted"] <= BUDGET
    assert told["written"] > 0 or name == "all matches"
    assert told["peak"] <= BUDGET + 60 * MB, told
