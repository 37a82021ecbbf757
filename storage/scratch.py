"""Folders that page files may live in: private, local, and gone when they should be.

LMDB needs a file system with working memory maps and locks.  Network and user-space file systems
are refused by name, from the kernel's own mount table.

A scratch folder's name says who made it:

    matwin-<boot>-<pid namespace>-<pid>-<start of the process>-<random>

A process that was killed while it made its folder leaves it behind.  Whoever makes the next one
removes it, if its maker is known to be dead: the machine has started since, or the same namespace
of processes has none of that number and start, and nobody holds the lock inside.  A folder of which
that can't be told stays.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        elif path.stat().st_mode & 0o022:
            raise StoreError(
                f"{path} holds other files, and others may write to it; name a folder of your own"
            )
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{path}: the folder can't be made: {e.strerror}") from e


def open_private(path: Path, flags: int) -> int:
    """Open a file that nobody else may read, and never what a link leads to."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as e:
        if path.is_symlink():
            raise StoreError(f"{path} is a link; remove it, or name another folder") from e
        raise
    found = os.fstat(descriptor)
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
        raise StoreError(e.errno, e.strerror, str(e.filename or folder)) from e


# ── scratch ──────────────────────────────────────────────────────────────────────────────────────

_NAME = re.compile(r"matwin-([0-9a-z]{1,8})-(\d+)-(\d+)-(\d+)-\w+")


def scratch_folder(scratch: Path | None = None) -> Path:
    """A new private folder for what nobody needs once the process has ended.

    What dead processes have left of theirs in the same place is removed first.
    """
    base = scratch or Path(tempfile.gettempdir())
    try:
        if not base.is_dir():
            raise StoreError(f"{base}: the scratch folder is missing; create it or name another")
        refuse_network(base)
        remove_left_over(base)
        maker = "-".join(map(str, _maker()))
        return Path(tempfile.mkdtemp(prefix=f"matwin-{maker}-", dir=base))
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{base}: no scratch folder can be made here: {e.strerror}") from e


def remove_left_over(base: Path) -> list[str]:
    """Remove the scratch folders of dead processes; their names."""
    removed = []
    with suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            found = _NAME.fullmatch(entry.name)
            if found and _is_dead(*found.groups()) and _is_left(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.name)
    return removed


def _maker() -> tuple[str, int, int, int]:
    """This process among all processes: boot, namespace, number, start."""
    return boot_id()[:8], _namespace(), os.getpid(), _start_of(os.getpid())


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _start_of(process: int) -> int:
    """When a process started, in ticks since the machine did; 0 where there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _is_dead(boot: str, namespace: str, process: str, start: str) -> bool:
    mine = _maker()
    if 0 in mine or mine[0] == _UNKNOWN:
        return False
    if boot != mine[0]:
        return True
    return int(namespace) == mine[1] and _start_of(int(process)) != int(start)


def _is_left(folder: Path) -> bool:
    """Whether the folder is one of ours, and nobody holds the lock in it."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        with opened_private(folder / "owner", os.O_RDWR) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


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


_UNKNOWN = "unknown"


def boot_id() -> str:
    """A name for the time since the machine started; what was not synced before it is void."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _UNKNOWN


def free_bytes(descriptor: int) -> int:
    """Bytes left on the file system of an open file, for a process without privileges."""
    stat = os.fstatvfs(descriptor)
    return stat.f_bavail * stat.f_frsize
