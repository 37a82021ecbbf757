"""The benchmarks of little memory: memory, ways and large find the same rows in whatever memory."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import matwin
from matwin import ways as choice
from matwin.cost import WAYS
from matwin.storage.errors import InputError
from matwin.tools.bench import arguments, large, memory, rivals, ways
from matwin.tools.bench.joins import HOT, SKEWED, SORTED, Case, Timed
from matwin.tools.bench.measures import Disagreement
from matwin.tools.bench.memory import CUT, FAILS, Answered, Asked
from matwin.tools.bench.tenth import Setting, Tenth, child, in_child
from matwin.tools.bench.ways import Chosen
from matwin.tools.bench.window_cases import WindowCase

KEYED = Case("epsilon", 2_000, 10, keys=50, row_bytes=48)
PLANE = Case("bestmatch", 1_500, 10, row_bytes=48)
SMALL: dict[str, Any] = {"memory": "320KiB", "page_size": "4KiB"}


def run(module: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    name = module.__name__.rpartition(".")[2]
    getattr(arguments, f"configure_{name}")(parser)
    return int(module.run(parser.parse_args(words)))


# ── cases ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", [SKEWED, HOT, SORTED])
@pytest.mark.parametrize("case", [KEYED, WindowCase("window", 2_000, 10, keys=50)], ids=str)
def test_every_layout_has_its_matches(case: Case, layout: str) -> None:
    made = replace(case, layout=layout)
    tables = made.sources()
    assert 0.7 * made.matches < made.run(*tables) / made.rows < 1.3 * made.matches
    times = tables[0]["t"].to_numpy()
    assert bool((np.diff(times) >= 0).all()) == (layout == SORTED)
    most = np.bincount(tables[0]["k"].to_numpy()).max() / made.rows
    assert {SKEWED: 0.15 < most < 0.35, HOT: 0.85 < most < 0.95, SORTED: most < 0.05}[layout]


def test_the_narrow_case_is_the_one_that_is_promised() -> None:
    (asked,) = [one for one in memory.asked_of(1_000_000) if one.case.is_narrow]
    assert asked.case.rows == 8_000_000 and asked.case.on == {"t": 0.5, "x": 2e-6}
    assert (asked.memory, asked.reach) == (64 << 20, 2.0)


def test_cases_have_rows_of_48_bytes() -> None:
    for asked in memory.asked_of(100):
        if not asked.case.is_narrow:
            assert asked.case.table(0).nbytes == 48 * 100, asked.case.name
    names = {asked.case.name for asked in memory.asked_of(100)}
    assert {f"{how} bestmatch 2-D" for how in ("left", "right", "full", "inner")} <= names
    assert {"ε-join 1-D", "ε-join 2-D", "ε-join, 1,000 keys"} <= names
    assert sum("-way" in name for name in names) == 5


@pytest.mark.parametrize(
    "case",
    [
        replace(KEYED, keys=0, dimensions=1), replace(PLANE, is_narrow=True, matches=24),
        *(replace(PLANE, how=how) for how in ("left", "right", "full", "inner")),
    ],
    ids=str,
)  # fmt: skip
def test_duckdb_finds_as_many_rows(case: Case) -> None:
    tables = case.tables()
    assert rivals.DUCKDB_CELLS.run(case, *tables) == case.run(*tables)


# ── the four ways ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", ["uniform", SORTED])
@pytest.mark.parametrize("way", ["parts", "walk"])
@pytest.mark.parametrize(
    "case", [KEYED, PLANE, WindowCase("window", 2_000, 10, keys=50, row_bytes=48)], ids=str
)
def test_a_forced_way_is_taken_and_finds_the_same(
    case: Case, way: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(case, layout=layout)
    tables, report = made.sources(), matwin.Report()
    expected = made.run(*tables)
    monkeypatch.setattr(choice, "FORCED", way)
    assert made.run(*tables, report=report, **SMALL) == expected
    assert Tenth(0, 0, 0, 1.0, 0, 0, 0, 0, 0, report.decisions).way.startswith(way)


def test_parts_can_be_forced_where_everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, report = KEYED.tables(), matwin.Report()
    expected = KEYED.run(*tables)
    monkeypatch.setattr(choice, "FORCED", "parts")
    assert KEYED.run(*tables, report=report, memory="64MiB") == expected
    assert any(decision.startswith("parts: ") for decision in report.decisions)


def found(way: str, seconds: float, rows_out: int = 9) -> Tenth:
    decisions = {"memory": "memory: fits", "slabs": "memory: slab by slab", "walk": "pages: so"}
    told = [decisions.get(way, f"{way}: many")]
    return Tenth(4_000, 400, 64, seconds, rows_out, 10**9, 5, 6, 1, told)


def test_ways_that_could_not_be_taken_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(case: Case, setting: Setting) -> Tenth:
        return found("walk" if setting.way in (None, "walk") else "parts", 3.0)

    monkeypatch.setattr(ways, "in_child", once)
    row = ways.chosen(KEYED, Setting())
    assert sorted(row.ways) == ["parts", "walk"] and row.auto.way == "walk"


def test_a_wrong_choice_is_marked() -> None:
    both = {"parts": found("parts", 2.0), "walk": found("walk", 3.0)}
    shown = ways.table([
        Chosen(KEYED, found("walk", 4.0), both), Chosen(PLANE, found("parts", 2.1), both)
    ])  # fmt: skip
    wrong, right = shown.splitlines()[2:4]
    assert wrong.endswith("1.50×!") and right.endswith("1.00×")
    assert "in 1 of 2" in shown


def test_ways_quick(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ways, "cases_of", lambda rows, seed: [(replace(KEYED, seed=seed), False)])
    assert run(ways, "--quick", "--repeat", "1", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    counts = {one["rows_out"] for one in [row["auto"], *row["ways"].values()]}
    assert counts == {KEYED.run(*KEYED.tables())}
    assert {"parts", "walk"} <= set(row["ways"]) <= set(WAYS)


# ── a tenth of the memory ────────────────────────────────────────────────────────────────────────


def test_memory_quick(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [KEYED, WindowCase("window", 1_000, 5, keys=20, streams=3)]
    monkeypatch.setattr(memory, "asked_of", lambda rows, seed: [Asked(case) for case in cases])
    assert run(memory, "--quick", "--repeat", "1", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["ε-join, 50 keys", "3-way clique, 20 keys"]
    for row, case in zip(rows, cases, strict=True):
        assert row["memory"]["rows_out"] == row["tenth"]["rows_out"] == case.run(*case.sources())
        assert row["memory"]["pages_written"] == 0
        assert row["times"] == pytest.approx(row["tenth"]["seconds"] / row["memory"]["seconds"])
    assert rows[0]["way"] == "parts"


def test_duckdb_in_enough_memory_and_in_too_little(tmp_path: Path) -> None:
    case = replace(KEYED, rows=500)
    enough = Setting(scratch=str(tmp_path), is_duckdb=True, is_roomy=True)
    assert in_child(case, enough).rows_out == case.run(*case.tables())
    assert memory._duckdb(case, Setting(scratch=str(tmp_path), memory=300_000), 60) == FAILS
    assert memory._duckdb(case, enough, 0.01) == CUT


def test_what_misses_is_marked_and_duckdb_that_fails_is_told() -> None:
    rows = [
        Answered(Asked(KEYED), found("memory", 1.0), found("parts", 2.0), found("", 1.0)),
        Answered(Asked(PLANE), found("memory", 1.0), found("parts", 1.2), FAILS),
        Answered(Asked(PLANE), found("memory", 1.0), found("parts", 1.2), None),
    ]
    slow, fast, alone = memory.table(rows).splitlines()[2:5]
    assert "2.00×" in slow and "1.5×!" in slow and slow.endswith("0.5×!")
    assert "1.5×!" not in fast and fast.endswith("fails") and "953.7 MiB!" in fast
    assert not alone.endswith("fails")


def test_another_number_of_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        memory, "in_child", lambda case, setting, *_: found("parts", 1.0, 9 + setting.is_roomy)
    )
    with pytest.raises(Disagreement, match="little memory finds 9"):
        memory.answered(Asked(KEYED), Setting(), None)


@pytest.mark.parametrize(
    "words", [["--rows", "0"], ["--seed", "-1"], ["--timeout", "0"], ["--only", "nobody"]], ids=str
)
def test_bad_arguments_are_told(words: list[str]) -> None:
    with pytest.raises(InputError, match=f"^{words[0]} "):
        run(memory, "--quick", *words)


# ── large files ──────────────────────────────────────────────────────────────────────────────────


def test_files_are_written_in_portions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(large, "PORTION_ROWS", 700)
    case = WindowCase("window", 2_000, 10, keys=10, row_bytes=32)
    paths = large.written(case, tmp_path)
    files = [pq.ParquetFile(path) for path in paths]
    assert [file.metadata.num_rows for file in files] == [2_000, 2_000]
    assert [file.metadata.num_row_groups for file in files] == [3, 3]
    assert 0.8 < child(case, Setting(memory=400_000, paths=paths)).rows_out / 20_000 < 1.2


def test_large_quick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(large, "QUICK_ROWS", 20_000)
    words = ["--quick", "--json", "--beside", sys.executable, "--scratch", str(tmp_path)]
    assert run(large, *words) == 0
    told = json.loads(capsys.readouterr().out)
    less, more = told["large"]
    assert [less["case"]["rows"], more["case"]["rows"]] == [2_000, 20_000]
    assert more["way"] == "parts" and 8 < more["found"]["rows_out"] / 20_000 < 12
    assert more["times"] == pytest.approx(less["rows_a_second"] / more["rows_a_second"])
    (beside,) = told["epsilon"]
    assert beside["ours"]["rows_out"] == beside["theirs"]["rows_out"] > 100_000
    assert list(tmp_path.iterdir()) == [], "files are removed"


def test_large_marks_what_misses() -> None:
    case = WindowCase("window", 1_000, 10, keys=10)
    rows = [large.Joined(case, found("parts", 1.0)), large.Joined(case, found("parts", 2.0), 2.0)]
    assert large.large_table(rows).splitlines()[3].endswith("2.00×!")
    shown = large.epsilon_table([large.InMemory(KEYED, Timed(1.0, 9), Timed(1.2, 9))])
    assert "1.20×!" in shown


def test_no_python_there() -> None:
    with pytest.raises(InputError, match=r"^--beside /no/python: "):
        large._by("/no/python", {})
