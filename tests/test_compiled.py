"""Compiled code that is older than its sources does not run."""

from __future__ import annotations

import os
from pathlib import Path

from support import run_child

CALLEE = """
from numba import njit

@njit(cache=True)
def answer():
    return {}
"""
CALLER = """
from numba import njit
from callee import answer

@njit(cache=True)
def asked():
    return answer()
"""
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from caller import asked
from matwin.storage.compiled import drop_stale
dropped = drop_stale(asked)
print(dropped, asked())
"""


def run(folder: Path) -> list[str]:
    child = run_child(RUN, folder)
    assert child.returncode == 0, child.stderr
    return child.stdout.split()


def test_a_change_in_another_file_counts(tmp_path: Path) -> None:
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    (tmp_path / "caller.py").write_text(CALLER)
    assert run(tmp_path) == ["0", "1"]
    assert run(tmp_path) == ["0", "1"]
    compiled = list((tmp_path / "__pycache__").glob("*.nb[ic]"))
    assert compiled
    (tmp_path / "callee.py").write_text(CALLEE.format(22))
    for file in compiled:  # however coarse the clock
        os.utime(file, (1, 1))
    dropped, answer = run(tmp_path)
    assert int(dropped) == len(compiled)
    assert answer == "22"
