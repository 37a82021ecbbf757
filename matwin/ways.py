"""Which way a join takes: what is known of its inputs, put into the cost model.

    rows read so far, or the sources' own word ──▶ sample ──▶ best division ──▶ four estimates

`explain` asks before anything is read, the driver once the memory is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matwin.scheduler.division import Plan

from .cost import Estimate, Work, estimates
from .cutting import Cut
from .engine import Divisible
from .options import Options
from .parts import Room
from .sampling import Drawn
from .shares import GATHER_SHARE

FORCED: str | None = None
"""The way that joins take wherever they can, whatever it costs; None lets the cost model choose.
Set by tests and benchmarks, which compare the ways."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The best division into parts, and what each way costs."""

    division: tuple[Cut, Plan] | None
    estimates: Sequence[Estimate]

    def __getitem__(self, way: str) -> Estimate:
        return next(one for one in self.estimates if one.way == way)

    @property
    def prefers_parts(self) -> bool:
        """Whether parts cost less than what is left without them."""
        return FORCED == "parts" or self["parts"].seconds < self.estimates[-1].seconds


def ways_of(
    joining: Divisible, samples: Sequence[Drawn], row_bytes: Sequence[float], options: Options, *,
    is_sorted: bool | None = None, is_live: bool = False,
) -> Ways:  # fmt: skip
    """The ways of a join whose feeds are like the samples, with rows of so many bytes."""
    room = Room.of(options)
    part, whole = joining.in_part(room.output_bytes), joining.in_memory()
    weights = [part.weight(1000, round(1000 * size)) / 1000 for size in row_bytes]
    totals = [sample.total for sample in samples]
    division = joining.cutting.planned(
        [sample.batches for sample in samples], totals, weights, room.part_bytes, room.slots
    )
    size = sum(each * total for each, total in zip(row_bytes, totals, strict=True))
    needed = sum(
        whole.weight(round(total), round(each * total))
        for each, total in zip(row_bytes, totals, strict=True)
    )
    work = Work(
        sum(totals), size, needed, options.budget_bytes, options.page_bytes, is_sorted, is_live,
        joining.beyond,
    )  # fmt: skip
    chunk = options.budget_bytes * GATHER_SHARE
    return Ways(division, estimates(work, division[1] if division else None, chunk))
