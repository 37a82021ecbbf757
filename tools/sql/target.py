"""Who runs the rest of a query: what the planner has to know of it.

DuckDB   "name"    abs of a length of time is a macro of ours    the result is described first
Spark    `name`    has it; has no as-of join                     a DataFrame knows its columns
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from .dialect import quoted
from .engine import ABS, describe

Describe = Callable[[str, Mapping[str, pa.Schema]], pa.Schema]
PREFIX = "__matwin_"


@dataclass(frozen=True, slots=True)
class Target:
    """An engine."""

    describe: Describe
    """The columns of a text whose tables have these."""
    quoted: Callable[[str], str]
    abs_name: str
    """What it calls the absolute value of a length of time."""
    prefix: str = PREFIX
    names_result: bool = True
    """Whether the names and types of the result are asked for beforehand."""
    has_asof: bool = True
    """Whether it runs as-of joins that are not for us."""
    has_cuts: bool = True
    """Whether a query may be run chunk by chunk."""


DUCKDB = Target(describe, quoted, ABS)
