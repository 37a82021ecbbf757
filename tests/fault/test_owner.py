"""The files around a store's data: whatever happens to them, no data is deleted on a guess.

`owner` says who has the folder, `lock.mdb` is LMDB's.  Each is flipped bit by bit, cut, removed and
replaced, together with a data file that is whole or damaged, before and after a restart of the
machine.  A durable store has all its rows then, or it is an error and no byte of the data file
has changed.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from proofs import tried
from support import ON, SCHEMA, campaign, each_in_fork, ids_in, rows

from matwin.storage import Store, StoreError
from matwin.storage import pagefile as pagefile_module
from matwin.storage.records import OWNER, Claim, Trust, pack_owner, unpack_owner
from matwin.storage.scratch import boot_id

pytestmark = pytest.mark.fault

IDS = range(300)
OTHER = "another start"


def opened(folder: Path, durability: str | None = None) -> Store:
    return Store(folder, memory="128KiB", page_size=4096, durability=durability)


def make(folder: Path, durability: str) -> Path:
    with opened(folder, durability) as store:
        store.window("w", SCHEMA, on=ON).append(rows(IDS))
        store.commit()
    return folder


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("stores")
    return {word: make(base / word, word) for word in ("epoch", "checkpoint")}


def found_in(folder: Path) -> str:
    """All rows, none, or an error; the data file is as it was unless the store is an empty one."""
    before = (folder / "data.mdb").read_bytes()
    try:
        with opened(folder) as store:
            if not store.saved:
                return "set aside" if (folder / "discarded.mdb").exists() else "empty"
            assert ids_in(store.window("w", SCHEMA, on=ON).scan()) == list(IDS)
            return "rows"
    except StoreError as e:
        assert str(folder) in str(e)
        assert (folder / "data.mdb").read_bytes() == before
        return "error"


# ── what may happen to the two files ─────────────────────────────────────────────────────────────


def replaced(content: bytes) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / "owner").write_bytes(content)

    return replace


def sealed(version: int) -> bytes:
    """An owner's record of another version, with the right checksum."""
    record = bytearray(pack_owner(Claim(1, Trust.of("checkpoint", OTHER))))
    struct.pack_into("<H", record, 12, version)
    struct.pack_into("<I", record, 8, zlib.crc32(record[12:]))
    return bytes(record)


OWNERS: dict[str, Callable[[Path], None]] = {
    "as it was": lambda folder: None,
    "missing": lambda folder: (folder / "owner").unlink(),
    "empty": replaced(b""),
    "cut": lambda folder: os.truncate(folder / "owner", OWNER.size - 1),
    "zeros": replaced(bytes(OWNER.size)),
    "another program's": replaced(b"[owner]\nname = somebody\n" * 20),
    "a first release's": replaced(b"123\n0b5c6c1e-aaaa-bbbb-cccc-0123456789ab".ljust(127) + b"\n"),
    "newer": replaced(sealed(2)),
    "another store's, void": replaced(
        pack_owner(Claim(1, Trust.of("checkpoint", "long ago"), has_steps=True))
    ),
    "another store's, synced": replaced(pack_owner(Claim(1, Trust.of("epoch", "")))),
}


def cut_data(folder: Path) -> None:
    os.truncate(folder / "data.mdb", 8192)


def without_format(folder: Path) -> None:
    with lmdb.open(str(folder)) as env, env.begin(write=True) as transaction:
        transaction.delete(b"\x00format")


def damaged_format(folder: Path) -> None:
    with lmdb.open(str(folder)) as env, env.begin(write=True) as transaction:
        record = bytearray(transaction.get(b"\x00format"))
        record[14] ^= 1  # the durability
        transaction.put(b"\x00format", bytes(record))


def newer_format(folder: Path) -> None:
    with lmdb.open(str(folder)) as env, env.begin(write=True) as transaction:
        record = bytearray(transaction.get(b"\x00format"))
        struct.pack_into("<H", record, 12, 3)
        transaction.put(b"\x00format", bytes(record))


DATA: dict[str, Callable[[Path], None]] = {
    "whole": lambda folder: None,
    "cut": cut_data,
    "no format": without_format,
    "damaged format": damaged_format,
    "newer format": newer_format,
}


def expected(durability: str, boot: str, trust: Trust | None, data: str) -> str:
    """The rule of `storage/inherit.py`, said once more."""
    if data == "whole":
        return "rows" if durability == "epoch" or boot != OTHER else "empty"
    is_void = trust is not None and trust.durability == "checkpoint" and trust.boot != boot
    return "set aside" if is_void and data != "newer format" else "error"


@pytest.mark.proof("flips in every file of a store")
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("durability", ["epoch", "checkpoint"])
def test_every_pair_of_states(
    tmp_path: Path,
    stores: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    durability: str,
    data: str,
) -> None:
    for boot, owner in itertools.product((boot_id(), OTHER), OWNERS):
        folder = shutil.copytree(stores[durability], tmp_path / "s")
        DATA[data](folder)
        OWNERS[owner](folder)
        content = (folder / "data.mdb").read_bytes()
        record = (folder / "owner").read_bytes() if (folder / "owner").exists() else b""
        claim = unpack_owner(record)
        trust = claim.trust if claim else None
        monkeypatch.setattr(pagefile_module, "boot_id", lambda boot=boot: boot)
        found = found_in(folder)
        assert found == expected(durability, boot, trust, data), (boot, owner)
        if found == "set aside":
            assert (folder / "discarded.mdb").read_bytes() == content
        shutil.rmtree(folder)
        tried()


@pytest.mark.proof("flips in every file of a store")
@pytest.mark.parametrize("boot", ["the same", OTHER])
@pytest.mark.parametrize("durability", ["epoch", "checkpoint"])
def test_a_flip_in_the_owners_record(
    tmp_path: Path,
    stores: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    durability: str,
    boot: str,
) -> None:
    """The file says itself what it survives: no flip here changes what happens to it."""
    if boot == OTHER:
        monkeypatch.setattr(pagefile_module, "boot_id", lambda: OTHER)
    right = "empty" if durability == "checkpoint" and boot == OTHER else "rows"
    bits = [*range(8 * OWNER.size)]
    for bit in random.Random(durability + boot).sample(bits, campaign(64, len(bits))):
        folder = shutil.copytree(stores[durability], tmp_path / "s")
        record = bytearray((folder / "owner").read_bytes())
        record[bit // 8] ^= 1 << bit % 8
        (folder / "owner").write_bytes(record)
        assert unpack_owner(record) is None, "a flip is noticed"
        assert found_in(folder) == right, bit
        shutil.rmtree(folder)
        tried()


def look(pristine: str, work: str, at: int, bit: int) -> str:
    """Open a store whose lock file has a flipped bit."""
    folder = Path(work)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
    content = bytearray((folder / "lock.mdb").read_bytes())
    content[at] ^= 1 << bit
    (folder / "lock.mdb").write_bytes(content)
    return found_in(folder)


@pytest.mark.proof("flips in every file of a store")
def test_a_flip_in_lmdbs_lock_file(tmp_path: Path, stores: dict[str, Path]) -> None:
    """LMDB makes the file anew when nobody else has it open: no flip does any harm."""
    size = (stores["epoch"] / "lock.mdb").stat().st_size
    rng = random.Random(7)
    ats = [*range(0, 320, campaign(8, 1)), *rng.choices(range(size), k=campaign(20, 1500))]
    cases = [[str(stores["epoch"]), str(tmp_path / "s"), at, rng.randrange(8)] for at in ats]
    for case, fate in zip(cases, each_in_fork(look, cases), strict=True):
        assert (fate.signal, fate.error, fate.value) == (0, "", "rows"), case
        tried()


def emptied(folder: Path) -> str:
    """What opening a folder without a data file gives; an error leaves everything as it is."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    try:
        with opened(folder) as store:
            assert not store.saved
            return "empty"
    except StoreError as e:
        assert str(folder) in str(e)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        return "error"


BEGINS_ANEW = {
    "missing", "empty", "a first release's", "another store's, void", "another store's, synced"
}  # fmt: skip
"""States of the owner's record that speak of no step, or of one that is void after any boot."""


@pytest.mark.proof("flips in every file of a store")
@pytest.mark.parametrize("durability", ["epoch", "checkpoint"])
def test_a_data_file_that_is_gone_is_missed(
    tmp_path: Path, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    for boot, owner in itertools.product((boot_id(), OTHER), OWNERS):
        folder = shutil.copytree(stores[durability], tmp_path / "s")
        (folder / "data.mdb").unlink()
        OWNERS[owner](folder)
        monkeypatch.setattr(pagefile_module, "boot_id", lambda boot=boot: boot)
        is_void = durability == "checkpoint" and boot == OTHER and owner == "as it was"
        right = "empty" if owner in BEGINS_ANEW or is_void else "error"
        assert emptied(folder) == right, (boot, owner)
        shutil.rmtree(folder)
        tried()


@pytest.mark.parametrize("how", ["whole", "the owner's record was lost", "opened again"])
def test_what_says_that_there_were_steps_is_kept(
    tmp_path: Path, stores: dict[str, Path], how: str
) -> None:
    folder = shutil.copytree(stores["epoch"], tmp_path / "s")
    if how == "the owner's record was lost":
        (folder / "owner").unlink()
    if how != "whole":
        opened(folder).close()
    (folder / "data.mdb").unlink()
    with pytest.raises(StoreError, match=r"data\.mdb is missing, and steps were completed in it"):
        opened(folder)


def test_a_store_without_a_step_misses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with opened(folder, "epoch") as store:
        store.window("w", SCHEMA, on=ON).append(rows(IDS))
    (folder / "data.mdb").unlink()
    assert emptied(folder) == "empty"


def test_a_file_of_that_name_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "owner").write_text("Jane Doe, room 12\n")
    with pytest.raises(StoreError, match="owner is damaged, or is not one of MatWin's"):
        opened(tmp_path / "s")
    assert (tmp_path / "s" / "owner").read_text() == "Jane Doe, room 12\n"


def test_a_checkpoint_store_becomes_a_durable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "s", "checkpoint")
    opened(folder, "epoch").close()
    (folder / "owner").unlink()
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: OTHER)
    assert found_in(folder) == "rows"


# ── links ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["owner", "lock.mdb", "data.mdb", "new.mdb"])
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["link", "second name"])
@pytest.mark.parametrize("is_old", [False, True], ids=["new", "old"])
def test_a_link_is_not_followed(
    tmp_path: Path, name: str, link: Callable[[Path, Path], None], is_old: bool
) -> None:
    folder = tmp_path / "s"
    if is_old:
        make(folder, "epoch")
    else:
        folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (folder / name).unlink(missing_ok=True)
    link(victim, folder / name)
    if name == "new.mdb":
        opened(folder).close()
    else:
        with pytest.raises(StoreError, match=f"{name} (is a link|has a second name)"):
            opened(folder)
    assert victim.read_bytes() == b"precious"


def test_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "something").touch()
    with pytest.raises(StoreError, match="others may write to it"):
        opened(folder)
    assert [path.name for path in folder.iterdir()] == ["something"]
