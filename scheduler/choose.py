"""The choice of a schedule: `plan`, and why.

    gallop      column by column                            the paper's, and its fallback
    crabstep    gallop that steps sideways when stuck       the paper's
    lookahead   any mix of pages in the frames              ours
    auto        the one of the three that reads least; the plainest of equals

Pure: numbers in, a schedule out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from matwin.storage.errors import InputError

from .board import Graph, frames_usable, graph_of, only_for_room
from .crabstep import CRABSTEP, crabstep
from .gallop import gallop
from .lookahead import lookahead
from .reach import Int32s, Reach, whole_number
from .schedule import Schedule, Stretch

MODES = ("gallop", "crabstep", "lookahead", "auto")
FRAMES_MIN = 2


def plan(
    reach: Reach | Sequence[Any] | npt.NDArray[Any],
    *,
    frames: int,
    mode: str = "auto",
    right_pages: int | None = None,
    is_self: bool = False,
) -> Schedule:
    """A schedule that visits every pair of pages within reach, in so many frames.

    `reach` has, for each left page, the interval ``(first, limit)`` of right pages that it can
    meet, or a list of such; `right_pages` says how many right pages there are when the last of them
    meet nothing.  In a self-join both sides are the same pages.

    >>> band = [(max(i - 2, 0), min(i + 3, 7)) for i in range(7)]
    >>> {mode: plan(band, frames=4, mode=mode).page_reads for mode in MODES}
    {'gallop': 30, 'crabstep': 21, 'lookahead': 16, 'auto': 16}
    """
    if mode not in MODES:
        raise InputError(f"mode={mode!r}: the modes are {', '.join(MODES)}")
    whole_number(frames, "frames")
    if frames < FRAMES_MIN:
        raise InputError(f"frames={frames}: a pair of pages needs at least {FRAMES_MIN} frames")
    if not isinstance(reach, Reach):
        reach = Reach.of(reach, right_pages=right_pages, is_self=is_self)
    elif is_self or right_pages is not None:
        raise InputError("a Reach knows itself whether it is a self-join and how many pages it has")
    return _PLANNERS[mode](reach, graph_of(reach), int(frames))


def _gallop(reach: Reach, graph: Graph, frames: int) -> Schedule:
    usable = frames_usable(graph, frames)
    nodes, victims = gallop(graph, usable)
    victims = only_for_room(nodes, victims, usable)
    stretch = Stretch(0, "gallop", "column by column")
    # In a self-join a page serves as column and as partner, and one load may complete columns.
    is_in_order = not reach.is_self
    return Schedule(reach, frames, "gallop", nodes, victims, (stretch,), is_in_order=is_in_order)


def _crabstep(reach: Reach, graph: Graph, frames: int) -> Schedule:
    usable = frames_usable(graph, frames)
    nodes, victims, modes = crabstep(graph, usable)
    victims = only_for_room(nodes, victims, usable)
    return Schedule(reach, frames, "crabstep", nodes, victims, _stretches(modes))


def _stretches(modes: Int32s) -> tuple[Stretch, ...]:
    """Where the mode changes."""
    changes = np.flatnonzero(np.diff(modes, prepend=-1)).tolist()
    reasons = {
        CRABSTEP: ("crabstep", "no frame is free and every page in one is still needed"),
        1 - CRABSTEP: ("gallop", "the pages held are done: on where it broke off"),
    }
    found = [Stretch(at, *reasons[int(modes[at])]) for at in changes]
    if found and found[0].mode == "gallop":
        found[0] = Stretch(0, "gallop", "column by column")
    return tuple(found)


def _lookahead(reach: Reach, graph: Graph, frames: int) -> Schedule:
    usable = frames_usable(graph, frames)
    (nodes, victims), search = lookahead(reach, graph, usable)
    victims = only_for_room(nodes, victims, usable)
    stretch = Stretch(0, "lookahead", f"found by {search}")
    return Schedule(reach, frames, "lookahead", nodes, victims, (stretch,), f"found by {search}")


def _auto(reach: Reach, graph: Graph, frames: int) -> Schedule:
    """Gallop where it reads every page once, else whatever reads least."""
    best = _gallop(reach, graph, frames)
    least = int((graph.degree > 0).sum())
    others = []
    if best.page_reads > least:
        others = [_crabstep(reach, graph, frames), _lookahead(reach, graph, frames)]
    counts = ", ".join(f"{s.mode} {s.page_reads}" for s in (best, *others))
    for schedule in others:
        best = schedule if schedule.page_reads < best.page_reads else best
    why = f"chosen among {counts}" if others else "gallop reads every page once"
    reason = f"{why}; {best.reason}" if best.reason else why
    return Schedule(
        reach, frames, best.mode, best.nodes, best.victims, best.stretches, reason,
        is_in_order=best.is_in_order,
    )  # fmt: skip


_PLANNERS = {"gallop": _gallop, "crabstep": _crabstep, "lookahead": _lookahead, "auto": _auto}
