"""A flipped bit is noticed and named, or lies where nothing is kept.

Flips of what MatWin writes (pages, the format record, the complete record) are tried by the
hundred inside one child process.  Flips of LMDB's own pages, which have no checksum, get a process
each, since LMDB follows what it finds there.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from proofs import tried
from support import FORMS, ON, SCHEMA, call_in_child, campaign, each_in_fork, ids_in, rows

from matwin.storage import Store, StoreError

pytestmark = pytest.mark.fault

PAGE = 4096
IDS = range(500)
WINDOWS = (*FORMS, "long")
RECORD_KEY = struct.Struct(">cIQI")
LONG = pa.schema([("t", pa.int64()), ("text", pa.string())])
LONG_ROWS = pa.record_batch({"t": [1, 2], "text": ["a" * 100, "b" * 3 * PAGE]}, schema=LONG)


def opened(folder: Path) -> Store:
    return Store(folder, memory="512KiB", page_size=PAGE)


def make(folder: Path) -> Path:
    """A closed store of two steps: a window in each form, and one with a page of four records."""
    with opened(folder) as store:
        windows = [store.window(form, SCHEMA, on=ON, materialize=form) for form in FORMS]
        windows.append(store.window("long", LONG, on={"t": 10}))
        for window in windows[:-1]:
            window.append(rows(IDS[:250]))
        store.commit()
        for window in windows[:-1]:
            window.append(rows(IDS[250:]))
        windows[-1].append(LONG_ROWS)
        store.commit()
    return folder


def locate(folder: Path) -> dict[bytes, tuple[int, bytes]]:
    """Where in the file each record's bytes are, and what they are."""
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin(buffers=True) as txn:
        found = {
            bytes(k): (np.frombuffer(v, np.uint8).ctypes.data, bytes(v)) for k, v in txn.cursor()
        }
        line = next(m for m in Path("/proc/self/maps").read_text().splitlines() if str(folder) in m)
        base = int(line.split("-")[0], 16)
    data = (folder / "data.mdb").read_bytes()
    places = {key: (address - base, value) for key, (address, value) in found.items()}
    assert all(data[at : at + len(value)] == value for at, value in places.values())
    return places


def read_back(folder: Path) -> list[str]:
    """What is wrong with each window, in words; nothing for those that are well."""
    try:
        store = opened(folder)
    except StoreError as e:
        return [f"{type(e).__name__}: {e}"]
    with store:
        return [outcome(store, name) for name in WINDOWS]


def outcome(store: Store, name: str) -> str:
    schema, on = (LONG, {"t": 10}) if name == "long" else (SCHEMA, ON)
    try:
        batches = list(store.window(name, schema, on=on, materialize="auto").scan())
    except StoreError as e:
        return f"{type(e).__name__}: {e}"
    if name == "long":
        is_same = pa.Table.from_batches(batches, LONG).equals(pa.Table.from_batches([LONG_ROWS]))
    else:
        is_same = ids_in(batches) == list(IDS)
    return "" if is_same else "other rows, and no error"


def damaged_copy(pristine: str, work: str, at: int, bit: int) -> Path:
    folder = Path(work)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return folder


# ── what MatWin writes ───────────────────────────────────────────────────────────────────────────


def read_each(pristine: str, work: str, flips: list[tuple[int, int]]) -> list[list[str]]:
    return [read_back(damaged_copy(pristine, work, at, bit)) for at, bit in flips]


def try_flips(folder: Path, flips: list[tuple[int, int]]) -> list[list[str]]:
    return call_in_child(read_each, str(folder), str(folder) + "-work", flips, timeout=3600)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("flips") / "s")


def used_of(places: dict[bytes, tuple[int, bytes]], window: int, page: int) -> int:
    """How many bytes a page takes, over all its records."""
    _, first = places[RECORD_KEY.pack(b"\x01", window, page, 0)]
    return int(struct.unpack_from("<I", first, 44)[0])


@pytest.mark.proof("flips in every file of a store")
@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=WINDOWS)
def test_a_flip_in_a_page(pristine: Path, window: int) -> None:
    """Every byte before the rows, some of the rows, some of the filling."""
    places = locate(pristine)
    rng = random.Random(window)
    flips, expected = [], []
    for key, (start, record) in places.items():
        _, found, page, part = RECORD_KEY.unpack(key) if key[0] == 1 else (b"", -1, 0, 0)
        if found != window:
            continue
        size = len(record)
        used = min(max(used_of(places, window, page) - part * size, 0), size)
        ats = [*range(128 if part == 0 and page % 4 == 0 else 0)]
        ats += [rng.randrange(used) for _ in range(campaign(12, 400))]
        ats += [rng.randrange(used, size) for _ in range(3) if used < size]
        flips += [(start + at, rng.randrange(8)) for at in ats]
        name = f"page {page} of window {window}"
        expected += [name if at < used else "" for at in ats]
    assert any(expected) and not all(expected)
    for flip, name, outcomes in zip(flips, expected, try_flips(pristine, flips), strict=True):
        wrong = outcomes.pop(window)
        assert outcomes == ["", "", ""], "the other windows are well"
        tried()
        if name:
            assert wrong.startswith("CorruptPage: ") and name in wrong, (flip, wrong)
        else:
            assert wrong == "", flip


def test_a_page_larger_than_a_record_was_among_them(pristine: Path) -> None:
    parts = [RECORD_KEY.unpack(key)[3] for key in locate(pristine) if key[0] == 1]
    assert max(parts) == 3


@pytest.mark.proof("flips in every file of a store")
@pytest.mark.parametrize("name", ["format", "complete"])
def test_a_flip_in_the_record(pristine: Path, name: str) -> None:
    start, record = locate(pristine)[b"\x00" + name.encode()]
    rng = random.Random(name)
    ats = [*range(min(len(record), 64)), *(rng.randrange(len(record)) for _ in range(40))]
    flips = [(start + at, rng.randrange(8)) for at in ats]
    for (at, _), (wrong, *others) in zip(flips, try_flips(pristine, flips), strict=True):
        assert others == [], "the store is not opened"
        tried()
        if name == "format" and at - start in (12, 13):
            assert re.match(r"StoreError: .* has format version \d+, this is version 2", wrong)
        else:
            assert re.match(rf"CorruptPage: .*: the {name} record is damaged", wrong)


# ── what LMDB writes ─────────────────────────────────────────────────────────────────────────────


def read_and_go_on(pristine: str, work: str, at: int, bit: int) -> list[str]:
    """Read a damaged copy; if that is well, take steps that write, delete and reuse pages."""
    folder = damaged_copy(pristine, work, at, bit)
    found = read_back(folder)
    if not any(found):
        try:
            go_on(folder)
        except StoreError as e:
            found.append(f"{type(e).__name__}: {e}")
    return found


def go_on(folder: Path) -> None:
    with opened(folder) as store:
        for name in FORMS:
            store.window(name, SCHEMA, on=ON, materialize=name)
            store.drop(name)
        window = store.window("more", SCHEMA, on=ON)
        window.append(rows(IDS))
        store.commit()
        window.expire(below=50)
        store.commit()
        assert ids_in(window.scan()) == list(IDS[200:])


def lmdb_bytes(folder: Path) -> tuple[list[int], list[int]]:
    """Places of LMDB's own in the file: heads and pointers of the nodes that are in use, where a
    flip does most harm; and all of them, free pages and the heads of overflow pages included."""
    data = (folder / "data.mdb").read_bytes()
    metas = [struct.unpack_from("<80xQ40xQ8xQ", data, start) for start in (0, PAGE)]
    used, places = [], [*range(152), *range(PAGE, PAGE + 152)]
    for start in range(2 * PAGE, len(data), PAGE):
        _, _, flags, lower, upper = struct.unpack_from("<QHHHH", data, start)
        places += range(start, start + 16)
        if flags not in (1, 2):
            continue
        places += [*range(start + 16, start + lower), *range(start + upper, start + PAGE)]
        if start // PAGE in max(metas, key=lambda meta: meta[2]):
            nodes = struct.unpack_from(f"<{(lower - 16) // 2}H", data, start + 16)
            used += range(start, start + lower)
            used += [start + node + i for node in nodes for i in range(8)]
    return used, places


def is_node_of_part(folder: Path, at: int) -> bool:
    """Whether the node at this place is that of a page's second record."""
    with (folder / "data.mdb").open("rb") as file:
        key = os.pread(file.fileno(), RECORD_KEY.size, at + 8)
    kind, window, _, part = RECORD_KEY.unpack(key)
    return (kind, window, part) == (b"\x01", WINDOWS.index("long"), 1)


@pytest.mark.proof("flips in every file of a store")
def test_a_flip_in_a_page_of_lmdb(pristine: Path) -> None:
    rng = random.Random(41)
    used, places = lmdb_bytes(pristine)
    assert len(used) > 200
    ats = [*rng.choices(used, k=campaign(60, 2000)), *rng.choices(places, k=campaign(40, 2000))]
    flips = [(at, rng.randrange(8)) for at in ats]
    flips += [(at + 1, 0) for at in used if is_node_of_part(pristine, at)]  # 256 bytes shorter
    assert len(flips) > len(ats)
    work = str(pristine) + "-lmdb"
    fates = each_in_fork(read_and_go_on, [[str(pristine), work, *flip] for flip in flips])
    for flip, fate in zip(flips, fates, strict=True):
        assert (fate.signal, fate.error) == (0, ""), flip
        tried()
        for wrong in filter(None, fate.value):
            assert re.match(r"(StoreError|CorruptPage): ", wrong), (flip, wrong)
    assert any(any(fate.value) for fate in fates)
