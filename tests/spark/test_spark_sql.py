"""The joins on Spark against Spark's own SQL on the same rows, real ones too.

Spark joins ranges by comparing all pairs of a key, so the questions are small or have keys.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sparks import cluster, frame, needs_spark, same

import matwin

pytestmark = [needs_spark, pytest.mark.spark]

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not REAL.exists(), reason="the real data are not here")
SECOND = 1_000_000


def view(name: str, table: pa.Table) -> Any:
    """The table as a frame that SQL knows by a name."""
    made = frame(cluster(), table)
    made.createOrReplaceTempView(name)
    return made


@cache
def made_up() -> tuple[Any, Any]:
    found = []
    for seed, name in enumerate(("l", "r")):
        rng = np.random.default_rng(seed)
        times = rng.integers(0, 5_000, 600).astype(float)
        table = pa.table({
            f"{name}t": pa.array(times, mask=rng.random(600) < 0.05).cast(pa.int64()),
            f"{name}k": pa.array(rng.integers(0, 4, 600), mask=rng.random(600) < 0.05),
            f"{name}i": range(600),
        })  # fmt: skip
        found.append(view(name, table))
    return found[0], found[1]


ON = {("lt", "rt"): (-20, 7)}
NEAR = "rt - lt between -20 and 7 and lk = rk"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_epsilon_joins(how: str) -> None:
    left, right = made_up()
    found = matwin.spark.epsilon_join(
        left, right, on=ON, by=[("lk", "rk")], how=how, strips=[1_000, 2_500, 4_000]
    )
    word = {"semi": "left semi", "anti": "left anti"}.get(how, how)
    assert same(found, cluster().sql(f"select * from l {word} join r on {NEAR}")) > 100


def test_the_best_of_each_row() -> None:
    left, right = made_up()
    found = matwin.spark.bestmatch_join(left, right, on=ON, by=[("lk", "rk")], strips=5)
    nearest = (
        f"select l.*, r.*, rank() over (partition by li order by abs(rt - lt)) place from l, r "
        f"where {NEAR}"
    )
    columns = "lt, lk, li, rt, rk, ri"
    assert same(found, cluster().sql(f"select {columns} from ({nearest}) where place = 1")) > 100


@cache
def real(name: str, columns: tuple[str, ...], rows: int) -> pa.Table:
    return pq.read_table(REAL / f"{name}.parquet", columns=list(columns)).slice(0, rows)


@needs_data
def test_readings_of_rooms() -> None:
    columns = ("t", "location", "node")
    warm = view("warm", real("room_climate/temperature", (*columns, "temperature"), 4_000))
    wet = view("wet", real("room_climate/humidity", (*columns, "humidity"), 4_000))
    found = matwin.spark.window_join(
        {"warm": warm, "wet": wet}, time="t", windows=2 * SECOND, by="location"
    )
    text = (
        "select warm.location, warm.t warm_t, warm.node warm_node, temperature warm_temperature, "
        "wet.t wet_t, wet.node wet_node, humidity wet_humidity from warm join wet "
        f"on warm.location = wet.location and abs(warm.t - wet.t) <= {2 * SECOND}"
    )
    assert same(found, cluster().sql(text)) > 4_000


@needs_data
def test_the_last_lookups_before_a_connection() -> None:
    """Logs as they came, with strings, nulls and ties: ε-join against SQL, best match embedded."""
    calm = 1_521_911_950 * SECOND
    logs = {}
    for name in ("ssl", "dns"):
        table = real(f"zeek_wrccdc/{name}", ("t", "id_orig_h", "uid"), 20_000)
        logs[name] = table.filter(pc.less(table["t"], calm)).slice(0, 4_000)
    ssl, dns = (view(name, table) for name, table in logs.items())
    asked: Any = {"on": {"t": (-10 * SECOND, 0)}, "by": "id_orig_h"}
    found = matwin.spark.epsilon_join(ssl, dns, **asked, strips=4)
    text = (
        "select ssl.t t_left, ssl.id_orig_h, ssl.uid uid_left, dns.t t_right, dns.uid uid_right "
        "from ssl join dns on ssl.id_orig_h = dns.id_orig_h "
        f"and dns.t - ssl.t between {-10 * SECOND} and 0"
    )
    assert same(found, cluster().sql(text)) > 1_000
    best = matwin.spark.bestmatch_join(ssl, dns, **asked, ship="partial", keep_unmatched=True)
    assert (
        same(best, matwin.bestmatch_join(logs["ssl"], logs["dns"], **asked, keep_unmatched=True))
        >= logs["ssl"].num_rows
    )


@needs_data
def test_bikes_that_come_and_go() -> None:
    """Minutes: many ties."""
    columns = ("t", "station", "bike_id")
    came = view("came", real("bikeshare14/arrivals", columns, 3_000))
    gone = view("gone", real("bikeshare14/departures", columns, 3_000))
    found = matwin.spark.epsilon_join(
        came, gone, on={"t": (0, 1_800 * SECOND)}, by="station", how="left", distances=True
    )
    text = (
        "select came.t t_left, came.station, came.bike_id bike_id_left, gone.t t_right, "
        "gone.bike_id bike_id_right, abs(gone.t - came.t) t_distance from came left join gone "
        f"on came.station = gone.station and gone.t - came.t between 0 and {1_800 * SECOND}"
    )
    assert same(found, cluster().sql(text)) > 3_000
