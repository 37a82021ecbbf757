"""Folders that page files may live in: private, local, and gone when they should be.

LMDB needs a file system with working memory maps and locks.  Network and user-space file systems
are refused by name, from the kernel's own mount table.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import StoreError

_REFUSED = (
    "nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "gluster", "lustre", "beegfs", "gpfs",
    "ncpfs", "ocfs2", "gfs2", "davfs", "sshfs", "vboxsf", "virtiofs",
)  # fmt: skip


def private_folder(path: Path) -> None:
    """Make the folder, readable by its owner only, on a file system that LMDB can use."""
    try:
        if not path.parent.is_dir():
            raise StoreError(f"{path}: the folder {path.parent} is missing; create it first")
        refuse_network(path if path.exists() else path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        if not any(path.iterdir()) or (path / "data.mdb").exists():
            path.chmod(0o700)
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{path}: the folder can't be made: {e.strerror}") from e


def scratch_folder(scratch: Path | None) -> Path:
    """A new private folder for pages that nobody needs once the process has ended."""
    base = scratch or Path(tempfile.gettempdir())
    try:
        if not base.is_dir():
            raise StoreError(f"{base}: the scratch folder is missing; create it or name another")
        refuse_network(base)
        return Path(tempfile.mkdtemp(prefix="matwin-", dir=base))
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{base}: no scratch folder can be made here: {e.strerror}") from e


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """Raise `StoreError` when the path is on a file system that LMDB is unsafe on."""
    kind = filesystem_of(path, mounts)
    if kind and kind.startswith(_REFUSED):
        raise StoreError(
            f"{path} is on {kind}, where LMDB is unsafe; name a folder on a local disk"
        )


def filesystem_of(path: Path, mounts: str | None = None) -> str | None:
    """The type of the file system that holds the path; None where the kernel does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return None
    real = path.resolve()
    best: tuple[int, str | None] = (-1, None)
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        # A later line hides an earlier one with the same mount point.
        if real.is_relative_to(point) and len(point) >= best[0]:
            best = (len(point), right.split(" ")[0])
    return best[1]


def boot_id() -> str:
    """A name for the time since the machine started; what was not synced before it is void."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def free_bytes(descriptor: int) -> int:
    """Bytes left on the file system of an open file, for a process without privileges."""
    stat = os.fstatvfs(descriptor)
    return stat.f_bavail * stat.f_frsize
