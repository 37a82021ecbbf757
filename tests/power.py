"""Power cuts: what strace saw a process do to a folder, and the disks that it could have left.

strace records writes, syncs, and what happens to names.  At any point of that record the power may
go.  What was synced is on the disk then.  Of the rest any part may be:

    data    none, all, some of the writes since the file's last sync, some sectors of a write
    names   made, moved and removed since the last sync of their folder: up to a point in the order
            in which it was done (``"ordered"``, as ext4 and XFS keep it), or any of it (``"any"``,
            what POSIX promises: nothing)

Syncing a file brings its data and its length to the disk, not its name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open,openat,creat,mkdir,mkdirat,rmdir,pwrite64,pwritev,lseek,writev,write,read,fdatasync,fsync,"
    "ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,link,linkat,copy_file_range,"
    "sendfile,sync_file_range,truncate"
)
STRACE = ("-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o")
SECTOR = 512
NAMES = ("create", "mkdir", "rename", "unlink", "link")


@dataclass(frozen=True, slots=True)
class Op:
    """One call: what it did, to which path, and with what."""

    kind: str
    path: str = ""
    at: int = 0
    data: bytes = b""
    is_synced: bool = False


def recorded(log: Path, root: Path, told: Path) -> list[Op]:
    """The calls that changed something below `root`, and what was written to `told`."""
    reader, ops = _Reader(str(told)), []
    for line in log.read_text().splitlines():
        ops += reader.ops(line)
    return [op for op in ops if op.kind == "told" or Path(op.path).is_relative_to(root)]


class _Reader:
    """Reads the lines that strace writes; a call that another thread interrupts takes two."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._begun: dict[str, str] = {}
        self._synced: dict[str, bool] = {}
        self._at: dict[str, int] = {}
        self._appends: dict[str, bool] = {}

    def ops(self, line: str) -> Iterator[Op]:
        if found := re.match(r"(\d+) +(.*) <unfinished \.\.\.>$", line):
            self._begun[found[1]] = found[2]
            if re.match(r"f(data)?sync\(", found[2]):  # what is written meanwhile may be left out
                yield Op("sync", _path(found[2].partition("(")[2]))
            return
        if found := re.match(r"(\d+) +<\.\.\. (\w+) resumed>(.*)$", line):
            if found[2] in ("fsync", "fdatasync"):
                return
            line = f"{found[1]} {self._begun.pop(found[1])}{found[3]}"
        if found := re.match(r"\d+ +(\w+)\((.*)\) += (-?\d+)", line):
            call, arguments, result = found[1], found[2], int(found[3])
            if result >= 0:
                yield from self._op(call, arguments, result)

    def _op(self, call: str, arguments: str, result: int) -> Iterator[Op]:
        texts = [_plain(t) for t in re.findall(r'"((?:\\x..)*)"', arguments)]
        number, path = arguments.split("<")[0], _path(arguments)
        if call in ("open", "openat", "creat"):
            yield from self._opened(texts[0].decode(), arguments, result)
        elif call in ("mkdir", "mkdirat"):
            yield Op("mkdir", texts[0].decode())
        elif call in ("unlink", "unlinkat", "rmdir"):
            yield Op("unlink", texts[0].decode())
        elif call in ("rename", "renameat", "renameat2", "link", "linkat"):
            kind = "link" if call.startswith("link") else "rename"
            yield Op(kind, texts[0].decode(), data=texts[1])
        elif call in ("fdatasync", "fsync"):
            yield Op("sync", path)
        elif call == "lseek":
            self._at[number] = result
        elif call == "read":
            self._at[number] = self._at.get(number, 0) + result
        elif call in ("write", "writev"):
            yield self._written(number, path, b"".join(texts)[:result])
        elif call in ("pwrite64", "pwritev"):
            at = int(arguments.rpartition(", ")[2])
            data = b"".join(texts)[:result]
            yield Op("write", path, at, data, self._synced.get(number, False))
        elif call == "ftruncate":
            yield Op("truncate", path, at=int(arguments.rpartition(", ")[2]))
        elif call == "fallocate":
            _, _, start, size = arguments.split(", ")
            yield Op("extend", path, at=int(start) + int(size))
        elif call != "sync_file_range":
            raise AssertionError(f"{call} is not followed here: {arguments[:200]}")

    def _opened(self, path: str, arguments: str, result: int) -> Iterator[Op]:
        number = str(result)
        self._synced[number] = bool(re.search(r"O_D?SYNC", arguments))
        self._appends[number] = "O_APPEND" in arguments
        self._at[number] = 0
        if "O_CREAT" in arguments:
            yield Op("create", path)
        if "O_TRUNC" in arguments:
            yield Op("truncate", path)

    def _written(self, number: str, path: str, data: bytes) -> Op:
        if path == self._told:
            return Op("told", path, data=data)
        at = -1 if self._appends.get(number) else self._at.get(number, 0)
        self._at[number] = at + len(data)
        return Op("write", path, at, data, self._synced.get(number, False))


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _path(arguments: str) -> str:
    """The path of the file that a call's first argument is."""
    found = re.match(r"\d+<([^>]*)>(\(deleted\))?", arguments)
    if not found or found[2]:
        return ""
    return _plain(found[1]).decode() if "\\x" in found[1] else found[1]


# ── what a power cut leaves ──────────────────────────────────────────────────────────────────────


@dataclass
class File:
    """A file's content on the disk, and what has been done to it since it was last synced."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)
    size: int = 0
    """The length that the process sees."""

    def do(self, op: Op) -> None:
        """Follow the record."""
        if op.at < 0:
            op = Op(op.kind, op.path, self.size, op.data, op.is_synced)
        if op.kind == "truncate":
            self.size = op.at
        else:
            self.size = max(self.size, op.at + len(op.data))
        if op.is_synced:
            self.apply(op)
        else:
            self.pending.append(op)

    def sync(self) -> None:
        for op in self.pending:
            self.apply(op)
        self.pending.clear()

    def apply(self, op: Op, sectors: set[int] | None = None) -> None:
        if op.kind in ("truncate", "extend"):
            if op.kind == "truncate":
                del self.content[op.at :]
            self.content.extend(bytes(max(0, op.at - len(self.content))))
            return
        for start in range(0, len(op.data), SECTOR):
            if sectors is None or start // SECTOR in sectors:
                piece = op.data[start : start + SECTOR]
                at = op.at + start
                self.content.extend(bytes(max(0, at + len(piece) - len(self.content))))
                self.content[at : at + len(piece)] = piece

    def left(self, rng: random.Random) -> bytes:
        """What a power cut may leave."""
        left = File(bytearray(self.content))
        how = rng.choice(("none", "all", "some", "torn", "last torn"))
        for number, op in enumerate(self.pending):
            is_last = number == len(self.pending) - 1
            if how == "none" or (how in ("some", "torn") and rng.random() < 0.5):
                continue
            sectors = range(-(-len(op.data) // SECTOR))
            is_torn = how == "torn" or (how == "last torn" and is_last)
            left.apply(op, {s for s in sectors if rng.random() < 0.5} if is_torn else None)
        return bytes(left.content)


class Disk:
    """A disk that may lose what was not synced."""

    def __init__(self, root: str, order: str = "ordered") -> None:
        self.root = root
        self.order = order
        self.files: dict[str, File] = {}  # by the name a file has now
        self.names: dict[str, File | None] = {}  # names on the disk; None is a folder
        self.changes: list[tuple[Op, File | None]] = []  # since their folder was synced

    def do(self, op: Op) -> None:
        """Follow the record."""
        if not op.path.startswith(self.root):
            return
        if op.kind in NAMES:
            self._name(op)
        elif op.kind == "sync" and op.path in self.files:
            self.files[op.path].sync()
        elif op.kind == "sync":
            for change in [c for c in self.changes if op.path in _folders(c[0])]:
                self._settle(self.names, *change)
                self.changes.remove(change)
        else:
            self.files[op.path].do(op)

    def _name(self, op: Op) -> None:
        if op.kind == "create" and op.path in self.files:
            return
        target = op.data.decode()
        if op.kind == "create":
            self.files[op.path] = File()
        elif op.kind in ("link", "rename"):
            self.files[target] = self.files[op.path]
        self.changes.append((op, self.files.get(op.path)))
        if op.kind in ("rename", "unlink"):
            self.files.pop(op.path, None)

    @staticmethod
    def _settle(names: dict[str, File | None], op: Op, file: File | None) -> None:
        if op.kind in ("create", "mkdir"):
            names[op.path] = file
        elif op.kind in ("rename", "link"):
            names[op.data.decode()] = file
        # A name may be another file's by now, of which nothing is removed.
        if op.kind in ("rename", "unlink") and names.get(op.path) is file:
            names.pop(op.path, None)

    def cut(self, rng: random.Random, folder: Path) -> None:
        """Write down what a power cut leaves now."""
        names = dict(self.names)
        kept = self.changes[: rng.randint(0, len(self.changes))]
        if self.order == "any":
            share = rng.random()
            kept = [change for change in self.changes if rng.random() < share]
        for change in kept:
            self._settle(names, *change)
        left: dict[int, bytes] = {}
        for name, file in sorted(names.items()):
            place = folder / Path(name).relative_to(self.root)
            if not place.parent.is_dir():
                continue  # the name of its folder was lost
            if file is None:
                place.mkdir(mode=0o700)
            else:
                place.write_bytes(left.setdefault(id(file), file.left(rng)))
                place.chmod(0o600)


def _folders(op: Op) -> set[str]:
    """The folders whose sync brings a change of names to the disk."""
    return {str(Path(path).parent) for path in (op.path, op.data.decode()) if path}


def images(
    ops: list[Op], root: Path, into: Path, count: int, seed: int, order: str = "ordered"
) -> list[tuple[int, int, str]]:
    """Images at random points: what had been acknowledged then, the point, and the folder."""
    rng = random.Random(seed)
    cuts: dict[int, int] = {}
    for _ in range(count):
        at = rng.randint(0, len(ops))
        cuts[at] = cuts.get(at, 0) + 1
    disk, told, made = Disk(str(root), order), 0, []
    for at in range(len(ops) + 1):
        for number in range(cuts.get(at, 0)):
            folder = into / f"{at}-{number}"
            folder.mkdir()
            disk.cut(rng, folder)
            made.append((told, at, str(folder)))
        if at < len(ops):
            told = int(ops[at].data) if ops[at].kind == "told" else told
            disk.do(ops[at])
    return made


def is_unsynced(ops: list[Op], path: Path) -> bool:
    """Whether a file has been written to since it was last synced."""
    kinds = [op.kind for op in ops if op.path == str(path) and op.kind in ("write", "sync")]
    return kinds[-1:] == ["write"]
