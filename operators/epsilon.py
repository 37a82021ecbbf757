"""ε-joins: all pairs within the tolerances.

    how      directions                  what comes out
    inner    left → right, all           every pair
    left     left → right, all           every pair, and left rows without one
    right    right → left, all           every pair, and right rows without one
    full     left → right, all           every pair, and left rows without one;
             right → left, any           right rows without one
    semi     left → right, any           left rows with a pair
    anti     left → right, any           left rows without one

The driver, the windows and the walk are MatWin's own; an ε-join keeps nothing between visits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from matwin.directions import Direction, Means
from matwin.explained import explained
from matwin.hints import explains_words
from matwin.joining import Batches, Join
from matwin.matched import Matched
from matwin.options import JoinOptions, half_of, options_of
from matwin.ordered import in_left_order
from matwin.question import By, EpsilonHow, Question
from matwin.result import Result
from matwin.sources import two_sources
from matwin.storage.units import Tolerance


@explains_words
def epsilon_join(
    left: object,
    right: object,
    *,
    on: Mapping[Any, Tolerance],
    by: By = None,
    where: Mapping[Any, Any] | None = None,
    how: EpsilonHow = "inner",
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    ordered: bool = False,
    **options: Unpack[JoinOptions],
) -> Result:
    """All pairs of rows that are within the tolerance in every attribute.

    * `left`, `right`, `on`, `by`, `where`, `suffixes`, `distances`: as in `matwin.bestmatch_join`.
    * `how`: ``"inner"`` gives the pairs, ``"left"``, ``"right"`` and ``"full"`` also rows without
      one, ``"semi"`` only left rows that have a pair, ``"anti"`` only those that have none.
    * `ordered`: give the rows in the order of the left input, those without a left row last.
      Without it they come as they are found, by key and cell.
    * further options, such as `memory`: see `matwin.JoinOptions`.

    >>> import matwin, pyarrow as pa
    >>> trades = pa.table({"t": [10, 20], "price": [1.5, 1.6]})
    >>> quotes = pa.table({"t": [8, 12, 19], "bid": [1.4, 1.5, 1.5]})
    >>> matwin.epsilon_join(trades, quotes, on={"t": (-2, 0)}).read_all().to_pydict()["bid"]
    [1.4, 1.5]
    """
    ours, theirs = two_sources(left, right)
    question = Question.of(
        ours.schema, theirs.schema, on=on, by=by, where=where, how=how, best=False,
        suffixes=suffixes,
        distances=distances,
    )  # fmt: skip
    given = options_of("epsilon_join", options)
    own = half_of(given) if ordered else given
    join = Join(question, ours, theirs, own, row_numbers=ordered)
    join.is_ordered = ordered
    make = partial(_directions, join)
    found = join.run(make, keeps_rejected=_keeps_rejected(how))
    found = in_left_order(join, found, given, is_whole=how == "left")
    return join.result(found, partial(explained, join, make))


def _keeps_rejected(how: str) -> tuple[str, ...]:
    """The sides whose rows come out though they match nothing."""
    sides = {"left": ("left",), "anti": ("left",), "right": ("right",), "full": ("left", "right")}
    return sides.get(how, ())


def _directions(join: Join, means: Means) -> list[Direction]:
    how = join.question.how
    if how in ("semi", "anti"):
        finish = _semi(join) if how == "semi" else _anti(join, "left")
        return [join.direction(means, "left", "any", finish, wants_unmatched=how == "anti")]
    probe = "right" if how == "right" else "left"
    keeps = how != "inner"
    finish = join.pairs(probe, unmatched=keeps)
    pairs = join.direction(means, probe, "all", finish, wants_unmatched=keeps)
    if how != "full":
        return [pairs]
    lonely = join.direction(means, "right", "any", _anti(join, "right"), wants_unmatched=True)
    return [pairs, lonely]


def _anti(join: Join, side: str) -> Any:
    def finish(matched: Matched) -> Batches:
        return join.alone(side, matched.probe_rows, matched.unmatched)

    return finish


def _semi(join: Join) -> Any:
    def finish(matched: Matched) -> Batches:
        return join.alone("left", matched.probe_rows, matched.candidates.probe)

    return finish
