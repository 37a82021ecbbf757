"""The choice of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .board import graph_of
from .crabstep import crabstep
from .gallop import gallop
from .reach import Reach
from .schedule import Schedule, Stretch

MODES = ("gallop", "crabstep", "lookahead", "auto")
FRAMES_LEAST = 2


def plan(
    reach: Reach | Sequence[Any] | Any,
    *,
    frames: int,
    mode: str = "auto",
    right_pages: int | None = None,
    is_self: bool = False,
) -> Schedule:
    """draft"""
    if not isinstance(reach, Reach):
        reach = Reach.of(reach, right_pages=right_pages, is_self=is_self)
    graph = graph_of(reach)
    if mode == "gallop":
        nodes, victims = gallop(graph, reach.pairs, frames)
        return Schedule(reach, frames, mode, nodes, victims, (Stretch(0, "gallop", "asked for"),))
    nodes, victims, modes = crabstep(graph, reach.pairs, frames)
    changes = np.flatnonzero(np.diff(modes, prepend=-1))
    stretches = [Stretch(int(at), ("gallop", "crabstep")[modes[at]], "draft") for at in changes]
    return Schedule(reach, frames, mode, nodes, victims, tuple(stretches))
