"""A full disk is an error that names the folder, and nothing worse.

Each case is a process with a small disk of its own.  A file takes all but a given number of bytes;
the store works until that runs out, in the middle of whatever it was doing.  Then the last complete
step is read from a copy, the space comes back, what failed is done again, and every row has to be
there once.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from proofs import tried
from support import FORMS, ON, SCHEMA, campaign, each_in_fork, ids_in, needs_root, rows, tmpfs

import matwin
from matwin.storage import Store, StoreError, Window

pytestmark = [pytest.mark.fault, needs_root]

PAGE = 4096


def opened(folder: Path | None, **options: Any) -> Store:
    return Store(folder, memory="256KiB", page_size=PAGE, **options)


def window_in(store: Store, form: str) -> Window:
    return store.window("w", SCHEMA, on=ON, materialize=form)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", 8 * 2**20) as folder:
        yield folder


def fill(ballast: Path, leave: int) -> None:
    """Take all of the disk but `leave` bytes."""
    with ballast.open("wb") as file:
        free = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - leave)


def run_out(disk: str, copies: str, form: str, when: int, leave: int, many: int) -> str:
    """Which deed failed for want of space, if any; everything is checked on the way."""
    folder, ballast, copy = Path(disk) / "s", Path(disk) / "ballast", Path(copies) / "copy"
    for left_over in (folder, copy):
        shutil.rmtree(left_over, ignore_errors=True)
    ballast.unlink(missing_ok=True)
    store = opened(folder)
    window = window_in(store, form)
    counts = {0: 0}
    failed, total = "", 0
    for number, (name, count) in enumerate(deeds(many)):
        if number == when:
            fill(ballast, leave)
        ids = range(total, total + count)
        try:
            do(store, window, name, ids)
        except StoreError as e:
            assert e.errno == errno.ENOSPC, repr(e)
            assert e.filename == str(folder), repr(e)
            assert "disk is full" in str(e), repr(e)
            assert not failed, "there is space again"
            failed = name
            shutil.copytree(folder, copy)
            assert saved_ids(copy, form, store.step) == list(range(counts[store.step]))
            ballast.unlink()
            do(store, window, name, ids)
        total = ids.stop
        counts[store.step] = total if name == "commit" else counts[store.step]
    store.check()
    assert ids_in(window.scan()) == list(range(total))
    assert sorted(store.file.page_ids()) == sorted(store.page_ids())
    store.close()
    assert saved_ids(folder, form, store.step) == list(range(total))
    return failed


def deeds(many: int) -> list[tuple[str, int]]:
    """What is done, and with how many rows; three steps, of which the last is a large one."""
    small = [("append", 1200), ("commit", 0), ("append", 200), ("commit", 0)]
    large = [("append", many), ("settle", 0), ("append", 900), ("settle", 0), ("commit", 0)]
    return [*small, *large]


def do(store: Store, window: Window, name: str, ids: range) -> None:
    if name == "append":
        window.append(rows(ids))
    elif name == "settle":
        window.settle()
    else:
        store.commit()


def saved_ids(folder: Path, form: str, step: int) -> list[int]:
    with opened(folder) as store:
        assert store.step == step
        return ids_in(window_in(store, form).scan())


@pytest.mark.proof("full disk")
@pytest.mark.parametrize("form", FORMS)
def test_space_runs_out(disk: Path, tmp_path: Path, form: str) -> None:
    points = fill_points(campaign(40, 2000))
    cases = [[str(disk), str(tmp_path), form, *point] for point in points]
    fates = each_in_fork(run_out, cases)
    for point, fate in zip(points, fates, strict=True):
        assert fate.signal == 0, point
        assert fate.error == "", point
        tried()
    failed = [fate.value for fate in fates]
    assert {"append", "settle", "commit"} <= set(failed), failed


def fill_points(count: int) -> list[tuple[int, int, int]]:
    """Before which deed the disk is filled, up to how many bytes, and how large the deeds are."""
    rng = random.Random(count)
    whens = (0, 1, 2, 3, 4, 4, 4, 4, 5, 6, 7, 8)
    return [
        (whens[i % len(whens)], rng.choice((0, 0, 1, 10, 30)) * 4096, rng.randrange(2000, 6000))
        for i in range(count)
    ]


def open_when_full(disk: str) -> list[str]:
    """The errors of making a store, using scratch, and making one with a few bytes to go on."""
    ballast, errors = Path(disk) / "ballast", []
    for leave in (0, 4096, 8192, 12288):
        fill(ballast, leave)
        for folder in (Path(disk) / "s", None):
            try:
                with opened(folder, scratch=Path(disk)) as store:
                    window_in(store, "slab").append(rows(range(20_000)))
                errors.append("none")
            except StoreError as e:
                errors.append(f"{e.errno} {disk in str(e.filename)} {e.strerror}")
        found = sorted(path.name for path in Path(disk).iterdir())
        assert found in (["ballast"], ["ballast", "s"]), found
        shutil.rmtree(Path(disk) / "s", ignore_errors=True)
        ballast.unlink()
    return errors


def test_a_store_is_not_made_on_a_full_disk(disk: Path) -> None:
    (fate,) = each_in_fork(open_when_full, [[str(disk)]])
    assert (fate.signal, fate.error) == (0, "")
    assert all(error.startswith(f"{errno.ENOSPC} True ") for error in fate.value), fate.value


def make_again_in_place(disk: str) -> None:
    """A store whose making failed is made in the same place when there is space again."""
    folder, ballast = Path(disk) / "s", Path(disk) / "ballast"
    for leave in range(0, 6 * 4096, 4096):
        shutil.rmtree(folder, ignore_errors=True)
        fill(ballast, leave)
        with suppress(StoreError):
            opened(folder).close()
        ballast.unlink()
        with opened(folder) as store:
            window_in(store, "slab").append(rows(range(100)))
            store.commit()
        assert saved_ids(folder, "slab", 1) == list(range(100))


def test_a_store_is_made_when_there_is_space_again(disk: Path) -> None:
    (fate,) = each_in_fork(make_again_in_place, [[str(disk)]])
    assert (fate.signal, fate.error) == (0, "")


def read_when_full(disk: str) -> None:
    """A store is opened and read on a disk without a free byte, with pages left over in it."""
    folder, ballast = Path(disk) / "s", Path(disk) / "ballast"
    shutil.rmtree(folder, ignore_errors=True)
    store = opened(folder)
    window = window_in(store, "slab")
    window.append(rows(range(3000)))
    store.commit()
    before = window.pages()
    window.append(rows(range(3000, 9000)))
    assert set(store.file.page_ids()) - {ref.page_id for ref in before}
    store.close()
    fill(ballast, 0)
    try:
        assert saved_ids(folder, "slab", 1) == list(range(3000))
    finally:
        ballast.unlink()


def test_a_full_disk_can_be_read(disk: Path) -> None:
    (fate,) = each_in_fork(read_when_full, [[str(disk)]])
    assert (fate.signal, fate.error) == (0, "")


JOINS: dict[str, Callable[..., Any]] = {
    "parts": lambda rows, **more: matwin.epsilon_join(rows, rows, on={"t": 2}, **more),
    "pages": lambda rows, **more: matwin.epsilon_join(
        rows, rows, on={"t": 2}, schedule="gallop", **more
    ),
    "best": lambda rows, **more: matwin.bestmatch_join(rows, rows, on={"t": 2}, **more),
    "as-of": lambda rows, **more: matwin.asof_join(rows, rows, on="t", by="k", **more),
    "window": lambda rows, **more: matwin.window_join(
        {"a": rows, "b": rows}, time="t", windows=2, **more
    ),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("size", [4096, 2**14, 2**16, 2**18, 2**20])
def test_joins_say_what_to_do(tmp_path: Path, join: str, size: int) -> None:
    """In whatever they were about: the scratch folder, a new page file, or pages."""
    times = np.random.default_rng(1).permutation(30_000)
    rows = pa.table({"t": times, "k": times % 7, "p": ["x" * 60] * 30_000})
    with tmpfs(tmp_path / "disk", size) as folder:
        with pytest.raises(StoreError) as caught:
            JOINS[join](rows, memory="512KiB", scratch=folder).read_all()
        assert str(folder) in str(caught.value)
        assert re.search(
            r"disk is full.* [KM]?i?B are free; free some space or name", str(caught.value)
        )
        assert not list(folder.iterdir())
