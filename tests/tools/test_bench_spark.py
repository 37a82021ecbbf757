"""The benchmark of joins on Spark: rivals find the same rows, measures add up, the command runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sparks import cluster, needs_campaign, needs_spark

from matwin.storage.errors import InputError
from matwin.tools.bench import spark, spark_measures, spark_rivals
from matwin.tools.bench.joins import Timed
from matwin.tools.bench.measures import Disagreement
from matwin.tools.bench.spark import SparkFound
from matwin.tools.bench.spark_data import GAP, SparkCase
from matwin.tools.bench.spark_measures import (
    Bench,
    Overhead,
    Scaled,
    Shipped,
    SparkBeside,
    SparkVersus,
)
from matwin.tools.cli import main

pytestmark = [pytest.mark.spark]

WINDOW = SparkCase("window", 400, 10, keys=10)
PLANE = SparkCase("epsilon", 400, 9, dimensions=2)
LINE = SparkCase("epsilon", 400, 9)
BEST = SparkCase("bestmatch", 300, 20, dimensions=2)
BEFORE = SparkCase("before", 400, 10, keys=5)
AS_OF = SparkCase("asof", 400, 10, keys=5)
NEAREST = SparkCase("nearest", 200, 20)
LONG = SparkCase("epsilon", 400, 0.5, keys=5, payload=50)


# ── cases and rivals ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", [WINDOW, PLANE, LINE, LONG], ids=str)
def test_a_row_has_about_as_many_matches_as_its_case_says(case: SparkCase, tmp_path: Path) -> None:
    larger = case.of_rows(4_000)
    found = larger.embedded(larger.written(tmp_path))
    assert 0.7 * case.matches < found / larger.rows < 1.2 * case.matches


def test_no_two_partners_are_equally_good_where_spark_gives_one(tmp_path: Path) -> None:
    left, right = (table["t"].to_numpy() for table in NEAREST.tables())
    assert len(set(right)) == len(right)
    assert not (left % GAP == GAP // 2).any()
    assert NEAREST.embedded(NEAREST.written(tmp_path)) == NEAREST.rows


@needs_campaign
@needs_spark
@pytest.mark.parametrize(
    ("case", "rivals"),
    [
        (WINDOW, [spark_rivals.CELLS, spark_rivals.PLAIN]),
        (PLANE, [spark_rivals.CELLS, spark_rivals.PLAIN]),
        (LINE, [spark_rivals.CELLS]),
        (
            BEST,
            [
                spark_rivals.CELLS_WINDOWED,
                spark_rivals.CELLS_NOT_EXISTS,
                spark_rivals.PLAIN_WINDOWED,
                spark_rivals.PLAIN_NOT_EXISTS,
            ],
        ),
        (BEFORE, [spark_rivals.ASOF, spark_rivals.CELLS_FIRST]),
        (AS_OF, [spark_rivals.ASOF]),
        (NEAREST, [spark_rivals.NEAREST]),
    ],
    ids=lambda given: given.name if isinstance(given, SparkCase) else "",
)
def test_rivals_find_the_same_rows(
    case: SparkCase, rivals: list[spark_rivals.SqlRival], tmp_path: Path
) -> None:
    session = cluster()
    known = [rival for rival in rivals if rival.missing(session.version) is None]
    assert Bench(session, tmp_path, 1).compare(case, *known) > case.rows // 2


@needs_campaign
@needs_spark
def test_a_rival_that_finds_other_rows_is_an_error(tmp_path: Path) -> None:
    bench = Bench(cluster(), tmp_path, 1)
    columns = spark_rivals.columns(LINE)
    shifted = spark_rivals.SqlRival("one off", lambda case: (
        f"SELECT {columns} FROM l JOIN r ON r.id = l.id WHERE l.id < 3"
    ))  # fmt: skip
    with pytest.raises(Disagreement, match="one off finds 3"):
        bench.compare(LINE, shifted)


def test_a_rival_that_spark_does_not_know_is_told() -> None:
    assert spark_rivals.ASOF.missing("4.3.0") is None
    assert "left out" in str(spark_rivals.ASOF.missing("4.2.1"))


# ── measures ─────────────────────────────────────────────────────────────────────────────────────


@needs_campaign
@needs_spark
def test_the_command_prints_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster()
    asked = {"window": [(WINDOW, [SparkVersus(spark_rivals.CELLS, 400, 2)])]}
    monkeypatch.setattr(spark, "questions", lambda rows, seed: asked)
    words = ["--rows", "40", "--repeat", "1", "--json", "--scratch", str(tmp_path)]
    only = [word for part in ("window", "ship") for word in ("--only", part)]
    assert main(["bench", "spark", *words, *only]) == 0
    found = json.loads(capfd.readouterr().out)
    (row,) = found["beside"]
    assert row["ours"]["rows_out"] == row["theirs"]["rows_out"] > 0
    assert row["times"] == pytest.approx(row["theirs"]["seconds"] / row["ours"]["seconds"])
    assert [row["ship"] for row in found["ship"]] == ["full", "partial"]
    assert found["notes"][0].startswith("Spark ")
    assert list(tmp_path.iterdir()) == []


@needs_campaign
@needs_spark
def test_the_embedded_join_and_the_child_answer_alike(tmp_path: Path) -> None:
    overhead = Bench(cluster(), tmp_path, 1).overhead(WINDOW)
    assert overhead.ours.rows_out == overhead.embedded.rows_out > 0
    found = spark_measures.child(WINDOW, "local[2]", str(tmp_path), 1)
    assert found.rows_out == overhead.ours.rows_out


def test_a_child_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(command: list[str], **_: Any) -> Any:
        told = json.loads(command[-1])
        assert told["master"] == "local-cluster[2,1,512]"
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nno memory\n")

    monkeypatch.setattr(subprocess, "run", failed)
    with pytest.raises(InputError, match="2 executors: the child process: no memory"):
        spark_measures.scaled(WINDOW, 2, 512, tmp_path, 1)


# ── text and plot ────────────────────────────────────────────────────────────────────────────────

SECOND, TWO, THREE = Timed(1.0, 4_000), Timed(2.0, 4_000), Timed(3.0, 4_000)
FOUND = SparkFound(
    beside=[
        SparkBeside(WINDOW, "range join", SECOND, TWO, 2),
        SparkBeside(WINDOW, "cells, exploded", TWO, THREE, 2),
    ],
    overhead=[Overhead(WINDOW, TWO, SECOND), Overhead(WINDOW, THREE, SECOND)],
    shipped=[Shipped(LONG, "full", SECOND, 1 << 20), Shipped(LONG, "partial", SECOND, None)],
    scaled=[Scaled(WINDOW, 1, THREE), Scaled(WINDOW, 2, TWO)],
    notes=["where it ran"],
)


def test_what_misses_its_mark_is_marked() -> None:
    lines = spark.text(FOUND).splitlines()
    marked = [line.rstrip()[-1:] == "!" for line in lines if line.startswith("window join, 10")]
    assert marked == [False, True, False, True]
    assert any(line.startswith("full") and "1 MiB" in line for line in lines)
    assert any(line.startswith("2 ") and "1.50×" in line for line in lines)
    assert lines[-1] == "where it ran"


def test_it_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "spark.png"
    spark.draw(FOUND, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    spark.draw(SparkFound(), path)  # a part alone may have nothing to show in a panel


def test_what_is_to_be_reached() -> None:
    reaches = {
        (case.name, case.rows, versus.rival.name): versus.reach
        for part in spark.questions(1_000_000, 0).values()
        for case, against in part
        for versus in against
    }
    assert reaches["window join, 1,000 keys", 1_000_000, "cells, exploded"] == 2
    assert reaches["window join, 10 keys", 1_000_000, "range join"] == 20
    assert reaches["ε-join 2-D", 1_000_000, "cells, exploded"] == 20
    assert reaches["left bestmatch 2-D", 20_000, "cells, window functions"] == 50
    assert spark.TIMES_EMBEDDED == 2.5


@pytest.mark.parametrize(
    "words", [["--rows", "0"], ["--repeat", "0"], ["--seed", "-1"], ["--plot", "a.pdf"]], ids=str
)
def test_bad_arguments_are_told(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "spark", *words]) == 2
    assert f"error: {words[0]} " in capfd.readouterr().err
