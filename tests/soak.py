"""A soak: one continuous query for as long as it is asked, with flat memory and a flat file.

    make soak SECONDS=300

A process runs a durable query over endless streams and tells, every second, its memory, the size of
its files and its epoch.  Now and then it is killed with -9, and another goes on.  At the end the
result of every epoch has been counted, and is what a plain count says; the last figures must not be
above those of the first tenth, but for what two commits may differ in.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROWS, PART, WINDOW, KEEP, KEYS = 20_000, 5_000, 6, 8, 4_000
SCHEMA = pa.schema([(n, pa.int64()) for n in ("ts", "k", "id")] + [("text", pa.string())])
SLACK = 1.25

# ── the process that is killed ───────────────────────────────────────────────────────────────────


def part(seed: int, number: int) -> pa.RecordBatch:
    """A batch of a stream, by its number alone: a thousand rows to a unit of time."""
    rng = np.random.default_rng([seed, number])
    ids = np.arange(number * PART, number * PART + PART)
    keys = rng.integers(0, KEYS, PART)
    texts = [f"{seed} {i % 97:02d} some payload" for i in range(PART)]
    return pa.record_batch([ids // 1000, keys, ids, texts], schema=SCHEMA)


def work(folder: str) -> None:
    """The query, for ever; a line for each epoch."""
    import support

    import matwin
    from matwin.reading import Source

    @dataclass(frozen=True)
    class Endless(Source):
        seed: int = 0

        def items_from(self, mark: Any) -> Iterator[Any]:
            number = mark or 0
            while True:
                yield part(self.seed, number)
                number += 1

        def mark(self, row: int) -> tuple[Any, int]:
            return row // PART, row % PART

        def batches(self, columns: Any = None) -> Iterator[pa.RecordBatch]:
            return self.items_from(None)

    join = partial(
        matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("b"), on={"ts": WINDOW}, by="k"
    )
    base = Path(folder)
    logs = {n: Endless(n, SCHEMA, False, None, None, seed) for seed, n in enumerate("ab")}
    query = matwin.continuous_query(
        join, {name: matwin.stream(log) for name, log in logs.items()},
        cut=matwin.cut.every(ROWS // 1000, on="ts"), keep=KEEP, pairs="new", state=base / "state",
        memory="24MiB", sink=lambda epoch, rows: told(base / "told", epoch, rows),
    )  # fmt: skip
    for epoch in query:
        files = [p for p in (base / "state").rglob("*") if p.is_file()]
        print(json.dumps({
            "epoch": epoch.id, "memory": support.resident("VmRSS"),
            "file": sum(p.stat().st_size for p in files),
            "state_rows": epoch.report.state_rows, "seconds": epoch.report.seconds_after_cut,
        }), flush=True)  # fmt: skip


def told(file: Path, epoch: int, rows: pa.RecordBatchReader) -> None:
    count = total = 0
    for batch in rows:
        count += batch.num_rows
        total += int((np.asarray(batch["id_left"]) * 7 + np.asarray(batch["id_right"])).sum())
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"\n{json.dumps([epoch, count, total])}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


# ── what has to come out ─────────────────────────────────────────────────────────────────────────


def expected(epoch: int) -> tuple[int, int]:
    """How many pairs are new in an epoch, and a sum over them, by counting."""
    span = ROWS // 1000
    low, high = (epoch - 1) * span, epoch * span
    a, b = (rows_between(seed, max(low - WINDOW, 0), high) for seed in (0, 1))
    count = total = 0
    for key in range(KEYS):
        x, y = a[a[:, 1] == key], b[b[:, 1] == key]
        near = np.abs(x[:, None, 0] - y[None, :, 0]) <= WINDOW
        near &= (x[:, None, 0] >= low) | (y[None, :, 0] >= low)
        left, right = np.nonzero(near)
        count += len(left)
        total += int((x[left, 2] * 7 + y[right, 2]).sum())
    return count, total


def rows_between(seed: int, low: int, high: int) -> np.ndarray:
    parts = [part(seed, n) for n in range(low * 1000 // PART, -(-high * 1000 // PART))]
    rows = np.concatenate([np.stack([p["ts"], p["k"], p["id"]], 1) for p in parts])
    return rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]


# ── the soak ─────────────────────────────────────────────────────────────────────────────────────


def soak(folder: Path, seconds: float, between_kills: float, seed: int) -> dict[str, Any]:
    """Run for so long; the figures by process."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    figures: list[list[dict[str, Any]]] = []
    while time.monotonic() < end:
        lives = min(end - time.monotonic(), 2 + rng.expovariate(1 / between_kills))
        figures.append(one_life(folder, lives))
    return {"kills": len(figures), "figures": figures}


def one_life(folder: Path, seconds: float) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--work", str(folder)]
    until = time.monotonic() + seconds
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while (left := until - time.monotonic()) > 0:
            if select.select([child.stdout], [], [], left)[0]:
                line = child.stdout.readline()
                if not line:
                    break
                found.append(json.loads(line))
        assert child.poll() is None, f"the query ended by itself: {child.returncode}"
        child.send_signal(signal.SIGKILL)
    return found


def problems(folder: Path, told_figures: dict[str, Any], checked: int) -> list[str]:
    """What is wrong with the results, the memory and the file."""
    found: list[str] = []
    epochs: dict[int, list[int]] = {}
    last = 0
    for line in (folder / "told").read_text().splitlines():
        try:
            epoch, *answer = json.loads(line) if line else [None]
        except ValueError:
            continue  # torn by a kill
        if epoch is None:
            continue
        if epoch not in (last, last + 1):
            found.append(f"epoch {epoch} after {last}")
        if epochs.setdefault(epoch, answer) != answer:
            found.append(f"epoch {epoch} was {epochs[epoch]} and came again as {answer}")
        last = epoch
    for epoch in {*range(1, 4), *np.linspace(1, last, checked, dtype=int).tolist()}:
        if tuple(epochs[epoch]) != expected(epoch):
            found.append(f"epoch {epoch}: {epochs[epoch]}, not {expected(epoch)}")
    return found + growth(told_figures["figures"])


def growth(lives: list[list[dict[str, Any]]]) -> list[str]:
    """Where the end is above the beginning: memory within each life, the file over all of them."""
    found = []
    for life in lives:
        memory = [f["memory"] for f in life[KEEP:]]  # windows are full
        tenth = len(memory) // 10
        if tenth >= 5 and max(memory[-tenth:]) > SLACK * max(memory[:tenth]):
            found.append(f"memory grew from {max(memory[:tenth]):,} to {max(memory[-tenth:]):,}")
    sizes = [f["file"] for life in lives for f in life][KEEP:]
    tenth = max(len(sizes) // 10, 1)
    if sizes and max(sizes[-tenth:]) > SLACK * max(sizes[: 2 * tenth]):
        found.append(f"the state grew from {max(sizes[: 2 * tenth]):,} to {max(sizes[-tenth:]):,}")
    return found


def summary(told_figures: dict[str, Any]) -> str:
    all_figures = [f for life in told_figures["figures"] for f in life]
    steady = [f for life in told_figures["figures"] for f in life[KEEP:]] or all_figures
    sizes = [f["file"] for f in all_figures[KEEP:]] or [0]
    memory = sorted(f["memory"] for f in steady)
    after = sorted(f["seconds"] for f in all_figures)
    return (
        f"{all_figures[-1]['epoch']:,} epochs, {all_figures[-1]['epoch'] * 2 * ROWS:,} rows, "
        f"{told_figures['kills']} kills; memory {memory[0] >> 20} to {memory[-1] >> 20} MiB; state "
        f"{min(sizes) >> 10:,} to {max(sizes) >> 10:,} KiB (first {sizes[0] >> 10:,}, last "
        f"{sizes[-1] >> 10:,}); after the cut {after[len(after) // 2] * 1000:.0f} ms median, "
        f"{after[-1] * 1000:.0f} ms worst"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--between-kills", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(Path(folder), given.seconds, given.between_kills, given.seed)
        print(summary(figures))
        wrong = problems(Path(folder), figures, checked=20)
    for line in wrong[:10]:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
