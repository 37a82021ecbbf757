"""`report.decisions` says what was really done, in every join and on every route.

What has run is noted where it runs, in the engines themselves, and compared with what was told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin.memory import MemoryDirection
from matwin.operators.wjoin.choose import ALGORITHMS
from matwin.operators.wjoin.evaluate import Backward, Forward
from matwin.operators.wjoin.gathered import GatheredPages
from matwin.operators.wjoin.paged import LivePages
from matwin.operators.wjoin.slabs import Slabs
from matwin.paged import PagedDirection
from matwin.parts import Parts

SMALL = {"memory": "320KiB", "page_size": "4KiB"}
ROUTES = ("memory", "slabs", "pages", "spilled", "live")
Ran = set[str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The names of the engines that have had rows to judge or to join."""
    found: Ran = set()

    def noted(engine: type, method: str) -> None:
        whole: Callable[..., Any] = getattr(engine, method)

        def note(self: Any, *given: Any, **options: Any) -> Any:
            found.add(engine.__name__)
            return whole(self, *given, **options)

        monkeypatch.setattr(engine, method, note)

    for direction in (MemoryDirection, PagedDirection):
        noted(direction, "judge_upto")
    for engine in (Backward, Forward, Slabs, LivePages, GatheredPages, Parts):
        noted(engine, "take")
    return found


def table(seed: int, *, is_sorted: bool) -> pa.Table:
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 9000, 3000)
    columns = {"t": np.sort(t) if is_sorted else t, "k": rng.integers(0, 20, 3000)}
    return pa.table({**columns, "p": ["payload" * 5] * 3000})


def sources(route: str, number: int) -> tuple[list[Any], dict[str, Any]]:
    """Tables or streams that make a join take a route, and the options for it."""
    found: list[Any] = [table(seed, is_sorted=route != "spilled") for seed in range(number)]
    if route == "live":
        found = [matwin.stream(t.to_batches(300), schema=t.schema) for t in found]
    options: dict[str, Any] = {} if route in ("memory", "live") else dict(SMALL)
    if route == "pages":
        options["materialize"] = "slab"
    return found, options


def has(report: matwin.Report, *words: str) -> bool:
    return any(all(word in decision for word in words) for decision in report.decisions)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("join", ["left", "full", "inner", "epsilon", "anti"])
def test_joins_of_two_sides(join: str, route: str, ran: Ran) -> None:
    report = matwin.Report()
    (left, right), options = sources(route, 2)
    if join in ("epsilon", "anti"):
        how = "inner" if join == "epsilon" else "anti"
        found = matwin.epsilon_join(
            left, right, on={"t": 9}, by="k", how=how, report=report, **options
        )
    else:
        found = matwin.bestmatch_join(
            left, right, on={"t": 9}, by="k", how=join, report=report, **options
        )
    found.read_all()
    assert has(report, "pages: ") == ("PagedDirection" in ran), report.decisions
    assert has(report, "schedule: ") == (report.pairs_visited > 0)
    assert has(report, "pages: asked for; slab windows") == (route == "pages")
    assert has(report, "parts: the windows do not fit the memory") == ("Parts" in ran)
    assert ("Parts" in ran) == (route == "spilled")
    assert has(report, "memory: everything fits, judged in one step") == (route == "memory")
    assert has(report, "memory: slab by slab") == (route == "slabs")
    assert has(report, "live: ") == (route == "live")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_window_joins(algorithm: str, route: str, ran: Ran) -> None:
    if algorithm == "merge" and route == "live":
        pytest.skip("refused: merge is for finite inputs")
    report = matwin.Report()
    streams, options = sources(route, 2)
    given = dict(zip("ab", streams, strict=True))
    if route == "pages" and algorithm not in ("auto", "merge"):
        with pytest.raises(matwin.InputError, match=f"{algorithm}.*leave these out.*'auto'"):
            matwin.window_join(given, time="t", windows=9, by="k", algorithm=algorithm, **options)
        return
    found = matwin.window_join(
        given, time="t", windows=9, by="k", algorithm=algorithm, report=report, **options
    )
    found.read_all()
    named = {decision.split(":")[0].split(",")[0] for decision in report.decisions}
    is_paged = bool(ran & {"LivePages", "GatheredPages"})
    assert ("merge on pages" in named or has(report, "merge on pages; ")) == is_paged
    assert has(report, "one walk at the end") == ("GatheredPages" in ran)
    assert has(report, "schedule: ") == (report.pairs_visited > 0)
    assert report.pairs_visited == report.pairs_planned
    assert is_paged or report.pairs_visited == 0
    assert bool({name for name in named if name.startswith("backward")}) == ("Backward" in ran)
    assert bool({name for name in named if name.startswith("forward")}) == ("Forward" in ran)
    assert ("merge" in named) == ("Slabs" in ran), (report.decisions, ran)
    if algorithm != "auto":
        engine = {"merge": "Slabs", "backwa": "Backward", "forwar": "Forward"}.get(algorithm[:6])
        assert has(report, algorithm)
        assert engine in ran or (is_paged and algorithm == "merge"), "it is what ran"


def test_fixed_window_joins() -> None:
    report = matwin.Report()
    (left, right), _ = sources("memory", 2)
    found = matwin.fixed_window_join(
        left.slice(0, 8), right.slice(0, 8), time="t", period=50, on={"k": 3}, report=report
    )
    found.read_all()
    assert has(report, "windows on pages, joined whenever rows have come"), report.decisions


@pytest.mark.parametrize(
    ("asked", "why"), [("auto", "more than two streams"), ("gallop", "as asked for")]
)
def test_the_schedule_of_three_streams_says_who_wanted_it(asked: str, why: str) -> None:
    rows = pa.table({"t": range(300), "k": [n % 7 for n in range(300)]})
    report = matwin.Report()
    matwin.window_join(
        {"a": rows, "b": rows, "c": rows}, time="t", by="k", windows=5, schedule=asked,
        materialize="standard", report=report,
    ).read_all()  # fmt: skip
    assert any(d.startswith("schedule: gallop") and why in d for d in report.decisions)
