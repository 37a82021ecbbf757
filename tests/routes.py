"""Ways in which a join is run, and a case run in one of them.

    way = way_of(seed, asked, file)        memory, slabs, parts, pages by each form and schedule
    sources = sources_of(seed, asked, way) tables, batches, live streams of every order
    run(seed, file)                        the case of a seed, checked

Thresholds are so low that a few rows are many.  A way that can't be forced on a join (parts of what
does not divide, slabs of what is not sorted) is the one that the join takes instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from crossed import Crossed, crossed
from independent import is_comparable

import matwin
from matwin import joining, memory, paging, ways
from matwin.kernels import strips
from matwin.operators.wjoin import output as wjoin_output
from matwin.report import Report

FORMS = ("standard", "grid", "slab")
SCHEDULES = ("auto", "gallop", "crabstep", "lookahead")
LOW = ((memory, "FEW_PAIRS", 0), (strips, "FEW_ROWS", 0), (memory, "PIECE_ROWS_MIN", 2),
       (memory, "PIECE_ROWS_MAX", 3), (memory, "MANY_PAIRS", 1), (joining, "BATCH_ROWS", 2),
       (wjoin_output, "FEW_ROWS", 2), (paging, "PARTIAL_ROOM", 0.03),
       (paging, "FOUND_ROOM", 0.6))  # fmt: skip
"""Thresholds that choose a way, and shares of a walk, with which a few rows are many."""
WAYS = ("memory", "slabs", "parts", "walk", "walk", "trace", "tight", "live", "live pages",
        "live pages")  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a join is run: forms of its sources, options, and what is forced."""

    name: str
    forced: str | None
    options: dict[str, Any]
    is_live: bool

    @contextmanager
    def taken(self, chance: Random) -> Iterator[None]:
        """Thresholds so low that a few rows are many, some of them, and the way forced."""
        with pytest.MonkeyPatch.context() as patch:
            for module, name, value in LOW:
                if chance.random() < 0.5:
                    patch.setattr(module, name, value)
            patch.setattr(ways, "FORCED", self.forced)
            yield


def way_of(seed: int, asked: Crossed, trace: Any) -> Way:
    """A way for a join."""
    chance = Random(f"way {seed}")
    name = chance.choice(WAYS)
    if name.startswith("live") and not asked.may_stream:
        name = "walk"
    is_inner = asked.join == "bestmatch_join" and asked.arguments["how"] == "inner"
    if name.startswith("live") and is_inner and asked.arguments["ordered"]:
        name = "walk"  # it is refused, with a reason
    options: dict[str, Any] = {"threads": chance.choice([1, 2])}
    forced = {"slabs": "slabs", "parts": "parts", "walk": "walk"}.get(name)
    if name in ("slabs", "parts", "walk", "tight", "live pages", "trace"):
        options |= {"memory": chance.choice([32, 32, 40, 64, 128]) * 4096, "page_size": "4KiB"}
    if name in ("walk", "trace", "live pages"):
        options["materialize"] = chance.choice(["auto", *FORMS])
        many = asked.join == "window_join" and len(asked.tables) > 2
        options["schedule"] = "auto" if many else chance.choice(SCHEDULES)
    if name == "trace":
        options["trace"] = trace
    if name == "live pages":
        options["max_delay"] = chance.choice([None, "0s"])
    return Way(name, forced, options, name.startswith("live"))


def sources_of(seed: int, asked: Crossed, way: Way) -> dict[str, Any]:
    """The tables in a form that goes with the way; in the order in which their rows are."""
    chance = Random(f"sources {seed}")
    return {name: _source(chance, asked, name, way) for name in asked.tables}


def _source(chance: Random, asked: Crossed, name: str, way: Way) -> Any:
    table = asked.tables[name]
    batches = table.combine_chunks().to_batches(max_chunksize=chance.choice([1, 2, 5, 50]))
    if not way.is_live or (asked.join != "window_join" and chance.random() < 0.15):
        return table if not batches or chance.random() < 0.5 else batches
    promise, items = _promise(chance, asked, name, batches)
    return matwin.stream(items, order=promise, schema=table.schema, live=True)


def _promise(
    chance: Random, asked: Crossed, name: str, batches: list[pa.RecordBatch]
) -> tuple[Any, Iterator[Any]]:
    """A promise that the rows keep, and the items of the stream."""
    table, places = asked.tables[name], [v for v in asked.places[name] if is_comparable(v)]
    every = matwin.ReadAhead(table.num_rows + 1)
    kinds = ["ahead", "punctuated"]
    if places == sorted(places):
        kinds += ["sorted"] * 3
        is_small = asked.kind is not None and asked.kind.low == -100
        if is_small:
            kinds += ["grid", "grid"]
    if asked.kind is not None and asked.kind.low == -100:
        kinds += ["late", "late"]
    kind = chance.choice(kinds)
    if kind == "sorted":
        return matwin.Sorted(), iter(batches)
    if kind == "grid":
        return matwin.GridOrdered(chance.choice([1, 2, 5])), iter(batches)
    if kind == "late":
        behind, most = 0, -math.inf
        for value in places:
            most = max(most, value)
            behind = max(behind, most - value)
        return matwin.Lateness(behind + 1), iter(batches)
    if kind == "punctuated" and asked.kind is not None and asked.kind.low == -100:
        return matwin.Punctuated(), _punctuated(asked, name, batches)
    return every, iter(batches)


def _punctuated(asked: Crossed, name: str, batches: list[pa.RecordBatch]) -> Iterator[Any]:
    """Batches, and between them how far all of them have come."""
    places, at = asked.places[name], 0
    for batch in batches:
        yield batch
        at += batch.num_rows
        rest = [v for v in places[at:] if is_comparable(v)]
        if rest and at % 3:
            upto = min(rest) - 1
            yield matwin.Punctuation(upto)


def run(seed: int, trace: Any) -> tuple[Crossed, Way, Report]:
    """A case, checked; a budget that is too small is raised."""
    asked = crossed(seed)
    way = way_of(seed, asked, trace)
    options, tries = dict(way.options), 0
    while True:
        report = Report()
        try:
            with way.taken(Random(f"low {seed}")):
                found = asked.run(sources_of(seed, asked, way), report=report, **options)
            break
        except matwin.BudgetError as e:
            # Whether what is announced is enough is tried elsewhere, with the shares as they are.
            tries += 1
            assert tries < 6, (seed, e)
            options["memory"] = max(e.smallest_bytes, 2 * options["memory"])
    if way.is_live and asked.join == "asof_join":
        asked.is_ordered = False  # a live stream's rows leave when they are final
    asked.check(found, seed)
    report.check()
    return asked, way, report
