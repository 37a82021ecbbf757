"""`explain_join` and `explain_window_join`: what a join would do, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matwin.bestmatch import bestmatch_join

from .epsilon import epsilon_join
from .wjoin.join import window_join


def explain_join(left: object, right: object, *, best: bool = True, **arguments: Any) -> str:
    """What `bestmatch_join` (or, with ``best=False``, `epsilon_join`) would do with these."""
    join: Any = bestmatch_join if best else epsilon_join
    text: str = join(left, right, **arguments).explain()
    return text


def explain_window_join(streams: Mapping[str, object], **arguments: Any) -> str:
    """What `window_join` would do with these: the closed windows, the plan and why."""
    return window_join(streams, **arguments).explain()
