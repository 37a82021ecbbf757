"""`ordered=True`: the same rows, by the left input's order; rows without a left row come last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from questions import as_bag

import matwin
from matwin import ways

ON_PAGES = {"memory": "2MiB", "page_size": "4KiB", "materialize": "slab"}
IN_PARTS = {"memory": "2MiB", "page_size": "4KiB"}
CASES = [
    *((matwin.bestmatch_join, how) for how in ("left", "right", "full", "inner")),
    *((matwin.epsilon_join, how) for how in ("inner", "left", "right", "full", "semi", "anti")),
]


def table(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    times = chance.integers(0, rows, rows)
    is_null = chance.random(rows) < 0.1
    return pa.table({
        "t": pa.array(times, mask=is_null), "k": chance.integers(0, 3, rows), "id": np.arange(rows)
    })  # fmt: skip


@pytest.mark.parametrize("way", ["memory", "pages", "parts"])
@pytest.mark.parametrize(("join", "how"), CASES)
def test_every_join_in_left_order(join: Any, how: str, way: str) -> None:
    left, right = table(300, 1), table(300, 2)
    asked: dict[str, Any] = {"on": {"t": 3}, "by": "k", "how": how}
    if join is matwin.bestmatch_join and how != "inner":
        asked["keep_unmatched"] = True
    options = {"memory": {}, "pages": ON_PAGES, "parts": IN_PARTS}[way]
    report = matwin.Report()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "FORCED", "parts" if way == "parts" else None)
        found = join(left, right, ordered=True, report=report, **asked, **options).to_arrow()
        others = join(left, right, **asked, **options).to_arrow()
    assert as_bag(found) == as_bag(others) and found.schema == others.schema
    column = "id" if how in ("semi", "anti") else "id_left"
    numbers = [len(left) if n is None else n for n in found[column].to_pylist()]
    assert numbers == sorted(numbers)
    assert report.peak_bytes <= report.budget_bytes


def test_what_can_not_be_ordered_says_so() -> None:
    left = pa.table({"t": [1, 2]})
    stream = matwin.stream(iter(left.to_batches()), schema=left.schema)
    with pytest.raises(matwin.InputError, match="sort the result instead"):
        matwin.bestmatch_join(stream, left, on={"t": 1}, how="inner", ordered=True)
