"""Queries over windows of chunks, each epoch against plain loops over the rows of its chunks.

stream   0 1 2 │ 3 4 5 │ 6 7 8 │ 9          cut.count(3)
epoch 3  └─ last=3 ───────────┘
                └─ last=2 ────┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin.operators.epochs import front
from matwin.storage.errors import InputError

chunks = matwin.chunks
Row = dict[str, Any]
EPS = 4


@st.composite
def rows(draw: Any, most: int = 14) -> list[Row]:
    number = st.one_of(st.integers(0, 12), st.none())
    found = draw(st.lists(st.tuples(number, st.integers(0, 1)), max_size=most))
    return [{"t": t, "k": k, "id": i} for i, (t, k) in enumerate(found)]


SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])


def table(data: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(data, SCHEMA)


@st.composite
def worlds(draw: Any, names: str = "ab") -> dict[str, Any]:
    return {
        "streams": {name: draw(rows()) for name in names},
        "size": draw(st.integers(1, 5)),
        "keep": {name: draw(st.integers(1, 3)) for name in names},
        "on pages": draw(st.booleans()),
    }


def epochs_of(world: dict[str, Any]) -> int:
    return max(-(-len(data) // world["size"]) for data in world["streams"].values())


def part(world: dict[str, Any], name: str, epoch: int, last: int | None = None) -> list[Row]:
    """The rows of the last chunks, as a list that was cut by hand."""
    size = world["size"]
    last = world["keep"][name] if last is None else last
    return world["streams"][name][max(epoch - last, 0) * size : epoch * size]


def chunk_of(world: dict[str, Any], row: Row) -> int:
    return row["id"] // world["size"] + 1


def run(world: dict[str, Any], query: Any, **asked: Any) -> list[pa.Table]:
    with pytest.MonkeyPatch.context() as patch:
        if world["on pages"]:
            patch.setattr(front, "FRESH_SHARE", 2**60)
        epochs = matwin.continuous_query(
            query, {name: table(data) for name, data in world["streams"].items()},
            cut=matwin.cut.count(world["size"]), keep=world["keep"], memory="1MiB", **asked,
        )  # fmt: skip
        return [epoch.result.to_arrow() for epoch in epochs]


def bag(found: pa.Table, names: Sequence[str]) -> Counter[Any]:
    return Counter(zip(*(found[name].to_pylist() for name in names), strict=True))


def near(x: Row, y: Row) -> bool:
    known = x["t"] is not None and y["t"] is not None
    return known and abs(x["t"] - y["t"]) <= EPS and x["k"] == y["k"]


IDS = ("id_left", "id_right")
LASTS = st.one_of(st.none(), st.integers(1, 3))


def epsilon(left: Any, right: Any, **more: Any) -> partial[Any]:
    return partial(matwin.epsilon_join, left, right, on={"t": EPS}, by="k", threads=1, **more)


@pytest.mark.proof("epochs: queries against plain loops")
@given(
    world=worlds(), lasts=st.tuples(LASTS, LASTS), how=st.sampled_from(["inner", "left", "semi"])
)
def test_all_pairs(world: dict[str, Any], lasts: tuple[Any, Any], how: str) -> None:
    tried()
    m, n = (min(x, k) if x else x for x, k in zip(lasts, world["keep"].values(), strict=True))
    found = run(world, epsilon(chunks("a", last=m), chunks("b", last=n), how=how))
    assert len(found) == epochs_of(world)
    for epoch, result in enumerate(found, 1):
        left, right = part(world, "a", epoch, m), part(world, "b", epoch, n)
        matches = [(x["id"], y["id"]) for x in left for y in right if near(x, y)]
        alone = [x["id"] for x in left if not any(near(x, y) for y in right)]
        if how == "semi":
            assert sorted(result["id"].to_pylist()) == sorted({x for x, _ in matches})
        else:
            kept = [(i, None) for i in alone] if how == "left" else []
            assert bag(result, IDS) == Counter(matches + kept)


@pytest.mark.proof("epochs: queries against plain loops")
@given(world=worlds(), lasts=st.tuples(LASTS, LASTS))
def test_new_pairs(world: dict[str, Any], lasts: tuple[Any, Any]) -> None:
    """Each pair in the first epoch that has both, which is that of the younger chunk."""
    tried()
    m, n = (min(x, k) if x else x for x, k in zip(lasts, world["keep"].values(), strict=True))
    found = run(world, epsilon(chunks("a", last=m), chunks("b", last=n)), pairs="new")
    assert len(found) == epochs_of(world)
    for epoch, result in enumerate(found, 1):
        left, right = part(world, "a", epoch, m), part(world, "b", epoch, n)
        assert bag(result, IDS) == Counter(
            (x["id"], y["id"]) for x in left for y in right
            if near(x, y) and epoch in (chunk_of(world, x), chunk_of(world, y))
        )  # fmt: skip


@pytest.mark.proof("epochs: queries against plain loops")
@given(
    world=worlds("a"),
    m=st.integers(1, 3),
    n=st.integers(1, 3),
    pairs=st.sampled_from(["all", "new"]),
)
def test_a_stream_with_itself(world: dict[str, Any], m: int, n: int, pairs: Any) -> None:
    tried()
    m, n = (min(x, world["keep"]["a"]) for x in (m, n))
    found = run(world, epsilon(chunks("a", last=m), chunks("a", last=n)), pairs=pairs)
    for epoch, result in enumerate(found, 1):
        assert bag(result, IDS) == Counter(
            (x["id"], y["id"])
            for x in part(world, "a", epoch, m) for y in part(world, "a", epoch, n)
            if near(x, y) and (pairs == "all" or epoch in (chunk_of(world, x), chunk_of(world, y)))
        )  # fmt: skip


@pytest.mark.proof("epochs: queries against plain loops")
@settings(max_examples=campaign(25, 1000))
@given(world=worlds("abc"), pairs=st.sampled_from(["all", "new"]))
def test_three_streams(world: dict[str, Any], pairs: Any) -> None:
    tried()
    query = partial(
        matwin.window_join, {name: chunks(name) for name in "abc"}, time="t", windows=EPS, by="k",
        threads=1,
    )  # fmt: skip
    found = run(world, query, pairs=pairs)
    assert len(found) == epochs_of(world)
    for epoch, result in enumerate(found, 1):
        expected = Counter(
            (x["id"], y["id"], z["id"])
            for x in part(world, "a", epoch) for y in part(world, "b", epoch) if near(x, y)
            for z in part(world, "c", epoch) if near(x, z) and near(y, z)
            if pairs == "all" or epoch in [chunk_of(world, row) for row in (x, y, z)]
        )  # fmt: skip
        assert bag(result, ("a_id", "b_id", "c_id")) == expected


@pytest.mark.proof("epochs: queries against plain loops")
@given(world=worlds())
def test_best_matches(world: dict[str, Any]) -> None:
    tried()
    query = partial(
        matwin.bestmatch_join, chunks("a", last=1), chunks("b"), on={"t": EPS}, by="k", threads=1
    )
    for pairs in ("all", "new"):
        for epoch, result in enumerate(run(world, query, pairs=pairs), 1):
            expected: Counter[Any] = Counter()
            for x in part(world, "a", epoch, 1):
                matches = [y for y in part(world, "b", epoch) if near(x, y)]
                best = min((abs(x["t"] - y["t"]) for y in matches), default=None)
                expected.update((x["id"], y["id"]) for y in matches if abs(x["t"] - y["t"]) == best)
            assert bag(result, IDS) == expected


@pytest.mark.proof("epochs: queries against plain loops")
@given(world=worlds())
def test_as_of(world: dict[str, Any]) -> None:
    tried()
    query = partial(matwin.asof_join, chunks("a", last=1), chunks("b"), on="t", by="k", threads=1)
    for epoch, result in enumerate(run(world, query), 1):
        expected: Counter[Any] = Counter()
        for x in part(world, "a", epoch, 1):
            before = [y for y in part(world, "b", epoch) if x["t"] is not None
                      and y["t"] is not None and y["t"] <= x["t"] and y["k"] == x["k"]]  # fmt: skip
            last = max(before, key=lambda y: (y["t"], y["id"]), default=None)
            expected[x["id"], last and last["id"]] += 1
        assert bag(result, ("id", "id_right")) == expected


@pytest.mark.proof("epochs: queries against plain loops")
@given(world=worlds("a"), fixed=rows())
def test_static_tables(world: dict[str, Any], fixed: list[Row]) -> None:
    tried()
    for pairs in ("all", "new"):
        found = run(
            world, epsilon(chunks("a"), chunks("f")), tables={"f": table(fixed)}, pairs=pairs
        )
        for epoch, result in enumerate(found, 1):
            assert bag(result, IDS) == Counter(
                (x["id"], y["id"]) for x in part(world, "a", epoch) for y in fixed
                if near(x, y) and (pairs == "all" or chunk_of(world, x) == epoch)
            )  # fmt: skip


SQL = """
    SELECT x.k, count(*) AS pairs, sum(x.t - y.t) AS apart, (SELECT count(*) FROM n) AS new
    FROM a AS x JOIN a AS y ON x.k = y.k AND x.id < y.id JOIN f ON f.id = x.k
    GROUP BY x.k
"""


@pytest.mark.proof("epochs: queries against plain loops")
@settings(max_examples=campaign(40, 1000))
@given(world=worlds("a"), fixed=rows(3))
def test_sql(world: dict[str, Any], fixed: list[Row]) -> None:
    """A stream that is named twice gives the same rows twice, also while its chunk is open."""
    tried()
    found = run(world, SQL, tables={"f": table(fixed)}, windows={"n": chunks("a", last=1)})
    assert len(found) == epochs_of(world)
    with duckdb.connect() as database:
        database.register("f", table(fixed))
        for epoch, result in enumerate(found, 1):
            database.register("a", table(part(world, "a", epoch)))
            database.register("n", table(part(world, "a", epoch, 1)))
            expected = database.sql(SQL).to_arrow_table()
            names = expected.schema.names
            assert bag(result, names) == bag(expected, names)


@pytest.mark.proof("epochs: queries against plain loops")
@given(world=worlds())
def test_functions_with_notes(world: dict[str, Any]) -> None:
    """Chunks scanned again and again, by part, while they are open; notes from epoch to epoch."""
    tried()
    taken: list[dict[str, Any]] = []

    def look(windows: Any) -> pa.Table:
        newest = [r for batch in windows.newest("a").scan(["id"]) for r in batch["id"].to_pylist()]
        windows.notes["seen"] = windows.notes.get("seen", 0) + len(newest)
        whole = {name: windows[name].to_arrow() for name in windows}
        taken.append(
            {"newest": newest, "old": windows.last("b", skip=1).to_arrow()["id"].to_pylist(),
             "two": windows.last("a", min(2, world["keep"]["a"])).to_arrow()["id"].to_pylist(),
             "seen": windows.notes["seen"]}
        )  # fmt: skip
        assert all(whole[n].equals(pa.table(windows[n])) for n in whole)
        for name in whole:
            assert whole[name].to_pylist() == part(world, name, windows.epoch)
        return whole["b"]

    found = run(world, look)
    for epoch, (result, told) in enumerate(zip(found, taken, strict=True), 1):
        assert result.to_pylist() == part(world, "b", epoch)
        two = part(world, "a", epoch, min(2, world["keep"]["a"]))
        assert told == {
            "newest": [r["id"] for r in part(world, "a", epoch, 1)],
            "old": [r["id"] for r in part(world, "b", epoch) if chunk_of(world, r) < epoch],
            "two": [r["id"] for r in two],
            "seen": min(epoch * world["size"], len(world["streams"]["a"])),
        }


def failing(message: str) -> Callable[[Any], Any]:
    def query(windows: Any) -> Any:
        raise RuntimeError(message)

    return query


def test_what_a_query_can_get_wrong() -> None:
    world = {"streams": {"a": [{"t": 1, "k": 1, "id": 0}]}, "size": 1, "keep": {"a": 1},
             "on pages": False}  # fmt: skip
    with pytest.raises(RuntimeError, match="mine"):
        run(world, failing("mine"))
    for query, words in (
        (lambda windows: None, "returned None for epoch 1"),
        (epsilon(chunks("a", last=2), chunks("a")), "only 1 are kept of 'a'"),
        (epsilon(chunks("x"), chunks("a")), "no stream or table 'x'"),
        (epsilon(table([]), table([])), "none of its sources"),
        ("SELECT 1; SELECT 2", "not one SELECT"),
        ("DELETE FROM a", "not one SELECT"),
        ("SELECT nobody FROM a", "nobody"),
        ("SELECT * FROM read_csv('/etc/passwd')", "can't be asked"),
        (7, "query is a int"),
    ):
        with pytest.raises(InputError, match=words):
            run(world, query)
