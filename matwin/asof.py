"""As-of joins: each left row with the nearest right row before it, after it, or either.

    left    ──●─────●───────●──        backward: the last right row that is not after the left row
    right   ▲────▲─────▲▲──────        forward:  the first that is not before it
            └─◀──┘  ◀──┘◀───┘          nearest:  the nearer of both, the earlier where they tie

It is one pass over both sides in order of time (`asof_engine.py`): in memory where they fit, else
merged, and in steps for streams.

Every left row comes out once (`ties="all"` apart), in the order of the left input.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal, Unpack

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.units import Tolerance, in_units, shown

from .asof_engine import AsofJoin
from .attributes import Attribute, attributes_of
from .bounds import Strict, negative, nonzero
from .explained import explained
from .hints import explains_words
from .latest import Latest
from .options import JoinOptions, options_of
from .question import By, Question
from .result import Result
from .sources import two_sources

DIRECTIONS = ("backward", "forward", "nearest")
TIES = ("last", "first", "all")
HOWS = ("left", "inner")


@explains_words
def asof_join(
    left: object,
    right: object,
    *,
    on: str | tuple[str, str],
    by: By = None,
    tolerance: Tolerance = None,
    direction: Literal["backward", "forward", "nearest"] = "backward",
    allow_exact_matches: bool = True,
    ties: Literal["last", "first", "all"] = "last",
    how: Literal["left", "inner"] = "left",
    suffixes: tuple[str, str] = ("", "_right"),
    ordered: bool = True,
    **options: Unpack[JoinOptions],
) -> Result:
    """Each left row with the nearest right row before it, after it, or either.

    What `pandas.merge_asof` and Polars' `join_asof` do; neither input needs to be sorted or to fit
    the memory, and the result has the left rows in their order.

    * `on`: the column to be near in, a number or a time; a pair where it has two names.
    * `by`: columns that must be equal: a name, a pair ``(left, right)``, or a list of either.
    * `tolerance`: how far away a match may be, such as ``"5min"`` or ``10``; None is any distance.
    * `direction`: ``"backward"``, ``"forward"`` or ``"nearest"`` (one before if one after is as
      near).
    * `allow_exact_matches`: whether a right row with the same value is a match.
    * `ties`: of right rows with the same value the ``"last"`` in their order, the ``"first"``, or
      ``"all"``, which gives a left row several times; with ``"nearest"`` also those on the other
      side that are exactly as near.
    * `how`: ``"left"`` keeps left rows without a match, ``"inner"`` does not.
    * `suffixes`: what is added to names that both sides have.
    * `ordered`: False lets the rows of finite left streams that are not sorted leave in order of
      time.  Live ones leave as they become final, those of a step in the order in which they came.
    * further options, such as `memory`: see `matwin.JoinOptions`.

    Rows with a null, NaN or infinity in `on`, or a null in `by`, match nothing.

    >>> import matwin
    >>> trades = pa.table({"t": [3, 9, 12], "stock": ["a", "b", "a"]})
    >>> quotes = pa.table({"t": [1, 2, 10, 11], "stock": ["a", "b", "a", "a"], "bid": [5, 6, 7, 8]})
    >>> matwin.asof_join(trades, quotes, on="t", by="stock").to_arrow().to_pydict()["bid"]
    [5, 6, 8]
    >>> near = matwin.asof_join(trades, quotes, on="t", by="stock", tolerance=5)
    >>> near.to_arrow()["bid"].to_pylist()
    [5, None, 8]
    """
    ours, theirs = two_sources(left, right)
    question = asof_question(
        ours.schema, theirs.schema, on=on, by=by, tolerance=tolerance, direction=direction,
        allow_exact_matches=allow_exact_matches, ties=ties, how=how, suffixes=suffixes,
    )  # fmt: skip
    latest = Latest(direction, not allow_exact_matches, ties)
    join = AsofJoin(question, ours, theirs, options_of("asof_join", options), latest, ordered)
    found = join.run(join.directions, keeps_rejected=("left",) if how == "left" else ())
    return join.result(found, partial(explained, join, join.directions))


def asof_question(
    left: pa.Schema, right: pa.Schema, *, on: Any, by: object = None, tolerance: Any = None,
    direction: str = "backward", allow_exact_matches: bool = True, ties: str = "last",
    how: str = "left", suffixes: tuple[str, str] = ("", "_right"),
) -> Question:  # fmt: skip
    """What is asked: the best right rows of each left row, of which `ties` keeps one or all."""
    _one_of("direction", direction, DIRECTIONS)
    _one_of("ties", ties, TIES)
    _one_of("how", how, HOWS)
    if not isinstance(on, str | tuple):
        raise InputError(f"on={shown(on)}: an as-of join has one column; give its name, or a pair")
    # Asked with a bound: what is wrong with the column is not the order's fault, but its type's.
    far = _distance(tolerance, attributes_of(left, right, {on: 0})[0])
    limits = _limits(tolerance, far, direction, allows_exact=allow_exact_matches)
    return Question.of(
        left, right, on={on: limits}, by=by, how="left", best=True,
        keep_unmatched=how == "left", suffixes=suffixes,
    )  # fmt: skip


def _distance(tolerance: Any, compared: Attribute) -> int | float | None:
    """How far that is in the column's own unit; refuse what is not a distance, in the words in
    which it was given."""
    if isinstance(tolerance, tuple):
        raise InputError(f"tolerance={shown(tolerance)}: give one amount; direction= says the rest")
    if tolerance is None:
        return None
    column = pa.field(compared.name, compared.type)
    if (far := in_units(tolerance, column, rounding=math.floor)) < 0:
        raise InputError(
            f"tolerance={shown(tolerance)} is negative; it is a distance, so leave out the sign: "
            "direction= says on which side a match may be"
        )
    return far


def _limits(tolerance: Any, far: int | float | None, direction: str, *, allows_exact: bool) -> Any:
    """What the tolerance says of ``right - left``."""
    before = None if tolerance is None else negative(tolerance)
    if far == 0 and not allows_exact:  # no match, as pandas has it, rather than a mistake
        return nonzero((before, tolerance))
    if direction == "nearest":
        both = None if tolerance is None else (before, tolerance)
        return both if allows_exact else nonzero(both)
    if direction == "backward":
        return Strict(before, 0, (False, not allows_exact))
    return Strict(0, tolerance, (not allows_exact, False))


def _one_of(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{name}={given!r}; choose one of {', '.join(allowed)}")
