"""`matwin.spark.asof_join`: each left row with the nearest right row, on DataFrames.

    tolerance    strips with halos of the tolerance, or buckets of keys: as all joins of two sides
    none         no halo is wide enough, but only the nearest right row beyond a bound counts:

        strip    ──●───●─●──│─────●────▶   right rows from the last one that was seen before │ on
                         └──┼──▶ left rows that have none of their own in the strip

                 by keys: buckets; a frequent key has such strips for itself (`onekey.py`)

Left rows own their matches.  Which rows tie, and in what order they are: `order.py`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from matwin.asof import asof_question
from matwin.cutting import nearest_halos
from matwin.storage.errors import InputError
from matwin.storage.units import Tolerance

from .exchange import Order
from .options import SparkOptions
from .order import order_columns
from .prepared import Prepared
from .semijoin import shipped
from .sides import prepared_of, two_frames
from .work import Asof

_ASKED = (
    "on", "by", "tolerance", "direction", "allow_exact_matches", "ties", "how", "suffixes",
)  # fmt: skip


def asof_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | tuple[str, str],
    by: object = None,
    tolerance: Tolerance = None,
    direction: str = "backward",
    allow_exact_matches: bool = True,
    ties: str = "last",
    how: str = "left",
    order_by: object = None,
    suffixes: tuple[str, str] = ("", "_right"),
    strips: object = None,
    ship: str = "auto",
    **options: Any,
) -> DataFrame:
    """`matwin.asof_join` on Spark: DataFrames in, a DataFrame out that is not yet computed.

    Rows of a DataFrame have no order.  Of right rows with the same value, `ties` takes the
    ``"last"`` or the ``"first"`` by the columns of `order_by`, such as a sequence number, and then
    by all right columns as they stand: ascending, nulls first.  The result depends on the values
    of the rows alone.

    `strips`, `ship`, `memory` and `max_output_rows` are those of `matwin.spark.bestmatch_join`.
    """
    prepared = prepare_asof(
        left, right, on=on, by=by, tolerance=tolerance, direction=direction,
        allow_exact_matches=allow_exact_matches, ties=ties, how=how, order_by=order_by,
        suffixes=suffixes, strips=strips, ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def prepare_asof(
    left: object, right: object, *, order_by: object = None, strips: object = None,
    ship: str = "auto", **given: Any,
) -> Prepared:  # fmt: skip
    """The join as it is asked for; nothing has been looked at."""
    arguments = {name: given.pop(name) for name in _ASKED if name in given}
    if "on" not in arguments:
        raise TypeError('on= is missing; write for example on="t"')
    frames = two_frames(left, right)
    question = asof_question(frames["left"].schema, frames["right"].schema, **arguments)
    ties, order = arguments.get("ties", "last"), None
    if ties != "all":
        on, theirs = question.order.right, frames["right"]
        order = Order("right", order_columns(theirs, on, ties, order_by, may_name=True))
    elif order_by is not None:
        raise InputError("order_by= says which of several rows is taken; ties='all' takes them all")
    # Rows with the same value and keys match alike, so any of them asks for all.
    asked = {**arguments, "ties": "all", "how": "inner"}
    unlimited = {name: value for name, value in given.items() if name != "max_output_rows"}
    return prepared_of(
        "asof_join", frames, question,
        SparkOptions.of("matwin.spark.asof_join", strips, ship, given), arguments,
        lambda narrow: prepare_asof(
            narrow["left"], narrow["right"], ship="full", **asked, **unlimited
        ),
        Asof, strip=question.order, halos=nearest_halos(question.order), order=order,
    )  # fmt: skip
