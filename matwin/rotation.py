"""Files that are rotated: which file is which, and which one comes next.

    app.log.2   app.log.1   app.log            renamed, and a new file of the name; .1 is the newest
    app.log.1   app.log.2   app.log            the same, with numbers that rise; .1 is the oldest
    app.log-20240501        app.log            the same, by date
    app.log.1 (a copy)      app.log, empty     copied, then truncated in place

A file is known by its number in the file system and by its first bytes: the number alone is given
to other files later, and a copy has another one.

Which way numbers go is nowhere said, so a reader notes the rotated files that are there when it
begins one: all that come later are newer.  Where an older and a newer file have both got a number,
that tells the way; otherwise the times of their last bytes do, and where these are equal too, .1 is
the newest, as logrotate has it.

Left out: rotated files that were compressed before they were read to their end (an error).
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from matwin.storage.errors import InputError

from .file import COMPRESSED

HEAD_BYTES = 1024
NOTED_BYTES = 256
_ROTATED = re.compile(r"[.-]\d[\dT:_.-]*?(\.[a-z]\w*)?")
_COUNTED = re.compile(r"\.(\d{1,4})")

Older = Sequence[Sequence[int]]
"""Files that are known to be older: number in the file system, first bytes, their checksum."""


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

    def begins_like(self, other: Opened) -> bool:
        """Whether it has the first bytes of another file, as far as both go; a copy that is being
        made is short."""
        head = other._head[: self.size]
        return bool(head) and self.begins_with(head)

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


@dataclass(frozen=True, slots=True)
class Rotated:
    """One file of a name, as it is now."""

    path: Path
    inode: tuple[int, int]
    size: int
    time: int
    """Of its last bytes, in nanoseconds; compressing keeps it."""
    count: int | None
    """The number that it was given; None where it has a date, or is the name itself."""

    @classmethod
    def of(cls, path: Path, suffix: str) -> Rotated | None:
        """The file of a path, which may be gone already."""
        try:
            about = path.stat()
        except OSError:
            return None
        plain = suffix.removesuffix(next((s for s in COMPRESSED if suffix.endswith(s)), ""))
        counted = _COUNTED.fullmatch(plain)
        count = int(counted[1]) if counted else None
        inode = (about.st_dev, about.st_ino)
        return cls(path, inode, about.st_size, about.st_mtime_ns, count)

    @property
    def is_packed(self) -> bool:
        """Whether it was compressed."""
        return self.path.name.endswith(COMPRESSED)

    @property
    def is_known_by_bytes(self) -> bool:
        """Whether it has bytes that can be compared with others; all empty files are alike."""
        return self.size > 0 and not self.is_packed

    def is_in(self, older: Older) -> bool:
        """Whether it is one of the files that were noted."""
        return any(
            number == self.inode[1] and _noted(self.path, size)[1:] == [size, crc]
            for number, size, crc in older
        )


def _noted(path: Path, size: int = NOTED_BYTES) -> list[int]:
    """What a file is noted by: a file that grows keeps its first bytes."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(size)
            return [os.fstat(file.fileno()).st_ino, len(head), zlib.crc32(head)]
    except OSError:
        return [-1, 0, 0]


def chain(
    path: Path, older: Older | None = None, now: tuple[int, int] | None = None
) -> list[Rotated]:
    """The rotated files of a name, oldest first.

    `older` are the files that are known to be older than the one that is read `now`; None where
    nothing is known.
    """
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    suffixes = [name[len(path.name) :] for name in names if name.startswith(path.name)]
    found = [
        Rotated.of(path.with_name(path.name + s), s) for s in suffixes if _ROTATED.fullmatch(s)
    ]
    files = [file for file in found if file is not None]
    counted = [file for file in files if file.count is not None]
    way = 1 if _rise(counted, older, now) else -1
    # A file has a date or a count; where a name has both kinds, the way was changed once.
    dated = [file for file in files if file.count is None]
    dated.sort(key=lambda file: [int(part) for part in re.findall(r"\d+", file.path.name)])
    counted.sort(key=lambda file: way * (file.count or 0))
    is_turned = bool(dated and counted) and counted[-1].time < dated[-1].time
    return counted + dated if is_turned else dated + counted


def _rise(counted: list[Rotated], older: Older | None, now: tuple[int, int] | None) -> bool:
    """Whether newer files have larger numbers."""
    plain = [file for file in counted if file.is_known_by_bytes]
    votes = 0
    if older is not None:
        own = [file for file in plain if file.inode == now]
        before = [file for file in plain if file.inode != now and file.is_in(older)]
        after = [file for file in plain if file not in own and file not in before]
        pairs = [(a, b) for a in before for b in own + after] + [(a, b) for a in own for b in after]
        votes = sum(_sign((b.count or 0) - (a.count or 0)) for a, b in pairs)
    if not votes:
        ordered = sorted(counted, key=lambda file: file.count or 0)
        votes = sum(_sign(b.time - a.time) for a, b in pairwise(ordered))
    return votes > 0


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def oldest(path: Path) -> Path:
    """The oldest file of a name that can be read, as all after it can."""
    files = chain(path)
    packed = [at for at, each in enumerate(files) if each.is_packed]
    rest = files[packed[-1] + 1 if packed else 0 :]
    return rest[0].path if rest else path


def older_than(
    opened: Opened, path: Path, older: Older | None = None, now: tuple[int, int] | None = None
) -> Older | None:
    """The files that are older than one that is being begun; None where nobody can tell.

    `older` and `now` are what was known of the file that was read before it.
    """
    files = chain(path, older, now)
    at = next((i for i, each in enumerate(files) if each.inode == opened.inode), None)
    if at is None and inode_of(path) != opened.inode:
        return None  # it was rotated a moment ago, and perhaps not alone
    return [_noted(each.path) for each in files[:at] if each.is_known_by_bytes]


def inode_of(path: Path) -> tuple[int, int] | None:
    """A file's number; None where there is none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def following(now: Opened, path: Path, older: Older | None) -> Path | None:
    """The file that comes after one that has been read; None where it has not begun yet."""
    if inode_of(path) == now.inode:
        return None
    files = chain(path, older, now.inode)
    at = next((i for i, each in enumerate(files) if each.inode == now.inode), None)
    if at is not None:
        later = files[at + 1 :]
    else:  # it was removed, or compressed, which keeps its time
        is_later = [_is_later(each, now, older) for each in files]
        later = [each for each, is_one in zip(files, is_later, strict=True) if is_one]
    if later and later[0].is_packed:
        raise InputError(
            f"{now.where}: after {now.path.name!r} comes {later[0].path.name!r}, which was "
            "compressed before it was read; unpack it, and rotate with delaycompress"
        )
    if later:
        return later[0].path
    try:
        # A new file is empty until its writer has changed to it, and has left the old one.
        return path if path.stat().st_size else None
    except OSError:
        return None


def _is_later(file: Rotated, now: Opened, older: Older | None) -> bool:
    """Whether a file came after one that has no name any more."""
    if older is None or file.is_packed:
        return file.time > os.fstat(now.fd).st_mtime_ns
    return not file.is_in(older)


def copy_of(truncated: Opened, path: Path, older: Older | None) -> Opened | None:
    """The copy that was made of a file before it was truncated, at the same place."""
    for each in _copies(path, older, truncated.inode):
        found = _tried(each, truncated.where)
        if found is not None and found.is_copy_of(truncated):
            found.seek(truncated.place)
            return found
        if found is not None:
            found.close()
    return None


def unread_copy(begun: Opened, path: Path, older: Older | None) -> Opened | None:
    """A copy of what a file had been before the first row of it was read."""
    if older is None or inode_of(path) != begun.inode:
        return None
    for each in _copies(path, older, begun.inode):
        found = _tried(each, begun.where)
        if found is not None and not found.begins_like(begun):
            return found
        if found is not None:
            found.close()
            return None
    return None


def _copies(path: Path, older: Older | None, now: tuple[int, int]) -> list[Path]:
    """Files that may be copies of one, the likeliest first: the first that came after it was begun,
    for there may be copies of what was written later."""
    files = chain(path, older, now)
    if older is None:
        return [each.path for each in reversed(files)]
    return [each.path for each in files if each.is_known_by_bytes and not each.is_in(older)]


def found_again(path: Path, mark: dict[str, Any], where: str) -> Opened:
    """The file that a mark is of, wherever rotation has put it."""
    older, now = mark.get("older"), tuple(mark["inode"])
    copies = _copies(path, older, now)
    named = [each.path for each in chain(path) if each.inode == now]
    live = [path] if inode_of(path) == now else []
    # A file that kept its name while others came was truncated, and may have grown again since.
    first = [(each, False) for each in copies] if live and older is not None else []
    kept = [(each, True) for each in [*live, *named]]
    for each, by_inode in [*first, *kept, *((each, False) for each in [path, *copies])]:
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
