"""A power cut at any moment, by images of the disk that it could have left.

strace records what a process does to a store: writes, syncs, and what happens to names.  At any
point of that record the power may go.  What was synced is on the disk then; of the rest, any part
may be: none, all, some writes, some sectors of a write.  Each image is opened by a process of its
own, on a machine that has started anew: with ``durability="epoch"`` the last acknowledged step is
whole and at most one newer is there; a `checkpoint` store is empty.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from proofs import tried
from support import (
    ON,
    ROWS_PER_TICK,
    SCHEMA,
    campaign,
    each_in_fork,
    ids_in,
    needs_root,
    rows,
    strace,
)

from matwin.storage import Store
from matwin.storage import pagefile as pagefile_module

pytestmark = [
    pytest.mark.fault,
    needs_root,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

CALLS = "openat,mkdir,pwrite64,lseek,writev,write,fdatasync,fsync,ftruncate,rename,unlink"
STEP, LIVE, STEPS = 120, 360, 6
SECTOR = 512


def ids_at(step: int) -> range:
    """The model: what the windows hold after a step."""
    return range(max(0, step * STEP - LIVE), step * STEP)


def opened(folder: Path, durability: str) -> Store:
    return Store(folder, memory="256KiB", page_size=4096, durability=durability)


def work(folder: str, durability: str, log: str) -> int:
    """Make a store and take some steps, each acknowledged by a line; all of it recorded."""
    told = os.open(f"{log}.told", os.O_WRONLY | os.O_CREAT)
    options = ("-y", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", log)
    with strace(*options), opened(Path(folder), durability) as store:
        windows = [store.window(f, SCHEMA, on=ON, materialize=f) for f in ("slab", "standard")]
        for step in range(1, STEPS + 1):
            for window in windows:
                window.append(rows(range(step * STEP - STEP, step * STEP)))
                window.expire(below=ids_at(step).start // ROWS_PER_TICK)
            os.write(told, f"{store.commit()}\n".encode())
    return STEPS


# ── what strace saw ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Op:
    """One call: what it did, to which path, and with what."""

    kind: str
    path: str = ""
    at: int = 0
    data: bytes = b""
    is_synced: bool = False


def recorded(log: Path) -> list[Op]:
    """The calls that changed something."""
    synced: dict[str, bool] = {}
    places: dict[str, int] = {}
    ops: list[Op] = []
    for line in log.read_text().splitlines():
        if found := re.match(r"\d+ +(\w+)\((.*)\) += (-?\d+)", line):
            call, arguments, result = found[1], found[2], int(found[3])
            if result >= 0:
                ops += _ops(call, arguments, result, synced, places)
    return ops


def _ops(
    call: str, arguments: str, result: int, synced: dict[str, bool], places: dict[str, int]
) -> Iterator[Op]:
    texts = [bytes.fromhex(t.replace("\\x", "")) for t in re.findall(r'"((?:\\x..)*)"', arguments)]
    number, path = _descriptor(arguments)
    if call == "openat":
        synced[str(result)] = "O_DSYNC" in arguments
        if "O_CREAT" in arguments:
            yield Op("create", texts[0].decode())
    elif call in ("mkdir", "unlink"):
        yield Op(call, texts[0].decode())
    elif call == "rename":
        yield Op("rename", texts[0].decode(), data=texts[1])
    elif call in ("fdatasync", "fsync"):
        yield Op("sync", path)
    elif call == "lseek":
        places[number] = result
    elif call == "writev":
        data, at = b"".join(texts)[:result], places[number]
        yield Op("write", path, at, data, synced.get(number, False))
    elif call == "write":
        yield Op("told", path, data=texts[0])
    elif call == "ftruncate":
        yield Op("truncate", path, at=int(arguments.rpartition(", ")[2]))
    else:
        at = int(arguments.rpartition(", ")[2])
        yield Op("write", path, at, b"".join(texts)[:result], synced.get(number, False))


def _descriptor(arguments: str) -> tuple[str, str]:
    found = re.match(r"(\d+)<([^>]*)>", arguments)
    if not found:
        return "", ""
    path = found[2]
    return found[1], bytes.fromhex(path.replace("\\x", "")).decode() if "\\x" in path else path


# ── what a power cut leaves ──────────────────────────────────────────────────────────────────────


@dataclass
class File:
    """A file's content, and what has been done to it since it was last synced."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)

    def apply(self, op: Op, sectors: set[int] | None = None) -> None:
        if op.kind == "truncate":
            self.content[op.at :] = bytes(max(0, op.at - len(self.content)))
            return
        for start in range(0, len(op.data), SECTOR):
            if sectors is None or start // SECTOR in sectors:
                piece = op.data[start : start + SECTOR]
                at = op.at + start
                self.content.extend(bytes(max(0, at + len(piece) - len(self.content))))
                self.content[at : at + len(piece)] = piece


class Disk:
    """A disk that may lose what was not synced."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: dict[str, File] = {}  # by the name a file has now
        self.names: dict[str, File | None] = {}  # names on the disk; None is a folder
        self.renames: list[Op] = []  # what has happened to names since their folder was synced
        self.by_op: dict[int, File] = {}

    def do(self, op: Op) -> None:
        """Follow the record."""
        if not op.path.startswith(self.root):
            return
        if op.kind in ("create", "mkdir", "rename", "unlink"):
            self._name(op)
        elif op.kind == "sync" and op.path in self.files:
            file = self.files[op.path]
            for pending in file.pending:
                file.apply(pending)
            file.pending.clear()
        elif op.kind == "sync":
            for renamed in [r for r in self.renames if str(Path(r.path).parent) == op.path]:
                self._settle(self.names, renamed)
                self.renames.remove(renamed)
        elif op.is_synced:
            self.files[op.path].apply(op)
        else:
            self.files[op.path].pending.append(op)

    def _name(self, op: Op) -> None:
        if op.kind == "create" and op.path in self.files:
            return
        if op.kind == "create":
            self.files[op.path] = self.by_op[id(op)] = File()
        elif op.kind == "rename":
            self.files[op.data.decode()] = self.files.pop(op.path)
        elif op.kind == "unlink":
            self.files.pop(op.path, None)
        self.renames.append(op)

    def _settle(self, names: dict[str, File | None], op: Op) -> None:
        if op.kind == "rename":
            names[op.data.decode()] = names.pop(op.path)
        elif op.kind == "unlink":
            names.pop(op.path, None)
        else:
            names[op.path] = self.by_op.get(id(op))

    def cut(self, rng: random.Random, folder: Path) -> None:
        """Write down what a power cut leaves now."""
        names = dict(self.names)
        for op in self.renames[: rng.randint(0, len(self.renames))]:
            self._settle(names, op)
        for name, file in sorted(names.items()):
            place = folder / Path(name).relative_to(self.root)
            if not place.parent.is_dir():
                continue  # the name of its folder was lost
            if file is None:
                place.mkdir(mode=0o700)
            else:
                place.write_bytes(self._left(file, rng))
                place.chmod(0o600)

    def _left(self, file: File, rng: random.Random) -> bytes:
        left = File(bytearray(file.content))
        how = rng.choice(("none", "all", "some", "torn", "last torn"))
        for number, op in enumerate(file.pending):
            is_last = number == len(file.pending) - 1
            if how == "none" or (how in ("some", "torn") and rng.random() < 0.5):
                continue
            sectors = range(-(-len(op.data) // SECTOR))
            is_torn = how == "torn" or (how == "last torn" and is_last)
            left.apply(op, {s for s in sectors if rng.random() < 0.5} if is_torn else None)
        return bytes(left.content)


def images(
    ops: list[Op], root: Path, into: Path, count: int, seed: int
) -> list[tuple[int, int, str]]:
    """Images at random points: what had been acknowledged then, the point, and the folder."""
    rng = random.Random(seed)
    cuts: dict[int, int] = {}
    for _ in range(count):
        at = rng.randint(0, len(ops))
        cuts[at] = cuts.get(at, 0) + 1
    disk, told, made = Disk(str(root)), 0, []
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


def look(folder: str, durability: str, told: int) -> list[Any]:
    """Open an image after the restart: the step it has; and it goes on."""
    pagefile_module.boot_id = lambda: "another start"
    place = Path(folder) / "s"
    with opened(place, durability) as store:
        step = store.step
        for form in ("slab", "standard"):
            window = store.window(form, SCHEMA, on=ON, materialize=form)
            assert ids_in(window.scan()) == list(ids_at(step)), f"{form} at step {step}"
        window.append(rows(range(50_000, 50_100)))
        assert store.commit() == step + 1
    shutil.rmtree(folder)
    assert step == 0 or durability == "epoch"
    assert durability != "epoch" or step in (told, told + 1), (step, told)
    return [step]


@pytest.mark.proof("power-cut images")
@pytest.mark.parametrize(
    ("durability", "usual", "many"), [("epoch", 48, 4000), ("checkpoint", 12, 1000)]
)
def test_power_cuts(tmp_path: Path, durability: str, usual: int, many: int) -> None:
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    (fate,) = each_in_fork(work, [[str(disk / "s"), durability, str(log)]])
    assert (fate.signal, fate.error, fate.value) == (0, "", STEPS)
    ops = [op for op in recorded(log) if op.path.startswith(str(disk)) or op.kind == "told"]
    assert sum(op.kind == "told" for op in ops) == STEPS
    assert sum(op.kind == "write" for op in ops) > 20
    count = campaign(usual, many)
    while count > 0:  # not all of them on the disk at once
        some = images(ops, disk, tmp_path, min(count, 500), count)
        fates = each_in_fork(look, [[folder, durability, told] for told, _, folder in some])
        for (told, at, folder), fate in zip(some, fates, strict=True):
            assert (fate.signal, fate.error) == (0, ""), (
                told,
                at,
                folder,
                ops[max(at - 1, 0)].kind,
            )
            tried()
        count -= len(some)
