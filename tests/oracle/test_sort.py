"""External sort and scans against DuckDB, on random and on real tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.storage import MatwinError, Store, smallest_budget

REAL = Path(__file__).parents[3] / "shared" / "data"
SCHEMA = pa.schema([("t", pa.float64()), ("x", pa.int64()), ("text", pa.string())])


def ordered(table: pa.Table, order: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("source", table)
        return connection.sql(f"select * from source order by {order}").to_arrow_table()


@given(
    st.lists(
        st.tuples(st.none() | st.floats(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5)),
        max_size=50,
    ),
    st.sampled_from([1, 30]),
)
@settings(max_examples=50)
def test_by_the_order_attribute_as_duckdb_sorts(rows: list[Any], times: int) -> None:
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows * times], SCHEMA
    )
    with (
        Store(memory=smallest_budget(4096), page_size=4096) as store,
        store.sort(table.to_batches(max_chunksize=100), SCHEMA, on="t") as result,
    ):
        found = pa.Table.from_batches(result.batches(), SCHEMA)
        store.check()
    # DuckDB tells NaN and null apart, and both come last here in either order.
    expected = ordered(table, "t nulls last")["t"].to_pylist()
    assert [plain(v) for v in found["t"].to_pylist()] == [plain(v) for v in expected]
    assert bag(found) == bag(table)


def plain(value: float | None) -> float | None:
    return None if value is None or value != value else value + 0.0


def bag(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("file", "on", "by"),
    [
        ("zeek_wrccdc/dns_raw_order.parquet", {"t": 10_000_000}, "id_orig_h"),
        ("zeek_wrccdc/ssl_raw_order.parquet", {"t": None}, None),
        ("bikeshare14/trips.parquet", {"t_end": 1_800_000_000}, "bike_id"),
        ("room_climate/temperature.parquet", {"t": 4_000_000, "x": 1.8, "y": 1.8}, "location"),
    ],
)
def test_real_tables_into_grid_order(file: str, on: dict[str, Any], by: str | None) -> None:
    if not (REAL / file).exists():
        pytest.skip(f"the real data {file} is not beside the project")
    table = pq.read_table(REAL / file)
    with (
        Store(memory="4MiB", page_size="64KiB") as store,
        store.sort(table.to_batches(max_chunksize=20_000), table.schema, on=on, by=by) as result,
    ):
        found = pa.Table.from_batches(result.batches(), table.schema)
        store.check()
        assert store.pool.counters.writes > 0
    with duckdb.connect() as connection:
        connection.register("a", table)
        connection.register("b", found)
        for one, other in [("a", "b"), ("b", "a")]:
            query = f"select count(*) from (from {one} except all from {other})"
            assert connection.execute(query).fetchone() == (0,)
    check_grid_order(found, on, by)


def check_grid_order(found: pa.Table, on: dict[str, Any], by: str | None) -> None:
    """The cells ascend within each key, and the order attribute within each cell."""
    order = next(iter(on))
    cells = [
        f"floor({name} / {eps * (1 + 2**-20) if isinstance(eps, float) else eps})" if eps else "0"
        for name, eps in on.items()
    ]
    key = by or "0"
    with duckdb.connect() as connection:
        connection.register("found", found.append_column("n", pa.array(np.arange(len(found)))))
        columns = ", ".join(f"{cell} as c{i}" for i, cell in enumerate(cells))
        listed = ", ".join(f"c{i}" for i in range(len(cells)))
        out_of_order = connection.execute(
            f"with c as (select {key} as k, {columns}, {order} as o, n from found), "
            f"p as (select *, lead(row({listed}, o)) over (partition by k order by n) as after "
            f"from c) select count(*) from p where after is not null and row({listed}, o) > after"
        ).fetchone()
        assert out_of_order == (0,)


def test_a_source_that_fails_leaves_nothing_behind() -> None:
    def source() -> Any:
        yield pa.record_batch({"t": np.arange(10_000)})
        raise MatwinError("the source broke")

    schema = pa.schema([("t", pa.int64())])
    with Store(memory=smallest_budget(4096), page_size=4096) as store:
        with pytest.raises(MatwinError, match="broke"):
            store.sort(source(), schema, on="t")
        assert store.pool.windows == 0
        assert store.pool.frames == 0
        store.check()


def test_nothing_is_left_in_the_scratch_folder(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64())])
    batch = pa.record_batch({"t": np.arange(50_000)[::-1].copy()})
    with Store(memory=smallest_budget(4096), page_size=4096, scratch=tmp_path) as store:
        with store.sort([batch], schema, on={"t": 100}) as result:
            assert sum(batch.num_rows for batch in result.batches()) == 50_000
        assert store.file.file_bytes > 0
        assert list(tmp_path.iterdir()) == []
