"""Asking about files and locking them fails once, or from then on for ever.

strace makes the n-th such call fail in a process that joins files in a scratch folder.  Whatever it
was for, the join gives its rows, or an error of ours; and it leaves one scratch folder at most,
where even removing it fails.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from proofs import tried
from support import campaign, each_in_fork, needs_root, strace

import matwin

pytestmark = [
    pytest.mark.fault,
    needs_root,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

CALLS = ("fstat", "newfstatat", "statx", "flock", "fstatfs")
ROWS = 2000
SMALL: dict[str, Any] = {"memory": "128KiB", "page_size": "4KiB"}
JOINS: dict[str, Callable[..., Any]] = {
    "pages": lambda one, **more: matwin.epsilon_join(
        one, one, on={"t": 2}, schedule="gallop", **more
    ),
    "parts": lambda one, **more: matwin.bestmatch_join(one, one, on={"t": 2}, **more),
    "window": lambda one, **more: matwin.window_join(
        {"a": one, "b": one}, time="t", windows=2, **more
    ),
}


def join(kind: str, base: str) -> int:
    """The rows of a join of a file with itself; its scratch is in a folder of its own."""
    name, suffix = kind.split()
    found = JOINS[name](f"{base}/a.{suffix}", scratch=Path(base, "scratch"), **SMALL)
    return int(found.read_all().num_rows)


def prepare(base: str) -> None:
    folder = Path(base)
    (folder / "scratch").mkdir(parents=True)
    table = pa.table({"t": np.arange(ROWS), "p": ["x" * 60] * ROWS})
    pq.write_table(table, folder / "a.parquet")
    pa_csv.write_csv(table, folder / "a.csv")


def counted(kind: str, base: str) -> dict[str, int]:
    """How many calls of each kind a join makes once all is imported and compiled."""
    prepare(base)
    join(kind, base)
    log = Path(base, "log")
    with strace("-e", f"trace={','.join(CALLS)}", "-o", str(log)):
        join(kind, base)
    text = log.read_text()
    return {call: len(re.findall(rf"\b{call}\(", text)) for call in CALLS}


def fail(kind: str, base: str, call: str, when: str) -> dict[str, Any]:
    """The join with one fault: its rows or its error, and how much is left behind."""
    prepare(base)
    rows, error = join(kind, base), ""
    fault = f"inject={call}:error=EIO:when={when}"
    with strace("-e", f"trace={call}", "-e", fault, "-o", "/dev/null"):
        try:
            rows -= join(kind, base)
        except matwin.MatwinError as e:
            rows, error = 0, str(e)
    return {"lost": rows, "error": error, "left": len(list(Path(base, "scratch").iterdir()))}


KINDS = ["pages parquet", "window csv", "parts csv"]


@pytest.mark.proof("fstat and flock that fail")
@pytest.mark.parametrize("kind", KINDS[: campaign(1, 3)])
def test_files_that_cannot_be_asked_about(tmp_path: Path, kind: str) -> None:
    [told] = each_in_fork(counted, [[kind, str(tmp_path / "counted")]])
    assert told.error == "" and sum(told.value.values()) > 30, told
    points = []
    for call, calls in told.value.items():
        step = max(1, calls // campaign(3, 200))
        points += [(call, str(at)) for at in range(1, calls + 1, step)]
        points += [(call, f"{at}+") for at in range(1, calls + 1, 3 * step)]
    cases = [[kind, str(tmp_path / f"{call}{when}"), call, when] for call, when in points]
    for case, fate in zip(cases, each_in_fork(fail, cases), strict=True):
        assert fate.signal == 0 and fate.error == "", (case[2:], fate)
        assert fate.value["lost"] == 0, (case[2:], fate)
        assert fate.value["left"] <= ("+" in case[3]), (case[2:], fate)
        tried()
