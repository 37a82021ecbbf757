"""The best pairs of all, in two stages.

    parts ──▶ best pairs of each left row, with their scores ──────────────────────▶ kept if on it
       └────▶ scores that nothing in the part dominates ──one task──▶ the frontier ──broadcast──┘

A score is what the orders say of a pair: one number for each attribute, and one more for each
function.  A pair is among the best of all exactly when its scores are on the frontier of all pairs,
and the frontier is tiny however many pairs tie on it; only scores go through the second stage.
Spark shuffles the rows once and uses the exchange for both branches, where it can; it need not, so
what may differ when it is read again is pinned first.

Orders that give no number (`subset`, a black box) are judged in one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from matwin.candidates import key_columns, refined_columns
from matwin.full import has_black_boxes
from matwin.inner import best_scores, frontier_of_all, scored
from matwin.joining import Join
from matwin.options import options_of
from matwin.question import Question
from matwin.streams import Stream

from .cut import quoted
from .prepared import Prepared
from .ship import sent
from .task import Work, unique_name


def best_of_all(prepared: Prepared) -> DataFrame:
    """The pairs that no other pair dominates."""
    question: Question = prepared.question
    if has_black_boxes(question):
        return prepared.frame()  # in one part
    prepared = prepared.settled()  # the frontier must be that of the very pairs it is to judge
    names = _score_names(question, prepared.output)
    columns = [StructField(name, LongType(), False) for name in names]
    pairs = prepared.mapped(Scored(), StructType([*prepared.output.fields, *columns]))
    scores = prepared.mapped(PartFrontier(), StructType(columns))
    joined = Frontier(tuple(names), refined_columns(question))
    frontier = scores.repartition(1).mapInArrow(sent(joined), StructType(columns))
    best = {name: unique_name(f"best {name}", [*prepared.output.names, *names]) for name in names}
    right = frontier.withColumnsRenamed(best)
    equal = [F.col(quoted(name)) == F.col(quoted(other)) for name, other in best.items()]
    return pairs.join(F.broadcast(right), equal, "left_semi").drop(*names)


def _score_names(question: Question, output: StructType) -> list[str]:
    found: list[str] = []
    for number in range(key_columns(question)):
        found.append(unique_name(f"score {number}", [*output.names, *found]))
    return found


@dataclass(frozen=True)
class Scored(Work):
    """The best pairs of each left row, with their scores."""

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        return scored(_join(streams, arguments, options))


@dataclass(frozen=True)
class PartFrontier(Work):
    """The scores of a part that nothing in it dominates."""

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        found = frontier_of_all(_join(streams, arguments, options))
        if found is not None:
            yield _batch(found.keys)


@dataclass(frozen=True)
class Frontier:
    """The scores that nothing dominates, of all parts."""

    names: tuple[str, ...]
    refined: tuple[int, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch, or none where there is no pair."""
        best: Any = None
        for batch in batches:
            new = np.column_stack([column.to_numpy() for column in batch.columns])
            new = new if best is None else np.concatenate([best, new])
            best = best_scores(new, self.refined)
        if best is not None:
            yield pa.RecordBatch.from_arrays(_batch(best).columns, names=list(self.names))


def _join(streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]) -> Join:
    left, right = streams["left"], streams["right"]
    question = Question.of(left.schema, right.schema, best=True, **arguments)
    return Join(question, left, right, options_of("bestmatch_join", options))


def _batch(scores: Any) -> pa.RecordBatch:
    columns = [pa.array(np.ascontiguousarray(column)) for column in scores.T]
    return pa.RecordBatch.from_arrays(columns, names=[f"score {i}" for i in range(len(columns))])
