"""Pages and manifests with the right checksum and hostile contents.

A checksum says that nothing has changed since it was computed, not who computed it.  Bytes of a
page or of the complete record are changed (single bits, numbers at the ends of their types, pieces
moved or cut), the checksum is computed again, and the store is opened and used in a process of its
own: no signal, nothing but a MatWin error; and where rows come back, they are well-formed.
"""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from collections import Counter
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest
from proofs import tried
from support import FORMS, ON, SCHEMA, campaign, each_in_fork, rows

from matwin.storage import CorruptPage, MatwinError, Store
from matwin.storage.layout import HEADER
from matwin.storage.manifest import pack_states, unpack_states
from matwin.storage.records import COMPLETE, COMPLETE_KEY, FORMAT_KEY

pytestmark = pytest.mark.fault

PAGE = 4096
WIDE = pa.schema(
    [
        ("t", pa.timestamp("us")),
        ("k", pa.string()),
        ("l", pa.list_(pa.int32())),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("b", pa.bool_()),
        ("s", pa.struct([("x", pa.float32()), ("y", pa.binary())])),
    ]
)
WIDE_ON, WIDE_BY = {"t": None}, "k"
NUMBERS = (0, 1, -1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63))


def wide_rows() -> pa.RecordBatch:
    columns = [
        [*range(40)],
        [f"key {i % 3}" for i in range(40)],
        [None if i % 5 == 0 else [i] * (i % 4) for i in range(40)],
        [f"word {i % 7}" for i in range(40)],
        [i % 2 == 0 for i in range(40)],
        [{"x": i / 2, "y": bytes([i])} for i in range(40)],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, WIDE, strict=True)]
    return pa.record_batch(arrays, schema=WIDE)


def opened(folder: Path) -> Store:
    return Store(folder, memory="512KiB", page_size=PAGE)


def windows_of(store: Store) -> list[object]:
    made = [store.window(form, SCHEMA, on=ON, materialize=form) for form in FORMS]
    return [*made, store.window("wide", WIDE, on=WIDE_ON, by=WIDE_BY, materialize="slab")]


def make(folder: Path) -> Path:
    with opened(folder) as store:
        *plain, wide = windows_of(store)
        for window in plain:
            window.append(rows(range(150)))
        wide.append(wide_rows())
        store.commit()
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("hostile") / "s")


def changed(record: bytes, start: int, used: int, rng: random.Random) -> bytes:
    """A record with some of its bytes changed; headers are hit more often than rows."""
    value = bytearray(record)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(start, min(used, start + (1 << rng.randrange(4, 14))))
        kind = rng.choice(("bit", "bit", "number", "number", "move", "cut"))
        if kind == "bit":
            value[at] ^= 1 << rng.randrange(8)
        elif kind == "number":
            size = rng.choice((1, 2, 4, 8))
            at -= at % size if rng.random() < 0.8 else 0
            number = rng.choice((*NUMBERS, rng.getrandbits(62)))
            value[at : at + size] = (number % 2**64).to_bytes(8, "little")[:size]
        elif kind == "move":
            other = rng.randrange(start, used)
            value[at : at + 16] = value[other : other + 16]
        else:
            value[at:used] = bytes(used - at)
    return bytes(value[: len(record)]).ljust(len(record), b"\0")


def resealed(record: bytes, used: int) -> bytes:
    checksum = struct.pack("<I", zlib.crc32(record[12:used]))
    return record[:8] + checksum + record[12:]


def damage(folder: Path, seed: int) -> bytes:
    """Change one record and seal it again; its key."""
    rng = random.Random(seed)
    with lmdb.open(str(folder)) as env, env.begin(write=True) as transaction:
        keys = [bytes(key) for key, _ in transaction.cursor() if key != FORMAT_KEY]
        key = COMPLETE_KEY if rng.random() < 0.4 else rng.choice(keys)
        record = transaction.get(key)
        if key == COMPLETE_KEY:
            value = resealed(changed(record, COMPLETE.size, len(record), rng), len(record))
        else:
            used = HEADER.unpack_from(record)[10]
            # The window, the number and the mark of the columns are not believed anyway.
            start = rng.choice((12, 32, 32, 64))
            value = changed(record, start, used, rng)
            claimed = struct.unpack_from("<I", value, 44)[0]
            value = resealed(value, claimed if 64 <= claimed <= len(value) else used)
        transaction.put(key, value)
    return key


def use(pristine: str, work: str, seed: int) -> str:
    """Everything a store can do with its windows; what comes of it."""
    folder = Path(work)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
    damage(folder, seed)
    try:
        with opened(folder) as store:
            for window in windows_of(store):
                for batch in window.scan():
                    batch.validate(full=True)
                    batch.to_pylist()
                window.count()
                if window.name != "wide":
                    window.append(rows(range(150, 200)))
                    window.expire(below=10)
            store.commit()
            store.check()
    except MatwinError as e:
        assert str(e)
        return type(e).__name__
    return "well"


@pytest.mark.proof("hostile pages and manifests")
def test_nothing_but_named_errors(pristine: Path, tmp_path: Path) -> None:
    count = campaign(150, 5_000)
    cases = [[str(pristine), str(tmp_path / "s"), seed] for seed in range(count)]
    fates = each_in_fork(use, cases)
    for seed, fate in enumerate(fates):
        assert (fate.signal, fate.error) == (0, ""), seed
        tried()
    outcomes = Counter(fate.value for fate in fates)
    assert set(outcomes) <= {"well", "CorruptPage", "InputError", "BudgetError", "StoreError"}
    assert outcomes["CorruptPage"] > count // 2, outcomes


def opened_memory() -> Store:
    return Store(memory="512KiB", page_size=PAGE)


def packed(rows_of: list[dict[str, object]], data: bytes) -> bytes:
    schema = pa.ipc.open_stream(data).schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows_of, schema))
    return bytes(sink.getvalue())


CHANGES = {
    "number": [-1, 2**32, None],
    "form": ["none", None],
    "schema": [b"", b"nothing", None],
    "grid": [None],
    "next_page": [-1, 0, None],
    "window": [None],
    "pages": [None],
    "page": [-1, None],
    "rows": [0, -1, 2**32, None],
    "size": [0, -5, 2**62, None],
    "first": [None, [], [1], [None, 1], [2**62, 0]],
    "last": [None, [], [1], [-(2**62), 0]],
    "order_min": [None, 2**62],
    "order_max": [None, -(2**62)],
    "low": [None],
    "run": [None],
}


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_of_a_manifest_is_looked_at(field: str) -> None:
    with opened_memory() as store:
        window = store.window("w", SCHEMA, on=ON)
        window.append(rows(range(100)))
        data = pack_states({"w": (0, window.state())})
    assert list(unpack_states(data, "here", PAGE)[0]) == ["w"]
    for value in CHANGES[field]:
        manifest = pa.ipc.open_stream(data).read_all().to_pylist()
        row = manifest[0] if field in manifest[0] else manifest[0]["pages"][0]
        row[field] = value
        with pytest.raises(CorruptPage, match="here: the windows of the complete record"):
            unpack_states(packed(manifest, data), "here", PAGE)


def test_a_column_name_that_is_not_text() -> None:
    schema = pa.schema([("naive", pa.int64())]).serialize().to_pybytes()
    with opened_memory() as store:
        window = store.window("w", SCHEMA, on=ON)
        window.append(rows(range(100)))
        data = pack_states({"w": (0, window.state())})
    manifest = pa.ipc.open_stream(data).read_all().to_pylist()
    manifest[0]["schema"] = schema.replace(b"naive", b"na\xe1ve")
    with pytest.raises(CorruptPage, match="can't decode"):
        unpack_states(packed(manifest, data), "here", PAGE)


def test_two_windows_of_one_number() -> None:
    with opened_memory() as store:
        window = store.window("w", SCHEMA, on=ON)
        window.append(rows(range(100)))
        data = pack_states({"v": (0, window.state()), "w": (0, window.state())})
    with pytest.raises(CorruptPage, match="one name or number"):
        unpack_states(data, "here", PAGE)
