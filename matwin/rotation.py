"""Files that are rotated: which file is which, and which one comes next.

    app.log.2   app.log.1   app.log            renamed, and a new file of the name
    app.log-20240501        app.log            the same, by date
    app.log.1 (a copy)      app.log, empty     copied, then truncated in place

A file is known by its number in the file system and by its first bytes: the number alone is given
to other files later, and a copy has another one.

Left out: rotated files that were compressed before they were read to their end (an error).
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from pathlib import Path
from typing import Any

from matwin.storage.errors import InputError

from .file import COMPRESSED

HEAD_BYTES = 1024
_ROTATED = re.compile(r"[.-]\d[\dT:_.-]*?(\.[a-z]\w*)?")
_COUNTED = re.compile(r"\.(\d{1,4})")


class Opened:
    """One file that is read forward."""

    def __init__(self, path: Path, where: str) -> None:
        self.path, self.where = path, where
        # Without blocking: something else than a file may have taken the name.
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        about = os.fstat(self.fd)
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise InputError(f"{where} is no longer a file")
        self.inode = (about.st_dev, about.st_ino)
        self.place = 0
        self._head = b""

    def read(self, count: int) -> bytes:
        """The next bytes; none if the file is another one by now."""
        data = os.pread(self.fd, count, self.place)
        # After reading: bytes of a file that was truncated and has grown again are not ours.
        if data and os.pread(self.fd, len(self._head), 0) == self._head:
            if self.place < HEAD_BYTES:
                self._head += data[: HEAD_BYTES - self.place]
            self.place += len(data)
            return data
        return b""

    def seek(self, place: int) -> None:
        """Go on at a place."""
        self.place = place
        self._head = os.pread(self.fd, min(place, HEAD_BYTES), 0)

    @property
    def size(self) -> int:
        """Its bytes now."""
        return os.fstat(self.fd).st_size

    @property
    def is_truncated(self) -> bool:
        """Whether what was read is no longer in it."""
        return self.size < self.place or not self.begins_with(self._head)

    @property
    def is_removed(self) -> bool:
        """Whether it has no name any more."""
        return os.fstat(self.fd).st_nlink == 0

    def begins_with(self, head: bytes) -> bool:
        """Whether these are its first bytes."""
        return os.pread(self.fd, len(head), 0) == head

    def is_copy_of(self, other: Opened) -> bool:
        """Whether all that was read of another file can be in it."""
        return (
            self.inode != other.inode
            and self.size >= other.place
            and bool(other._head)
            and self.begins_with(other._head)
        )

    def told(self) -> dict[str, Any]:
        """What it is known by, as plain data."""
        return {"inode": list(self.inode), "head": len(self._head), "crc": zlib.crc32(self._head)}

    def is_told(self, mark: dict[str, Any], *, by_inode: bool) -> bool:
        """Whether it is the file of a mark, or a copy of it."""
        if by_inode and list(self.inode) != mark["inode"]:
            return False
        if not by_inode and not mark["head"]:
            return False  # every file begins with nothing
        head = os.pread(self.fd, mark["head"], 0)
        is_same = len(head) == mark["head"] and zlib.crc32(head) == mark["crc"]
        return bool(is_same and self.size >= mark["offset"])

    def close(self) -> None:
        """Let go of it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def chain(path: Path) -> list[Path]:
    """The rotated files of a name, oldest first, and the name itself."""
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    rotated = [
        name for name in names
        if name.startswith(path.name) and _ROTATED.fullmatch(name[len(path.name) :])
    ]  # fmt: skip
    return [path.parent / name for name in sorted(rotated, key=lambda n: _age(n, path))] + [path]


def oldest(path: Path) -> Path:
    """The oldest file of a name that can be read, as all after it can."""
    files = chain(path)
    packed = [at for at, each in enumerate(files) if each.name.endswith(COMPRESSED)]
    return files[packed[-1] + 1 if packed else 0]


def _age(name: str, path: Path) -> tuple[int, int, str]:
    """Oldest first: dates ascend, and counts descend (.1 is the newest)."""
    counted = _COUNTED.match(name[len(path.name) :])
    plain = name.removesuffix(next((s for s in COMPRESSED if name.endswith(s)), ""))
    is_count = counted is not None and plain == path.name + counted[0]
    return (1, -int(counted[1]), name) if is_count and counted else (0, 0, name)


def inode_of(path: Path) -> tuple[int, int] | None:
    """A file's number; None where there is none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def following(now: Opened, path: Path) -> Path | None:
    """The file that comes after one that has been read; None where it has not begun yet."""
    name = inode_of(path)
    if name == now.inode:
        return None
    files = chain(path)
    at = next((i for i, each in enumerate(files) if inode_of(each) == now.inode), len(files) - 2)
    after = files[at + 1]
    if after.name.endswith(COMPRESSED):
        raise InputError(
            f"{now.where}: after {now.path.name!r} comes {after.name!r}, which was compressed "
            "before it was read; unpack it, and rotate with delaycompress"
        )
    try:
        # A new file is empty until its writer has changed to it, and has left the old one.
        return after if after != path or path.stat().st_size else None
    except OSError:
        return None


def copy_of(truncated: Opened, path: Path) -> Opened | None:
    """The copy that was made of a file before it was truncated, at the same place."""
    for each in reversed(chain(path)[:-1]):
        found = _tried(each, truncated.where)
        if found is not None and found.is_copy_of(truncated):
            found.seek(truncated.place)
            return found
        if found is not None:
            found.close()
    return None


def found_again(path: Path, mark: dict[str, Any], where: str) -> Opened:
    """The file that a mark is of, wherever rotation has put it."""
    for by_inode in (True, False):
        for each in reversed(chain(path)):
            found = _tried(each, where)
            if found is not None and found.is_told(mark, by_inode=by_inode):
                found.seek(mark["offset"])
                return found
            if found is not None:
                found.close()
    raise InputError(_missing(path, mark, where))


def _tried(path: Path, where: str) -> Opened | None:
    try:
        return None if path.name.endswith(COMPRESSED) else Opened(path, where)
    except (OSError, InputError):
        return None


def _missing(path: Path, mark: dict[str, Any], where: str) -> str:
    was = f"byte {mark['offset']} of file number {mark['inode'][1]}"
    remedy = "restore it, or begin anew with another state"
    found = _tried(path, where)
    if found is None:
        return f"{where} is not there, and reading was at {was}; {remedy}"
    size, number = found.size, found.inode[1]
    is_short = found.is_told({**mark, "offset": 0}, by_inode=True)
    found.close()
    if is_short:
        return f"{where} has {size} bytes now, and reading was at {was}: it was cut; {remedy}"
    return (
        f"{where} is another file than before: reading was at {was}, this is number {number} with "
        f"{size} bytes and other first bytes, and no rotated {path.name}.* is the old one; {remedy}"
    )
