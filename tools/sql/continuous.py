"""Continuous queries: what a plan with stream functions is run by."""

from __future__ import annotations

from matwin.storage.errors import InputError

from .nodes import Plan


def check_runnable(plan: Plan) -> None:
    """Refuse a query over cut streams, which runs epoch by epoch."""
    if plan.streams:
        shown = "; ".join(f"{spec.source}: {spec.shown}, keep {spec.keep}" for spec in plan.streams)
        raise InputError(
            f"a query over streams that are cut ({shown}) runs epoch by epoch; that needs "
            "matwin.continuous_query, which is not there yet"
        )
