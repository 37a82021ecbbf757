"""The file that has the last step sealed: what becomes of copies that don't belong together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ON, SCHEMA, ids_in, rows

from matwin.storage import Store, StoreError
from matwin.storage import pagefile as pagefile_module
from matwin.storage.last import SLOT_BYTES
from matwin.storage.records import Complete, pack_complete
from matwin.tools.trace.peek import peek

pytestmark = pytest.mark.fault

STEP = 40
DURABILITIES = ("epoch", "checkpoint")


def grown(folder: Path, durability: str, steps: int) -> Path:
    """A store with so many steps."""
    with Store(folder, memory="128KiB", page_size=4096, durability=durability) as store:
        window = store.window("w", SCHEMA, on=ON)
        while store.step < steps:
            window.append(rows(range(store.step * STEP, store.step * STEP + STEP)))
            store.commit()
    return folder


def step_of(folder: Path) -> int:
    """The step of a store, both looked at and opened, with the rows that it has to have."""
    with peek(folder) as looked:
        step = looked.step
    with Store(folder, memory="128KiB", page_size=4096) as store:
        assert store.step == step
        if step:
            assert ids_in(store.window("w", SCHEMA, on=ON).scan()) == list(range(step * STEP))
    return step


def refused(folder: Path, words: str) -> None:
    """Neither opened nor looked at, and every file is as it was."""
    before = {
        p.name: p.read_bytes() for p in folder.iterdir() if p.name not in ("owner", "lock.mdb")
    }
    with pytest.raises(StoreError, match=words), peek(folder):
        pass
    with pytest.raises(StoreError, match=words):
        Store(folder, memory="128KiB", page_size=4096)
    after = {name: (folder / name).read_bytes() for name in before}
    assert after == before


@pytest.fixture(params=DURABILITIES)
def copies(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[int], Path]:
    """Copies of one store, by the step at which they were taken."""
    folder = tmp_path / "s"

    def copy(steps: int) -> Path:
        grown(folder, request.param, steps)
        target = tmp_path / f"copy-{steps}"
        return target if target.exists() else Path(shutil.copytree(folder, target))

    return copy


@pytest.mark.parametrize("back", [1, 2, 5])
def test_an_older_data_file(copies: Callable[[int], Path], back: int) -> None:
    old, new = copies(3), copies(3 + back)
    shutil.copy(old / "data.mdb", new / "data.mdb")
    refused(new, rf"data.mdb is at step 3, .* step {3 + back}, .* was completed.*older copy")
    (new / "last").write_bytes(b"")
    assert step_of(grown(new, "epoch", 5)) == 5, "it goes on on purpose"


def test_an_older_seal(copies: Callable[[int], Path]) -> None:
    old, next_one, new = copies(3), copies(4), copies(6)
    shutil.copy(old / "last", next_one / "last")
    assert step_of(next_one) == 4, "one step ahead, as after a kill"
    assert step_of(grown(next_one, "epoch", 6)) == 6
    shutil.copy(old / "last", new / "last")
    refused(new, r"last is of step 3, and data.mdb of step 6: it is an older copy")


def test_a_seal_that_is_gone_or_damaged(copies: Callable[[int], Path]) -> None:
    folder = copies(3)
    whole = (folder / "last").read_bytes()
    (folder / "last").unlink()
    refused(folder, "last is missing; restore it together with data.mdb")
    (folder / "last").write_bytes(b"\xff" * len(whole))
    refused(folder, "last is damaged; restore it")
    (folder / "last").write_bytes(whole)
    assert step_of(folder) == 3


@pytest.mark.parametrize("slot", [0, SLOT_BYTES])
def test_one_slot_is_enough(copies: Callable[[int], Path], slot: int) -> None:
    folder = copies(3)
    whole = (folder / "last").read_bytes()
    (folder / "last").write_bytes(whole[:slot] + b"\xff" * 44 + whole[slot + 44 :])
    assert step_of(folder) == 3
    assert step_of(grown(folder, "epoch", 6)) == 6


def test_a_seal_that_is_a_link(copies: Callable[[int], Path]) -> None:
    folder = copies(3)
    (folder / "last").rename(folder / "elsewhere")
    (folder / "last").symlink_to(folder / "elsewhere")
    refused(folder, "last is a link")


def unsealed(complete: Complete) -> bytes:
    """The record as releases wrote it that had no seal."""
    return pack_complete(complete._replace(is_sealed=False))


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_store_of_an_earlier_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    folder = tmp_path / "s"
    with monkeypatch.context() as earlier:
        earlier.setattr(pagefile_module, "pack_complete", unsealed)
        grown(folder, durability, 3)
    (folder / "last").unlink()
    assert step_of(folder) == 3
    assert (folder / "last").stat().st_size == 2 * SLOT_BYTES
    kept = (folder / "last").read_bytes()
    with monkeypatch.context() as earlier:  # it goes on there, and comes back
        earlier.setattr(pagefile_module, "pack_complete", unsealed)
        grown(folder, durability, 7)
    (folder / "last").write_bytes(kept)
    assert step_of(folder) == 7
    shutil.copytree(folder, tmp_path / "old")
    grown(folder, durability, 8)
    shutil.copy(tmp_path / "old" / "data.mdb", folder / "data.mdb")
    refused(folder, r"data.mdb is at step 7")


def test_a_store_that_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the machine an unsynced store is void, and so is its seal."""
    folder = grown(tmp_path / "s", "checkpoint", 5)
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: "another start")
    with Store(folder, memory="128KiB", page_size=4096) as store:
        assert store.step == 0
    assert step_of(grown(folder, "checkpoint", 2)) == 2


def test_a_store_that_becomes_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = grown(tmp_path / "s", "checkpoint", 2)
    os.truncate(folder / "last", SLOT_BYTES + 44)  # what was not synced may be lost
    grown(folder, "epoch", 4)
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: "another start")
    assert (folder / "last").stat().st_size == 2 * SLOT_BYTES
    assert step_of(folder) == 4


def test_scratch_has_no_seal(tmp_path: Path) -> None:
    with Store(None, memory="128KiB", page_size=4096, scratch=tmp_path) as store:
        window = store.window("w", SCHEMA, on=ON)
        window.append(rows(range(20_000)))
        store.commit()
        assert list(tmp_path.iterdir()) == []
