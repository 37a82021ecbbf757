"""Files that are not what they should be: cut off, foreign, newer, out of reach, or in use."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import struct
import zlib
from pathlib import Path

import lmdb
import pytest
from support import ON, SCHEMA, Fate, call_in_child, each_in_fork, ids_in, in_fork, rows

from matwin.storage import InputError, MatwinError, Store, StoreError
from matwin.storage import pagefile as pagefile_module
from matwin.storage.scratch import filesystem_of, refuse_network

pytestmark = pytest.mark.fault

PAGE = 4096
IDS = range(2000)


def opened(folder: Path | str | None, durability: str = "checkpoint", **options: object) -> Store:
    options = {"memory": "128KiB", "page_size": PAGE, **options}
    return Store(folder, durability=durability, **options)  # type: ignore[arg-type]


def make(folder: Path, durability: str = "checkpoint") -> Path:
    with opened(folder, durability) as store:
        store.window("w", SCHEMA, on=ON).append(rows(IDS))
        store.commit()
    return folder


def ids_of(folder: Path | str, durability: str = "checkpoint") -> list[int]:
    with opened(folder, durability) as store:
        return ids_in(store.window("w", SCHEMA, on=ON).scan()) if store.saved else []


def attempt(folder: str) -> int:
    return len(ids_of(folder))


# ── cut off ──────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_file_that_was_cut_off(tmp_path: Path) -> None:
    pristine = make(tmp_path / "whole")
    size = (pristine / "data.mdb").stat().st_size
    lengths = [0, 1, 151, PAGE, PAGE + 100, 2 * PAGE, size // 2, size - PAGE, size - 1]
    cases = []
    for length in lengths:
        copy = shutil.copytree(pristine, tmp_path / str(length))
        os.truncate(copy / "data.mdb", length)
        cases.append([str(copy)])
    for length, fate in zip(lengths, each_in_fork(attempt, cases), strict=True):
        assert fate.signal == 0, length
        assert fate.error.startswith("StoreError: "), (length, fate)
        assert "data.mdb" in fate.error, fate


def cut_while_open(folder: str, length: int) -> int:
    with opened(folder) as store:
        window = store.window("w", SCHEMA, on=ON)
        os.truncate(Path(folder) / "data.mdb", length)
        return len(ids_in(window.scan()))


def test_a_file_cut_off_while_open(tmp_path: Path) -> None:
    pristine = make(tmp_path / "whole")
    size = (pristine / "data.mdb").stat().st_size
    lengths = [0, PAGE, size // 2, size - PAGE]
    cases = [[str(shutil.copytree(pristine, tmp_path / str(n))), n] for n in lengths]
    for length, fate in zip(lengths, each_in_fork(cut_while_open, cases), strict=True):
        assert fate.signal == 0, length
        assert fate.error.startswith("StoreError: "), (length, fate)
        assert f"cut to {length} bytes" in fate.error


# ── foreign ──────────────────────────────────────────────────────────────────────────────────────


def test_another_programs_lmdb_file(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "other")) as env, env.begin(write=True) as transaction:
        transaction.put(b"key", b"value")
    with pytest.raises(StoreError, match="not one of MatWin's"):
        opened(tmp_path / "other")
    with lmdb.open(str(tmp_path / "other")) as env, env.begin() as transaction:
        assert transaction.get(b"key") == b"value"
        assert transaction.stat()["entries"] == 1


@pytest.mark.parametrize("length", [1, 100, 4096, 8192, 100_000])
def test_random_bytes(tmp_path: Path, length: int) -> None:
    (tmp_path / "s").mkdir()
    content = random.Random(length).randbytes(length)
    (tmp_path / "s" / "data.mdb").write_bytes(content)
    with pytest.raises(StoreError, match=r"data\.mdb"):
        opened(tmp_path / "s")
    assert (tmp_path / "s" / "data.mdb").read_bytes() == content


@pytest.mark.parametrize("version", [1, 3])
def test_another_format(tmp_path: Path, version: int) -> None:
    folder = make(tmp_path / "s")
    with lmdb.open(str(folder)) as env, env.begin(write=True) as transaction:
        record = bytearray(transaction.get(b"\x00format"))
        struct.pack_into("<H", record, 12, version)
        struct.pack_into("<I", record, 8, zlib.crc32(record[12:]))
        transaction.put(b"\x00format", bytes(record))
    with pytest.raises(StoreError, match=f"format version {version}, this is version 2"):
        opened(folder)


def test_another_page_size(tmp_path: Path) -> None:
    folder = make(tmp_path / "s")
    with pytest.raises(InputError, match=f"page_size={PAGE}"):
        opened(folder, memory="1MiB", page_size="8KiB")
    assert ids_of(folder) == list(IDS)


def test_a_missing_parent_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        opened(tmp_path / "no" / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(StoreError, match=f"{tmp_path}/s: the folder can't be made"):
        opened(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    (tmp_path / "s" / "data.mdb").mkdir(parents=True)
    with pytest.raises(StoreError, match=f"{tmp_path}/s/data.mdb is no plain file"):
        opened(tmp_path / "s")


def open_as_nobody(base: str, folder: str, scratch: str) -> int:
    """Open a store without root's rights; from inside `base`, whose parents are out of reach."""
    os.chdir(base)
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    if folder:
        opened(folder).close()
    else:
        with opened(None, scratch=scratch) as store:
            store.window("w", SCHEMA, on=ON).append(rows(range(5000)))
    return 0


def test_folders_one_may_not_use(tmp_path: Path) -> None:
    """Another's store, a parent that can't be written, a scratch folder that can't be written."""
    theirs = make(tmp_path / "theirs")
    locked = tmp_path / "locked"
    locked.mkdir()
    tmp_path.chmod(0o755)
    theirs.chmod(0o000)
    locked.chmod(0o555)
    try:
        cases = [["theirs", ""], ["locked/s", ""], ["", "locked"]]
        fates = each_in_fork(open_as_nobody, [[str(tmp_path), *case] for case in cases])
    finally:
        theirs.chmod(0o700)
        locked.chmod(0o700)
    for case, fate in zip(cases, fates, strict=True):
        assert fate.signal == 0
        assert fate.error.startswith("StoreError: "), (case, fate)
        assert max(case) in fate.error
        assert "ermission denied" in fate.error
    assert ids_of(theirs) == list(IDS)
    assert list(locked.iterdir()) == []


# ── in use ───────────────────────────────────────────────────────────────────────────────────────


def use_after_fork(folder: str) -> list[str]:
    """What a forked child meets in a store that its parent opened; the parent goes on after it."""
    store = opened(folder)
    window = store.window("w", SCHEMA, on=ON)
    deeds = [
        lambda: list(window.scan()),
        lambda: window.append(rows(range(5000, 9000))),
        store.commit,
        lambda: store.file.page_ids(),
        lambda: opened(folder),
    ]
    fates = [in_fork(deed) for deed in deeds]
    fates.append(in_fork(store.close))
    assert ids_in(window.scan()) == list(IDS)
    window.append(rows(range(2000, 2500)))
    assert store.commit() == 2
    store.close()
    assert len(ids_of(folder)) == 2500
    return [fate.error for fate in fates]


def test_a_store_is_not_used_across_a_fork(tmp_path: Path) -> None:
    *errors, at_close = call_in_child(use_after_fork, str(make(tmp_path / "s")))
    for error in errors[:-1]:
        assert error.startswith("StoreError: "), errors
        assert "before a fork" in error
    assert "in use by process" in errors[-1]
    assert at_close == "", "closing what a fork inherited does no harm"


def reopen_beside_a_fork(folder: str) -> int:
    """Close and open a store again while a forked child that inherited it lives on."""
    store = opened(folder)
    waiting, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(waiting, 1)
        os._exit(0)
    try:
        store.close()
        return len(ids_of(folder))
    finally:
        os.close(release)
        os.waitpid(child, 0)


def test_a_forked_child_does_not_hold_the_path(tmp_path: Path) -> None:
    assert call_in_child(reopen_beside_a_fork, str(make(tmp_path / "s"))) == len(IDS)


def test_a_path_is_open_once(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with opened(folder):
        with pytest.raises(StoreError, match="in this process already"):
            opened(folder)
        (tmp_path / "link").symlink_to(folder)
        with pytest.raises(StoreError, match="in this process already"):
            opened(tmp_path / "link")
        (fate,) = each_in_fork(attempt, [[str(folder)]])
        assert f"in use by process {os.getpid()}" in fate.error
        assert fate.error.startswith("StoreError: ")
    opened(folder).close()
    assert each_in_fork(attempt, [[str(folder)]]) == [Fate(0, 0)]


def test_the_path_is_free_after_a_failed_open(tmp_path: Path) -> None:
    folder = make(tmp_path / "s")
    for options in ({"page_size": "8KiB", "memory": "1MiB"}, {"memory": "4KiB"}):
        with pytest.raises(MatwinError):
            opened(folder, **options)
    assert ids_of(folder) == list(IDS)


# ── modes and left-overs ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_only_the_owner_may_look(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = make(tmp_path / "s")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def spill_and_die(folder: str) -> None:
    store = opened(None, scratch=folder)
    store.window("w", SCHEMA, on=ON).append(rows(range(20_000)))
    assert store.file.file_bytes > 2**19
    assert list(Path(folder).iterdir()) == []
    os.kill(os.getpid(), signal.SIGKILL)


def test_scratch_leaves_nothing_behind(tmp_path: Path) -> None:
    (fate,) = each_in_fork(spill_and_die, [[str(tmp_path)]])
    assert fate == Fate(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /mnt rw - tmpfs tmpfs rw
31 22 0:27 / /mnt/share rw,relatime shared:7 - {kind} server:/x rw
32 22 0:28 / /mnt/share/local rw - xfs /dev/vdb rw
33 22 0:29 / /mnt/two\\040words rw - {kind} server:/y rw
"""


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "9p", "ceph", "lustre"]
)
def test_a_network_file_system_is_refused(kind: str) -> None:
    mounts = MOUNTS.format(kind=kind)
    for path in ("/mnt/share", "/mnt/share/deep/er", "/mnt/two words/s"):
        with pytest.raises(StoreError, match=f"is on {kind}, where LMDB is unsafe"):
            refuse_network(Path(path), mounts)
    for path in ("/", "/mnt", "/mnt/shared", "/mnt/share/local/s", "/mnt/two"):
        refuse_network(Path(path), mounts)


def test_the_innermost_and_latest_mount_counts() -> None:
    mounts = MOUNTS.format(kind="nfs") + "34 22 0:30 / /mnt/share rw - ext4 /dev/vdc rw\n"
    assert filesystem_of(Path("/mnt/share/x"), mounts) == "ext4"
    assert filesystem_of(Path("/mnt/share/local"), mounts) == "xfs"
    assert filesystem_of(Path("/mnt/other"), mounts) == "tmpfs"
    assert filesystem_of(Path("/home"), mounts) == "ext4"


def test_this_machines_own_table_is_readable(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path)


# ── after the machine has started anew ───────────────────────────────────────────────────────────


def test_an_unsynced_file_is_void_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "s")
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: "another start")
    with opened(folder) as store:
        assert (store.step, store.saved, store.file.page_ids()) == (0, [], [])
        store.window("w", SCHEMA, on=ON).append(rows(range(7)))
        assert store.commit() == 1
    assert ids_of(folder) == list(range(7))


def test_a_synced_file_outlives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "s", "epoch")
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: "another start")
    assert ids_of(folder, "epoch") == list(IDS)


def test_a_synced_file_stays_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at it without a word about durability does not make it void after a restart."""
    folder = make(tmp_path / "s", "epoch")
    with pytest.raises(InputError, match="durability='epoch'"):
        ids_of(folder, "checkpoint")
    with Store(folder, memory="1MiB", page_size=4096) as store:
        assert store.window("w", SCHEMA, on=ON).count() == len(IDS)
    monkeypatch.setattr(pagefile_module, "boot_id", lambda: "another start")
    assert ids_of(folder, "epoch") == list(IDS)


def open_torn(folder: str, boot: str, seed: int) -> str:
    """Open a store of which a power cut has kept some blocks and lost the others."""
    rng = random.Random(seed)
    with (Path(folder) / "data.mdb").open("r+b") as file:
        for at in range(0, os.fstat(file.fileno()).st_size, PAGE):
            if rng.random() < 0.3:
                file.seek(at)
                file.write(bytes(PAGE))
    pagefile_module.boot_id = lambda: boot
    try:
        found = ids_of(folder)
    except StoreError as e:
        return f"{type(e).__name__}: {e}"
    return f"{len(found)} rows"


def test_what_a_power_cut_left_of_an_unsynced_file(tmp_path: Path) -> None:
    pristine = make(tmp_path / "whole")
    cases = [
        [str(shutil.copytree(pristine, tmp_path / str(n))), "another start", n] for n in range(9)
    ]
    for fate in each_in_fork(open_torn, cases):
        assert fate == Fate(0, "0 rows")


def test_blocks_lost_without_a_restart(tmp_path: Path) -> None:
    pristine = make(tmp_path / "whole")
    boot = pagefile_module.boot_id()
    cases = [[str(shutil.copytree(pristine, tmp_path / str(n))), boot, n] for n in range(9)]
    for fate in each_in_fork(open_torn, cases):
        assert (fate.signal, fate.error) == (0, "")
        assert fate.value.startswith(("StoreError: ", "CorruptPage: ")), fate
