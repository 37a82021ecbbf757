"""Whether a frame gives the same rows when it is read again, and what is done where it may not.

    plan of a frame ──▶ only plain files, ranges, local rows; only steps that keep a bag of rows;
                        only functions that are known ──▶ read it as often as you like
                   └──▶ anything else ──▶ it may differ: read it once, or pin what was read

Partial shipping and the best pairs of all read their sources more than once, and what they find in
one reading must be there in the next.  Spark promises that for no frame: `rand()`, a function that
is not pure, a limit, a row number among ties, a source that changes all give other rows each time.
What is known to be safe is listed here; whatever is not listed counts as what may differ.

The plan is the optimized one of just the columns that decide a match, as EXPLAIN writes it: a
random payload harms nobody.  No order of rows is promised by any step of the list, and none of its
functions asks for one.

To pin is `DataFrame.localCheckpoint`: the rows stay on the executors as they were read, until
nobody refers to the frame any more.  `persist` would not do, because what is lost is computed again
and may then be other rows; a checkpoint that is lost makes the job fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from .cut import quoted

STEPS = {
    "Project", "Filter", "Union", "Join", "Sort", "Repartition", "RepartitionByExpression",
}  # fmt: skip
"""Steps that make one bag of rows of one bag of rows."""
LEAVES = {"LocalRelation", "Range"}
FILES = re.compile(r"Relation .*\] (parquet|orc)")
FUNCTIONS = {
    "abs", "cast", "ceil", "coalesce", "concat", "date_add", "date_sub", "date_trunc", "floor",
    "greatest", "hour", "if", "isnan", "isnotnull", "isnull", "knownfloatingpointnormalized",
    "least", "length", "lower", "minute", "month", "normalizenanandzero", "pmod", "repeat",
    "round", "second", "substring", "timestamp_micros", "timestamp_millis", "timestamp_seconds",
    "to_date", "to_timestamp", "trim", "unix_date", "unix_micros", "unix_millis", "unix_seconds",
    "upper", "xxhash64", "year",
}  # fmt: skip
"""Functions of one row that give the same for the same; many more would do no harm."""
_CALL = re.compile(r"([^\s()\[\],]+)\(")
_STEP = re.compile(r"[\s:|+-]*(.*)")
_PLAN = re.compile(r"== Optimized Logical Plan ==\n(.*?)\n== Physical Plan ==", re.DOTALL)


def doubt_of(frame: DataFrame, columns: Sequence[str]) -> str | None:
    """What in a frame's plan may give other values in these columns next time; None if nothing."""
    narrow = frame.select(*(quoted(column) for column in columns))
    try:
        told = narrow.sparkSession.sql("EXPLAIN EXTENDED SELECT * FROM {given}", given=narrow)
        return doubt_in(told.collect()[0][0])
    except PySparkException as e:
        return f"its plan is not told ({e.getCondition() or type(e).__name__})"


def doubt_in(explained: str) -> str | None:
    """The same of a plan as EXPLAIN EXTENDED writes it.

    >>> plan = "== Optimized Logical Plan ==\\n{}\\n== Physical Plan ==\\n"
    >>> doubt_in(plan.format("Project [id#1L]\\n+- Relation [id#1L] parquet"))
    >>> doubt_in(plan.format("Project [rand(7) AS x#2]\\n+- Range (0, 10, step=1)"))
    'rand()'
    >>> doubt_in(plan.format("GlobalLimit 3\\n+- Relation [id#1L] parquet"))
    'GlobalLimit'
    """
    plan = _PLAN.search(explained)
    if plan is None:
        return "its plan is not told"
    return next(filter(None, map(_doubt_in_line, plan[1].splitlines())), None)


def _doubt_in_line(line: str) -> str | None:
    step = _STEP.fullmatch(line)
    text = step[1] if step else line
    if not text or FILES.fullmatch(text):
        return None
    name = text.split(maxsplit=1)[0]
    if name in LEAVES:
        return None
    if name not in STEPS:
        return name
    if "more fields" in text or text.endswith("..."):  # Spark cuts long lists; what is in there?
        return f"{name} of many columns"
    strange = (call for call in _CALL.findall(text) if call.lower() not in FUNCTIONS)
    return next((f"{call}()" for call in strange), None)


def pinned(frame: DataFrame) -> DataFrame:
    """The frame as it is read now; runs a job."""
    return frame.localCheckpoint()
