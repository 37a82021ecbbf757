"""`matwin bench ways`: every way of a join by force, and whether the one that it takes is the best.

    layout ─┬─▶ child: left to itself         what it took, and how long that is
            ├─▶ child: memory, if it fits      ┐
            ├─▶ child: slabs, if it is sorted  ├ the fastest of those that could be taken
            ├─▶ child: parts                   │
            └─▶ child: walk                    ┘

All with a tenth of the data as memory, but for the last ones, which fit.  A way that a join can't
take, because its rows don't fit or are not sorted, ends up as another one and is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from matwin.cost import WAYS

from .joins import HOT, SKEWED, SORTED, Case
from .measures import check
from .memory import ROW_BYTES
from .progress import Progress, begin
from .suite import QUICK_ROWS, TOO_SMALL, check_numbers, missed
from .tenth import Setting, Tenth, in_child
from .window_cases import WindowCase

NEAR = 1.1
"""Two times this close to each other are the same."""
TINY_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a join does when it is left to itself, and what it could have done."""

    case: Case
    auto: Tenth
    ways: dict[str, Tenth]

    @property
    def best(self) -> str:
        """The fastest way."""
        return min(self.ways, key=lambda way: self.ways[way].seconds)

    @property
    def times(self) -> float:
        """The time of the way that was taken as a multiple of the fastest; forced or not, it is the
        same work, so the better of both counts."""
        taken = min([self.auto.seconds, *self._taken_again])
        return taken / min(taken, self.ways[self.best].seconds)

    @property
    def _taken_again(self) -> list[float]:
        return [found.seconds for way, found in self.ways.items() if self.auto.way.startswith(way)]


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    check_numbers(args)
    rows = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    found = list(measure(cases_of(rows, args.seed), Setting(args.repeat, args.scratch)))
    if args.json:
        print(json.dumps([_as_json(row) for row in found], indent=2))
    else:
        print("\n".join([table(found), *[TOO_SMALL] * args.quick]))
    return 0


def cases_of(rows: int, seed: int = 0) -> list[tuple[Case, bool]]:
    """Layouts that suit different ways, and whether everything fits the memory."""
    keyed = Case("epsilon", rows, 10, keys=1_000, row_bytes=ROW_BYTES, seed=seed)
    plane = Case("bestmatch", rows, 10, row_bytes=ROW_BYTES, seed=seed)
    window = WindowCase("window", rows, 10, keys=1_000, row_bytes=ROW_BYTES, seed=seed)
    keyed_layouts = [replace(keyed, layout=layout) for layout in (SKEWED, HOT, SORTED)]
    # With few keys the window is short beside what fits the memory, so that slabs are possible.
    few_keys = replace(keyed, keys=10, layout=SORTED)
    others = [replace(case, layout=SORTED) for case in (plane, window)]
    narrow = replace(plane, matches=24, is_narrow=True)
    hot = replace(window, layout=HOT)
    tiny = keyed.of_rows(min(rows, TINY_ROWS))
    tight = [keyed, *keyed_layouts, few_keys, plane, narrow, window, hot, *others]
    return [(case, False) for case in tight] + [(case, True) for case in (keyed, plane, tiny)]


def measure(cases: list[tuple[Case, bool]], setting: Setting) -> Iterator[Chosen]:
    """Each case left to itself, and each way of it by force."""
    progress = Progress(len(cases))
    try:
        for number, (case, is_roomy) in enumerate(cases, 1):
            progress.say(number, f"{case.name}, {case.layout}")
            yield chosen(case, replace(setting, is_roomy=is_roomy))
    finally:
        progress.clear()


def chosen(case: Case, setting: Setting) -> Chosen:
    """One case."""
    auto = in_child(case, setting)
    forced = {way: in_child(case, replace(setting, way=way)) for way in WAYS}
    for way, found in forced.items():
        check(case, way, auto.rows_out, found.rows_out)
    return Chosen(
        case, auto, {way: found for way, found in forced.items() if found.way.startswith(way)}
    )


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def table(found: list[Chosen]) -> str:
    """Seconds of every way."""
    head = f"{'seconds by way':<28}{'layout':<15}{'rows a side':>12}"
    head += "".join(f"{way:>9}" for way in WAYS)
    head += f"{'auto':>9}  {'took':<14}{'fastest':<10}{'auto/fastest':>12}"
    right = sum(row.times <= NEAR for row in found)
    return "\n".join([
        head, "─" * len(head), *map(_line, found),
        f"auto took the fastest way, or one within {NEAR:g}× of it, in {right} of {len(found)}; "
        "! marks the others",
    ])  # fmt: skip


def _line(row: Chosen) -> str:
    layout = row.case.layout + ", fits" * (row.auto.budget_bytes > 2 * row.auto.data_bytes)
    ways = [f"{row.ways[way].seconds:.2f}" if way in row.ways else "–" for way in WAYS]
    return (
        f"{row.case.name:<28}{layout:<15}{row.case.rows:>12,}"
        + "".join(f"{seconds:>9}" for seconds in ways)
        + f"{row.auto.seconds:>9.2f}  {row.auto.way:<14}{row.best:<10}"
        f"{row.times:>11.2f}×{missed(row.times > NEAR)}"
    )


def _as_json(row: Chosen) -> dict[str, Any]:
    told = {"name": row.case.name, "took": row.auto.way, "best": row.best, "times": row.times}
    return {**told, **asdict(row)}


if __name__ == "__main__":
    sys.exit("run it as: matwin bench ways")
