"""Closing and clean-up at bad moments."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from support import ON, SCHEMA, call_in_child, ids_in, needs_root, rows, tmpfs

from matwin.storage import MatwinError, Store, StoreError
from matwin.storage.env import Environment

pytestmark = pytest.mark.fault

PAGE = 4096
MEMORY = "1MiB"


def close_while_reading(folder: str) -> int:
    """Three threads read all pages over and over; the store is closed under them."""
    store = Store(folder, memory=MEMORY, page_size=PAGE)
    window = store.window("w", SCHEMA, on=ON)
    window.append(rows(range(20_000)))
    store.commit()
    pages = store.page_ids()
    started, unexpected = threading.Barrier(4), []

    def read() -> None:
        started.wait()
        try:
            while True:
                for page in pages:
                    store.file.read(page)
        except MatwinError as error:
            assert "closed" in str(error)
        except BaseException as error:
            unexpected.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    for page in pages[:50]:
        store.file.read(page)
    store.close()
    for thread in threads:
        thread.join()
    assert not unexpected, unexpected
    return len(pages)


def test_a_file_closed_while_others_read(tmp_path: Path) -> None:
    for number in range(5):
        assert call_in_child(close_while_reading, str(tmp_path / str(number))) > 50


def test_numbers_that_come_again_after_a_clean_up_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left-overs that a full disk kept from being deleted have numbers that the next step uses."""
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        store.window("w", SCHEMA, on=ON, materialize="slab").append(rows(range(2_000)))
        store.commit()
        store._windows["w"][1].append(rows(range(2_000, 30_000)))
        store.pool.flush()
    write = Environment.write

    def full(self: Environment, puts: object = (), deletes: object = ()) -> None:
        if deletes:
            raise StoreError(errno.ENOSPC, "the disk is full", "here")
        write(self, puts, deletes)  # type: ignore[arg-type]

    monkeypatch.setattr(Environment, "write", full)
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", SCHEMA, on=ON)
        window.append(rows(range(2_000, 4_000)))
        store.commit()
        monkeypatch.undo()
        window.append(rows(range(4_000, 5_000)))
        store.commit()
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        assert ids_in(store.window("w", SCHEMA, on=ON).scan()) == list(range(5_000))


@needs_root
def test_a_trace_on_a_full_disk_does_not_stop_the_work(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64 * 1024) as disk:
        store = Store(memory=MEMORY, page_size=PAGE, trace=disk / "run.trace")
        window = store.window("w", SCHEMA, on=ON)
        for first in range(0, 60_000, 1_000):
            window.append(rows(range(first, first + 1_000)))
        for _ in range(10):
            assert window.count() == 60_000
            assert ids_in(window.scan()) == list(range(60_000))
        with pytest.raises(StoreError, match=r"run\.trace: the trace is not complete: .*No space"):
            store.close()
        assert list(disk.iterdir()) == [], "what is not complete has no name"


def test_a_saved_window_can_be_dropped_unopened(tmp_path: Path) -> None:
    for _ in range(2):
        with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
            if store.saved:
                store.drop("w")
            else:
                store.window("w", SCHEMA, on=ON).append(rows(range(1_000)))
            store.commit()
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        assert store.saved == []
        assert store.file.page_ids() == []
