"""Kernels run as Python give what compiled ones do, and a join of a few rows needs no Numba."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import Case, as_bag, cases
from support import campaign, run_child
from wcases import questions
from wquestions import Asked

import matwin
from matwin import memory
from matwin.kernels import strips
from matwin.storage import kernel

ALGORITHMS = (
    "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip


@contextmanager
def plain() -> Iterator[None]:
    """Everything runs as Python, however long that takes; integers may wrap, nothing else may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "PLAIN_SECONDS", float("inf"))
        patch.setattr(kernel.Kernel, "_is_small", lambda *_: True)
        yield


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("best", [True, False])
@given(data=st.data())
@settings(max_examples=campaign(60, 3000))
def test_joins_of_two_sides(best: bool, data: st.DataObject) -> None:
    case: Case = data.draw(cases(best=best, rows_max=12))
    join = matwin.bestmatch_join if case.best else matwin.epsilon_join
    with plain(), pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(memory, "FEW_PAIRS", 0)
            patch.setattr(strips, "FEW_ROWS", 0)
        found = join(case.left, case.right, **case.arguments).read_all()
    assert as_bag(found) == case.expected


@pytest.mark.filterwarnings("error")
@given(questions(), st.sampled_from(ALGORITHMS))
@settings(max_examples=campaign(60, 3000))
def test_window_joins(asked: Asked, algorithm: str) -> None:
    if algorithm.endswith("hash") and not asked.keys:
        algorithm = "merge"
    with plain():
        found = matwin.window_join(
            asked.streams, algorithm=algorithm, threads=1, **asked.arguments
        ).read_all()
    assert as_bag(found) == asked.expected


FEW = """
import os, sys
os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
import pyarrow as pa, matwin
a = pa.table({"t": [1, 2, 3], "k": ["a", "b", "c"]})
best = matwin.bestmatch_join(a, a, on={"t": 1}, by="k").read_all()
pairs = matwin.epsilon_join(a, a, on={"t": 1}).read_all()
tuples = matwin.window_join({"a": a, "b": a}, time="t", windows=1, by="k").read_all()
print(best.num_rows, pairs.num_rows, tuples.num_rows, "numba" in sys.modules)
many = pa.table({"t": list(range(1000))})
print(matwin.epsilon_join(many, many, on={"t": 0}).read_all().num_rows, "numba" in sys.modules)
"""


def test_few_rows_need_no_numba(tmp_path: Path) -> None:
    child = run_child(FEW, tmp_path)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["3", "7", "3", "False", "1000", "True"]


def test_plain_code_has_its_time() -> None:
    """A process that joins a few rows again and again gets compiled code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "PLAIN_SECONDS", 1e-9)
        patch.setattr(kernel, "_spent", [0.0])
        ran = []

        @kernel.kernel
        def told(numbers: object) -> int:
            ran.append(numbers)
            return 1

        patch.setattr(kernel.Kernel, "dispatcher", property(lambda self: lambda *_: 2))
        assert told(np.arange(3)) == 1 and len(ran) == 1
        assert told(np.arange(3)) == 2 and len(ran) == 1
