"""Three forms against a plain list of rows, over random sequences of operations.

Pages are small and the budget is the smallest there is, so that runs spill, merge and are read back
all the time.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from matwin.storage import (
    BudgetError,
    InputError,
    MemoryPageFile,
    Store,
    StoreError,
    Window,
    smallest_budget,
)
from matwin.storage.columns import order_key
from matwin.storage.materialize import FORMS, SlabWindow

PAGE = 4096
MEMORY = smallest_budget(PAGE)

ORDERS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-40, 40), 7),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 40), 5),
    "float64": (pa.float64(), st.floats() | st.floats(-20, 20), 0.5),
    "float32": (pa.float32(), st.floats(width=32), 1.5),
    "timestamp": (
        pa.timestamp("ns", tz="UTC"),
        st.integers(-(2**62), 2**62) | st.integers(-40, 40),
        "10ns",
    ),
    "date": (pa.date32(), st.integers(-1000, 1000), "3d"),
}
X = st.none() | st.floats() | st.floats(-3, 3)
BASE = st.integers(0, 2**31)


def rows_strategy(order: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    usual = order.filter(lambda value: value == value)
    place = st.one_of(usual, usual, usual, usual, order, st.none())
    row = st.tuples(place, X, st.sampled_from(["a", "b", None, "long " * 30]))
    return st.lists(row, max_size=12)


def spread(rows: list[tuple[Any, ...]], times: int, first: int) -> list[tuple[Any, ...]]:
    """Many rows out of a few, told apart by a serial number."""
    return [(*row, first + i) for i, row in enumerate(rows * times)]


def bag(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


def is_below(value: Any, bound: Any) -> bool:
    return value is not None and value < bound


class WindowsAgree(RuleBasedStateMachine):
    """All forms hold what the model holds, whatever is done to them."""

    @initialize(order=st.sampled_from(sorted(ORDERS)), by=st.sampled_from([None, "key"]))
    def start(self, order: str, by: str | None) -> None:
        data_type, values, epsilon = ORDERS[order]
        self.values = values
        self.rows = rows_strategy(values)
        self.schema = pa.schema(
            [("t", data_type), ("x", pa.float64()), ("key", pa.string()), ("id", pa.int64())]
        )
        self.storage_type = pa.int64() if order == "timestamp" else pa.int32()
        self.by, self.on = by, {"t": epsilon, "x": 1.0}
        self.model: list[tuple[Any, ...]] = []
        self.committed: list[tuple[Any, ...]] = []
        self.serial = 0
        self.folder = tempfile.TemporaryDirectory()
        self.files = {form: MemoryPageFile(page_size=PAGE) for form in FORMS}
        self.open()

    def open(self) -> None:
        self.stores: dict[str, Store] = {}
        for form in FORMS:
            if form == "grid":  # the twin takes turns with the real file
                self.stores[form] = Store(memory=MEMORY, file=self.files[form])
            else:
                path = Path(self.folder.name) / form
                self.stores[form] = Store(path, memory=MEMORY, page_size=PAGE)
        self.windows = {
            form: store.window("w", self.schema, on=self.on, by=self.by, materialize=form)
            for form, store in self.stores.items()
        }

    def physical(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) or [[], [], [], []]
        t_type = self.schema.field("t").type
        if pa.types.is_temporal(t_type):
            t = pa.array(columns[0], self.storage_type).cast(t_type)
        else:
            t = pa.array(columns[0], t_type)
        rest = [
            pa.array(c, f.type) for c, f in zip(columns[1:], list(self.schema)[1:], strict=True)
        ]
        return pa.RecordBatch.from_arrays([t, *rest], schema=self.schema)

    def found(self, window: Window) -> list[tuple[Any, ...]]:
        rows = []
        for batch in window.scan():
            assert batch.schema == self.schema
            columns = batch.columns
            if pa.types.is_temporal(columns[0].type):
                columns[0] = columns[0].cast(self.storage_type)
            rows += list(zip(*(column.to_pylist() for column in columns), strict=True))
        return rows

    @rule(data=st.data(), times=st.sampled_from([1, 1, 5, 60]))
    def append(self, data: st.DataObject, times: int) -> None:
        rows = spread(data.draw(self.rows), times, self.serial)
        self.serial += len(rows)
        self.model += rows
        for window in self.windows.values():
            window.append(self.physical(rows))

    @rule(data=st.data(), times=st.sampled_from([1, 5, 60]), is_bad=st.booleans(),
          is_to_merge=st.booleans())  # fmt: skip
    def add_run(self, data: st.DataObject, times: int, is_bad: bool, is_to_merge: bool) -> None:
        """A run of its own in the form of runs: all rows or none; the others take them as usual."""
        rows = spread(data.draw(self.rows), times, self.serial)
        window = self.windows["slab"]
        assert isinstance(window, SlabWindow)
        before = {ref.page_id for ref in window.pages()}
        if is_bad:
            with pytest.raises(InputError, match="columns missing"):
                window.add_run(self.physical(rows).drop_columns(["x"]))
            assert {ref.page_id for ref in window.pages()} == before
            return
        refs = window.add_run(self.physical(rows), is_to_merge=is_to_merge)
        assert sum(ref.rows for ref in refs) == len(rows)
        assert not before & {ref.page_id for ref in refs}
        assert {ref.page_id for ref in refs} <= {ref.page_id for ref in window.pages()}
        ids = []
        for ref in refs:
            with window.read(ref) as page:
                ids += page["id"].to_pylist()
        assert sorted(ids) == [row[-1] for row in rows]
        self.serial += len(rows)
        self.model += rows
        for form, other in self.windows.items():
            if form != "slab":
                other.append(self.physical(rows))

    @rule(back=st.integers(0, 9))
    def merge_runs(self, back: int) -> None:
        """The newest runs become one, whatever has expired of them."""
        window = self.windows["slab"]
        assert isinstance(window, SlabWindow)
        before = {ref.page_id for ref in window.pages()}
        refs = window.merge_from(window.next_run - back)
        assert len({ref.run for ref in refs}) <= 1
        assert {ref.page_id for ref in refs} <= {ref.page_id for ref in window.pages()}
        assert before or not refs

    @rule()
    def compact(self) -> None:
        window = self.windows["slab"]
        assert isinstance(window, SlabWindow)
        window.settle()
        window.compact()

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        present = sorted({row[0] for row in self.model if row[0] is not None and row[0] == row[0]})
        anywhere = self.values.filter(lambda value: value == value)
        bound = data.draw(st.sampled_from(present) | anywhere if present else anywhere)
        self.model = [row for row in self.model if not is_below(row[0], bound)]
        for window in self.windows.values():
            window.expire(below=self.moment(bound))

    def moment(self, bound: Any) -> Any:
        """A bound as a user gives it: of times, a time."""
        t_type = self.schema.field("t").type
        if not pa.types.is_temporal(t_type):
            return bound
        return pa.array([bound], self.storage_type).cast(t_type)[0]

    @rule(data=st.data())
    def first_key(self, data: st.DataObject) -> None:
        keys = order_key(self.physical(self.model).column("t")).tolist()
        near = st.sampled_from(keys) if keys else st.nothing()
        at_least = data.draw(near | near.map(lambda key: key + 1) | st.integers(-(2**63), 2**63))
        expected = min((key for key in keys if key >= at_least), default=None)
        for form, window in self.windows.items():
            assert window.first_key(at_least) == expected, form

    @rule()
    def settle(self) -> None:
        for window in self.windows.values():
            window.settle()

    @rule()
    def commit(self) -> None:
        for store in self.stores.values():
            store.commit()
        self.committed = list(self.model)

    @rule()
    def reopen(self) -> None:
        for store in self.stores.values():
            store.close()
        self.open()
        self.model = list(self.committed)

    @rule()
    def compare(self) -> None:
        expected = bag(self.model)
        for form, window in self.windows.items():
            assert bag(self.found(window)) == expected, form
            assert window.count() == len(self.model), form

    @rule()
    def pages_are_in_order(self) -> None:
        for window in self.windows.values():
            for ref in window.pages():
                with self.stores[window.form].pool.pin(ref.page_id) as page:
                    assert page.page.fence == ref.fence
                    assert page.page.rows == ref.rows == page.batch.num_rows
                    keys = list(zip(*(k.tolist() for k in window.grid.sort_keys(page.batch))))  # noqa: B905
                    assert keys == sorted(keys)
                    assert keys[0][:-1] == ref.fence.first
                    assert keys[-1][:-1] == ref.fence.last
                    cells = [key[:-1] for key in keys]
                    starts = [i for i, c in enumerate(cells) if i == 0 or cells[i - 1] != c]
                    assert page.page.starts.tolist() == starts

    @invariant()
    def invariants_hold(self) -> None:
        for store in getattr(self, "stores", {}).values():
            store.check()

    def teardown(self) -> None:
        for store in getattr(self, "stores", {}).values():
            store.close()
        if hasattr(self, "folder"):
            self.folder.cleanup()


WindowsAgree.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestWindowsAgree = WindowsAgree.TestCase


PAYLOAD = pa.schema(
    [
        ("t", pa.int64()),
        ("text", pa.string()),
        ("list", pa.list_(pa.string())),
        ("price", pa.decimal128(30, 4)),
        ("at", pa.timestamp("us", tz="America/New_York")),
        ("nothing", pa.null()),
        ("flag", pa.bool_()),
        ("pair", pa.struct([("a", pa.int8()), ("b", pa.binary())])),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("coded", pa.dictionary(pa.int8(), pa.string())),
        ("runs", pa.run_end_encoded(pa.int32(), pa.int64())),
        ("view", pa.string_view()),
        ("half", pa.float16()),
        ("fixed", pa.binary(3)),
        ("time", pa.time64("ns")),
        ("big", pa.large_string()),
    ]
)


def payload(rows: int) -> pa.RecordBatch:
    def column(make: Any, data_type: pa.DataType) -> pa.Array:
        return pa.array([None if i % 5 == 4 else make(i) for i in range(rows)], data_type)

    makers: dict[str, Any] = {
        "t": lambda i: (i * 37) % rows,
        "text": lambda i: "é" * (i % 17),
        "list": lambda i: [str(i), None][: i % 3],
        "price": lambda i: decimal.Decimal(i) / 4,
        "at": lambda i: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
        "nothing": lambda i: None,
        "flag": lambda i: i % 2 == 0,
        "pair": lambda i: {"a": i % 100, "b": b"x" * (i % 4)},
        "map": lambda i: [("k", i)],
        "half": lambda i: float(i % 50),
        "fixed": lambda i: b"abc",
        "time": lambda i: i * 1000,
        "big": lambda i: f"row {i}",
        "view": lambda i: f"a view of row {i}",
        "coded": lambda i: f"code {i % 9}",
        "runs": lambda i: i // 10,
    }
    columns = []
    for field in PAYLOAD:
        if pa.types.is_run_end_encoded(field.type):
            plain = column(makers[field.name], field.type.value_type)
            columns.append(pa.compute.run_end_encode(plain, field.type.run_end_type))
        else:
            columns.append(column(makers[field.name], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=PAYLOAD)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_any_payload_travels_unchanged(form: str, tmp_path: Path) -> None:
    batch = payload(800)
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", PAYLOAD, on={"t": 50}, materialize=form)
        window.append(batch)
        window.append(pa.Table.from_batches([payload(100)]))
        store.commit()
        found = [row for b in window.scan() for row in b.to_pylist()]
        assert store.pool.counters.writes > 0
    assert bag_of(found) == bag_of(batch.to_pylist() + payload(100).to_pylist())
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", PAYLOAD, on={"t": 50})
        assert window.form == form
        assert bag_of(r for b in window.scan() for r in b.to_pylist()) == bag_of(found)


def bag_of(rows: Any) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_rows_larger_than_a_page(form: str) -> None:
    schema = pa.schema([("t", pa.int64()), ("text", pa.string())])
    rows = {"t": [3, 1, 2], "text": ["x" * 10_000, "y", "z" * 20_000]}
    with Store(memory="1MiB", page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": 1}, materialize=form)
        window.append(pa.record_batch(rows, schema=schema))
        store.commit()
        for ref in window.pages():
            store.pool.evict(ref.page_id)
        found = [row for batch in window.scan() for row in batch.to_pylist()]
    assert bag_of(found) == bag_of(pa.table(rows).to_pylist())


@given(st.lists(st.integers(-5, 5) | st.none(), max_size=40), st.booleans())
def test_one_row_none_and_all_equal(values: list[int | None], is_same: bool) -> None:
    values = [values[0]] * len(values) if is_same and values else values
    schema = pa.schema([("t", pa.int64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        for form in FORMS:
            window = store.window(form, schema, on={"t": 2}, materialize=form)
            window.append(pa.record_batch({"t": pa.array(values, pa.int64())}))
            found = [row["t"] for batch in window.scan() for row in batch.to_pylist()]
            assert Counter(found) == Counter(values)
        assert store.file.file_bytes == 0


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("bound", [0, 1, 499, 500, 501, 998, 999])
def test_the_bound_itself_stays(form: str, bound: int) -> None:
    schema = pa.schema([("t", pa.int64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": 50}, materialize=form)
        window.append(pa.record_batch({"t": range(500)}))
        window.settle()
        window.append(pa.record_batch({"t": range(500, 1000)}))
        window.expire(below=bound)
        found = sorted(row for batch in window.scan() for row in batch["t"].to_pylist())
        assert found == list(range(bound, 1000))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_window_that_changes_under_a_scan(form: str) -> None:
    schema = pa.schema([("t", pa.int64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": 50}, materialize=form)
        window.append(pa.record_batch({"t": range(5000)}))
        scan = window.scan()
        first = next(scan)["t"].to_pylist()
        window.expire(below=4990)
        assert first[0] == 0  # what was handed out stays as it is
        store.check()
        with pytest.raises(InputError, match="'w' changed"):
            list(scan)
        store.check()
        assert window.count() == 10


def test_bad_rows_and_bounds_are_refused_and_change_nothing() -> None:
    schema = pa.schema([("t", pa.timestamp("s")), ("x", pa.float64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": "1min"})
        window.append(
            pa.record_batch([pa.array([1, 2], pa.timestamp("s")), [0.5, 1.5]], schema=schema)
        )
        for bad in [
            pa.record_batch({"t": pa.array([1], pa.timestamp("s"))}),
            pa.record_batch({"t": pa.array([1], pa.timestamp("ms")), "x": [1.0]}),
        ]:
            with pytest.raises(InputError, match="'w'"):
                window.append(bad)
        aware = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        for bound in [None, math.nan, "soon", aware, 2**70, pa.scalar(None, pa.timestamp("s"))]:
            with pytest.raises(InputError, match="'t'"):
                window.expire(below=bound)
        window.expire(below=dt.datetime(1970, 1, 1, 0, 0, 2))
        assert window.count() == 1


def test_a_store_refuses_what_does_not_fit_together(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
    other = pa.schema([("t", pa.int64()), ("x", pa.int32())])
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        store.window("w", schema, on={"t": 5}, materialize="slab")
        store.commit()
        for options in [{"on": {"t": 5}}, {"on": {"t": 5}, "materialize": "heap"},
                        {"on": {"t": 5}, "arrival": "sideways"}]:  # fmt: skip
            with pytest.raises(InputError):
                store.window("w" if len(options) == 1 else "v", schema, **options)
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        assert store.saved == ["w"]
        for columns, options in [
            (other, {"on": {"t": 5}}),
            (schema, {"on": {"t": 6}}),
            (schema, {"on": {"t": 5}, "materialize": "grid"}),
        ]:
            with pytest.raises(InputError, match="was kept"):
                store.window("w", columns, **options)
        assert store.window("w", schema, on={"t": 5}).form == "slab"


def test_words_that_make_no_sense_and_a_closed_store() -> None:
    schema = pa.schema([("t", pa.int64()), ("l", pa.list_(pa.int8()))])
    batch = pa.record_batch({"t": [1], "l": pa.array([[1]], pa.list_(pa.int8()))})
    store = Store(memory=MEMORY, page_size=PAGE)
    window = store.window("w", schema, on={"t": 1})
    for act in (
        lambda: store.drop("nobody"),
        lambda: store.window(7, schema, on={"t": 1}),  # type: ignore[arg-type]
        lambda: store.window("v", schema, on={"t": 1}, by="l"),
        lambda: window.append([1, 2]),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError):
            act()
    window.append(batch)
    store.close()
    store.close()
    for act in (lambda: window.append(batch), window.count, store.commit):
        with pytest.raises(StoreError, match="closed"):
            act()


def test_windows_that_are_not_opened_again_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64())])
    for _ in range(3):
        with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
            if not store.saved:
                store.window("w", schema, on={"t": 5}).append(pa.record_batch({"t": [1, 2]}))
            store.window(f"other {store.step}", schema, on={"t": 5})
            store.commit()
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        assert store.window("w", schema, on={"t": 5}).count() == 2
        store.drop("w")
        store.commit()
    with Store(tmp_path / "s", memory=MEMORY, page_size=PAGE) as store:
        assert "w" not in store.saved
        assert store.file.page_ids() == []


@pytest.mark.parametrize(
    ("data_type", "bound", "left"),
    [
        (pa.timestamp("ns"), pa.scalar(5, pa.timestamp("ns")), 5),
        (pa.duration("ns"), pa.scalar(5, pa.duration("ns")), 5),
        (pa.int8(), 128, 0),
        (pa.int64(), decimal.Decimal("2.5"), 7),
        (pa.float64(), pa.scalar(2.5), 7),
        (pa.int64(), pa.scalar(4, pa.int8()), 6),
        (pa.date32(), dt.datetime(1970, 1, 5, 12), 5),
        (pa.date32(), dt.date(1970, 1, 5), 6),
    ],
)
def test_bounds_of_every_kind(data_type: pa.DataType, bound: object, left: int) -> None:
    storage = pa.int32() if data_type == pa.date32() else pa.int64()
    t = pa.array(range(10), storage).cast(data_type)
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", pa.schema([("t", data_type)]), on={"t": None})
        window.append(pa.record_batch({"t": t}))
        window.settle()
        window.expire(below=bound)
        assert window.count() == left
        store.check()


def test_nan_in_any_dress_is_no_bound() -> None:
    import numpy as np

    schema = pa.schema([("t", pa.float64()), ("n", pa.int64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        for name in schema.names:
            window = store.window(name, schema, on={name: 1})
            window.append(pa.record_batch([[1.0, 2.0], [1, 2]], schema=schema))
            for nan in (math.nan, np.float32("nan"), np.float64("nan"), pa.scalar(math.nan)):
                with pytest.raises(InputError, match=name):
                    window.expire(below=nan)
            assert window.count() == 2


def test_encoded_columns_with_many_values() -> None:
    schema = pa.schema(
        [
            ("t", pa.int64()),
            ("small", pa.dictionary(pa.int8(), pa.string())),
            ("number", pa.dictionary(pa.int8(), pa.int64())),
            ("runs", pa.run_end_encoded(pa.int16(), pa.int64())),
        ]
    )
    rows = []
    with Store(memory="8MiB", page_size="64KiB") as store:
        window = store.window("w", schema, on={"t": 1000})
        for first in range(0, 900, 100):
            t = list(range(first, first + 100))
            values = pa.array([f"v{i}" for i in t]).dictionary_encode().cast(schema.field(1).type)
            numbers = pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(t))
            runs = pa.compute.run_end_encode(pa.array(t), pa.int16())
            batch = pa.RecordBatch.from_arrays([pa.array(t), values, numbers, runs], schema=schema)
            rows += batch.to_pylist()
            window.append(batch)
        assert bag_of(row for b in window.scan() for row in b.to_pylist()) == bag_of(rows)


def test_types_that_no_page_can_hold_are_refused_at_once() -> None:
    for bad in (
        pa.sparse_union([pa.field("v", pa.string_view())]),
        pa.struct([("u", pa.dense_union([pa.field("d", pa.dictionary(pa.int8(), pa.int8()))]))]),
    ):
        with Store(memory=MEMORY, page_size=PAGE) as store, pytest.raises(InputError, match="'a'"):
            store.window("w", pa.schema([("t", pa.int64()), ("a", bad)]), on={"t": 1})


def test_encodings_inside_others_come_back_plain() -> None:
    kind = pa.list_(pa.struct([("d", pa.dictionary(pa.int8(), pa.string_view()))]))
    schema = pa.schema([("t", pa.int64()), ("a", kind)])
    coded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.int8()), pa.array(["x", "y"], pa.string_view())
    )
    parts = pa.StructArray.from_arrays([coded], fields=[kind.value_type.field(0)])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), parts, type=kind)
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": 1})
        window.append(pa.RecordBatch.from_arrays([pa.array([1, 2]), lists], schema=schema))
        found = pa.Table.from_batches(list(window.scan()))
    assert found["a"].type == pa.list_(pa.struct([("d", pa.large_string())]))
    assert found["a"].to_pylist() == [[{"d": "x"}, {"d": "y"}], [{"d": None}]]


def test_a_row_too_large_names_a_budget_that_works() -> None:
    schema = pa.schema([("t", pa.int64()), ("text", pa.string())])
    batch = pa.record_batch([[1, 2, 3], ["x" * 50_000, "y" * 60_000, "z" * 70_000]], schema=schema)
    with (
        Store(memory=MEMORY, page_size=PAGE) as store,
        pytest.raises(BudgetError, match="smallest that works") as caught,
    ):
        store.window("w", schema, on={"t": 1}).append(batch.slice(2))
    for form in FORMS:
        with Store(memory=caught.value.smallest_bytes, page_size=PAGE) as store:
            window = store.window("w", schema, on={"t": 1}, materialize=form)
            for _ in range(12):
                window.append(batch)
                window.settle()
            assert window.count() == 36
            store.check()


def test_a_malformed_batch_is_refused() -> None:
    schema = pa.schema([("t", pa.int64()), ("text", pa.string())])
    offsets = pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00")
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        window = store.window("w", schema, on={"t": 1})
        with pytest.raises(InputError, match="malformed"):
            window.append(pa.RecordBatch.from_arrays([pa.array([1]), text], schema=schema))
        assert window.count() == 0


def test_auto_weighs_the_steps_of_unsorted_rows() -> None:
    schema = pa.schema([("t", pa.int64())])
    with Store(memory=MEMORY, page_size=PAGE) as store:
        few = store.window("few", schema, on={"t": 1}, arrival="unsorted", live_pages=1000,
                           step_pages=4, step_cells=20)  # fmt: skip
        many = store.window("many", schema, on={"t": 1}, arrival="unsorted", live_pages=10,
                            step_pages=4, step_cells=2000)  # fmt: skip
        late = store.window("late", schema, on={"t": 1}, arrival="late")
        assert (few.form, many.form, late.form) == ("grid", "standard", "slab")
        assert "2008" in few.reason
