"""A store that several threads use, and one that a fork inherits.

Threads append, expire, commit, list and read at once, in no order.  Whatever the order was, every
committed step holds exactly the rows of the calls that had returned: rows are never lost, doubled
or in two steps at once.  A forked child meets a `StoreError` whatever it does, also while the
parent's threads hold every lock there is; it never waits, and never touches the parent's files.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proofs import tried
from support import FORMS, ON, ROWS_PER_TICK, SCHEMA, call_in_child, campaign, ids_in, rows

from matwin.storage import InputError, Store, StoreError, Window, read_trace

pytestmark = pytest.mark.fault

PAGE = 4096
CALLS, ROWS = 30, 60


def opened(folder: str | Path | None, **options: Any) -> Store:
    return Store(folder, memory="1MiB", page_size=PAGE, **options)


@contextmanager
def quick_turns() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def all_at_once(deeds: list[Callable[[], None]]) -> list[str]:
    """Run each in a thread of its own; what went wrong."""
    start, wrong = threading.Barrier(len(deeds)), []

    def run(deed: Callable[[], None]) -> None:
        start.wait()
        try:
            deed()
        except BaseException as e:
            wrong.append(repr(e))

    threads = [threading.Thread(target=run, args=[deed]) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def appender(window: Window, first: int) -> Callable[[], None]:
    """Rows whose ids are its own, some at a time."""

    def append() -> None:
        for call in range(CALLS):
            at = first + call * ROWS
            window.append(rows(range(at, at + ROWS)))

    return append


def committer(store: Store, window: Window, done: threading.Event, steps: list[int]) -> None:
    while not done.is_set():
        store.commit()
        steps.append(window.count())


def reader(window: Window, done: threading.Event) -> None:
    """Look at pages that may be gone at any time: rows as they were written, or a named error."""
    while not done.is_set():
        for ref in window.pages():
            try:
                with window.read(ref) as batch:
                    ids_in([batch.select(SCHEMA.names)])
            except InputError as e:
                assert "changed" in str(e)


def work_together(folder: str, form: str, seed: int) -> list[int]:
    """Two append, one commits, one reads; then the store is opened again."""
    rng = random.Random(seed)
    with quick_turns(), opened(folder) as store:
        window = store.window("w", SCHEMA, on=ON, materialize=form)
        appending = [appender(window, 0), appender(window, CALLS * ROWS)]
        done, left, steps = threading.Event(), [len(appending)], []

        def counted(append: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    append()
                finally:
                    left[0] -= 1
                    if left[0] == 0:
                        done.set()

            return run

        deeds = [*map(counted, appending), lambda: committer(store, window, done, steps)]
        if rng.random() < 0.5:
            deeds.append(lambda: reader(window, done))
        assert all_at_once(deeds) == []
        store.check()
        store.commit()
    assert steps == sorted(steps)
    assert all(count % ROWS == 0 for count in steps), "half a call was committed"
    with opened(folder) as store:
        assert ids_in(store.window("w", SCHEMA, on=ON).scan()) == list(range(2 * CALLS * ROWS))
        assert sorted(store.file.page_ids()) == sorted(store.page_ids())
    return steps


@pytest.mark.proof("threads on one store")
@pytest.mark.parametrize("form", FORMS)
def test_appends_and_commits_of_many_threads(tmp_path: Path, form: str) -> None:
    for seed in range(campaign(2, 200)):
        work_together(str(tmp_path / str(seed)), form, seed)
        tried()


@pytest.mark.proof("threads on one store")
def test_windows_that_slide_under_readers(tmp_path: Path) -> None:
    """One thread appends and expires, one commits, one scans, one drops and makes a window anew."""
    for seed in range(campaign(3, 150)):
        with quick_turns(), opened(tmp_path / str(seed)) as store:
            window = store.window("w", SCHEMA, on=ON, materialize=FORMS[seed % 3])
            done: threading.Event = threading.Event()

            def slide(window: Window = window, done: threading.Event = done) -> None:
                for call in range(CALLS):
                    window.append(rows(range(call * ROWS, call * ROWS + ROWS)))
                    window.expire(below=(call - 3) * ROWS // ROWS_PER_TICK)
                done.set()

            def drop(store: Store = store, done: threading.Event = done) -> None:
                while not done.is_set():
                    store.window("other", SCHEMA, on=ON).append(rows(range(50)))
                    store.drop("other")

            def scan(window: Window = window, done: threading.Event = done) -> None:
                while not done.is_set():
                    try:
                        ids_in(window.scan())
                    except InputError as e:
                        assert "changed" in str(e)

            commit = lambda s=store, w=window, d=done: committer(s, w, d, [])  # noqa: E731
            assert all_at_once([slide, drop, scan, commit]) == []
            store.check()
            kept = range((CALLS - 4) * ROWS, CALLS * ROWS)
            assert ids_in(window.scan()) == list(kept)
            store.commit()
        with opened(tmp_path / str(seed)) as store:
            assert ids_in(store.window("w", SCHEMA, on=ON).scan()) == list(kept)
        tried()


def test_a_dropped_window_takes_no_rows() -> None:
    with opened(None) as store:
        window = store.window("w", SCHEMA, on=ON)
        store.drop("w")
        with pytest.raises(InputError, match="was dropped"):
            window.append(rows(range(10)))


# ── fork ─────────────────────────────────────────────────────────────────────────────────────────

PATIENCE = 20.0


def child_of(deed: Callable[[], Any]) -> str:
    """What a forked child meets; "hangs" for one that says nothing."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            deed()
            answer = "nothing"
        except StoreError as e:
            answer = f"StoreError: {e}"
        except BaseException as e:
            answer = repr(e)
        os.write(sender, answer.encode())
        sys.stdout.flush()
        sys.exit(0)  # with all that Python does at its end
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        said, _, _ = select.select([pipe], [], [], PATIENCE)
        if not said:
            os.kill(child, signal.SIGKILL)
        answer = pipe.read() if said else "hangs"
    _, status = os.waitpid(child, 0)
    return answer if os.WIFEXITED(status) else f"{answer}, then signal {os.WTERMSIG(status)}"


def fork_often(folder: str, forks: int) -> dict[str, list[str]]:
    """Fork while threads read, append and commit."""
    trace = str(Path(folder).parent / "trace")
    store = opened(folder, trace=trace)
    window = store.window("w", SCHEMA, on=ON, materialize="slab")
    window.append(rows(range(2000)))
    store.commit()
    pages = window.pages()
    with quick_turns():
        done = threading.Event()

        def work(deed: Callable[[int], Any]) -> None:
            number = 0
            while not done.is_set():
                number += 1
                deed(number)

        def read(number: int) -> None:
            with store.pool.pin(pages[number % len(pages)].page_id):
                pass

        def step(number: int) -> None:
            window.append(rows(range(10_000 + number * 100, 10_000 + number * 100 + 100)))
            window.expire(below=2_500 + (number * 100 - 1000) // ROWS_PER_TICK)
            store.commit()

        threads = [threading.Thread(target=work, args=[deed]) for deed in (read, read)]
        for thread in threads:
            thread.start()
        uses = {
            "pin": lambda: store.pool.pin(pages[0].page_id),
            "append": lambda: window.append(rows(range(5))),
            "scan": lambda: list(window.scan()),
            "expire": lambda: window.expire(below=3),
            "pages": window.pages,
            "commit": store.commit,
            "read": lambda: store.file.read(pages[0].page_id),
            "page_ids": store.file.page_ids,
            "drop": lambda: store.drop("w"),
            "again": lambda: opened(folder),
            "close": store.close,
        }
        met: dict[str, list[str]] = {name: [] for name in uses}
        for _ in range(forks):
            for name, use in uses.items():
                met[name].append(child_of(use))
        done.set()
        for thread in threads:
            thread.join()
        step(1)
    store.close()
    assert read_trace(Path(trace)).num_rows > 0
    return met


@pytest.mark.proof("fork")
def test_a_child_never_waits(tmp_path: Path) -> None:
    met = call_in_child(fork_often, str(tmp_path / "s"), campaign(3, 100), timeout=3600)
    for name, answers in met.items():
        for answer in answers:
            if name == "close":
                assert answer == "nothing"
            elif name == "again":
                assert answer.startswith("StoreError: ") and "in use by process" in answer
            else:
                assert answer.startswith("StoreError: ") and "before a fork" in answer, name
            tried()
    with opened(tmp_path / "s") as store:
        assert store.step == 2
        store.window("w", SCHEMA, on=ON).count()
