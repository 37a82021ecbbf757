"""Any Arrow type as a key and as payload, in every way of execution.

Types are drawn leaf by leaf: plain ones, views, dictionaries and runs of them, and lists, list
views, structs and maps of all these.  Each batch has its own dictionaries and offsets.  What has to
come out are the Python values that the columns were made of.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.storage.encodings import is_plain, plain_array, plain_batch, plain_type, result_type

TEXTS = ["", "a", "ä", "a longer one than fits a view", "b" * 90, None]
LEAVES: dict[pa.DataType, list[Any]] = {
    pa.null(): [None],
    pa.bool_(): [True, False, None],
    pa.int8(): [-1, 0, 7, None],
    pa.uint64(): [0, 2**64 - 1, None],
    pa.float64(): [0.5, -1.0, None],
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("-2.00"), None],
    pa.date32(): [dt.date(2020, 1, 2), dt.date(1969, 1, 1), None],
    pa.timestamp("us"): [dt.datetime(2020, 1, 2, 3), None],
    pa.duration("ms"): [dt.timedelta(seconds=3), dt.timedelta(0), None],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): [b"", b"\0\1", b"x" * 40, None],
    pa.binary(2): [b"ab", b"\0\0", None],
    pa.binary_view(): [b"", b"\0\1", b"x" * 40, None],
}
leaves = st.sampled_from(sorted(LEAVES, key=str))
indices = st.sampled_from([pa.int8(), pa.uint32(), pa.int64()])
ENCODED = st.deferred(
    lambda: st.one_of(
        leaves,
        st.builds(pa.dictionary, indices, values),
        st.builds(pa.run_end_encoded, st.sampled_from([pa.int16(), pa.int32()]), values),
    )
)
values = leaves.filter(lambda kind: not pa.types.is_null(kind))


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        st.builds(pa.list_view, inner),
        st.builds(pa.large_list_view, inner),
        st.builds(lambda kind: pa.list_(kind, 2), inner),
        st.builds(lambda a, b: pa.struct([("a", a), ("b", b)]), inner, inner),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.string_view()]), inner),
    )


types = st.recursive(ENCODED, nested, max_leaves=3)


def some_values(kind: pa.DataType) -> list[Any]:
    """A few values of a type, as Python's."""
    if kind in LEAVES:
        return LEAVES[kind]
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return some_values(kind.value_type)
    if pa.types.is_struct(kind):
        parts = [some_values(kind.field(at).type) for at in range(2)]
        rows = zip(islice(cycle(parts[0]), 4), islice(cycle(parts[1]), 4), strict=True)
        return [*({"a": a, "b": b} for a, b in rows), None]
    if pa.types.is_map(kind):
        items = some_values(kind.item_type)
        return [[("k", items[0])], [], None, [("k", items[-1]), ("l", items[0])]]
    inner = some_values(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return [[inner[0], inner[-1]], None, [inner[-1], inner[0]]]
    return [inner[:2], [], None, [inner[-1]], inner]


def made(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """An array of Python's values, which Arrow itself makes of few encodings."""
    if kind in LEAVES:
        return pa.array(values, kind)
    if pa.types.is_dictionary(kind):
        known = list(dict.fromkeys(value for value in values if value is not None))
        numbers = [None if value is None else known.index(value) for value in values]
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers, kind.index_type), made(kind.value_type, known)
        )
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, made(kind.value_type, values), kind)
    mask = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(kind):
        parts = [[(value or {}).get(name) for value in values] for name in "ab"]
        arrays = [made(kind.field(at).type, part) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        empty = [None] * kind.list_size
        flat = [one for value in values for one in (value or empty)]
        return pa.FixedSizeListArray.from_arrays(made(kind.value_type, flat), type=kind, mask=mask)
    flat = [one for value in values for one in value or ()]
    lengths = [len(value or ()) for value in values]
    offsets = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    if pa.types.is_map(kind):
        keys, items = ([pair[at] for pair in flat] for at in (0, 1))
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), made(kind.key_type, keys), made(kind.item_type, items),
            type=kind, mask=mask,
        )  # fmt: skip
    wide = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    number = pa.int64() if wide else pa.int32()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        # In reverse: a view's lists may lie anywhere.
        maker = pa.LargeListViewArray if wide else pa.ListViewArray
        reverse = [one for value in values[::-1] for one in value or ()]
        starts = [sum(lengths[at + 1 :]) for at in range(len(lengths))]
        return maker.from_arrays(
            pa.array(starts, number), pa.array(lengths, number), made(kind.value_type, reverse),
            type=kind, mask=mask,
        )  # fmt: skip
    maker = pa.LargeListArray if wide else pa.ListArray
    return maker.from_arrays(
        pa.array(offsets, number), made(kind.value_type, flat), type=kind, mask=mask
    )


def batches(kind: pa.DataType, rows: int) -> Iterator[pa.RecordBatch]:
    """Rows by number; each batch has its own part of the values, and begins elsewhere."""
    known = some_values(kind)
    for first in range(0, rows, 40):
        last = min(first + 40, rows)
        own = [known[(at + 1) % len(known)] for at in range(first - 3, last)]
        column = made(kind, own).slice(3)
        numbers = pa.array(range(first, last), pa.int64())
        fields = [pa.field("t", pa.int64()), pa.field("v", kind)]
        yield pa.RecordBatch.from_arrays([numbers, column], schema=pa.schema(fields))


def shown(value: Any) -> str:
    """A value as one to be counted; maps are lists of pairs."""
    return repr(value)


def expected_values(kind: pa.DataType, rows: int) -> dict[int, str]:
    known = some_values(kind)
    return {at: shown(known[(at + 1) % len(known)]) for at in range(rows)}


# ── plain values ─────────────────────────────────────────────────────────────────────────────


@given(types)
@settings(max_examples=campaign(150, 5000))
def test_plain_values_are_the_same_values(kind: pa.DataType) -> None:
    assert is_plain(plain_type(kind)) and is_plain(plain_type(result_type(kind)))
    for batch in batches(kind, 45):
        given_column = batch.column("v")
        column = plain_array(given_column)
        column.validate(full=True)
        assert column.type == plain_type(kind)
        assert (column is given_column) == is_plain(kind)
        wanted = expected_values(kind, 45)
        at = batch.column("t").to_pylist()
        assert [shown(value) for value in column.to_pylist()] == [wanted[n] for n in at]
        column.take(pa.array([0]))
        column.filter(pa.array([True] * len(column)))
        assert plain_batch(plain_batch(batch)).schema.types == [pa.int64(), column.type]


# ── joins ────────────────────────────────────────────────────────────────────────────────────

SMALL = {"memory": "192KiB", "page_size": "4KiB", "threads": 1}
WAYS: dict[str, dict[str, Any]] = {
    "memory": {}, "small": SMALL, "pages": {**SMALL, "schedule": "gallop"},
    "grid": {**SMALL, "materialize": "grid"},
    "ordered": {**SMALL, "ordered": True, "memory": "1MiB"},
}  # fmt: skip
DECIDED = {"small": "parts: ", "pages": "pages: ", "grid": "grid windows", "live": "pages: "}
ROWS = 400


def sides(kind: pa.DataType, way: str) -> list[Any]:
    """Both sides as tables, batches or live streams."""
    table = pa.Table.from_batches(batches(kind, ROWS))
    if way in ("small", "live"):  # so wide that they don't fit
        table = table.append_column("pad", pa.array(["x" * 1500] * ROWS))
    if way == "live":
        return [
            matwin.stream(iter(table.to_batches()), order=matwin.Lateness(50), schema=table.schema)
            for _ in range(2)
        ]
    return [table, table.to_reader() if way == "small" else list(table.to_batches())]


@given(types, st.sampled_from([*WAYS, "live"]))
@settings(
    max_examples=campaign(40, 3000), suppress_health_check=[HealthCheck.too_slow], deadline=None
)
def test_any_type_is_payload(kind: pa.DataType, way: str) -> None:
    wanted = expected_values(kind, ROWS)
    options = WAYS.get(way, SMALL)
    if pa.types.is_null(kind):
        options = {}
    found = matwin.epsilon_join(*sides(kind, way), on={"t": 1}, how="inner", **options)
    report, found = found.report, found.to_arrow()
    if options and way in DECIDED:
        assert any(DECIDED[way] in decision for decision in report.decisions), report.decisions
    found.validate(full=True)
    assert found.schema.field("v_left").type == plain_type(kind)
    rows = Counter(zip(found["t_left"].to_pylist(), found["t_right"].to_pylist(), strict=True))
    assert rows == Counter((a, b) for a in range(ROWS) for b in (a - 1, a, a + 1) if 0 <= b < ROWS)
    for side in ("left", "right"):
        numbers = found[f"t_{side}"].to_pylist()
        values = [shown(value) for value in found[f"v_{side}"].to_pylist()]
        assert values == [wanted[number] for number in numbers]


KEYS = st.one_of(
    leaves, st.builds(pa.dictionary, indices, values),
    st.builds(pa.run_end_encoded, st.just(pa.int32()), values),
)  # fmt: skip


@given(KEYS, st.sampled_from([*WAYS, "live"]))
@settings(
    max_examples=campaign(40, 3000), suppress_health_check=[HealthCheck.too_slow], deadline=None
)
def test_any_flat_type_is_a_key(kind: pa.DataType, way: str) -> None:
    wanted = expected_values(kind, ROWS)
    asked = {"on": {"t": 8}, "by": "v", **WAYS.get(way, SMALL)}
    found = matwin.epsilon_join(*sides(kind, way), **asked).to_arrow()
    rows = Counter(zip(found["t_left"].to_pylist(), found["t_right"].to_pylist(), strict=True))
    assert rows == Counter(
        (a, b)
        for a in range(ROWS)
        for b in range(max(a - 8, 0), min(a + 9, ROWS))
        if wanted[a] == wanted[b] != "None"
    )
    assert "plan:" in matwin.explain_join(*sides(kind, "memory"), best=False, **asked)
    if way == "memory":
        given = [pa.Table.from_batches(batches(kind, ROWS))] * 2
        assert matwin.verify(*given, best=False, on={"t": 8}, by="v").is_equal
        streams = dict(zip("ab", given, strict=True))
        assert matwin.verify_window_join(streams, time="t", windows=8, by="v").is_equal
        asof = matwin.asof_join(*given, on="t", by="v").to_arrow()
        same = pc.equal(asof["t"], asof["t_right"]).fill_null(False).to_pylist()
        assert same == [wanted[at] != "None" for at in range(ROWS)]


@pytest.mark.parametrize("kind", [k for k in LEAVES if not pa.types.is_null(k)], ids=str)
def test_a_column_of_nulls_goes_with_every_key(kind: pa.DataType) -> None:
    typed = pa.Table.from_batches(batches(kind, 20))
    empty = pa.table({"t": range(20), "v": pa.nulls(20)})
    for left, right in ((typed, empty), (empty, typed), (empty, empty)):
        for how, rows in (("inner", 0), ("left", 20), ("right", 20), ("full", 40)):
            found = matwin.epsilon_join(left, right, on={"t": 1}, by="v", how=how).to_arrow()
            assert found.num_rows == rows
            assert matwin.verify(left, right, best=False, on={"t": 1}, by="v", how=how).is_equal
        streams = {"a": left, "b": right}
        assert matwin.window_join(streams, time="t", windows=1, by="v").to_arrow().num_rows == 0
