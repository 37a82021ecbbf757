"""A flipped bit in LMDB's meta pages, or beside them: the last step is there, or it is an error.

LMDB believes its two meta pages.  One bit of a transaction's number opens the state before, one of
the flags ends the process at the next commit.  Here each bit of both pages, and of the file that
has the last step sealed, is flipped in stores that were closed or killed, with the newest state in
either page; a process of its own then opens the store, compares every row, and goes on.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from proofs import tried
from support import ON, ROWS_PER_TICK, SCHEMA, campaign, each_in_fork, ids_in, in_fork, rows

from matwin.storage import Store, StoreError
from matwin.storage import last as last_module
from matwin.storage.meta import META_BYTES
from matwin.storage.records import SEALED

pytestmark = pytest.mark.fault

PAGE, STEP, LIVE = 4096, 60, 180
ENDS = ("closed", "before the seal", "after the seal", "in the next step")


def opened(folder: Path, durability: str | None = None) -> Store:
    return Store(folder, memory="128KiB", page_size=PAGE, durability=durability)


def ids_at(step: int) -> range:
    return range(max(0, step * STEP - LIVE), step * STEP)


def take_step(store: Store, window: Any) -> int:
    step = store.step + 1
    window.append(rows(range(step * STEP - STEP, step * STEP)))
    window.expire(below=ids_at(step).start // ROWS_PER_TICK)
    return store.commit()


def work(folder: str, durability: str, steps: int, end: str) -> None:
    """Take some steps, and end in one of the ways in which a process does."""
    store = opened(Path(folder), durability)
    window = store.window("w", SCHEMA, on=ON, materialize="slab")
    for _ in range(steps - 1):
        take_step(store, window)
    if end in ("before the seal", "after the seal"):
        plain = last_module.Last.write

        def killed(*args: Any) -> None:
            if end == "after the seal":
                plain(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        last_module.Last.write = killed  # type: ignore[method-assign]
    take_step(store, window)
    if end == "in the next step":
        window.append(rows(range(steps * STEP, steps * STEP + 2000)))
        window.settle()
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def made(folder: Path, durability: str, steps: int, end: str) -> Path:
    fate = in_fork(work, str(folder), durability, steps, end)
    assert (fate.signal == signal.SIGKILL) == (end != "closed"), fate
    return folder


def flip(file: Path, at: int, bit: int) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(at)
        (byte,) = opened_file.read(1)
        opened_file.seek(at)
        opened_file.write(bytes([byte ^ 1 << bit]))


def look(pristine: str, steps: int, end: str, name: str, at: int, bit: int) -> str:
    """Open a copy with a flipped bit and go on: '' where all is right, or the error."""
    folder = Path(f"{pristine}-{os.getpid()}")
    shutil.copytree(pristine, folder)
    try:
        flip(folder / name, at, bit)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        try:
            store = opened(folder)
        except StoreError as e:
            kept = {path.name: path.read_bytes() for path in folder.iterdir()}
            # `owner` has the number of the last process; LMDB's table of readers is made anew.
            for other in ("owner", "lock.mdb"):
                before.pop(other, None), kept.pop(other, None)
            assert kept == before, "a refused file is left as it is"
            return f"{type(e).__name__}: {e}"
        with store:
            # Unacknowledged, the last step may be there or not.
            assert store.step in ((steps - 1, steps) if end == "before the seal" else (steps,))
            window = store.window("w", SCHEMA, on=ON, materialize="slab")
            assert ids_in(window.scan()) == list(ids_at(store.step)), "other rows"
            window = store.window("w2", SCHEMA, on=ON)
            for count in range(1, 4):
                window.append(rows(range(count * 500)))
                store.commit()
            assert ids_in(window.scan()) == sorted([*range(500), *range(1000), *range(1500)])
            step = store.step
        with opened(folder) as store:
            assert store.step == step
        return ""
    finally:
        shutil.rmtree(folder)


def bits(sizes: dict[str, tuple[int, ...]], used: int) -> list[tuple[str, int, int]]:
    """All bits of the first `used` bytes of each page."""
    return [
        (name, start + at, bit)
        for name, starts in sizes.items()
        for start in starts
        for at in range(used)
        for bit in range(8)
    ]


META = {"data.mdb": (0, PAGE)}
BESIDE = {"last": (0, last_module.SLOT_BYTES)}


@pytest.mark.proof("bits of LMDB's meta pages")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("durability", "steps"), [("epoch", 4), ("epoch", 5), ("checkpoint", 5)])
def test_flipped_bits(tmp_path: Path, durability: str, steps: int, end: str) -> None:
    pristine = made(tmp_path / "s", durability, steps, end)
    rng = random.Random(f"{durability} {steps} {end}")
    cases = [*bits(META, META_BYTES), *bits(BESIDE, SEALED.size)]
    if campaign(0, 1):
        cases += rng.sample(bits(META, PAGE), 300)
    else:  # those of the numbers that LMDB goes by, and some of all
        telling = [
            ("data.mdb", start + at, bit)
            for start in (0, PAGE) for at, bit in ((144, 0), (144, 1), (144, 2), (136, 0), (44, 2))
        ]  # fmt: skip
        cases = [*telling, *rng.sample(cases, 10)]
    fates = each_in_fork(look, [[str(pristine), steps, end, *case] for case in cases])
    for case, fate in zip(cases, fates, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        if fate.value:
            assert re.match(r"(StoreError|CorruptPage): /.*(data\.mdb|last|/s)", fate.value), fate
        tried()
    assert any(fate.value for fate in fates), "nothing was noticed"
