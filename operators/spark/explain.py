"""What a join on Spark would do and why, as text; runs the job that looks at the data.

matwin.spark.epsilon_join
  left:     about 1,000,000 rows that can match, each in one part: it owns its matches
  right:    about 1,000,000 rows that can match, sent 1.01 times on average
  parts:    2: strips, cut by quantiles
            strip 0 of 2 (to below 5001343): about 1,004,000 rows
            …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from matwin.explained import labelled
from matwin.scheduler.division import Plan, expected
from matwin.storage.errors import InputError

from .asof import asof_join, prepare_asof
from .prepared import Prepared
from .shipping import Shipping, shipping_of
from .task import MEMORY
from .two_sided import bestmatch_join, epsilon_join, prepare_bestmatch, prepare_epsilon
from .windows import prepare_windows, window_join

SHOWN = 12
_PREPARE: dict[str, Callable[..., Prepared]] = {
    "asof_join": prepare_asof,
    "bestmatch_join": prepare_bestmatch, "epsilon_join": prepare_epsilon,
    "window_join": prepare_windows,
}  # fmt: skip


def explain(join: object, *sources: Any, **arguments: Any) -> str:
    """How the work of a join would be divided, what would be shipped, and why.

    `join` is `asof_join`, `bestmatch_join`, `epsilon_join` or `window_join`, or its name; the rest
    is what the join itself takes.
    """
    functions = (asof_join, bestmatch_join, epsilon_join, window_join)
    name = join.__name__ if join in functions else join
    if not isinstance(name, str) or name not in _PREPARE:
        raise InputError(f"explain({join!r}, ...): give one of {', '.join(_PREPARE)} first")
    return explained(_PREPARE[name](*sources, **arguments))


def explained(prepared: Prepared) -> str:
    """The text for a join that is asked for."""
    plan = _expected(prepared)
    lines = [prepared.operator]
    for side, rows in plan.rows.items():
        lines += labelled(side, [_side(prepared, plan, side, rows)])
    lines += labelled("parts", [f"{plan.parts}: {_reason(plan)}", *_parts(prepared, plan)])
    lines += labelled("copies", [_copies(plan)])
    for side in prepared.shaky:
        why = f"{side}, because it may differ when it is read again: {prepared.doubts[side]}"
        lines += labelled("pinned", [why])
    lines += labelled("ship", [_ship(shipping_of(prepared))])
    memory = prepared.options.embedded.get("memory", MEMORY)
    if prepared.exchange.order_type is not None:
        lines += labelled("sorted", ["by Spark" if plan.is_sorted else "by the tasks, in memory"])
    if prepared.exchange.order is not None:
        order = prepared.exchange.order
        lines += labelled("ties", [f"{order.side} rows in order of {', '.join(order.columns)}"])
    lines += labelled("memory", [f"{memory} for each task, scratch in the executor's local folder"])
    lines += labelled("output", [", ".join(prepared.output.names)])
    return "\n".join(lines)


def _expected(prepared: Prepared) -> Plan:
    """The plan with what is to be expected of it, also where strips were given."""
    plan = prepared.plan
    if plan.rows:
        return plan
    looked = prepared.looked
    return expected(plan.layout, plan.halos, looked.samples, looked.slots, plan.reason)


def _side(prepared: Prepared, plan: Plan, side: str, rows: float) -> str:
    halo = plan.halos[side]
    sent = float(plan.loads[side].sum())
    text = f"about {rows:,.0f} rows that can match"
    if halo.is_anchor:
        return f"{text}, each in one part: it owns its matches"
    return f"{text}, sent {sent / rows if rows else 1:.3g} times on average"


def _reason(plan: Plan) -> str:
    if not plan.layout.has_seen:
        return plan.reason
    return f"{plan.reason}; without a limit, the nearest rows beyond a bound go along"


def _copies(plan: Plan) -> str:
    total = plan.total
    largest, mean = float(total.max()), float(total.mean())
    return (
        f"replication factor {plan.replication:.3g}; the largest part has about {largest:,.0f} "
        f"rows, {largest / mean if mean else 1:.2g} times the mean; {plan.slots} tasks at a time"
    )


def _parts(prepared: Prepared, plan: Plan) -> Iterator[str]:
    """Each part with its rows, as many as fit."""
    total = plan.total
    for part, name in enumerate(prepared.part_names()[:SHOWN]):
        yield f"{name}: about {total[part]:,.0f} rows"
    if plan.parts > SHOWN:
        yield f"and {plan.parts - SHOWN} more, about {np.sum(total[SHOWN:]):,.0f} rows"


def _ship(shipping: Shipping) -> str:
    return f"{shipping.ship}: {shipping.reason}"
