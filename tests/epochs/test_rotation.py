"""`matwin.tail` through rotations of every style: every row comes once, whatever comes between."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from growth import (
    SCHEMA,
    append,
    begun_again,
    impatient,  # noqa: F401  (a fixture)
    listed,
    some_rows,
    there,
    written,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin import rotation

STYLES = ["falling", "rising", "dated"]


class Log:
    """A writer, whoever rotates its file, and a reader that may begin again."""

    def __init__(self, folder: Path, format: str, style: str, how: str, *, has_times: bool) -> None:
        self.path = folder / f"app.{format}"
        self.format, self.style, self.how, self.has_times = format, style, how, has_times
        self.path.touch()
        self.rows = self.rotations = self.ticks = 0
        self._tick(self.path)
        self.old: list[Path] = []
        """Rotated files, oldest first."""
        self.ends: list[int] = []
        """How many rows there were when each of them was rotated."""
        self.found: list[dict[str, Any]] = []
        self.begin(None, 0)

    def begin(self, mark: Any, skip: int) -> None:
        self.source: Any = matwin.tail(self.path, schema=SCHEMA)
        self.items, self.skip = self.source.items_from(mark), skip

    def write(self, count: int) -> None:
        is_new = self.path.stat().st_size == 0
        rows = some_rows(count, first=self.rows)
        append(self.path, written(rows, self.format, is_new=is_new))
        self.rows += count
        self._tick(self.path)

    def read(self) -> None:
        found = there(self.items)
        self.found += found[self.skip :]
        self.skip = max(self.skip - len(found), 0)

    def restart(self) -> None:
        mark, skip = begun_again(self.source.mark(len(self.found)))
        if mark is not None:  # what was rotated before anything was read is for from_oldest=
            self.items.close()
            self.begin(mark, skip)

    def rotate(self) -> None:
        self.rotations += 1
        if self.style == "falling":
            for at in range(len(self.old)):
                path = self.old[at]
                number = len(self.old) - at + 1
                self.old[at] = path.rename(self._named(number, path.suffix))
            new = self._named(1)
        elif self.style == "rising":
            new = self._named(self.rotations)
        else:
            new = self.path.with_name(f"{self.path.name}-2024{self.rotations:04}")
        if self.how == "rename":
            self.path.rename(new)
            self.path.touch()
        else:
            (shutil.copy2 if self.has_times else shutil.copy)(self.path, new)
            os.truncate(self.path, 0)
        self._tick(self.path)
        self.old.append(new)
        self.ends.append(self.rows)

    def remove(self) -> None:
        """The oldest one, where it has been read."""
        if self._is_read():
            self.old.pop(0).unlink()
            self.ends.pop(0)

    def compress(self) -> None:
        """The oldest one that is not, where it has been read."""
        if self._is_read() and self.has_times and self.old[0].suffix != ".gz":
            path = self.old[0]
            packed = path.with_name(path.name + ".gz")
            packed.write_bytes(gzip.compress(path.read_bytes()))
            shutil.copystat(path, packed)
            path.unlink()
            self.old[0] = packed

    def _is_read(self) -> bool:
        # A mark is of the file of the last row, until there is one of the next file.
        return bool(self.old) and len(self.found) > self.ends[0]

    def _named(self, number: int, suffix: str = "") -> Path:
        packed = ".gz" if suffix == ".gz" else ""
        return self.path.with_name(f"{self.path.name}.{number}{packed}")

    def _tick(self, path: Path) -> None:
        """Times as they are where something is written every second; else those of this moment."""
        self.ticks += 1
        if self.has_times:
            os.utime(path, (1_700_000_000 + self.ticks,) * 2)


ACTIONS = st.lists(
    st.one_of(
        st.integers(1, 3).map(lambda count: ("write", count)),
        st.sampled_from([("rotate",), ("rotate",), ("read",), ("restart",), ("remove",),
                         ("compress",)]),
    ), max_size=24,
)  # fmt: skip
WRITES = [("write", 2), ("read",), ("rotate",), ("write", 1)]


@pytest.mark.proof("rotation of growing files")
@pytest.mark.parametrize("how", ["rename", "copy"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("format", ["jsonl", "csv"])
@settings(max_examples=campaign(40, 2000), deadline=None)
@example(actions=WRITES * 3 + [("restart",)], has_times=True)
@example(actions=[("write", 2), *[("rotate",), ("write", 1)] * 4], has_times=False)
@example(
    actions=[("rotate",), ("write", 1), ("rotate",), ("read",), ("compress",), ("rotate",)],
    has_times=True,
)
@example(
    actions=[
        ("rotate",),
        ("write", 1),
        ("read",),
        ("restart",),
        ("rotate",),
        ("read",),
        ("rotate",),
    ],
    has_times=False,
)
@example(
    actions=[("rotate",), ("write", 1), ("rotate",), ("read",), ("remove",), ("write", 1),
             ("rotate",), ("rotate",)], has_times=False,
)  # fmt: skip
@given(actions=ACTIONS, has_times=st.booleans())
def test_every_row_comes_once(
    format: str, style: str, how: str, actions: Sequence[tuple[Any, ...]], has_times: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), format, style, how, has_times=has_times)
        log.read()
        for name, *words in actions:
            getattr(log, name)(*words)
        for _ in range(len(log.old) + 2):
            log.read()
        log.restart()
        log.write(1)
        log.read()
        assert log.found == some_rows(log.rows)
        tried()


@pytest.mark.parametrize("style", STYLES)
def test_from_the_oldest_of_each_style(tmp_path: Path, style: str) -> None:
    log = Log(tmp_path, "jsonl", style, "rename", has_times=True)
    for _ in range(12):
        log.write(1)
        log.rotate()
    log.write(1)
    source = matwin.tail(log.path, from_oldest=True, once=True)
    assert listed(source.batches()) == some_rows(13)


def test_a_restart_without_what_was_noted_goes_by_time(tmp_path: Path) -> None:
    """Marks of states that are older than what is noted today."""
    for style in STYLES:
        folder = tmp_path / style
        folder.mkdir()
        log = Log(folder, "jsonl", style, "rename", has_times=True)
        log.write(2)
        log.read()
        mark, skip = begun_again(log.source.mark(2))
        del mark["older"]
        for _ in range(3):
            log.rotate()
            log.write(1)
        log.begin(mark, skip)
        for _ in range(5):
            log.read()
        assert log.found == some_rows(5)


def test_numbers_of_files_that_were_given_again(tmp_path: Path) -> None:
    """A file that has the number in the file system of one that was noted is another one."""
    path = tmp_path / "app.jsonl"
    (tmp_path / "app.jsonl.1").write_bytes(b'{"t": 1}\n')
    path.write_bytes(b'{"t": 2}\n')
    noted = rotation.older_than(rotation.Opened(path, "app"), path)
    assert noted is not None and len(noted) == 1
    [old] = rotation.chain(path)
    assert old.is_in(noted)
    old.path.write_bytes(b'{"t": 3}\n')
    assert not old.is_in(noted)
    old.path.write_bytes(b'{"t": 1}\n{"t": 2}\n')  # whoever wrote it has added a line
    assert old.is_in(noted)
