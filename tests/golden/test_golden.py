"""Golden scripts: commands, a line of dashes, and what they print.

`pytest tests/golden --rewrite` writes what they print now; then read the diff.

    store page=4096 memory=131072        a new store, with a page file in memory
    window NAME form=slab t=EPS x=EPS    a window over (t int64, x float64)
    append NAME 0..1000 x=0              rows with t from 0 to 999, and x = t modulo 10 where x=10
    expire NAME 500 · settle NAME · commit · scan NAME
    pages NAME                           runs, pages and rows
    cost                                 pages made, written, read, dropped since the last `cost`
    fences NAME                          the fences of every page

    band pages=7 reach=2 frames=4        page reads of every schedule; self=yes for a self-join
    runs pages=8 reach=1 runs=2 frames=4 the same with several runs on the right
    layout 0-2 1-3,4-5 - frames=3        the right pages that each left page meets
    show MODE                            the schedule for the last of these
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from matwin.scheduler import MODES, Reach, plan
from matwin.storage import MemoryPageFile, Store

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64())])


class Script:
    """The state a script's commands work on."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.windows: dict[str, object] = {}
        self.before: dict[str, int] = {}
        self.reach = Reach.of([])
        self.frames = 2

    def run(self, line: str) -> list[str]:
        word, *rest = line.split()
        options = dict(part.replace("self=", "self_=").split("=") for part in rest if "=" in part)
        plain = [part for part in rest if "=" not in part]
        return getattr(self, f"do_{word}")(*plain, **options) or []

    def do_store(self, page: str, memory: str) -> None:
        self.store = Store(memory=int(memory), file=MemoryPageFile(page_size=int(page)))
        self.before = {}

    def do_window(self, name: str, form: str, t: str, x: str) -> list[str]:
        window = self.store.window(name, SCHEMA, on={"t": int(t), "x": float(x)}, materialize=form)
        self.windows[name] = window
        return [f"{name}: {window.form} ({window.reason})"]

    def do_append(self, name: str, span: str, x: str) -> None:
        first, limit = map(int, span.split(".."))
        t = np.arange(first, limit)
        batch = pa.record_batch([t, (t % int(x)).astype(float)], schema=SCHEMA)
        self.windows[name].append(batch)

    def do_expire(self, name: str, below: str) -> None:
        self.windows[name].expire(below=int(below))

    def do_settle(self, name: str) -> None:
        self.windows[name].settle()

    def do_commit(self) -> None:
        self.store.commit()

    def do_scan(self, name: str) -> list[str]:
        batches = list(self.windows[name].scan())
        t = np.concatenate([batch["t"].to_numpy() for batch in batches])
        return [f"{name}: {len(t)} rows, t {t.min()} to {t.max()}"]

    def do_pages(self, name: str) -> list[str]:
        refs = self.windows[name].pages()
        runs = [
            f"{len(list(group))}" for _, group in itertools.groupby(refs, key=lambda ref: ref.run)
        ]
        return [f"{name}: {sum(ref.rows for ref in refs)} rows in pages {' + '.join(runs)}"]

    def do_fences(self, name: str) -> list[str]:
        return [
            f"{ref.page_id.page}: {ref.rows} rows, {ref.fence.first} to {ref.fence.last}, "
            f"t {ref.fence.order_min} to {ref.fence.order_max}"
            for ref in self.windows[name].pages()
        ]

    def do_cost(self) -> list[str]:
        now = self.store.pool.counters.as_dict()
        names = ("makes", "writes", "reads", "drops", "expiries")
        text = "  ".join(f"{name} {now[name] - self.before.get(name, 0)}" for name in names)
        self.before = now
        return [text]

    def do_band(self, pages: str, reach: str, frames: str, self_: str = "no") -> list[str]:
        return self.do_runs(pages, reach, "1", frames, self_)

    def do_runs(
        self, pages: str, reach: str, runs: str, frames: str, self_: str = "no"
    ) -> list[str]:
        count, far = int(pages), int(reach)
        rows = [
            [
                (run * count + max(i - far, 0), run * count + min(i + far + 1, count))
                for run in range(int(runs))
            ]
            for i in range(count)
        ]
        return self.planned(Reach.of(rows, is_self=self_ == "yes"), int(frames))

    def do_layout(self, *rows: str, frames: str) -> list[str]:
        intervals = [
            [tuple(map(int, part.split("-"))) for part in row.split(",") if part != "-"]
            for row in rows
        ]
        return self.planned(Reach.of(intervals), int(frames))

    def planned(self, reach: Reach, frames: int) -> list[str]:
        self.reach, self.frames = reach, frames
        schedules = {mode: plan(reach, frames=frames, mode=mode) for mode in MODES}
        return [
            f"{mode:<10}page_reads={schedule.page_reads} left={schedule.left_reads} "
            f"right={schedule.right_reads} switches={schedule.mode_switches}"
            for mode, schedule in schedules.items()
        ]

    def do_show(self, mode: str) -> list[str]:
        schedule = plan(self.reach, frames=self.frames, mode=mode)
        schedule.check()
        return [f"{mode}: {schedule}"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    blocks = []
    for block in path.read_text().strip().split("\n\n"):
        commands, _, expected = (block + "\n").partition("\n---\n")
        blocks.append((commands, expected.rstrip("\n")))
    script, printed = Script(), []
    for commands, _ in blocks:
        lines = [line for line in commands.splitlines() if not line.startswith("#")]
        printed.append("\n".join(out for line in lines for out in script.run(line)))
    if request.config.getoption("--rewrite"):
        text = [f"{c}\n---\n{p}" for (c, _), p in zip(blocks, printed, strict=True)]
        path.write_text("\n\n".join(text) + "\n")
        return
    for (commands, expected), out in zip(blocks, printed, strict=True):
        assert out == expected, commands


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 4
