"""The default budget follows from what the process's own control group has free."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import call_in_child, memory_limit

from matwin.options import Options
from matwin.storage.machine import free_memory, resident_bytes

MIB = 2**20


def tree(root: Path, files: dict[str, object]) -> Path:
    """A machine with 16 GiB to be had, and these files."""
    for name, text in {"proc/meminfo": f"MemAvailable: {16 * 2**20} kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def group(path: str, *, limit: object, used: int, cached: int = 0) -> dict[str, object]:
    """A group of version 2."""
    folder = f"sys/fs/cgroup/{path}"
    stat = f"anon 1\ninactive_file {cached}\nactive_file 0"
    files = {"memory.max": limit, "memory.current": used, "memory.stat": stat}
    return {f"{folder}/{name}": text for name, text in files.items()}


def old_group(path: str, *, limit: int, used: int) -> dict[str, object]:
    """A group of version 1."""
    folder = f"sys/fs/cgroup/memory/{path}"
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": used,
        f"{folder}/memory.stat": "cache 7\ntotal_inactive_file 0\ntotal_active_file 0",
    }


OWN = {"proc/self/cgroup": "0::/user.slice/job"}
OLD = {"proc/self/cgroup": "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/"}
CASES = {
    "no group": ({}, 16384),
    "the own group": (OWN | group("user.slice/job", limit=500 * MIB, used=100 * MIB), 400),
    "a group above": (
        OWN | group("user.slice/job", limit="max", used=MIB)
        | group("user.slice", limit=300 * MIB, used=100 * MIB),
        200,
    ),
    "files in memory are free": (
        OWN | group("user.slice/job", limit=500 * MIB, used=400 * MIB, cached=300 * MIB), 400,
    ),
    "the least of both": (
        OWN | group("user.slice/job", limit=900 * MIB, used=0)
        | {"sys/fs/cgroup/user.slice/job/memory.high": 700 * MIB},
        700,
    ),
    "used up": (OWN | group("user.slice/job", limit=MIB, used=2 * MIB), 0),
    "a container's root": (
        {"proc/self/cgroup": "0::/../host/path"} | group("", limit=MIB, used=0), 1,
    ),
    "version 1": (OLD | old_group("a/b", limit=500 * MIB, used=200 * MIB), 300),
    "version 1, above": (
        OLD | old_group("a/b", limit=2**63 - 4096, used=MIB)
        | old_group("a", limit=64 * MIB, used=4 * MIB),
        60,
    ),
    "others' groups": (OLD | old_group("other", limit=MIB, used=0), 16384),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_free_memory(tmp_path: Path, name: str) -> None:
    files, mib = CASES[name]
    assert free_memory(tree(tmp_path, files)) == mib * MIB


def test_nothing_is_known(tmp_path: Path) -> None:
    assert free_memory(tmp_path) > 0
    assert resident_bytes(tmp_path) == (0, 0)


def default_budget() -> int:
    """What a join takes when nobody says how much."""
    return Options().budget_bytes


def test_inside_a_real_group() -> None:
    with memory_limit(500 * MIB) as limited:
        budget = call_in_child(default_budget, before=limited.enter)
    assert 64 * MIB < budget <= 125 * MIB
