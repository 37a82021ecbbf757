"""Readers that were killed do not keep freed pages for ever.

A reader's place in LMDB's table tells the writer which old pages to keep.  One that was killed
never gives its place back, so the file would grow with every step, until somebody looks whether
the readers still live.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import lmdb
import pytest
from support import ON, ROWS_PER_TICK, SCHEMA, call_in_child, ids_in, rows

from matwin.storage import Store, Window

pytestmark = pytest.mark.fault

STEP = 100
LIVE_STEPS = 60


def look(folder: str, go: int, ready: int) -> None:
    """Begin to read as another program would, and never end."""
    os.read(go, 1)
    environment = lmdb.open(folder, readonly=True)
    transaction = environment.begin()
    assert transaction.get(b"\x00complete")
    os.write(ready, b"!")
    signal.pause()


class Reader:
    """A process that waits to be told to read, and is killed while it does.

    It is forked before the store is opened, because LMDB files do not survive a fork.
    """

    def __init__(self, folder: str) -> None:
        go, self._go = os.pipe()
        self._ready, ready = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            look(folder, go, ready)

    def read_and_die(self) -> None:
        os.write(self._go, b"!")
        assert os.read(self._ready, 1) == b"!"
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def slide(store: Store, window: Window, steps: int) -> None:
    for _ in range(steps):
        end = (store.step + 1) * STEP
        window.append(rows(range(end - STEP, end)))
        window.expire(below=(end - LIVE_STEPS * STEP) // ROWS_PER_TICK)
        store.commit()


def size_with(folder: str, deaths: int) -> int:
    """The file's size after many steps, among which some readers began and were killed."""
    readers = [Reader(folder) for _ in range(deaths)]
    with Store(folder, memory="256KiB", page_size=4096) as store:
        window = store.window("w", SCHEMA, on=ON, materialize="slab")
        slide(store, window, 2 * LIVE_STEPS)
        for reader in readers:
            reader.read_and_die()
            slide(store, window, 60)
        slide(store, window, 60 * (4 - deaths))
        last = store.step * STEP
        assert ids_in(window.scan()) == list(range(last - LIVE_STEPS * STEP, last))
        return store.file.file_bytes


def test_killed_readers_cost_little(tmp_path: Path) -> None:
    without = call_in_child(size_with, str(tmp_path / "without"), 0)
    killed = call_in_child(size_with, str(tmp_path / "killed"), 4)
    assert killed <= 1.5 * without, (killed, without)
