"""How much memory the machine, or the container it runs in, has free."""

from __future__ import annotations

import os
from pathlib import Path

# limit and use of a control group, version 2 and version 1
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def free_memory() -> int:
    """Bytes that could be taken now: the machine's, or its container's if that has fewer."""
    free = [_machine_free()]
    for limit_path, used_path in _GROUPS:
        limit, used = _number(limit_path), _number(used_path)
        if limit is not None and used is not None:
            free.append(max(limit - used, 0))
    return min(free)


def _machine_free() -> int:
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
