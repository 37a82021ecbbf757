"""A restart with another `memory`: the store's pages stay as large as they are."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.storage.errors import BudgetError, InputError

ROWS = pa.table({"ts": np.arange(2_000), "k": np.arange(2_000) * 7 % 50})
SQL = "SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY k"
JOIN = partial(
    matwin.epsilon_join, matwin.chunks("a", last=1), matwin.chunks("b"), on={"ts": 40}, by="k"
)
QUERIES: dict[str, Any] = {"sql": (SQL, ["a"]), "join": (JOIN, ["a", "b"])}


def run(asked: str, state: Path | None, epochs: int | None, **options: Any) -> list[Any]:
    """The rows of so many epochs; those that were delivered perhaps are left out."""
    query, names = QUERIES[asked]
    found = []
    with matwin.continuous_query(
        query, dict.fromkeys(names, ROWS), cut=matwin.cut.every(100, on="ts"), keep=3, state=state,
        **options,
    ) as running:  # fmt: skip
        for epoch in itertools.islice((e for e in running if not e.is_replayed), epochs):
            rows = epoch.result.to_arrow().to_pylist()
            found.append((epoch.id, sorted(map(str, rows))))
    return found


MEMORIES = ["1MiB", "9MiB", "40MiB", "300MiB", None]


@settings(max_examples=campaign(15, 500), deadline=None)
@given(
    st.sampled_from(list(QUERIES)),
    st.lists(st.tuples(st.sampled_from(MEMORIES), st.integers(1, 8)), min_size=1, max_size=4),
)
def test_a_restart_with_another_memory(
    tmp_path_factory: pytest.TempPathFactory, asked: str, runs: list[tuple[str | None, int]]
) -> None:
    """It goes on where it was, with any memory that its pages fit; the smallest that is named
    works."""
    state = tmp_path_factory.mktemp("state") / "s"
    found: list[Any] = []
    for memory, epochs in [*runs, ("300MiB", None)]:
        try:
            found += run(asked, state, epochs, memory=memory)
        except BudgetError as told:
            assert memory == "1MiB" and "has pages of" in str(told)
            found += run(asked, state, epochs, memory=told.smallest_bytes)
    assert found == run(asked, None, None)


def test_a_page_size_that_is_asked_for_is_the_store_s(tmp_path: Path) -> None:
    """What is said by name is not passed over."""
    run("sql", tmp_path / "s", 3, memory="40MiB")
    with pytest.raises(InputError, match="has pages of 262144 bytes, not 8192"):
        run("sql", tmp_path / "s", 3, memory="40MiB", page_size="8KiB")
    assert len(run("sql", tmp_path / "s", 3, memory="40MiB", page_size="256KiB")) == 3
