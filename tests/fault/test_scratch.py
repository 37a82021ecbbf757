"""Scratch folders that a killed process has left are removed by the next; nobody else's are.

strace kills a process at each system call that it makes between the making of its scratch folder
and its removal.  What it leaves is gone when the next process has spilled in the same place.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from proofs import tried
from support import ON, SCHEMA, Fate, campaign, each_in_fork, needs_root, rows, strace

from matwin.storage import Store
from matwin.storage.scratch import SCRATCH, scratch_folder

pytestmark = pytest.mark.fault

CALLS = (
    "mkdir", "flock", "pwrite64", "fallocate", "rename", "unlink", "unlinkat", "rmdir", "fcntl",
)  # fmt: skip


def spill(base: str) -> list[str]:
    """Write to a scratch store; what is in the folder while it is open."""
    with Store(None, memory="128KiB", page_size=4096, scratch=base) as store:
        store.window("w", SCHEMA, on=ON).append(rows(range(3000)))
        assert store.file.file_bytes
        return [path.name for path in Path(base).iterdir()]


def spill_and_die(base: str, call: str, when: int) -> list[str]:
    """The same, killed at the n-th call of a kind."""
    Path(base).mkdir()
    fault = f"inject={call}:signal=KILL:when={when}"
    with strace("-e", f"trace={call}", "-e", fault, "-o", "/dev/null"):
        return spill(base)


@needs_root
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.proof("scratch left by killed processes")
def test_what_a_kill_leaves_is_removed(tmp_path: Path) -> None:
    points = [(call, when) for call in CALLS for when in range(1, campaign(3, 13))]
    cases = [[str(tmp_path / f"{call}-{when}"), call, when] for call, when in points]
    fates = each_in_fork(spill_and_die, cases)
    left = [any(Path(base).iterdir()) for base, _, _ in cases]
    after = each_in_fork(spill, [[base] for base, _, _ in cases])
    for case, fate, then in zip(cases, fates, after, strict=True):
        assert fate.signal in (0, signal.SIGKILL), case
        assert fate.error == "", case
        assert then == Fate(0, []), case
        tried()
    assert sum(left) > len(CALLS) // 2, "nothing was left behind"


def make_and_die(base: str) -> None:
    with scratch_folder(Path(base)):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_folder_just_made(tmp_path: Path) -> None:
    (fate,) = each_in_fork(make_and_die, [[str(tmp_path)]])
    assert fate == Fate(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    with scratch_folder(tmp_path) as folder:
        assert [path.name for path in tmp_path.iterdir()] == [folder.name]
        assert folder.name != left.name
    assert list(tmp_path.iterdir()) == []


def test_whatever_may_be_alive_stays(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    link = tmp_path / f"{SCRATCH}{'0' * 16}"
    link.symlink_to(target)
    others = ["matwin-abcdefgh", "matwin-verify-abcdefgh", f"{SCRATCH}notes", "somebody-elses"]
    for name in others:
        (tmp_path / name).mkdir()
    with scratch_folder(tmp_path) as mine, scratch_folder(tmp_path) as second:
        here = {path.name for path in tmp_path.iterdir()}
        assert here == {*others, "precious", link.name, mine.name, second.name}
    assert {path.name for path in tmp_path.iterdir()} == {*others, "precious", link.name}
    assert (target / "file").exists()
