"""Folders that page files may live in: private, local, and gone when they should be.

LMDB needs a file system with working memory maps and locks.  Network and user-space file systems
are refused by name, from the kernel's own mount table.

A process that was killed while it made its scratch folder leaves it behind.  Whoever makes the next
one in the same place removes it, once nobody holds the lock on it (``alive.py``).
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .alive import new_folder, sweep
from .errors import StoreError
from .units import format_size

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
        elif path.stat().st_mode & 0o022:
            raise StoreError(
                f"{path} holds other files, and others may write to it; name a folder of your own"
            )
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{path}: the folder can't be made: {told(e, path)}") from e


def open_private(path: Path, flags: int) -> int:
    """Open a file that nobody else may read, and never what a link leads to."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as e:
        if path.is_symlink():
            raise StoreError(f"{path} is a link; remove it, or name another folder") from e
        raise
    try:
        found = os.fstat(descriptor)
    except OSError as e:
        os.close(descriptor)
        raise StoreError(e.errno, e.strerror, str(path)) from e
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    kind = "has a second name" if stat.S_ISREG(found.st_mode) else "is no plain file"
    raise StoreError(f"{path} {kind}; remove it, or name another folder")


@contextmanager
def opened_private(path: Path, flags: int) -> Iterator[int]:
    """`open_private` for the length of a block."""
    descriptor = open_private(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: Path) -> None:
    """Bring the names in a folder to the disk, and its own: a power cut loses unsynced names."""
    sync_file(folder)
    sync_file(folder.resolve().parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it; the names of all that are new are on the disk then."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_file(folder.parent)


@contextmanager
def os_errors(folder: Path, poison: Callable[[str], None] | None = None) -> Iterator[None]:
    """The operating system's errors as ours."""
    try:
        yield
    except StoreError:
        raise
    except OSError as e:
        if poison:
            poison(str(e.strerror))
        raise StoreError(e.errno, told(e, folder), str(e.filename or folder)) from e


def told(error: OSError, folder: Path) -> str:
    """What the operating system says, and what to do where a disk is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(error.strerror)
    reason = "the disk is full" if error.errno == errno.ENOSPC else "the quota is used up"
    with suppress(OSError):
        about = os.statvfs(folder if folder.exists() else folder.parent)
        reason += f": {format_size(about.f_bavail * about.f_frsize)} are free"
    return f"{reason}; free some space or name another folder"


# ── scratch ──────────────────────────────────────────────────────────────────────────────────────

SCRATCH = "matwin-scratch-"


@contextmanager
def scratch_folder(scratch: Path | None = None, prefix: str = SCRATCH) -> Iterator[Path]:
    """A new private folder for what nobody needs afterwards, gone at the end of the block.

    What dead processes have left of theirs in the same place is removed first.
    """
    base = scratch or Path(tempfile.gettempdir())
    with ExitStack() as stack:
        try:
            if not base.is_dir():
                raise StoreError(
                    f"{base}: the scratch folder is missing; create it or name another"
                )
            refuse_network(base)
            sweep(base, prefix)
            folder = stack.enter_context(new_folder(base, prefix))
        except StoreError:
            raise
        except OSError as e:
            raise StoreError(f"{base}: no scratch folder can be made here: {told(e, base)}") from e
        yield folder


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
