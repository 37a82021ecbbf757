"""SQL over ten times its budget and more: `matwin.sql`, continuous queries and job files, with
DuckDB's part within the budget too, and its errors told as ours."""

from __future__ import annotations

import gc
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proofs import tried
from support import call_in_child, campaign, peak_begins_anew, resident, tmpfs

import matwin
from matwin.storage.errors import BudgetError, MatwinError, StoreError
from matwin.tools.cli import main

pytestmark = [pytest.mark.disk, pytest.mark.slow]

MB = 10**6
BESIDE = 120 * MB
PORTION = 100_000
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("s", pa.string()), ("v", pa.float64())])


def portion(number: int) -> pa.RecordBatch:
    """Rows of some 50 bytes, of which no two have the same k or s."""
    t = np.arange(number * PORTION, (number + 1) * PORTION)
    k = t * 2_654_435_761 % 2**40
    texts = pa.array(k).cast(pa.string())
    return pa.record_batch([t, k, texts, k / 7.0], schema=SCHEMA)


def rows(portions: int) -> Iterator[pa.RecordBatch]:
    return (portion(number) for number in range(portions))


def write_rows(folder: Path, portions: int) -> None:
    with pq.ParquetWriter(folder / f"{portions}.parquet", SCHEMA) as writer:
        for one in rows(portions):
            writer.write_batch(one)


TEXTS = {
    "distinct": "select count(*) as n, count(distinct k) as k, count(distinct s) as s from a",
    "sort": "select t, s from a order by k",
    "groups": "select k % 1000003 as g, count(*) as n, sum(v) as v from a group by 1",
    "unique": "select distinct s from a",
    "window": "select t, row_number() over (partition by k % 100 order by v) as r from a",
    "last": "select t, last_value(v) over (order by k rows between 9 preceding and current row) "
    "as r from a",
    "join": "select count(*) as n, sum(b.t) as t from a join a b using (s)",
    "union": "select k from a union select t from a",
}
"""DuckDB's own work, with none of our joins in it."""
BESIDE_JOINS = {
    "sorted": "select a.t, b.s from a join a b on a.t - b.t between -1 and 1 order by a.k, b.k",
    "grouped": "select b.k % 1000003 as g, count(*) as n from a left bestmatch join a b "
    "on a.t mindist b.t where abs(a.t - b.t) <= 2 group by 1",
}


def by_sql(text: str, portions: int, memory: int, folder: Path) -> Iterator[pa.RecordBatch]:
    options: matwin.JoinOptions = {"memory": memory, "scratch": folder / "scratch"}
    yield from matwin.sql(text, options, a=folder / f"{portions}.parquet")


def by_job(text: str, portions: int, memory: int, folder: Path) -> Iterator[pa.RecordBatch]:
    sink = folder / f"found-{zlib.crc32(text.encode())}-{portions}"
    job = f"""memory = {memory}
scratch = "scratch"
query = "{text}"
sink = "{sink.name}"
sources.a = "{portions}.parquet"
cut.count = {PORTION * portions}
"""
    (folder / "job.toml").write_text(job)
    assert main(["query", str(folder / "job.toml")]) == 0
    for file in sink.glob("*.parquet"):
        yield from pq.ParquetFile(file).iter_batches()


def by_epochs(text: str, portions: int, memory: int, folder: Path) -> Iterator[pa.RecordBatch]:
    stream = matwin.stream(rows(portions), schema=SCHEMA, live=False)
    found = matwin.continuous_query(
        text, {"a": stream}, cut=matwin.cut.count(PORTION * portions), memory=memory,
        scratch=folder / "scratch",
    )  # fmt: skip
    for epoch in found:
        yield from epoch.result


def by_stream(text: str, portions: int, memory: int, folder: Path) -> Iterator[pa.RecordBatch]:
    cut = f"stream(a, 'CUT BY {PORTION * portions} ROWS')"
    text = re.sub(r"\b(from|join) a\b(?! b\b)", rf"\1 {cut} a", text)
    text = re.sub(r"\b(from|join) a b\b", rf"\1 {cut} b", text)
    stream = matwin.stream(rows(portions), schema=SCHEMA, live=False)
    options: matwin.JoinOptions = {"memory": memory, "scratch": folder / "scratch"}
    yield from matwin.sql(text, options, a=stream)


WAYS = {"sql": by_sql, "epochs": by_epochs, "stream": by_stream, "job": by_job}


def measured(way: str, text: str, portions: int, memory: int, folder: str) -> dict[str, Any]:
    """How many rows came, and what the process took beside what it has for a little query."""
    for _ in WAYS[way](text, 1, memory, Path(folder)):
        pass
    gc.collect()
    peak_begins_anew()
    start, count = resident("VmRSS"), 0
    for batch in WAYS[way](text, portions, memory, Path(folder)):
        count += batch.num_rows
        del batch
    return {"rows": count, "more": resident("VmHWM") - start}


CASES = [(way, name, 64) for way in WAYS for name in TEXTS]
CASES += [("sql", name, 128) for name in BESIDE_JOINS]
CASES += [("sql", name, 32) for name in TEXTS if name != "join"]
USUAL = [("job", "distinct", 64), ("epochs", "distinct", 64), ("sql", "sort", 64),
         ("stream", "window", 64), ("sql", "sorted", 128)]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows")
    for portions in (1, 30):
        write_rows(found, portions)
    (found / "scratch").mkdir()
    return found


@pytest.mark.proof("memory: SQL")
@pytest.mark.parametrize(("way", "name", "budget"), CASES if campaign(0, 1) else USUAL)
def test_sql_keeps_to_its_budget(way: str, name: str, budget: int, folder: Path) -> None:
    """Three million rows, 150 MB and as much again in what is made of them, put down in scratch;
    the process takes the budget and 120 MB, and nothing is left."""
    text = TEXTS.get(name) or BESIDE_JOINS[name]
    told = call_in_child(measured, way, text, 30, budget * 2**20, str(folder))
    tried()
    assert told["rows"] > 0
    assert told["more"] <= budget * 2**20 + BESIDE, told
    assert not list((folder / "scratch").iterdir())


HELD = {
    "one text": "select string_agg(s, ',') as s from a",
    "one list": "select list(s) as s from a",
    "modes": "select mode(s) as s from a",
    "sort": TEXTS["sort"],
    "join": TEXTS["join"],
}
"""What DuckDB holds in memory as one piece, and what it puts down where it has room for it."""


def refused(way: str, text: str, portions: int, memory: int, folder: str) -> dict[str, Any]:
    """The refusal of a query that needs more."""
    told = ""
    try:
        for _ in WAYS[way](text, portions, memory, Path(folder)):
            pass
    except MatwinError as e:
        assert isinstance(e, BudgetError), repr(e)
        assert e.smallest_bytes > memory
        told = str(e)
    return {"told": told}


@pytest.mark.parametrize("way", ["sql", "epochs", "stream"])
@pytest.mark.parametrize("name", HELD if campaign(0, 1) else ["one text"])
def test_what_can_t_be_put_down_says_what_to_give(way: str, name: str, folder: Path) -> None:
    """Settings that are locked are no advice."""
    told = refused(way, HELD[name], 30, 2**24, str(folder))["told"]
    tried()
    assert told or name != "one text"
    if told:
        assert "give memory='" in told and "MiB'" in told, told
        assert not re.search(r"SET |PRAGMA|duckdb\.org|_limit|temp_directory", told), told
    assert not list((folder / "scratch").iterdir())


def test_the_report_counts_what_duckdb_takes(folder: Path) -> None:
    report = matwin.Report()
    options: matwin.JoinOptions = {"memory": "32MiB", "report": report}
    assert sum(b.num_rows for b in matwin.sql(TEXTS["sort"], options, a=folder / "30.parquet"))
    assert 2**20 < report.peak_bytes <= report.budget_bytes == 2**25
    assert report.pages_written * 2**18 > 2**20
    assert any("DuckDB put down" in one for one in report.decisions)


def test_a_full_scratch_folder_is_told(folder: Path, tmp_path: Path) -> None:
    """With the folder, and not with settings that are locked."""
    with tmpfs(tmp_path / "disk", 8 * 2**20) as small, pytest.raises(StoreError) as told:
        options: matwin.JoinOptions = {"memory": "32MiB", "scratch": small}
        for _ in matwin.sql(TEXTS["sort"], options, a=folder / "30.parquet"):
            pass
    assert "no room" in str(told.value) and str(small) in str(told.value)
    assert not re.search(r"SET |PRAGMA|max_temp", str(told.value))
