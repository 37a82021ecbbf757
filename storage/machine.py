"""How much memory this process may have: the machine's, or its control group's if that is less.

    /proc/self/cgroup        4:memory:/a/b  (version 1)      0::/a/b  (version 2)
    limit - in use           of /a/b, of /a and of the root: the least of them counts

What a group has in use contains the kernel's copies of files, which it gives up when somebody wants
the memory, so they count as free.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class _Version:
    """What the files of a control group are called."""

    limits: tuple[str, ...]
    used: str
    caches: tuple[str, ...]
    """Entries of `memory.stat` that can be given up."""


_V2 = _Version(("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"))
_V1 = _Version(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def free_memory(root: Path = ROOT) -> int:
    """Bytes that could be taken now; `root` is where /proc and /sys are."""
    free = [_machine_free(root)]
    for folder, version in _groups(root):
        limits = [n for n in (_number(folder / name) for name in version.limits) if n is not None]
        used = _number(folder / version.used)
        if limits and used is not None:
            free.append(max(min(limits) - used + _cached(folder, version), 0))
    return min(free)


def resident_bytes(root: Path = ROOT) -> tuple[int, int]:
    """What this process has in memory now, and the most it ever had; 0 where nobody knows."""
    try:
        found = _entries(root / "proc/self/status")
    except OSError:
        return 0, 0  # not Linux
    return found.get("VmRSS:", 0) * 1024, found.get("VmHWM:", 0) * 1024


def release_unused() -> None:
    """Have Arrow and the C library give back what they keep for reuse; of the latter glibc can."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _groups(root: Path) -> Iterator[tuple[Path, _Version]]:
    """The process's groups of both versions, each with all that it is in.

    In a container the own group often is the root that one sees, while its path is that of the
    host: folders that are not there are passed over, the root is always looked at.
    """
    mounts = {_V1: root / "sys/fs/cgroup/memory", _V2: root / "sys/fs/cgroup"}
    paths = {_V1: "/", _V2: "/"} | dict(_own_groups(root))
    for version, mount in mounts.items():
        own = mount / paths[version].lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(mount):
                yield folder, version


def _own_groups(root: Path) -> Iterator[tuple[_Version, str]]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield _V2, path
        elif "memory" in controllers.split(","):
            yield _V1, path


def _cached(folder: Path, version: _Version) -> int:
    try:
        found = _entries(folder / "memory.stat")
    except OSError:
        return 0
    return sum(found.get(name, 0) for name in version.caches)


def _machine_free(root: Path) -> int:
    try:
        return _entries(root / "proc/meminfo")["MemAvailable:"] * 1024
    except (OSError, KeyError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _entries(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number on each line."""
    words = (line.split() for line in path.read_text().splitlines())
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
