"""Every write, sync and rename fails once, or from then on for ever.

strace makes the n-th call of a kind fail in a process that works on a store.  Whatever call it was,
the process meets a `StoreError`; after an I/O error the file is refused until it is opened again;
and opened again, it holds the last step that was acknowledged, or one newer.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proofs import tried
from support import ON, SCHEMA, campaign, each_in_fork, ids_in, needs_root, rows, strace

from matwin.storage import Store, StoreError

pytestmark = [
    pytest.mark.fault,
    needs_root,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

CALLS = ("pwrite64", "writev", "fdatasync", "fsync", "ftruncate", "fallocate", "rename")
STEP = 400
STEPS = 3


def opened(folder: Path, durability: str) -> Store:
    return Store(folder, memory="128KiB", page_size=4096, durability=durability)


def work(folder: Path, durability: str) -> dict[str, Any]:
    """Make a store and take some steps: the last acknowledged one, the error and what came then."""
    done, store = 0, None
    try:
        store = opened(folder, durability)
        window = store.window("w", SCHEMA, on=ON, materialize="standard")
        for step in range(STEPS):
            window.append(rows(range(step * STEP, step * STEP + STEP)))
            done = store.commit()
    except StoreError as e:
        then = [words(deed) for deed in uses(store)] if store else []
        return {"done": done, "errno": e.errno, "error": str(e), "then": then}
    finally:
        if store:
            store.close()
    return {"done": done, "error": ""}


def uses(store: Store) -> list[Callable[[], Any]]:
    return [store.file.page_ids, store.file.completed, store.commit]


def words(deed: Callable[[], Any]) -> str:
    try:
        deed()
    except StoreError as e:
        return str(e)
    return ""


def counted(base: str, durability: str) -> dict[str, int]:
    """How many calls of each kind the work makes."""
    log = Path(base) / "log"
    with strace("-e", f"trace={','.join(CALLS)}", "-o", str(log)):
        assert work(Path(base) / "counted", durability)["error"] == ""
    text = log.read_text()
    return {call: len(re.findall(rf"\b{call}\(", text)) for call in CALLS}


def fail(base: str, durability: str, call: str, when: str, error: str) -> dict[str, Any]:
    """The work with one fault."""
    folder = Path(base) / f"{call}-{when}"
    fault = f"inject={call}:error={error}:when={when}"
    with strace("-e", f"trace={call}", "-e", fault, "-o", "/dev/null"):
        return work(folder, durability)


def check_after(base: str, durability: str, call: str, when: str, done: int) -> int:
    """Open a store that met a fault, without one: the step it has; and it goes on."""
    folder = Path(base) / f"{call}-{when}"
    with opened(folder, durability) as store:
        found = store.step
        window = store.window("w", SCHEMA, on=ON, materialize="standard")
        assert sorted(store.file.page_ids()) == sorted(store.page_ids())
        assert ids_in(window.scan()) == list(range(found * STEP))
        window.append(rows(range(found * STEP, found * STEP + STEP)))
        assert store.commit() == found + 1
    with opened(folder, durability) as store:
        window = store.window("w", SCHEMA, on=ON, materialize="standard")
        assert ids_in(window.scan()) == list(range(found * STEP + STEP))
    assert found in (done, done + 1), (found, done)
    return found


def faults(base: Path, durability: str) -> list[tuple[str, int]]:
    (fate,) = each_in_fork(counted, [[str(base), durability]])
    assert (fate.signal, fate.error) == (0, "")
    counts = fate.value
    assert counts["pwrite64"] > 20, counts
    if durability == "epoch":
        assert counts["fdatasync"] > 5, counts
    return [(call, n) for call in CALLS for n in range(1, counts[call] + 1)]


@pytest.mark.proof("every write, sync, rename fails")
@pytest.mark.parametrize("durability", ["epoch", "checkpoint"])
@pytest.mark.parametrize("for_ever", ["", "+"], ids=["once", "for ever"])
def test_an_io_error(tmp_path: Path, durability: str, for_ever: str) -> None:
    points = faults(tmp_path, durability)
    if for_ever:
        points = points[:: campaign(4, 1)]
    cases = [[str(tmp_path), durability, call, f"{n}{for_ever}"] for call, n in points]
    fates = each_in_fork(fail, [[*case, "EIO"] for case in cases])
    after = each_in_fork(
        check_after,
        [[*case, (fate.value or {}).get("done")] for case, fate in zip(cases, fates, strict=True)],
    )
    for point, fate, then in zip(points, fates, after, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (point, fate)
        assert fate.value["error"], f"{point} failed and nobody noticed"
        assert str(tmp_path) in fate.value["error"], (point, fate)
        for text in fate.value["then"]:
            assert "closed to use after an earlier error" in text, (point, fate)
        assert (then.signal, then.error) == (0, ""), (point, fate, then)
        tried()


# ── a disk that is full for one write ────────────────────────────────────────────────────────────


def work_again(folder: Path, durability: str) -> dict[str, Any]:
    """The same work, doing again what failed for want of space: how often, and up to which step."""
    failures, done, stopped = 0, 0, False

    def until_done(deed: Callable[[], Any]) -> Any:
        nonlocal failures
        try:
            return deed()
        except StoreError as e:
            if e.errno != errno.ENOSPC:
                raise
            failures += 1
            return deed()

    try:
        store = until_done(lambda: opened(folder, durability))
        window = store.window("w", SCHEMA, on=ON, materialize="standard")
        for step in range(STEPS):
            batch = rows(range(step * STEP, step * STEP + STEP))
            until_done(lambda batch=batch: window.append(batch))
            done = until_done(store.commit)
    except StoreError as e:
        assert "reopen" in str(e), repr(e)
        stopped = True
    store.close()
    return {"failures": failures, "done": done, "stopped": stopped}


def fail_again(base: str, durability: str, call: str, when: str) -> dict[str, Any]:
    folder = Path(base) / f"{call}-{when}"
    fault = f"inject={call}:error=ENOSPC:when={when}"
    with strace("-e", f"trace={call}", "-e", fault, "-o", "/dev/null"):
        return work_again(folder, durability)


@pytest.mark.proof("every write, sync, rename fails")
def test_no_space_for_one_write(tmp_path: Path) -> None:
    """What failed is done again with success, unless it was a write to LMDB's meta page: that is
    in the file already, needs no space, and LMDB takes its failure for the worst."""
    points = [(call, n) for call, n in faults(tmp_path, "checkpoint") if call == "pwrite64"]
    cases = [[str(tmp_path), "checkpoint", call, str(n)] for call, n in points[:: campaign(2, 1)]]
    fates = each_in_fork(fail_again, cases)
    done = [fate.value["done"] if fate.value else 0 for fate in fates]
    after = each_in_fork(check_after, [[*c, n] for c, n in zip(cases, done, strict=True)])
    for case, fate, then in zip(cases, fates, after, strict=True):
        assert (fate.signal, fate.error) == (0, ""), (case, fate)
        assert fate.value["stopped"] or fate.value["done"] == STEPS, (case, fate)
        assert (then.signal, then.error) == (0, ""), (case, then)
        tried()
    # A delete that fails is put off, and nobody hears of it.
    assert sum(fate.value["failures"] for fate in fates) > len(fates) // 2
    assert done.count(STEPS) > len(done) // 2, done
