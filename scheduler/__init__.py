"""The I/O scheduler: page numbers, reach, frames, schedules, and the walk over the pool.

It never touches a column value.  Planning is pure; only `walk` does I/O.
"""

from .choose import MODES, plan
from .fences import reach_of
from .reach import Reach
from .schedule import Move, PageAt, Schedule, Step
from .walk import Pair, Walk, frames_for

__all__ = [
    "MODES",
    "Move",
    "PageAt",
    "Pair",
    "Reach",
    "Schedule",
    "Step",
    "Walk",
    "frames_for",
    "plan",
    "reach_of",
]
