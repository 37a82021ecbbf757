"""What a killed process left behind, told apart from what a living one still uses.

    maker     make a file or folder with a name nobody can guess ──▶ lock it ──▶ use, then remove
    sweeper   find such names ──▶ try to lock ──▶ it works: the maker is dead ──▶ remove

The kernel gives up a process's locks when it dies, however it dies.  So a lock says what a pid in a
name can't: pids are given again, and mean nothing in another container or on another machine that
shares the folder.  Where a file system has no locks, nothing is ever taken for dead.

Invariants: what a living process has locked is never removed; nor is what belongs to another user,
or what a link points to.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TRIES = 100


def new_name(prefix: str, suffix: str = "") -> str:
    """A name that nobody can guess."""
    return f"{prefix}{secrets.token_hex(8)}{suffix}"


def new_file(folder: Path, prefix: str, suffix: str, mode: int) -> tuple[int, Path]:
    """A new locked file that follows no link, open for writing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(_TRIES):
        path = folder / new_name(prefix, suffix)
        descriptor = os.open(path, flags, mode)
        with _undone(descriptor, path.unlink):
            is_held = _held(descriptor, path)
        if is_held:
            return descriptor, path
        os.close(descriptor)
    raise OSError(f"every new file in {folder} is taken away at once")


@contextmanager
def new_folder(base: Path, prefix: str) -> Iterator[Path]:
    """A new locked folder of our own, gone afterwards."""
    for _ in range(_TRIES):
        path = base / new_name(prefix)
        path.mkdir(mode=0o700)
        try:
            with _undone(-1, path.rmdir):
                descriptor = _opened(path)
        except FileNotFoundError:
            continue
        with _undone(descriptor, path.rmdir):
            is_held = _held(descriptor, path)
        if is_held:
            break
        os.close(descriptor)
    else:
        raise OSError(f"every new folder in {base} is taken away at once")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _undone(descriptor: int, remove: Callable[[], None]) -> Iterator[None]:
    """Leave nothing behind where what was just made can't be used."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            remove()
        if descriptor >= 0:
            os.close(descriptor)
        raise


def _held(descriptor: int, path: Path) -> bool:
    """Lock what was just made; False if a sweeper came between and took it for dead."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks here, so no sweeper takes it either
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def sweep(base: Path, prefix: str, suffix: str = "") -> None:
    """Remove what dead processes have left in a folder under names of `new_name`."""
    named = re.compile(re.escape(prefix) + "[0-9a-f]{16}" + re.escape(suffix))
    with suppress(OSError):  # it is no folder of ours to tidy up
        for entry in list(os.scandir(base)):
            if named.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_dead(Path(entry.path))


def _remove_if_dead(path: Path) -> None:
    descriptor = _opened(path)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(about.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(about.st_mode):
            path.unlink()
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    # Without blocking: somebody may have put a named pipe there.
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
