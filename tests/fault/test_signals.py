"""Signals at random moments of a command: it ends in time, says why, and leaves nothing behind.

One process loads everything; each case is a fork of it that runs a command and is hit by one, two
or three signals.  The moments are spread over the time that the command takes by itself.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import proofs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import call_in_child, campaign, drawn_seed

from matwin.tools import cli

pytestmark = pytest.mark.fault

PATIENCE = 60.0
ROWS = 1500
POLITE = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
SMALL = ["--memory", "1MiB", "--page-size", "4KiB", "--quiet", "--overwrite"]
COMMANDS = {
    "join": ["join", "a.parquet", "b.parquet", "--on", "t=3", "-o", "out.csv", *SMALL],
    "verify": ["join", "a.parquet", "b.parquet", "--on", "t=3", "-o", "out.parquet", "--verify",
               *SMALL],
    "window": ["window-join", "a=a.parquet", "b=b.parquet", "--time", "t", "--window", "3",
               "-o", "out.arrow", *SMALL],
    "follow": ["window-join", "a=grows.jsonl", "b=b.parquet", "--time", "t", "--window", "3",
               "--follow", "-o", "out.jsonl", "--quiet", "--overwrite"],
}  # fmt: skip
LIVE = "follow"


def prepare(folder: Path) -> None:
    """The inputs."""
    times = pa.table({"t": range(ROWS), "k": [f"row {n}" for n in range(ROWS)]})
    pq.write_table(times, folder / "a.parquet")
    pq.write_table(times, folder / "b.parquet")
    with (folder / "grows.jsonl").open("w") as file:
        file.writelines(json.dumps({"t": t}) + "\n" for t in range(ROWS))


def output_of(words: list[str]) -> Path:
    return Path(words[words.index("-o") + 1])


def started(words: list[str]) -> int:
    """A fork that runs a command and says nothing but on its own standard error."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.stderr = os.fdopen(2, "w")
            code = cli.main(words)
        except KeyboardInterrupt:  # before the command had begun, or after it has ended
            code = 130
        finally:
            os._exit(code)
    return child


def ended(child: int, seconds: float) -> bool:
    """Whether the process ends within this time; it stays a zombie until it is waited for."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], max(seconds, 0))[0])
    finally:
        os.close(descriptor)


def fate(child: int) -> int:
    """The exit code, as a shell says it."""
    if not ended(child, PATIENCE):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return -1
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return 128 - code if code < 0 else code


def hit(name: str, seed: int, seconds: float) -> tuple[list[int], int]:
    """Run a command under fire: which signals it got, and how it ended."""
    chance = random.Random(seed)
    sent = [chance.choice((*POLITE, signal.SIGKILL))]
    if chance.random() < 0.5:
        sent = [chance.choice(POLITE) for _ in range(chance.choice((2, 2, 2, 3)))]
    child = started(COMMANDS[name])
    got = []
    wait = chance.uniform(0, seconds)
    for number in sent:
        if ended(child, wait):
            break
        os.kill(child, number)
        got.append(int(number))
        wait = chance.choice((0, 0, 0.0005, 0.005, 0.05))
    if name == LIVE and not got:
        os.kill(child, signal.SIGTERM)
        got.append(int(signal.SIGTERM))
    return got, fate(child)


def wrong(name: str, got: list[int], code: int, before: bytes, whole: bytes) -> str:
    """What is wrong with the way a command ended; nothing if all is well."""
    if code == -1:
        return f"it does not end in {PATIENCE} seconds"
    said = Path("said").read_text()
    if said and code < 128:
        return f"it says {said[-2000:]}"
    if "Traceback" in said or "matwin: error" in said:
        return f"it says {said[-2000:]}"
    if code not in ({128 + number for number in got} | ({0} if name != LIVE else set())):
        return f"its exit code is {code}"
    out = output_of(COMMANDS[name])
    now = out.read_bytes() if out.exists() else b""
    if name == LIVE:
        is_orderly = signal.SIGKILL not in got and len(got) < 3  # the third one is the kernel's
        return is_cut(now) if is_orderly and now != before else ""
    return "" if now in (before, whole) else f"{out} is neither the old file nor the new"


def is_cut(text: bytes) -> str:
    """What is wrong with rows that were written as they came."""
    if text and not text.endswith(b"\n"):
        return "its last line is cut"
    rows = [json.loads(line) for line in text.splitlines()]
    return "" if len({tuple(row.items()) for row in rows}) == len(rows) else "a row is doubled"


def under_fire(folder: str, first: int, count: int) -> list[str]:
    """Every command many times, in a folder of its own; what went wrong."""
    os.chdir(folder)
    Path("temp").mkdir()
    tempfile.tempdir = str(Path("temp").resolve())
    prepare(Path(folder))
    seconds, whole, problems = {}, {}, []
    for name, words in COMMANDS.items():
        if name != LIVE:
            assert cli.main(words) == 0  # here, so that the forks find all kernels loaded
        began = time.monotonic()
        child = started(words)
        if name == LIVE:
            ended(child, 0.5)
            os.kill(child, signal.SIGTERM)
        code = fate(child)
        seconds[name] = time.monotonic() - began
        assert code == (143 if name == LIVE else 0), (name, code, Path("said").read_text())
        whole[name] = output_of(words).read_bytes()
    for seed in range(first, first + count):
        name = list(COMMANDS)[seed % len(COMMANDS)]
        out = output_of(COMMANDS[name])
        before = f"what was there in case {seed}".encode()
        out.write_bytes(before)
        got, code = hit(name, seed, seconds[name])
        if problem := wrong(name, got, code, before, whole[name]):
            problems.append(f"case {seed}: {name} after signals {got}: {problem}")
        out.unlink(missing_ok=True)
    return problems + left_behind(folder)


def left_behind(folder: str) -> list[str]:
    """What is there that should not be, once each command has run again."""
    for name in ("join", "verify"):
        assert fate(started(COMMANDS[name])) == 0
        output_of(COMMANDS[name]).unlink()
    expected = {"a.parquet", "b.parquet", "grows.jsonl", "temp", "said"}
    found = {path.name for path in Path(folder).iterdir()} - expected
    found |= {path.name for path in Path("temp").iterdir()}
    return [f"{name} is left behind" for name in sorted(found)]


@pytest.mark.proof("signals at random moments")
@pytest.mark.parametrize("part", range(campaign(1, 20)))
def test_signals_at_random_moments(tmp_path: Path, part: int) -> None:
    count = campaign(16, 100)
    first = campaign(drawn_seed(), part * count)
    problems = call_in_child(under_fire, str(tmp_path), first, count, timeout=3600)
    proofs.tried(count)
    assert problems == []


def test_a_signal_when_all_is_done_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AtTheEnd(cli.Signals):
        def __exit__(self, *error: Any) -> None:
            if not self.number:
                signal.raise_signal(signal.SIGHUP)
            super().__exit__(*error)

    before = {number: signal.getsignal(number) for number in (*POLITE, signal.SIGALRM)}
    monkeypatch.setattr(cli, "Signals", AtTheEnd)
    assert cli.main(["--version"]) == 129
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_signal_that_was_lost_before_another_took_over_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cli.Signals() as outer:
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)  # and nobody who should hears of it
        with pytest.raises(KeyboardInterrupt), cli.Signals(is_gentle=True):
            pytest.fail("it was asked to end before it began")
        assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.getsignal(signal.SIGTERM) == before
    assert outer.code == 143


def test_a_signal_while_handlers_are_taken_over_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def early(number: int, handler: Any) -> Any:
        before = install(number, handler)
        if number == signal.SIGHUP and not raised:
            raised.append(number)
            signal.raise_signal(signal.SIGHUP)
        return before

    install, raised = signal.signal, list[int]()
    before = {number: signal.getsignal(number) for number in (*POLITE, signal.SIGALRM)}
    monkeypatch.setattr(signal, "signal", early)
    assert cli.main(["--version"]) == 129
    monkeypatch.undo()
    for number, handler in before.items():  # one may have come between its setting and our note
        signal.signal(number, handler)
