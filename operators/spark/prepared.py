"""A join that is asked for: its sides, how they may be divided, and what a task does.

    arguments ──▶ Prepared ──plan──▶ strips (looks at the data) ──frame──▶ a DataFrame
                     └──explained──▶ the same as text

Two-sided joins and window joins make one of these; everything that is Spark's follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from matwin.keys import key_of_float, key_value
from matwin.scheduler.division import (
    LARGEST_PART,
    Asked,
    Plan,
    expected,
    plan_of,
    with_seen,
)
from matwin.scheduler.layout import Halo, Layout, Number
from matwin.storage.errors import InputError

from .again import doubt_of, pinned
from .exchange import Exchange
from .frames import Frame, arrow_schema, session_of
from .onekey import OneKey
from .options import SparkOptions
from .probe import check_executors
from .sample import Looked, looked_at
from .ship import sent
from .task import OWN, Task, Work, unique_name
from .weigh import fixed_width, widths

SORTED_SHARE = 0.8
"""Of a task's budget, for rows that come unsorted; the rest is for portions and output."""
BESIDE_ROW = 32
"""Bytes that a window join keeps beside a row: its time, its key, its place while it is sorted."""
HELD_SHARE, HELD_COPIES, BESIDE_HELD = 0.6, 3, 120
"""The same for a join of two sides that holds all of its rows: their copies, and arrays beside."""


@dataclass(frozen=True)
class Prepared:
    """A question on DataFrames."""

    operator: str
    frames: Mapping[str, Frame]
    exchange: Exchange
    halos: tuple[Mapping[str, Halo], ...]
    work: Work
    arguments: dict[str, Any]
    output: StructType
    options: SparkOptions
    needed: Mapping[str, tuple[str, ...]]
    """For each side, the columns that decide whether a row matches."""
    asking: Callable[[Mapping[str, DataFrame]], Prepared] | None
    """The same question on frames with a column more and no payload: which rows match?  None where
    nothing tells before all is known."""
    renamed: Callable[[str, str], str]
    """What a side's column is called in the output."""
    finish: Callable[[Prepared], DataFrame]
    question: Any
    """What is asked, as the embedded joins know it."""
    may_salt: bool = True
    can_sort: bool = False
    """Whether the operator itself sorts rows that fit its memory, faster than Spark does."""
    is_settled: bool = False
    """Whether its frames give the same rows however often they are read."""
    pins: frozenset[str] = frozenset()
    """The sides that do so because they are pinned."""

    @cached_property
    def doubts(self) -> dict[str, str]:
        """The sides that may differ when they are read again, and what in their plan says so."""
        if self.is_settled:
            return {}
        told = {
            side: doubt_of(frame.frame, self.needed[side])
            for side, frame in self.frames.items()
            if side not in self.pins
        }
        return {side: doubt for side, doubt in told.items() if doubt is not None}

    def settled(self) -> Prepared:
        """The same join on rows that may be read again: what could differ is pinned, in a job."""
        if self.is_settled:
            return self
        # A frame that stands on several sides is pinned once.
        pins = {id(self.frames[side].frame): self.frames[side].frame for side in self.doubts}
        pins = {number: pinned(frame) for number, frame in pins.items()}
        frames = {side: pins.get(id(f.frame), f.frame) for side, f in self.frames.items()}
        return self.with_frames(frames)

    @cached_property
    def looked(self) -> Looked:
        """What a look at the data has found."""
        return looked_at(session_of(self.frames), self.exchange)

    @cached_property
    def plan(self) -> Plan:
        """How the work is divided; looks at the data unless all was given."""
        route = next(iter(self.exchange.routes.values()))
        given = self.options.bounds(self.exchange.strip_type, route.strip or "")
        if given is not None:
            return self._planned_at(given, has_keys=bool(route.keys))
        if self.options.strips == 1:
            return expected(Layout(), self.halos[0], {}, 1, "one task, as asked for")
        asked = Asked(
            self.halos, self.exchange.strip_type is not None,
            bool(route.keys), self.may_salt, self.looked.slots,
            self.options.strips if isinstance(self.options.strips, int) else None,
            self._unsorted_rows(), self._largest_rows(),
        )  # fmt: skip
        return plan_of(self.looked.samples, asked)

    def _planned_at(self, bounds: tuple[Number, ...], *, has_keys: bool) -> Plan:
        """Strips with the bounds that were given."""
        layout, halos, reason = Layout.of_strips(bounds), self.halos[0], "strips, as given"
        if not self.is_open:
            return expected(layout, halos, {}, 1, reason)
        if has_keys:
            raise InputError(
                "strips: a join by keys without a tolerance has buckets of keys, and no strips of "
                "all rows; give their number, a tolerance, or leave it out"
            )
        assert layout.shared is not None
        shared = with_seen(layout.shared, self.looked.samples, halos)
        return expected(
            Layout(shared=shared), halos, self.looked.samples, self.looked.slots, reason
        )

    @property
    def is_open(self) -> bool:
        """Whether rows may match however far they are apart, the nearest ones only."""
        return any(halo.is_open for halo in self.halos[0].values())

    def standing(self) -> Prepared:
        """The same join, with what its plan stands on pinned, and looked at again: rows that a look
        has seen must be there when the join reads them, or it would miss what was before them."""
        if not self.shaky:
            return self
        pins = {id(self.frames[side].frame): self.frames[side].frame for side in self.shaky}
        pins = {number: pinned(frame) for number, frame in pins.items()}
        sides = {side for side, frame in self.frames.items() if id(frame.frame) in pins}
        frames = {side: pins.get(id(f.frame), f.frame) for side, f in self.frames.items()}
        changed = {side: Frame.of(frame, side) for side, frame in frames.items()}
        return replace(self._on(changed), pins=self.pins | sides)

    @cached_property
    def shaky(self) -> tuple[str, ...]:
        """The sides that the plan stands on though they may differ when they are read again."""
        if not self.plan.layout.has_seen:
            return ()
        sides = (side for side, halo in self.plan.halos.items() if halo.is_open)
        return tuple(side for side in sides if side in self.doubts)

    def _largest_rows(self) -> float:
        """How many rows a part may have: as many as fit the memory where nothing is final before
        the end, because on pages they would take a hundred times as long."""
        if not self.is_open:
            return LARGEST_PART
        width = max(map(self._width, self.frames))
        fit = HELD_SHARE * self.options.budget_bytes / (HELD_COPIES * width + BESIDE_HELD)
        return min(LARGEST_PART, max(1.0, fit))

    def _width(self, side: str) -> float:
        fixed = fixed_width(self.frames[side].schema)
        if fixed is not None:
            return fixed
        check_executors(session_of(self.frames), self.operator)
        return widths(self.frames[side], ())[0]

    def _unsorted_rows(self) -> float:
        """How many rows a task surely sorts in its memory; none where rows may have any size."""
        widths = [fixed_width(frame.schema) for frame in self.frames.values()]
        known = [width for width in widths if width is not None]
        if not self.can_sort or len(known) < len(widths):
            return 0.0
        return SORTED_SHARE * self.options.budget_bytes / (max(known) + BESIDE_ROW)

    def frame(self) -> DataFrame:
        """The result, not yet computed."""
        return self.mapped(self.work, self.output)

    def mapped(self, work: Work, output: StructType) -> DataFrame:
        """What some work makes of the parts."""
        plan, exchange = self.plan, self.exchange
        if not plan.is_sorted:
            exchange = replace(exchange, order_type=None)
        check_executors(session_of(self.frames), self.operator)
        task = Task(
            self.operator, tuple(self.frames), self._columns(), exchange.sort,
            self.options.embedded, arrow_schema(output, "output"), self.part_names(), work,
            self.arguments, self._one_key(),
        )  # fmt: skip
        return exchange.shuffled(plan.layout, plan.halos).mapInArrow(sent(task), output)

    def _one_key(self) -> OneKey | None:
        """Where a part's rows must be of one key: in strips that stand on the nearest rows."""
        layout = self.plan.layout
        if not (layout.uses_keys and layout.has_seen):
            return None
        for number, (side, route) in enumerate(self.exchange.routes.items()):
            if self.plan.halos[side].is_open:
                return OneKey(layout.cold, number, tuple(route.keys))
        return None

    def part_names(self) -> tuple[str, ...]:
        """What each part is called, with its bounds as values of the column."""
        layout, kind = self.plan.layout, self.exchange.strip_type
        shown = None if kind is None else partial(_bound_text, kind)
        return tuple(layout.name(part, shown) for part in range(layout.parts))

    def _columns(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        columns = self.exchange.columns()
        if not self.exchange.marks_own:
            return columns
        names = helper_names("own", self.frames, self.question.suffixes)
        return tuple((*mine, (name, OWN)) for mine, name in zip(columns, names, strict=True))

    def with_frames(self, frames: Mapping[str, DataFrame]) -> Prepared:
        """The same question on rows that are settled, with the same columns."""
        changed = {name: Frame.of(frame, name) for name, frame in frames.items()}
        return replace(self._on(changed), is_settled=True).planned(self.plan)

    def _on(self, frames: Mapping[str, Frame]) -> Prepared:
        routes = {
            name: replace(route, frame=frames[name]) for name, route in self.exchange.routes.items()
        }
        return replace(self, frames=frames, exchange=replace(self.exchange, routes=routes))

    def planned(self, plan: Plan) -> Prepared:
        """The same join with a plan that is there already."""
        self.__dict__["plan"] = plan
        return self


def helper_names(
    what: str, frames: Mapping[str, Frame], suffixes: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What a column of ours is called on each side: as no column is, with a suffix or without."""
    names = [name for frame in frames.values() for name in frame.fields]
    taken = [name + suffix for name in names for suffix in ("", *suffixes)]
    found: list[str] = []
    for side in frames:
        found.append(unique_name(f"{what}_{side}", [*taken, *found]))
    return tuple(found)


def _bound_text(kind: pa.DataType, bound: Number) -> str:
    key = key_of_float(bound) if isinstance(bound, float) else int(bound)
    return str(key_value(key, pa.field("bound", kind)))
