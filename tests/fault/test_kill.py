"""kill -9 at any moment: the last acknowledged step is whole, and at most one newer is there.

A chain of processes works on one store.  Each opens it, compares all rows with the model of the
step it finds, tells what it found, then appends, expires and commits, and tells each step's number
once `commit` has returned.  Each is killed at a random moment, which may also be while it opens.
"""

from __future__ import annotations

import os
import random
import select
import signal
from pathlib import Path

import pytest
from proofs import tried
from support import FORMS, ON, ROWS_PER_TICK, SCHEMA, call_in_child, campaign, ids_in, rows

from matwin.storage import Store, Window

pytestmark = pytest.mark.fault

STEP = 240
LIVE = 5 * STEP
DELAY_MAX = 0.03


def ids_at(step: int) -> range:
    """The model: what every window holds after a step."""
    return range(max(0, step * STEP - LIVE), step * STEP)


def work(folder: str, durability: str, pipe: int) -> None:
    """Open, look, tell; then step after step."""
    store = Store(folder, memory="160KiB", page_size=4096, durability=durability)
    first = store.step
    windows = [store.window(form, SCHEMA, on=ON, materialize=form) for form in FORMS]
    os.write(pipe, f"found {first} {wrong_in(store, windows)}\n".encode())
    for step in range(first + 1, first + 1000):
        for window in windows:
            window.append(rows(range(step * STEP - STEP, step * STEP)))
            window.expire(below=ids_at(step).start // ROWS_PER_TICK)
        done = store.commit()
        os.write(pipe, f"done {done} \n".encode())


def wrong_in(store: Store, windows: list[Window]) -> str:
    """What is wrong with an opened store; nothing if all is well."""
    if sorted(store.file.page_ids()) != sorted(store.page_ids()):
        return f"pages are left over in step {store.step}"
    for window in windows:
        if ids_in(window.scan()) != list(ids_at(store.step)):
            return f"{window.form} holds other rows than step {store.step}"
    return ""


class Chain:
    """The processes one after the other, and what is known of the store between them."""

    def __init__(self, folder: str, durability: str, seed: int) -> None:
        self.folder = folder
        self.durability = durability
        self.rng = random.Random(seed)
        self.acknowledged = 0
        self.newer = 0
        self.opens = 0
        self.problems: list[str] = []

    def run_and_kill(self) -> None:
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receiver)
            try:
                work(self.folder, self.durability, sender)
            except BaseException as e:
                os.write(sender, f"error {e!r}\n".encode())
            os._exit(1)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            self._wait(pipe.fileno())
            os.kill(child, signal.SIGKILL)
            self._listen(pipe.read())
        os.waitpid(child, 0)

    def _wait(self, pipe: int) -> None:
        """Let some messages come, then a moment pass."""
        self._said = b""
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            self._said += os.read(pipe, 4096)
        select.select([pipe], [], [], self.rng.random() * DELAY_MAX)

    def _listen(self, rest: bytes) -> None:
        for line in (self._said + rest).decode().splitlines():
            verb, *words = line.split(" ", 2)
            if verb == "error":
                self.problems.append(line)
            elif verb == "found":
                self._found(int(words[0]), words[1])
            elif int(words[0]) != self.acknowledged + 1:
                self.problems.append(f"{line} after step {self.acknowledged}")
            else:
                self.acknowledged += 1

    def _found(self, step: int, wrong: str) -> None:
        self.opens += 1
        if wrong:
            self.problems.append(wrong)
        if step not in (self.acknowledged, self.acknowledged + 1):
            self.problems.append(f"step {self.acknowledged} was acknowledged, {step} is there")
        self.newer += step - self.acknowledged
        self.acknowledged = step


def kill_often(folder: str, durability: str, kills: int, seed: int) -> dict[str, object]:
    chain = Chain(folder, durability, seed)
    for _ in range(kills):
        chain.run_and_kill()
    return {
        "problems": chain.problems[:5],
        "opens": chain.opens,
        "steps": chain.acknowledged,
        "newer": chain.newer,
    }


@pytest.mark.proof("kill -9 while committing")
@pytest.mark.parametrize(
    ("durability", "usual", "many"),
    [("checkpoint", 60, 4000), ("checkpoint", 60, 4000), ("epoch", 40, 2000)],
    ids=["checkpoint", "checkpoint again", "epoch"],
)
def test_kills(
    tmp_path: Path, request: pytest.FixtureRequest, durability: str, usual: int, many: int
) -> None:
    kills = campaign(usual, many)
    seed = random.Random(request.node.name).randrange(2**32)
    told = call_in_child(kill_often, str(tmp_path / "s"), durability, kills, seed, timeout=3600)
    assert told["problems"] == []
    tried(kills)
    assert told["opens"] > kills // 2, told
    assert told["steps"] > kills // 2, told
