"""Measuring joins on Spark: beside Spark SQL, beside the embedded joins, bytes, executors.

    beside     ours and a rival's time, in turns, in one session, on the same files
    embedded   the same join without Spark, on the same files and cores
    shipped    bytes shuffled by both ways to ship rows
    scaled     the same join with one executor and with two, in a child process each

A result is computed to its last row and kept nowhere: Spark's ``noop`` sink, and batches drained.
Before anything is timed, both sides answer at a small size, where the rows themselves are compared
by a checksum, and at full size, where they are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matwin.storage.errors import InputError

from .joins import Timed, timed
from .measures import Disagreement, in_turns
from .spark_data import SparkCase
from .spark_rivals import SqlRival

WARM_SHARE, WARM_LEAST = 50, 2_000
CHECKED = ("id_left", "id_right"), ("l_id", "r_id")


@dataclass(frozen=True, slots=True)
class SparkVersus:
    """A rival, the size that it is asked at, and how many times as fast we want to be."""

    rival: SqlRival
    rows: int
    reach: float | None = None


@dataclass(frozen=True, slots=True)
class SparkBeside:
    """Our time beside a rival's."""

    case: SparkCase
    rival: str
    ours: Timed
    theirs: Timed
    reach: float | None

    @property
    def times(self) -> float:
        """How many times as fast as the rival we are."""
        return self.theirs.seconds / self.ours.seconds


@dataclass(frozen=True, slots=True)
class Overhead:
    """The time on Spark beside that of the embedded join."""

    case: SparkCase
    ours: Timed
    embedded: Timed

    @property
    def times(self) -> float:
        """How many times as long Spark takes."""
        return self.ours.seconds / self.embedded.seconds


@dataclass(frozen=True, slots=True)
class Shipped:
    """What one way to ship rows has shuffled."""

    case: SparkCase
    ship: str
    ours: Timed
    shuffle_bytes: int | None


@dataclass(frozen=True, slots=True)
class Scaled:
    """The time with a number of executors of one core each."""

    case: SparkCase
    executors: int
    ours: Timed


class Bench:
    """A session, and a folder for the files that both sides read."""

    def __init__(self, session: Any, folder: Path, repeat: int) -> None:
        self.session = session
        session.conf.set("spark.sql.join.asofJoin.enabled", "true")
        self.folder = folder
        self.repeat = repeat
        self._paths: dict[SparkCase, tuple[str, str]] = {}

    def paths(self, case: SparkCase) -> tuple[str, str]:
        """The case's files, written once."""
        if case not in self._paths:
            self._paths[case] = case.written(self.folder)
        return self._paths[case]

    def frames(self, case: SparkCase) -> tuple[Any, Any]:
        """Both sides as DataFrames, also known to SQL as l and r."""
        left, right = (self.session.read.parquet(path) for path in self.paths(case))
        left.createOrReplaceTempView("l")
        right.createOrReplaceTempView("r")
        return left, right

    # ── beside Spark SQL ─────────────────────────────────────────────────────────────────────

    def beside(self, against: Sequence[SparkVersus], case: SparkCase) -> Iterator[Any]:
        """Our time beside each rival's, or why it is left out."""
        for versus in against:
            missing = versus.rival.missing(self.session.version)
            if missing is not None:
                yield missing
                continue
            sized = case.of_rows(min(versus.rows, case.rows))
            self.compare(sized.of_rows(_warm_rows(sized.rows)), versus.rival)
            frames = self.frames(sized)
            ours, theirs = in_turns(
                _counted(lambda: sized.ours(frames)),  # noqa: B023  # called at once
                _counted(lambda: self.session.sql(versus.rival.text(sized))),  # noqa: B023
                self.repeat,
            )
            _check(sized, versus.rival.name, ours.rows_out, theirs.rows_out)
            yield SparkBeside(sized, versus.rival.name, ours, theirs, versus.reach)

    def compare(self, case: SparkCase, *rivals: SqlRival) -> int:
        """Answer all ways and compare the rows, of which there are so many; warms them up."""
        rows, total = _checksum(case.ours(self.frames(case)))
        for rival in rivals:
            found = _checksum(self.session.sql(rival.text(case)))
            _check(case, rival.name, rows, found[0])
            if found[1] != total:
                raise Disagreement(f"{case.name}, seed {case.seed}: {rival.name} finds other rows")
        return rows

    # ── ourselves ────────────────────────────────────────────────────────────────────────────

    def overhead(self, case: SparkCase) -> Overhead:
        """Our time beside the embedded join's."""
        small = case.of_rows(_warm_rows(case.rows))
        small.embedded(self.paths(small))
        paths, frames = self.paths(case), self.frames(case)
        ours, embedded = in_turns(
            _counted(lambda: case.ours(frames)), lambda: case.embedded(paths), self.repeat
        )
        _check(case, "the embedded join", ours.rows_out, embedded.rows_out)
        return Overhead(case, ours, embedded)

    def shipped(self, case: SparkCase, ship: str) -> Shipped:
        """What a way to ship rows shuffles."""
        from matwin.tools.spark_join import metered

        small = case.of_rows(_warm_rows(case.rows))
        _consumed(small.ours(self.frames(small), ship=ship))
        frames = self.frames(case)
        with metered(self.session) as meter:
            ours = timed(lambda: _consumed(case.ours(frames, ship=ship)))
        return Shipped(case, ship, ours, None if meter is None else meter.shuffle_bytes)

    def alone(self, case: SparkCase) -> Timed:
        """Our time."""
        frames = self.frames(case)
        return timed(_counted(lambda: case.ours(frames)), self.repeat)


def _warm_rows(rows: int) -> int:
    return min(rows, max(rows // WARM_SHARE, WARM_LEAST))


def _counted(asked: Callable[[], Any]) -> Callable[[], int]:
    """What computes a result and tells its rows; they are counted here and now, in a run that warms
    up, because Spark takes a tenth of a second for counting three million."""
    from matwin.spark.files import computed

    rows = _consumed(asked())

    def run() -> int:
        computed(asked())
        return rows

    return run


def _consumed(frame: Any) -> int:
    from matwin.spark.files import consumed

    return consumed(frame)


def _checksum(frame: Any) -> tuple[int, int]:
    """The number of rows, and a sum over the ids of all pairs, in whatever order."""
    one, other = next(pair for pair in CHECKED if pair[0] in frame.columns)
    hashed = f"sum(xxhash64(`{one}`, `{other}`) & 4294967295)"
    rows, total = frame.selectExpr("count(*)", hashed).first()
    return int(rows), int(total or 0)


def _check(case: SparkCase, name: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise Disagreement(
            f"{case.name}, {case.rows:,} rows a side, seed {case.seed}: we find {ours:,} rows, "
            f"{name} finds {theirs:,}"
        )


# ── executors ────────────────────────────────────────────────────────────────────────────────


def scaled(case: SparkCase, executors: int, memory: int, folder: Path, repeat: int) -> Scaled:
    """Run the case in a child process, with so many executors."""
    told = {
        "case": asdict(case), "master": f"local-cluster[{executors},1,{memory}]",
        "folder": str(folder), "repeat": repeat,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "matwin.tools.bench.spark_measures", json.dumps(told)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InputError(f"{case.name} on {executors} executors: the child process: {last[0]}")
    return Scaled(case, executors, Timed(**json.loads(done.stdout)))


def child(case: SparkCase, master: str, folder: str, repeat: int) -> Timed:
    """In the child: a session of its own."""
    from matwin.spark.session import started

    with started(master, {"spark.sql.shuffle.partitions": "8"}) as session:
        return Bench(session, Path(folder), repeat).alone(case)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given["case"] = SparkCase(**given["case"])
    print(json.dumps(asdict(child(**given))))
