"""The joins over Spark Connect: a server, a client in another process, and no JVM to reach into.

A process has either a classic session or one of Spark Connect, so all of it runs in a child.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import JAVA, frame, in_order, needs_spark, prepare, same
from support import call_in_child

import matwin

PARTS = ("grpc", "grpc_status", "google.protobuf")


def lacking() -> list[str]:
    """What Spark Connect needs and isn't installed."""
    return [name for name in PARTS if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


pytestmark = [
    needs_spark,
    pytest.mark.spark,
    pytest.mark.skipif(bool(lacking()), reason=f"Spark Connect needs {', '.join(lacking())}"),
]


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({
        "t": rng.integers(0, 300, 80), "k": pa.array([str(n) for n in rng.integers(0, 3, 80)]),
        "x": rng.random(80), "at": pa.array(rng.integers(0, 10**9, 80), pa.timestamp("us", "UTC")),
    })  # fmt: skip


def joins() -> dict[str, Any]:
    """Ask all kinds of joins over a connection; how many rows each has found."""
    prepare()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        return _asked(session)
    finally:
        session.stop()


def _asked(session: Any) -> dict[str, Any]:
    left, right = table(1), table(2)
    frames = frame(session, left), frame(session, right)
    found: dict[str, Any] = {"client": type(frames[0]).__module__}
    questions: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("epsilon_join", {"on": {"t": 3}, "how": "full", "by": "k"}, {"strips": [100, 200]}),
        ("epsilon_join", {"on": {"at": "100s"}, "how": "semi"}, {"ship": "partial", "strips": 3}),
        ("bestmatch_join", {"on": {"t": 5, "x": 0.3}, "how": "left", "distances": True}, {}),
        ("bestmatch_join", {"on": {"t": 5, "x": None}, "how": "inner"}, {"strips": [150]}),
    ]
    for number, (join, asked, options) in enumerate(questions):
        got = getattr(matwin.spark, join)(*frames, **asked, **options)
        found[f"{join} {number}"] = same(got, getattr(matwin, join)(left, right, **asked))
    last = matwin.spark.asof_join(*frames, on="t", by=["k"])
    found["asof_join"] = same(last, matwin.asof_join(left, in_order(right, "t"), on="t", by="k"))
    both = matwin.spark.asof_join(*frames, on="t", direction="nearest", strips=[100, 200])
    again = matwin.asof_join(left, in_order(right, "t"), on="t", direction="nearest")
    found["nearest"] = same(both, again)
    tables = {"a": left, "b": right, "c": left}
    streams = {"a": frames[0], "b": frames[1], "c": frames[0]}
    asked = {"time": "t", "windows": {("a", "b"): 4, ("b", "c"): matwin.then(3)}, "by": "k"}
    got = matwin.spark.window_join(streams, **asked, strips=[90, 180])
    found["window_join"] = same(got, matwin.window_join(tables, **asked))
    drawn = session.range(200).selectExpr("id", "CAST(rand() * 500 AS LONG) AS x")
    read = matwin.spark.epsilon_join(
        drawn, drawn, on={"x": 1}, how="left", strips=[250], ship="partial"
    )
    ids = read.toArrow()["id_left"].to_pylist()  # each reading draws anew, unless it is pinned
    found["random"] = len(set(ids)) == 200 and len(ids)
    found["explained"] = matwin.spark.explain(matwin.spark.epsilon_join, *frames, on={"t": 3})
    try:
        matwin.spark.epsilon_join(frames[0], right, on={"t": 3})
    except matwin.InputError as e:
        found["refused"] = str(e)
    return found


def test_all_joins_over_a_connection() -> None:
    found = call_in_child(joins)
    assert "connect" in found.pop("client")
    assert "right: a Table is no Spark DataFrame" in found.pop("refused")
    assert "epsilon_join" in found.pop("explained")
    assert len(found) == 8
    assert all(rows > 0 for rows in found.values()), found
