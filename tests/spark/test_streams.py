"""A task without Spark: one sequence of tagged rows becomes streams, and few rows ever wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin

pytest.importorskip("pyspark", reason="the Spark layer needs pyspark")

from matwin.spark import task as tasks
from matwin.spark.task import Streams, Task
from matwin.spark.work import Epsilon, Windows

ROWS = 400_000
PIECE = 10_000
PAYLOAD = 40


def rows_of(shape: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Times and sides of rows as they come: sorted, and one side late or rare."""
    chance = np.random.default_rng(7)
    t = np.sort(chance.integers(0, 1_000_000, ROWS))
    side = chance.integers(0, 2, ROWS)
    if shape == "one instant, right last":
        t[:] = 5
        side[:] = 0
        side[-3:] = 1
    elif shape == "left alone for long":
        side[: ROWS // 2] = 0
    elif shape == "right rare":
        side = (np.arange(ROWS) % 50_000 == 0).astype(np.int64)
    return t, side


def pieces_of(t: Any, side: Any, part: int) -> list[pa.RecordBatch]:
    text = pa.array(["x" * PAYLOAD] * len(t))
    whole = pa.table({"tag": pa.array(part * 2 + side, pa.int32()), "s0": t, "s1": text})
    return whole.to_batches(max_chunksize=PIECE)


def task_of(work: Any, arguments: dict[str, Any], sort: str | None, output: pa.Schema) -> Task:
    columns = (("t", "s0"), ("x", "s1"))
    return Task(
        "a join", ("left", "right"), (columns, columns), sort,
        {"memory": "16MiB", "threads": 1}, output, tuple(f"part {i}" for i in range(9)), work,
        arguments,
    )  # fmt: skip


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that have waited, whenever a chunk was read."""
    seen: list[int] = []
    read = Streams._read

    def watched(self: Streams) -> bool:
        found = read(self)
        seen.append(sum(self._bytes))
        return found

    monkeypatch.setattr(Streams, "_read", watched)
    return seen


SHAPES = ("even", "one instant, right last", "left alone for long", "right rare")
LIMIT = tasks.WAITING_BYTES + 4 * tasks.CHUNK_BYTES


@pytest.mark.parametrize("sort", ["s0", None])
@pytest.mark.parametrize("shape", SHAPES)
def test_few_rows_wait(shape: str, sort: str | None, waited: list[int]) -> None:
    t, side = rows_of(shape)
    output = pa.schema([("t", pa.int64()), ("x", pa.string())])
    task = task_of(Epsilon(), {"on": {"t": 2}, "how": "semi"}, sort, output)
    found = sum(batch.num_rows for batch in task.run(pieces_of(t, side, 3)))
    left, right = (pa.table({"t": t[side == n]}) for n in (0, 1))
    assert found == matwin.epsilon_join(left, right, on={"t": 2}, how="semi").read_all().num_rows
    assert max(waited) < LIMIT


@pytest.mark.parametrize("shape", SHAPES[2:])
def test_few_rows_wait_in_window_joins(shape: str, waited: list[int]) -> None:
    t, side = rows_of(shape)
    names = ["left_t", "left_x", "right_t", "right_x"]
    output = pa.schema([(name, pa.int64() if name[-1] == "t" else pa.string()) for name in names])
    task = task_of(Windows(), {"time": "t", "windows": 2}, "s0", output)
    found = sum(batch.num_rows for batch in task.run(pieces_of(t, side, 0)))
    sides = {name: pa.table({"t": t[side == n]}) for n, name in enumerate(("left", "right"))}
    assert found == matwin.window_join(sides, time="t", windows=2).read_all().num_rows
    assert max(waited) < LIMIT


@pytest.mark.parametrize(
    "data_type",
    [
        pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.duration("us"),
        pa.time64("us"), pa.int32(), pa.int64(), pa.float64(),
    ],
    ids=str,
)  # fmt: skip
def test_times_tell_how_far_the_others_are(
    data_type: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Punctuations are values of the column: times are no numbers there either."""
    monkeypatch.setattr(tasks, "CHUNK_ROWS", 20)
    t, side = np.repeat(np.arange(100), 2), np.tile([0, 1], 100)
    numbers = pa.array(t).cast(pa.int32() if data_type.bit_width == 32 else pa.int64())
    column = numbers.view(data_type) if pa.types.is_temporal(data_type) else numbers.cast(data_type)
    text = pa.array(["x"] * len(t))
    whole = pa.table({"tag": pa.array(side, pa.int32()), "s0": column, "s1": text})
    output = pa.schema([("t", data_type), ("x", pa.string())])
    task = task_of(Epsilon(), {"on": {"t": 0}, "how": "semi"}, "s0", output)
    assert sum(b.num_rows for b in task.run(whole.to_batches(max_chunksize=10))) == 100


def test_rows_of_two_parts_are_refused() -> None:
    t, side = rows_of("even")
    output = pa.schema([("t", pa.int64()), ("x", pa.string())])
    task = task_of(Epsilon(), {"on": {"t": 2}, "how": "semi"}, "s0", output)
    mixed = [*pieces_of(t[:100], side[:100], 3), *pieces_of(t[100:200], side[100:200], 4)]
    with pytest.raises(tasks.TaskError, match="rows of two parts"):
        list(task.run(mixed))


def test_an_error_names_operator_part_and_cause() -> None:
    t, side = rows_of("even")
    output = pa.schema([("t", pa.int64())])
    task = task_of(Epsilon(), {"on": {"nothing": 1}}, "s0", output)
    with pytest.raises(tasks.TaskError, match=r"^a join, part 4: InputError: .*'nothing'"):
        list(task.run(pieces_of(t[:100], side[:100], 4)))
