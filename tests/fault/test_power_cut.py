"""A power cut at any moment, by images of the disk that it could have left.

strace records what a process does to a store (``power.py``).  Each image is opened by a process of
its own, on a machine that has started anew: with ``durability="epoch"`` the last acknowledged step
is whole and at most one newer is there; a `checkpoint` store is empty.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from power import STRACE, images, recorded
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

STEP, LIVE, STEPS = 120, 360, 6


def ids_at(step: int) -> range:
    """The model: what the windows hold after a step."""
    return range(max(0, step * STEP - LIVE), step * STEP)


def opened(folder: Path, durability: str) -> Store:
    return Store(folder, memory="256KiB", page_size=4096, durability=durability)


def work(folder: str, durability: str, log: str) -> int:
    """Make a store and take some steps, each acknowledged by a line; all of it recorded."""
    told = os.open(f"{log}.told", os.O_WRONLY | os.O_CREAT)
    with strace(*STRACE, log), opened(Path(folder), durability) as store:
        windows = [store.window(f, SCHEMA, on=ON, materialize=f) for f in ("slab", "standard")]
        for step in range(1, STEPS + 1):
            for window in windows:
                window.append(rows(range(step * STEP - STEP, step * STEP)))
                window.expire(below=ids_at(step).start // ROWS_PER_TICK)
            os.write(told, f"{store.commit()}\n".encode())
    return STEPS


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
    ("durability", "order", "usual", "many"),
    [
        ("epoch", "ordered", 32, 3000),
        ("epoch", "any", 24, 2000),
        ("checkpoint", "ordered", 12, 1000),
    ],
)
def test_power_cuts(tmp_path: Path, durability: str, order: str, usual: int, many: int) -> None:
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    (fate,) = each_in_fork(work, [[str(disk / "s"), durability, str(log)]])
    assert (fate.signal, fate.error, fate.value) == (0, "", STEPS)
    ops = recorded(log, disk, Path(f"{log}.told"))
    assert sum(op.kind == "told" for op in ops) == STEPS
    assert sum(op.kind == "write" for op in ops) > 20
    count = campaign(usual, many)
    while count > 0:  # not all of them on the disk at once
        some = images(ops, disk, tmp_path, min(count, 500), count, order)
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
