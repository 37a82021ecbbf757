"""Streams: what can be declared, what live items may be, and what is refused before any is read."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.sources import source_of
from matwin.storage.errors import InputError
from matwin.streams import (
    GridOrdered,
    Lateness,
    Punctuated,
    Punctuation,
    ReadAhead,
    Sorted,
    Stream,
    stream,
)

SCHEMA = pa.schema([("t", pa.int64()), ("name", pa.string())])
ROWS = [{"t": 1, "name": "a"}, {"t": 2, "name": None}, {"t": 3, "name": "c"}]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def unread() -> Iterator[pa.RecordBatch]:
    """A source that must not be asked for anything."""
    pytest.fail("the source was read")
    yield BATCH


def rows_of(given: Stream) -> list[dict[str, object]]:
    return [row for batch in given.batches() for row in batch.to_pylist()]


def test_sources_of_all_kinds(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([BATCH]), tmp_path / "a.parquet")
    table = pa.table(BATCH)
    for source in (BATCH, table, table.to_reader(), tmp_path / "a.parquet", source_of(BATCH, "x")):
        given = stream(source)
        assert not given.is_live
        assert given.schema.equals(SCHEMA)
        assert rows_of(given) == ROWS
    for source in ([BATCH], iter([BATCH]), (batch for batch in [BATCH])):
        given = stream(source)
        assert given.is_live
        assert rows_of(given) == ROWS
    assert stream(table, live=True).is_live
    assert not stream([BATCH], live=False).is_live


def test_what_a_stream_says_of_itself() -> None:
    given = stream(BATCH, on="t", order=Lateness("5s"), late="drop", name="sensors")
    assert (given.on, given.order, given.late) == ("t", Lateness("5s"), "drop")
    assert (given.name, given.rows_hint, given.is_repeatable) == ("sensors", 3, True)
    assert stream(BATCH).order == Sorted()
    assert stream(BATCH, order="sorted").order == Sorted()


def test_a_stream_is_a_source_and_takes_the_name_it_lacks() -> None:
    named = stream(BATCH, name="sensors")
    assert source_of(named, "left") is named
    given = source_of(stream(iter([BATCH, 5])), "left")
    assert isinstance(given, Stream)
    assert given.name == "left"
    with pytest.raises(InputError, match="left: batch 1 is a int"):
        list(given.items())


def test_live_items_of_all_kinds() -> None:
    items = [BATCH, pa.table(BATCH), ROWS[0], ROWS, tuple(ROWS), [], BATCH.slice(0, 0)]
    given = stream(iter(items), schema=SCHEMA)
    assert rows_of(given) == [*ROWS, *ROWS, ROWS[0], *ROWS, *ROWS]


def test_missing_keys_are_null_and_unknown_ones_are_refused() -> None:
    assert rows_of(stream([{"t": 5}], schema=SCHEMA)) == [{"t": 5, "name": None}]
    with pytest.raises(InputError, match="batch 1 has column 'nmae'"):
        rows_of(stream([{"t": 5}, {"t": 6, "nmae": "x"}], schema=SCHEMA))


def test_rows_of_another_type_name_their_column() -> None:
    for row in ({"t": "soon"}, {"t": 2**70}, {"t": 1.5}, {"t": 1, "name": 7}):
        column = "name" if "name" in row else "t"
        with pytest.raises(InputError, match=f"stream: batch 0: column '{column}'"):
            rows_of(stream([row], schema=SCHEMA))


MIDNIGHT = dt.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("value", "data_type", "is_kept"),
    [
        (2.0, pa.int64(), True),
        (1.5, pa.int64(), False),
        (2**64 - 1, pa.uint64(), True),
        (2**53 + 1, pa.float64(), False),
        (MIDNIGHT, pa.timestamp("s"), True),
        (MIDNIGHT.replace(microsecond=5), pa.timestamp("us"), True),
        (MIDNIGHT.replace(microsecond=5), pa.timestamp("s"), False),
        (MIDNIGHT.replace(tzinfo=dt.UTC), pa.timestamp("s"), False),
        (MIDNIGHT, pa.timestamp("s", "UTC"), False),
        (MIDNIGHT.replace(tzinfo=dt.UTC), pa.timestamp("s", "UTC"), True),
        (MIDNIGHT.replace(tzinfo=dt.UTC), pa.timestamp("ns", "Europe/Berlin"), True),
        (MIDNIGHT, pa.date32(), True),
        (MIDNIGHT.replace(hour=5), pa.date32(), False),
        (dt.date(2024, 1, 1), pa.date32(), True),
        (dt.timedelta(seconds=1.5), pa.duration("ms"), True),
        (dt.timedelta(seconds=1.5), pa.duration("s"), False),
        (1700000000, pa.timestamp("s"), True),
    ],
)
def test_rows_keep_their_values_or_are_refused(
    value: object, data_type: pa.DataType, is_kept: bool
) -> None:
    given = stream([{"t": value}, {"t": None}], schema=pa.schema([("t", data_type)]))
    if is_kept:
        assert [row["t"] for row in rows_of(given)] == [pa.scalar(value, data_type).as_py(), None]
    else:
        with pytest.raises(InputError, match="batch 0: column 't' is no"):
            rows_of(given)


def test_none_is_nothing_to_say_now() -> None:
    assert rows_of(stream(iter([None, BATCH, None]), schema=SCHEMA)) == rows_of(stream([BATCH]))
    both = [stream(iter([None, BATCH, None]), schema=SCHEMA) for _ in range(2)]
    pairs = matwin.epsilon_join(*both, on={"t": 0}).read_all()
    assert pairs.num_rows == matwin.epsilon_join(BATCH, BATCH, on={"t": 0}).read_all().num_rows > 0


def test_items_that_are_nothing() -> None:
    for item in (5, "text", [1], object()):
        with pytest.raises(InputError, match="batch 0 is a"):
            rows_of(stream(iter([item]), schema=SCHEMA))
    with pytest.raises(InputError, match="schema="):
        stream([{"t": 1}])
    with pytest.raises(InputError, match="batch 1 is a row"):
        rows_of(stream([BATCH, {"t": 1}]))


def test_punctuations_pass_between_batches() -> None:
    items = [Punctuation(0), BATCH, Punctuation(3), BATCH]
    given = stream(iter(items), order=Punctuated())
    assert given.schema.equals(SCHEMA)
    found = list(given.items())
    assert [type(item) for item in found] == [type(item) for item in items]
    assert found[2] == Punctuation(3)
    assert rows_of(stream(items, order=Punctuated())) == [*ROWS, *ROWS]


def test_punctuations_need_their_order_and_an_iterable() -> None:
    with pytest.raises(InputError, match="batch 1 is a Punctuation; declare"):
        list(stream([BATCH, Punctuation(3)]).items())
    with pytest.raises(InputError, match="only an iterable"):
        stream(BATCH, order=Punctuated())


def test_nothing_is_read_before_it_is_asked_for_if_the_schema_is_given() -> None:
    given = stream(unread(), schema=SCHEMA, on="t")
    assert given.schema is SCHEMA
    given.items()


def test_without_a_schema_one_batch_is_taken() -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            taken.append(number)
            yield BATCH

    given = stream(batches())
    assert taken == [0]
    items = given.items()
    next(items)
    assert taken == [0]
    assert len(list(items)) == 2


def test_columns_are_pruned() -> None:
    (item,) = stream([BATCH]).items(["name"])
    assert item.schema.names == ["name"]
    (batch,) = stream(BATCH).batches(["t"])
    assert batch.schema.names == ["t"]


def test_batches_of_another_schema_name_number_and_column() -> None:
    other = BATCH.set_column(0, "t", BATCH["t"].cast(pa.float64()))
    with pytest.raises(InputError, match="batch 1: column 't' is double, and int64"):
        rows_of(stream([BATCH, other]))
    with pytest.raises(InputError, match="batch 0: column 't'"):
        rows_of(stream([other], schema=SCHEMA))
    with pytest.raises(InputError, match="its columns are"):
        stream(other, schema=SCHEMA)


def test_notes_in_a_schema_make_no_difference() -> None:
    noted = BATCH.replace_schema_metadata({"who": "me"})
    required = BATCH.cast(pa.schema([pa.field("t", pa.int64(), nullable=False), SCHEMA.field(1)]))
    assert rows_of(stream([BATCH, noted, required])) == ROWS * 3


BAD = [
    ({"order": "random"}, "order='random'"),
    ({"order": Sorted}, "is not an order"),
    ({"order": None}, "is not an order"),
    ({"late": "ignore"}, "late='ignore'"),
    ({"late": None}, "late=None"),
    ({"schema": ["t"]}, "schema is a list"),
    ({"schema": SCHEMA, "on": "when"}, "column 'when' is not there"),
    ({"schema": pa.schema([("t", pa.int64()), ("t", pa.int64())])}, "twice"),
]


@pytest.mark.parametrize(("arguments", "text"), BAD)
def test_bad_arguments_are_refused_before_any_data_is_read(arguments: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        stream(unread(), **arguments)


def test_a_stream_is_declared_once() -> None:
    with pytest.raises(InputError, match="a stream already"):
        stream(stream(BATCH))


@pytest.mark.parametrize(
    "amount", [-1, -0.5, "-5s", "soon", "", math.nan, math.inf, None, True, [], dt.timedelta(-1),
               np.timedelta64(-5, "s"), np.timedelta64(5), np.timedelta64(5, "M"),
               np.timedelta64("NaT", "s"), "1h-30min", "5mss", "30min1h", "5"]
)  # fmt: skip
def test_bad_lateness(amount: object) -> None:
    with pytest.raises(InputError):
        Lateness(amount)
    if amount is not None:
        with pytest.raises(InputError):
            GridOrdered(amount)


@pytest.mark.parametrize(
    "amount", [0, 5, 2.5, "5s", "1h30min", dt.timedelta(seconds=5), np.int32(3)]
)
def test_good_lateness(amount: object) -> None:
    assert Lateness(amount).lateness == amount


@pytest.mark.parametrize("rows", [0, -1, 2.5, "10", None, True])
def test_bad_read_ahead(rows: object) -> None:
    with pytest.raises(InputError, match="ReadAhead"):
        ReadAhead(rows)


@pytest.mark.parametrize("width", [0, 0.0, "0s"])
def test_a_cell_has_a_width(width: object) -> None:
    with pytest.raises(InputError, match="wider than nothing"):
        GridOrdered(width)
    assert GridOrdered().width is None
